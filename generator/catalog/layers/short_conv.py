"""A gated short convolution along the sequence (LFM2).

**Source**: transformers 5.23, Lfm2ShortConv, Lfm3ShortConv.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ...dataclass import dataclass
from .mixer import Mixer, Product, Projection, Widths, conv_parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortConv(Mixer):
    """A convolution over a few tokens, its input and its output gated."""

    called: ClassVar[str] = "short convolutions"
    has_state: ClassVar[bool] = True

    hidden: int
    kernel: int
    bias: bool = False

    @property
    def widths(self) -> Widths:
        """What it takes, and what it makes, is as wide as the hidden state."""
        return Widths(self.hidden, 0, self.hidden)

    @property
    def projections(self) -> tuple[Projection, ...]:
        """Linear layers, with the names of transformers: two gates and what is convolved, and the
        output.
        """
        return (
            Projection("in_proj", self.hidden, 3 * self.hidden, self.bias),
            Projection("out_proj", self.hidden, self.hidden, self.bias),
        )

    @property
    def other_parameters(self) -> int:
        """The convolution's."""
        return conv_parameters(self.hidden, self.kernel, bias=self.bias)

    @property
    def products(self) -> tuple[Product, ...]:
        """Both gates and what is convolved at once, and the output."""
        return (
            Product(self.hidden, 3 * self.hidden, "outputs"),
            Product(self.hidden, self.hidden, "inputs"),
        )

    def kept_elements(self, *, repeats_keys: bool, packs: bool) -> int:
        """Both gates and what is convolved, this gated, the convolution's output, and this gated.

        **Source**: counted with autograd's saved-tensor hooks in Lfm2ShortConv: exactly this.
        """
        return 6 * self.hidden

    def core_flops(self, sequence: int) -> float:
        """FLOPs of the convolution."""
        return 2.0 * self.hidden * self.kernel

    def core_elements(self, sequence: int) -> float:
        """Two gates, each two elements read and one written, and the convolution."""
        return 8 * self.hidden

    @property
    def tensor_cuts(self) -> Mapping[str, int]:
        """Channels."""
        return {"convolved channels": self.hidden}
