"""Lightning attention (MiniMax-Text-01, MiniMax-M1, Ring-linear): linear attention whose state
decays at a constant rate for each head.

**Source**: Lightning Attention-2 (2401.04658); transformers 5.23, MiniMaxLightningAttention.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ...dataclass import dataclass
from .mixer import Mixer, Product, Projection, Widths


@dataclass(frozen=True, slots=True, kw_only=True)
class Lightning(Mixer):
    """Linear attention by blocks of tokens, its output normalised and gated."""

    called: ClassVar[str] = "lightning attention"
    has_state: ClassVar[bool] = True

    hidden: int
    heads: int
    head_dim: int
    block: int = 256  #: tokens of a block

    @property
    def _inner(self) -> int:
        """Width of all heads."""
        return self.heads * self.head_dim

    @property
    def widths(self) -> Widths:
        """Widths of queries, keys and output."""
        return Widths(queries=self._inner, keys=self._inner, values=self._inner)

    @property
    def projections(self) -> tuple[Projection, ...]:
        """Linear layers, with the names of transformers: queries, keys and values at once, the
        output's gate, and the output.
        """
        return (
            Projection("qkv_proj", self.hidden, 3 * self._inner),
            Projection("output_gate", self.hidden, self._inner),
            Projection("out_proj", self._inner, self.hidden),
        )

    def norm_parameters(self, each: int) -> int:
        """The output's norm over all heads, an RMSNorm."""
        return self._inner

    @property
    def products(self) -> tuple[Product, ...]:
        """Queries, keys, values and the gate, and the output."""
        return (
            Product(self.hidden, 4 * self._inner, cut="outputs"),
            Product(self._inner, self.hidden, cut="inputs"),
        )

    def kept_elements(self, *, repeats_keys: bool, packs: bool) -> int:
        """What transformers' code keeps of each token: 14 widths of all heads, its row of a block's
        weights, its share of the block's state, and the norm's factor, in fp32 as wide as two
        elements.

        **Source**: counted with autograd's saved-tensor hooks in MiniMaxLightningAttention:
        exactly this, but for a decay of each head and block.
        """
        row = self.block * self.heads
        state = self._inner * self.head_dim // self.block
        return 14 * self._inner + row + state + 2

    def core_flops(self, sequence: int) -> float:
        """FLOPs of four products: within a block, queries with keys and their weights with values;
        between blocks, queries with the state and keys with values.

        **Symbols**: H d (4 B + 4 d). **Source**: counted by torch's FlopCounterMode in
        MiniMaxLightningAttention: exactly this.
        """
        return 4.0 * self._inner * (self.block + self.head_dim)

    def state_elements(self, sequence: int) -> float:
        """A state of each head for every block."""
        return self._inner * self.head_dim / self.block

    def core_elements(self, sequence: int) -> float:
        """Three widths that the activation reads and three that it writes, six for products and
        decays, two rows of a block's weights written and read, and the states.
        """
        widths = (3 + 3 + 6) * self._inner
        rows = 4 * self.block * self.heads
        return widths + rows + 4 * self.state_elements(sequence)

    @property
    def tensor_cuts(self) -> Mapping[str, int]:
        """The heads: each is on one rank."""
        return {"lightning heads": self.heads}

    @property
    def context_cuts(self) -> Mapping[str, int]:
        """The heads: each is on one rank."""
        return self.tensor_cuts

    @property
    def exchanged_heads(self) -> tuple[int, int]:
        """All heads of queries, and as many of keys and values."""
        return self.heads, self.heads


@dataclass(frozen=True, slots=True, kw_only=True)
class NormalisedLightning(Lightning):
    """Lightning attention of Ring-linear: queries and keys of each head are normalised, and the
    kernels are those of flash-linear-attention, by chunks of 64 tokens.

    **Source**: mlx-lm 0.32, bailing_moe_linear.py. What it keeps is counted as in MiniMax's code.
    """

    kernels: ClassVar[tuple[str, ...]] = ("flash-linear-attention",)

    block: int = 64

    def norm_parameters(self, each: int) -> int:
        """The output's norm, and one of queries and one of keys, shared by heads."""
        return self._inner + 2 * self.head_dim
