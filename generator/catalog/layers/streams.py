"""Hyper-connections: the hidden state is several streams, and each part of a layer reads a mixture
of them and adds what it returns to each.

**Source**: Hyper-Connections (2409.19606); transformers 5.23, DeepseekV4HyperConnection and
Glm5NextTextHyperConnection, whose streams are mixed by doubly stochastic matrices, and
HYV4HyperConnection.
"""

from __future__ import annotations

from typing import ClassVar, Final

from ...dataclass import dataclass

#: Casts, norm, product, gates, mixture and sums. Counted in DeepseekV4HyperConnection.forward.
_OPERATORS: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """The streams of a model.

    Parameters (the head's apart), elements, FLOPs and operators are those of one part of a layer, a
    mixer or a feed-forward; elements and FLOPs are those of one token.
    """

    called: ClassVar[str] = "hyper-connections"
    precision: ClassVar[str] = "fp32"  #: of the product that makes the mixing weights

    hidden: int
    count: int
    #: steps that make the matrix between streams doubly stochastic (Sinkhorn-Knopp); 0: no stream
    #: is mixed with another (Hy4)
    iterations: int = 0
    learned_head: bool = True  #: whether what collapses the streams at the end is learned

    @property
    def width(self) -> int:
        """Elements of all streams: what one layer hands to the next."""
        return self.count * self.hidden

    def mixings(self, parts: int) -> int:
        """How many times a layer of so many parts mixes the streams: here once for each part."""
        return parts

    @property
    def mixing_weights(self) -> int:
        """Numbers that mix the streams, computed for each token: what a part reads of each, what it
        adds to each, and, where streams are mixed with one another, a matrix.
        """
        return self.count * (2 + (self.count if self.iterations else 0))

    @property
    def parameters(self) -> int:
        """The product that makes the mixing weights of all streams, their biases, and a scale for
        each kind of weight.
        """
        return self.mixing_weights * (self.width + 1) + (3 if self.iterations else 2)

    @property
    def head_parameters(self) -> int:
        """Those of the mixture that the final norm takes."""
        return self.count * (self.width + 1) + 1 if self.learned_head else 0

    @property
    def kept_elements(self) -> int:
        """Elements of two bytes that transformers' code keeps for the backward pass, beside the
        mixture that the part's norm takes.

        The streams, an fp32 copy of them, and a normalised fp32 copy; Hy4 has no such second copy,
        for it normalises the product with the first. Then the mixing weights before and after each
        step, and what the part returned. **Source**: counted with autograd's saved-tensor hooks in
        DeepseekV4HyperConnection and HYV4HyperConnection, and in the sums of their layers: exactly
        this.
        """
        n, steps = self.count, self.iterations
        gates = 2 + 2 * self.mixing_weights + 6 * n
        if not steps:
            return 3 * self.width + gates + 4 * n + 2 * n + 2 * self.hidden
        sinkhorn = 2 * n * (2 * steps - 1) + 4 * n * n * steps
        return 5 * self.width + gates + sinkhorn + n + n * n + self.hidden

    @property
    def mixing_flops(self) -> float:
        """FLOPs of the product of the streams with their matrix, forward."""
        return 2.0 * self.count * self.width if self.iterations else 0.0

    @property
    def moved_elements(self) -> int:
        """Elements of two bytes that operators read and write of the streams, forward.

        Bytes for each element of the streams: an fp32 copy 6; its square 8, their mean 4, the
        normalised copy 8 and the product with it 4; the mixture 10; what the part adds 2, the
        product of streams 4, the sum 6. Without a matrix, the norm is 8 less and what is added is
        in fp32: 28 instead of 12.
        """
        bytes_for_each = 52 if self.iterations else 60
        return bytes_for_each // 2 * self.width

    @property
    def kernels(self) -> int:
        """Operators that the host launches, forward: two sums, additions and quotients a step, and
        those of the rest.
        """
        return _OPERATORS + 6 * self.iterations
