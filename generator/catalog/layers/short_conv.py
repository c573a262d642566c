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
        """What it takes, and what it makes, is as wide as the hidden state; it has no keys."""
        return Widths(queries=self.hidden, keys=0, values=self.hidden)

    @property
    def projections(self) -> tuple[Projection, ...]:
        """Linear layers, with the names of transformers."""
        return (
            Projection("in_proj", self.hidden, self._inputs, bias=self.bias),
            Projection("out_proj", self.hidden, self.hidden, bias=self.bias),
        )

    @property
    def _inputs(self) -> int:
        """Width of two gates and of what is convolved."""
        return 3 * self.hidden

    @property
    def other_parameters(self) -> int:
        """Those of the convolution."""
        return conv_parameters(self.hidden, self.kernel, bias=self.bias)

    @property
    def products(self) -> tuple[Product, ...]:
        """Both gates and what is convolved at once, and the output."""
        return (
            Product(self.hidden, self._inputs, cut="outputs"),
            Product(self.hidden, self.hidden, cut="inputs"),
        )

    def kept_elements(self, *, repeats_keys: bool, packs: bool) -> int:
        """The gates and what is convolved, the convolution's gated input and its output, and this
        gated.

        **Source**: counted with autograd's saved-tensor hooks in Lfm2ShortConv: exactly this.
        """
        return self._inputs + 3 * self.hidden

    def core_flops(self, sequence: int) -> float:
        """FLOPs of the convolution: a multiplication and an addition for each of its weights."""
        return 2.0 * self.hidden * self.kernel

    def core_elements(self, sequence: int) -> float:
        """Elements read and written: each of two gates reads two and writes one, the convolution
        reads one and writes one.
        """
        return (2 * 3 + 2) * self.hidden

    @property
    def tensor_cuts(self) -> Mapping[str, int]:
        """The channels, each of which is convolved by itself."""
        return {"convolved channels": self.hidden}
