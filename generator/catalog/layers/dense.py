"""The dense MLP, plain (GPT) or gated (Llama)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ...dataclass import dataclass
from .feed_forward import FeedForward, mlp_parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Dense(FeedForward):
    """An MLP that every token meets."""

    called: ClassVar[str] = "dense MLPs"

    hidden: int
    width: int
    gated: bool
    activation: str = "gelu"
    bias: bool = False
    clamp: float | None = None
    inner_norm: bool = False  #: of the input of the second product (BitNet)
    vectors: int = 0  #: learned elements in no projection (xIELU's two)

    @property
    def modules(self) -> tuple[str, ...]:
        """All of it."""
        return ("mlp",)

    @property
    def whole_parameters(self) -> int:
        """Two or three matrices, their biases, and what is learned beside them."""
        matrices = mlp_parameters(self.hidden, self.width, gated=self.gated, bias=self.bias)
        return matrices + (self.width if self.inner_norm else 0) + self.vectors

    @property
    def tensor_cuts(self) -> Mapping[str, int]:
        """Its width."""
        return {"feed-forward size": self.width}
