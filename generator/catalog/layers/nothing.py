"""What stands in the place of a mixer, or of a feed-forward, in a layer that has one of them alone
(Nemotron-H, Mamba).
"""

from __future__ import annotations

from typing import Any, ClassVar

from ...dataclass import dataclass
from .feed_forward import FeedForward
from .mixer import Mixer, Product, Projection, Widths


@dataclass(frozen=True, slots=True, kw_only=True)
class NoMixer(Mixer):
    """No mixer: each token is by itself."""

    called: ClassVar[str] = "layers without attention"

    hidden: int

    @property
    def parts(self) -> tuple[Mixer, ...]:
        """None."""
        return ()

    @property
    def widths(self) -> Widths:
        """None."""
        return Widths(0, 0, 0)

    @property
    def projections(self) -> tuple[Projection, ...]:
        """None."""
        return ()

    @property
    def products(self) -> tuple[Product, ...]:
        """None."""
        return ()

    def kept_elements(self, *, repeats_keys: bool, packs: bool) -> int:
        """None."""
        return 0

    def core_flops(self, sequence: int) -> float:
        """None."""
        return 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NoFeedForward(FeedForward):
    """No feed-forward."""

    called: ClassVar[str] = "layers without an MLP"

    hidden: int
    width: int = 0
    gated: bool = False
    activation: str = "silu"
    bias: bool = False
    clamp: float | None = None

    @property
    def whole_parameters(self) -> int:
        """None."""
        return 0

    def products(self, width: Any, hidden: int | None = None) -> tuple[Product, ...]:
        """None."""
        return ()
