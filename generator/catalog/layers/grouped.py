"""Grouped-query attention: several query heads share the keys and values of one.

Where all share those of one it is called multi-query, where none does multi-head attention.
"""

from __future__ import annotations

from typing import ClassVar

from ...dataclass import dataclass
from .mixer import Product, Projection, Widths
from .softmax import SoftmaxAttention, Span


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedQuery(SoftmaxAttention):
    """Softmax attention, whole, over a sliding window or in chunks."""

    called: ClassVar[str] = "grouped-query attention"

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    qkv_bias: bool = False
    output_bias: bool = False
    #: none | l2 (no parameters) | head (one vector of head_dim each) | full (heads*head_dim and
    #: kv_heads*head_dim)
    qk_norm: str = "none"
    sinks: bool = False  #: one learned scalar a head (gpt-oss)
    rotary: bool = True
    span: Span = Span()

    @property
    def widths(self) -> Widths:
        """Widths of queries, keys and output; values are as wide as keys."""
        query = self.heads * self.head_dim
        return Widths(query, self.kv_heads * self.head_dim, query)

    @property
    def projections(self) -> tuple[Projection, ...]:
        """Linear layers with Llama's names.

        **Source**: transformers 5.23, LlamaAttention.
        """
        queries, keys, values = self.widths
        keys_values = (
            Projection(name, self.hidden, keys, self.qkv_bias) for name in ("k_proj", "v_proj")
        )
        return (
            Projection("q_proj", self.hidden, queries, self.qkv_bias),
            *keys_values,
            Projection("o_proj", values, self.hidden, self.output_bias),
        )

    @property
    def products(self) -> tuple[Product, ...]:
        """Queries, keys and values at once, and the output."""
        queries, keys, values = self.widths
        return (
            Product(self.hidden, queries + 2 * keys, "outputs"),
            Product(values, self.hidden, "inputs"),
        )

    @property
    def exchanged(self) -> tuple[tuple[int, int], ...]:
        """Keys and values: of one head at least on a tensor rank, for heads are copied where ranks
        are more.
        """
        keys = (self.widths.keys, self.head_dim)
        return keys, keys

    def kept_elements(self, *, repeats_keys: bool, packs: bool) -> int:
        """Elements of queries, keys, values and output.

        Where queries, keys and values are one product, rotation makes new queries and keys, but the
        values remain a view, which keeps the whole product alive. **Source**: Megatron-LM
        core_v0.16.1, megatron/core/transformer/attention.py, get_query_key_value_tensors; the ranks
        of Llama 70B measured on B200 show it. Copies of keys and values: transformers 5.23,
        repeat_kv.
        """
        queries, keys, values = self.widths
        copied = queries if repeats_keys else keys
        packed = queries + copied if packs and self.rotary else 0
        return queries + 2 * copied + values + packed
