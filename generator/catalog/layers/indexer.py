"""An indexer beside attention (DSA): for each query it scores every earlier key, and attention
takes those with the highest scores.

It stands beside the attention that it chooses for, as a mixer of the same layer.

**Source**: DeepSeek-V3.2 (2512.02556) sec 2.1; transformers 5.23, DeepseekV32Indexer,
GlmMoeDsaIndexer.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ...dataclass import dataclass
from .mixer import Mixer, Product, Projection, Widths


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexer(Mixer):
    """Scores of few narrow heads; a `shared` one takes the choice of an earlier layer's indexer."""

    called: ClassVar[str] = "an indexer"
    is_sparse: ClassVar[bool] = True
    core_precision: ClassVar[str] = "fp32"
    core_trains: ClassVar[bool] = False  # transformers computes it under torch.no_grad

    hidden: int
    query_rank: int  #: width of the latent that its queries are made of
    heads: int
    head_dim: int
    top: int  #: keys that are chosen
    shared: bool = False
    pool: int = 0  #: keys that are scored as one (GLM-5-Next); 0: each by itself
    #: Its queries are of the hidden state, which it normalises and scales by place (Mistral Large).
    of_state: bool = False

    @property
    def widths(self) -> Widths:
        """0: no other layer takes its queries, keys or values."""
        return Widths(0, 0, 0)

    @property
    def projections(self) -> tuple[Projection, ...]:
        """Linear layers, with the names of transformers."""
        if self.shared:
            return ()
        return (
            Projection("wq_b", self.query_rank, self.heads * self.head_dim),
            Projection("wk", self.hidden, self.head_dim),
            Projection("weights_proj", self.hidden, self.heads),
        )

    def rank_parameters(self, tensor: Any) -> Any:
        """All of them: each tensor rank has the whole indexer."""
        return self.parameters + 0 * tensor

    def norm_parameters(self, each: int) -> int:
        """LayerNorms of its key, and of the hidden state, whatever the model's norms."""
        if self.shared:
            return 0
        return 2 * self.head_dim + (2 * self.hidden if self.of_state else 0)

    @property
    def other_parameters(self) -> int:
        """Two numbers for each head, which scale queries by position; the gate that weighs keys in
        their pool, and a bias for each place in a pool.
        """
        if self.shared:
            return 0
        pooled = (self.hidden + self.pool) * self.head_dim if self.pool else 0
        return pooled + (2 * self.heads if self.of_state else 0)

    @property
    def products(self) -> tuple[Product, ...]:
        """Queries, the key, a weight for each head, and the gate of its pool."""
        gate = (Product(self.hidden, self.head_dim),) if self.pool and not self.shared else ()
        return (*(Product(layer.inputs, layer.outputs) for layer in self.projections), *gate)

    def kept_elements(self, *, repeats_keys: bool, packs: bool) -> int:
        """None: it isn't trained."""
        return 0

    def kept_of_sequence(self, sequence: int) -> float:
        """The mask of what was chosen, in attention's type, which attention keeps.

        **Source**: transformers 5.23, DeepseekV32Attention, which hands SDPA a mask of a query's
        keys; torch 2.13, aten/src/ATen/native/transformers/attention.cpp (a mask of bools becomes
        one of the queries' type, and is saved).
        """
        return float(sequence)

    def core_flops(self, sequence: int) -> float:
        """FLOPs of its scores over all keys, and of their sums over heads.

        **Symbols**: 2 s H d + 2 s H, of pools of m keys s/m. **Source**: counted by torch's
        FlopCounterMode in DeepseekV32Attention, at 256 and 512 tokens: exactly this, beside
        attention over all keys; in Glm5NextTextIndexer too.
        """
        return 2.0 * self._scored(sequence) * self.heads * (self.head_dim + 1)

    def _scored(self, sequence: int) -> float:
        """Keys that are scored, or pools of them."""
        return 0.0 if self.shared else float(-(-sequence // max(self.pool, 1)))

    def core_elements(self, sequence: int) -> float:
        """Its fp32 scores: written by the product, scaled, cut at zero, and summed up."""
        return 12.0 * self._scored(sequence) * self.heads

    def state_elements(self, sequence: int) -> float:
        """Half of its scores before and after an operator, which are alive together."""
        return self._scored(sequence) * self.heads


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockIndexer(Indexer):
    """Scores of blocks of keys, each the greatest of its keys; each group of heads chooses blocks
    of its own (MiniMax-M3).

    **Source**: transformers 5.23, MiniMaxM3VLIndexer.
    """

    called: ClassVar[str] = "an indexer of blocks"

    query_rank: int = 0  #: none: its queries are made of the hidden state
    block: int  #: keys in one block
    attention_heads: int  #: of the attention beside it, each with a mask of its own

    @property
    def projections(self) -> tuple[Projection, ...]:
        """Linear layers, with the names of transformers."""
        return (
            Projection("q_proj", self.hidden, self.heads * self.head_dim),
            Projection("k_proj", self.hidden, self.head_dim),
        )

    def norm_parameters(self, each: int) -> int:
        """Norms of its queries and its key."""
        return 2 * each * self.head_dim

    def kept_of_sequence(self, sequence: int) -> float:
        """A mask of each head, in attention's type, which attention keeps."""
        return float(self.attention_heads * sequence)

    def core_flops(self, sequence: int) -> float:
        """FLOPs of its scores over all keys.

        **Symbols**: 2 s H d. **Source**: counted by torch's FlopCounterMode in MiniMaxM3VLIndexer:
        exactly this.
        """
        return 2.0 * sequence * self.heads * self.head_dim

    def core_elements(self, sequence: int) -> float:
        """Its fp32 scores: written by the product, masked, and read for each block's greatest; and
        twelve bytes for each score of attention, of which bools and then numbers make the mask.
        """
        return 8.0 * sequence * self.heads + 6.0 * sequence * self.attention_heads

    def state_elements(self, sequence: int) -> float:
        """Its scores before and after they are masked, or the mask before it is filled, with its
        bools: three bytes of each score of attention.
        """
        return max(self.heads, 0.75 * self.attention_heads) * sequence
