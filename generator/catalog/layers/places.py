"""What a place has of its own beside a block whose weights it shares with other places: adapters of
the block's products, and a product of its output (Zamba).

**Source**: Zamba (2405.16712), Zamba2 (2411.15242); transformers 5.23, Zamba2Attention, Zamba2MLP,
Zamba2HybridLayer.
"""

from __future__ import annotations

from typing import ClassVar

from ...dataclass import dataclass
from .mixer import Mixer, Product, Projection, Widths


@dataclass(frozen=True, slots=True, kw_only=True)
class OfPlace(Mixer):
    """The products of one place. It is no mixer of tokens, but stands beside those of its layer."""

    called: ClassVar[str] = "blocks whose weights several layers share"

    hidden: int
    inputs: int  #: width of what the block's attention takes
    rank: int = 0  #: of the adapters; 0: there are none
    #: whether queries, keys and values have adapters, each as wide as what it takes
    attention: bool = False
    outputs: int = 0  #: of the MLP's first product, which has an adapter too

    @property
    def widths(self) -> Widths:
        """None: it has no core."""
        return Widths(0, 0, 0)

    @property
    def _adapters(self) -> tuple[tuple[int, int], ...]:
        """Widths that each adapter takes and gives."""
        of_attention = ((self.inputs, self.inputs),) * (3 if self.attention else 0)
        return (*of_attention, (self.hidden, self.outputs)) if self.rank else ()

    @property
    def projections(self) -> tuple[Projection, ...]:
        """Linear layers, with the names of transformers: those of an adapter have a number each."""
        pairs = (
            (Projection("0", taken, self.rank), Projection("1", self.rank, given))
            for taken, given in self._adapters
        )
        behind = Projection("linear", self.hidden, self.hidden)
        return (*(each for pair in pairs for each in pair), behind)

    @property
    def products(self) -> tuple[Product, ...]:
        """Each adapter's, and that of the block's output."""
        return tuple(Product(each.inputs, each.outputs) for each in self.projections)

    def kept_elements(self, *, repeats_keys: bool, packs: bool) -> int:
        """What each adapter has between its products, and the block's output."""
        return len(self._adapters) * self.rank + self.hidden

    def core_flops(self, sequence: int) -> float:
        """None: it has no core."""
        return 0.0

    @property
    def exchanged_heads(self) -> tuple[int, int]:
        """None."""
        return 0, 0
