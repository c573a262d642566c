"""Real-gated linear recurrent unit (RG-LRU, RecurrentGemma): a state of each channel, behind a
short convolution, whose decay and input have gates of blocks of channels.

**Source**: Griffin (2402.19427); transformers 5.23, RecurrentGemmaRecurrentBlock.
"""

from __future__ import annotations

from typing import ClassVar

from ...dataclass import dataclass
from .mixer import Mixer, Product, Projection, Widths, conv_parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrent(Mixer):
    """A gated recurrence of each channel, its output multiplied with a second branch."""

    called: ClassVar[str] = "recurrent layers (RG-LRU)"
    has_state: ClassVar[bool] = True
    # Three casts, product, sum and copy; backward, of each cast, choice of a token and sum as many,
    # and a whole gradient's copy. Counted with torch's dispatch in RecurrentGemmaRglru.
    stepwise: ClassVar[tuple[int, int]] = (6, 16)

    hidden: int
    width: int
    blocks: int  #: of channels, each with gates of its own
    kernel: int = 4

    @property
    def _block(self) -> int:
        """Channels of a block."""
        return self.width // self.blocks

    @property
    def widths(self) -> Widths:
        """The inner width is what it takes, and what it makes."""
        return Widths(self.width, 0, self.width)

    @property
    def projections(self) -> tuple[Projection, ...]:
        """Linear layers, with the names of transformers."""
        return (
            Projection("linear_y", self.hidden, self.width, True),
            Projection("linear_x", self.hidden, self.width, True),
            Projection("linear_out", self.width, self.hidden, True),
        )

    @property
    def other_parameters(self) -> int:
        """The convolution's, both gates' with biases, and a decay of each channel."""
        gates = 2 * self.blocks * (self._block + 1) * self._block
        return conv_parameters(self.width, self.kernel, bias=True) + gates + self.width

    @property
    def products(self) -> tuple[Product, ...]:
        """Both branches, both gates block by block, and the output."""
        return (
            Product(self.hidden, 2 * self.width, "outputs"),
            Product(self._block, 2 * self.width, "outputs"),
            Product(self.width, self.hidden, "inputs"),
        )

    def kept_elements(self, *, repeats_keys: bool, packs: bool) -> int:
        """What transformers' code keeps of each token: 18 inner widths, of which the recurrence's
        fp32 decays, states and inputs are most, and two masks of beginnings.

        **Source**: counted with autograd's saved-tensor hooks in RecurrentGemmaRecurrentBlock:
        exactly this.
        """
        return 18 * self.width + 1

    def core_flops(self, sequence: int) -> float:
        """FLOPs of the convolution, and of the recurrence: two for the state, and some ten for
        decay and input.
        """
        return float(self.width * (2 * self.kernel + 12))

    def core_elements(self, sequence: int) -> float:
        """What some 18 kernels read and write, each two or three widths, and six for each token."""
        return 60.0 * self.width

    def backward_elements(self, sequence: int) -> float:
        """Twice as many, and ten widths of the whole sequence for each token: the gradients of all
        tokens are made anew for the choice of each (two zeroed, two summed, one copied).
        """
        return 2 * self.core_elements(sequence) + 10.0 * self.width * sequence
