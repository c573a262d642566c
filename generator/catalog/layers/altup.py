"""Alternating updates (Gemma 3n): the hidden state is several streams, of which a layer predicts
all, computes one, and corrects all by what that became.

Beside it stand a low-rank product around attention (LAuReL) and the layer's own embedding.

**Source**: AltUp (2301.13310), LAuReL (2411.07501); transformers 5.23, Gemma3nTextAltUp,
Gemma3nTextLaurelBlock, Gemma3nTextDecoderLayer.
"""

from __future__ import annotations

from typing import ClassVar, Final

from ...dataclass import dataclass
from .streams import Streams


@dataclass(frozen=True, slots=True, kw_only=True)
class AltUp(Streams):
    """Streams that a layer updates once. All but the head's is of one layer and one token."""

    called: ClassVar[str] = "alternating updates (AltUp)"
    precision: ClassVar[str] = "bf16"

    rank: int  #: of the product beside attention
    inputs: int  #: width of the layer's own embedding

    def mixings(self, parts: int) -> int:
        """Once in a layer."""
        return 1

    @property
    def parameters(self) -> int:
        """A router of the streams, matrices that predict and correct them, a scale; products of low
        rank, and those around the layer's own embedding.
        """
        n = self.count
        mixed = self.hidden * n + n**3 + n**2 + self.hidden
        return mixed + 2 * self.hidden * (self.rank + self.inputs)

    @property
    def head_parameters(self) -> int:
        """Products that make the streams of the embedding, and that end them."""
        return 2 * (self.count - 1) * self.hidden**2

    @property
    def kept_elements(self) -> int:
        """Elements of two bytes that transformers' code keeps of a layer beside attention, its MLP,
        and norms as other models have them.

        **Source**: counted with autograd's saved-tensor hooks in Gemma3nTextDecoderLayer: exactly
        this. Norms keep one width more than Llama's, of their result in fp32.
        """
        n = self.count
        streams = (2 * n + 15) * self.hidden + n * n + 7 * n
        return streams + self.rank + 4 * self.inputs + 32

    @property
    def mixing_flops(self) -> float:
        """FLOPs of the product of the streams with the matrix that predicts them, forward."""
        return 2.0 * self.count * self.width

    @property
    def moved_elements(self) -> int:
        """Elements of two bytes that operators read and write of the streams, forward: of all, the
        product, two sums, copies and a product; of one, two norms in fp32.
        """
        return 16 * self.width + 36 * self.hidden

    @property
    def kernels(self) -> int:
        """Operators that the host launches, forward."""
        return _OPERATORS


#: Of both updates, the product of low rank and the layer's embedding. Counted with torch's dispatch
#: in Gemma3nTextDecoderLayer, without attention, the MLP and their norms.
_OPERATORS: Final = 74
