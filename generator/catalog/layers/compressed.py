"""Attention to nearby keys and to compressed ones (DeepSeek-V4): keys are values, and one serves
all heads.

Of every so many tokens a gated sum makes one compressed key: of many tokens (HCA), all of which a
query meets, or of few that overlap (CSA), of which an indexer chooses.

**Source**: transformers 5.23, DeepseekV4Attention, DeepseekV4HCACompressor,
DeepseekV4CSACompressor, DeepseekV4Indexer. They have no other implementation than `eager`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ...dataclass import dataclass
from .indexer import Indexer
from .mixer import Mixer, Product, Projection, Widths
from .softmax import Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Compressed(Mixer):
    """Attention of many heads with one key, whose output is projected by groups of heads."""

    called: ClassVar[str] = "attention to compressed keys"
    is_sparse: ClassVar[bool] = True

    hidden: int
    heads: int
    head_dim: int
    query_rank: int  #: width of the latent that queries are made of
    groups: int  #: of heads, whose outputs are projected each by itself
    group_rank: int  #: width of what one group is projected to
    window: int  #: tokens of local attention
    rotated: int = 0  #: elements of a head that are rotated
    rate: int = 0  #: tokens that one compressed key is made of; 0: there are none
    overlaps: bool = False  #: each token is part of two compressed keys
    top: int = 0  #: compressed keys that an indexer chooses; 0: all
    rotary: bool = True

    @property
    def series(self) -> int:
        """Series of states that are compressed: two where they overlap."""
        if not self.rate:
            return 0
        return 2 if self.overlaps else 1

    @property
    def widths(self) -> Widths:
        """Widths of queries, of the key, and of the output."""
        queries = self.heads * self.head_dim
        return Widths(queries, self.head_dim, queries)

    @property
    def projections(self) -> tuple[Projection, ...]:
        """Linear layers, with the names of transformers; the grouped one is no plain one."""
        queries, key, _ = self.widths
        made = self.series * key
        compressor = (
            Projection("kv_proj", self.hidden, made),
            Projection("gate_proj", self.hidden, made),
        )
        return (
            Projection("q_a_proj", self.hidden, self.query_rank),
            Projection("q_b_proj", self.query_rank, queries),
            Projection("kv_proj", self.hidden, key),
            Projection("o_b_proj", self.groups * self.group_rank, self.hidden),
            *(compressor if self.rate else ()),
        )

    @property
    def other_parameters(self) -> int:
        """The grouped projection, a sink for each head, and a bias for each place in a compressed
        key.
        """
        places = self.rate * self.series * self.head_dim
        return self.widths.values * self.group_rank + self.heads + places

    def rank_parameters(self, tensor: Any) -> Any:
        """All of them: no tensor ranks share such attention."""
        return self.parameters + 0 * tensor

    def norm_parameters(self, each: int) -> int:
        """Norms of the latent, of the key, and of the compressed keys."""
        return self.query_rank + self.head_dim * (2 if self.rate else 1)

    @property
    def products(self) -> tuple[Product, ...]:
        """The latent, the key and what is compressed of it, and the output."""
        down = self.query_rank + self.head_dim * (1 + 2 * self.series)
        return Product(self.hidden, down), Product(self.groups * self.group_rank, self.hidden)

    @property
    def latent_products(self) -> tuple[Product, ...]:
        """From the latent to queries, and from heads to groups."""
        values = self.widths.values
        return Product(self.query_rank, values), Product(values, self.group_rank)

    def kept_elements(self, *, repeats_keys: bool, packs: bool) -> int:
        """What transformers' code keeps of each token, but for its scores.

        The latent and the key five times (in fp32, normalised in fp32, and as they are used), the
        queries four times, the output and its groups, seven elements of each head, angles. Of what
        is compressed, both series and their weights, those in fp32 too, and each compressed key
        five times. **Source**: counted with autograd's saved-tensor hooks in DeepseekV4Attention:
        exactly this.
        """
        queries, key, values = self.widths
        kept = 5 * self.query_rank + 5 * key + 4 * queries + values
        kept += self.groups * self.group_rank + 7 * self.heads + 6 * self.rotated + 4
        if not self.rate:
            return kept
        each = 5 * key + 2 * self.rotated + 2
        summed = (8 if self.overlaps else 4) * key
        return kept + summed + each // self.rate

    def keys(self, sequence: int) -> float:
        """Keys that a query meets, in the mean over positions: nearby ones, and the compressed ones
        before it, or as many of these as an indexer chooses.
        """
        near = Span(window=self.window).keys(sequence)
        if not self.rate:
            return near
        reach = self.top * self.rate or None
        return near + Span(window=reach).keys(sequence) / self.rate

    def computed_keys(self, sequence: int) -> float:
        """Keys that a query is multiplied with: all, masked or not."""
        return sequence + (sequence // self.rate if self.rate else 0)

    def kept_of_sequence(self, sequence: int) -> float:
        """A probability of each head for each key, and for its sink."""
        return self.heads * (self.computed_keys(sequence) + 1)

    def core_flops(self, sequence: int) -> float:
        """FLOPs of scores and of their product with the values, of keys that a query meets."""
        return 4.0 * self.widths.queries * self.keys(sequence)

    def computed_flops(self, sequence: int) -> float:
        """FLOPs that are computed, of all keys.

        **Symbols**: 4 H d (s + s/m). **Source**: counted by torch's FlopCounterMode in
        DeepseekV4Attention: exactly this, beside the grouped projection.
        """
        return 4.0 * self.widths.queries * self.computed_keys(sequence)

    def core_elements(self, sequence: int) -> float:
        """Thirteen elements for each score: written by the product, scaled, masked, joined with the
        sink, the greatest found and taken off, the softmax, the product; and queries and output.
        """
        queries, _, values = self.widths
        return 13 * self.heads * self.computed_keys(sequence) + queries + values

    def state_elements(self, sequence: int) -> float:
        """Three copies of two bytes of the scores, forward and as gradients: three quarters of what
        an fp32 state takes with its gradient.
        """
        return 0.75 * self.heads * self.computed_keys(sequence)

    @property
    def exchanged_heads(self) -> tuple[int, int]:
        """All heads, and the one key."""
        return self.heads, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedIndexer(Indexer):
    """The indexer that chooses among compressed keys: it makes narrow ones itself and scores them.

    A choice has no gradient, so nothing of it is kept.
    """

    called: ClassVar[str] = "an indexer of compressed keys"

    rate: int  #: tokens of one compressed key

    @property
    def projections(self) -> tuple[Projection, ...]:
        """Linear layers, with the names of transformers."""
        return (
            Projection("kv_proj", self.hidden, 2 * self.head_dim),
            Projection("gate_proj", self.hidden, 2 * self.head_dim),
            Projection("q_b_proj", self.query_rank, self.heads * self.head_dim),
            Projection("weights_proj", self.hidden, self.heads),
        )

    @property
    def other_parameters(self) -> int:
        """A bias for each place in a compressed key."""
        return 2 * self.rate * self.head_dim

    def norm_parameters(self, each: int) -> int:
        """That of its compressed keys."""
        return self.head_dim

    def kept_of_sequence(self, sequence: int) -> float:
        """None: a mask is added to the scores, which keeps nothing of it."""
        return 0.0

    def core_flops(self, sequence: int) -> float:
        """FLOPs of its scores over all compressed keys.

        **Symbols**: 2 H d s/m. **Source**: counted by torch's FlopCounterMode in DeepseekV4Indexer:
        exactly this.
        """
        return 2.0 * self.heads * self.head_dim * (sequence // self.rate)

    def core_elements(self, sequence: int) -> float:
        """Its fp32 scores: written by the product, cut at zero, scaled, weighed and summed up; and
        a copy of all its keys for each query, written and read.
        """
        return (sequence // self.rate) * (16.0 * self.heads + 4.0 * self.head_dim)

    def state_elements(self, sequence: int) -> float:
        """Half of what is alive: three copies of its scores, and its keys for each query."""
        return (sequence // self.rate) * (3.0 * self.heads + self.head_dim) / 2
