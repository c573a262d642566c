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
    letter: ClassVar[str] = "*"

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
    #: what the output is multiplied with, made of the hidden state: none | elements (one for each)
    #: | heads (one a head)
    gate: str = "none"
    gate_bias: bool = False
    v_head_dim: int | None = None  #: elements of a head's values, where keys have more (MiMo-V2)
    values_are_keys: bool = False  #: one projection makes both (Gemma 4)
    takes_keys: bool = False  #: keys and values are those of a layer before (Gemma 4)
    #: width of what it takes, where that is a state of its own, normalised for it alone (Zamba)
    inputs: int | None = None
    output_norm: bool = False  #: of the output, before its projection (BitNet)
    vectors: int = 0  #: learned elements in no projection and no norm (DiffLlama's lambdas)
    maps: int = 1  #: softmax maps, each over a share of the values; two are subtracted (DiffLlama)
    rotary: bool = True
    span: Span = Span()

    @property
    def value_dim(self) -> int:
        """Elements of a head's values."""
        return self.v_head_dim or self.head_dim

    @property
    def taken(self) -> int:
        """Width of what its first products take."""
        return self.inputs or self.hidden

    @property
    def widths(self) -> Widths:
        """Widths of queries, keys and output."""
        keys = self.kv_heads * self.head_dim
        return Widths(self.heads * self.head_dim, keys, self.heads * self.value_dim)

    @property
    def value_width(self) -> int:
        """Width of the values as they are projected."""
        return self.kv_heads * self.value_dim

    @property
    def gate_width(self) -> int:
        """Width of the gate on the output."""
        return {"none": 0, "heads": self.heads, "elements": self.widths.values}[self.gate]

    @property
    def has_learned_norms(self) -> bool:
        """Whether norms inside it have parameters."""
        return self.output_norm or self.qk_norm in ("head", "full")

    @property
    def other_parameters(self) -> int:
        """Sinks, and learned vectors."""
        return (self.heads if self.sinks else 0) + self.vectors

    def norm_parameters(self, each: int) -> int:
        """Norms of queries, keys and output."""
        output = each * self.widths.values if self.output_norm else 0
        if self.takes_keys:
            return (each * self.head_dim if self.qk_norm == "head" else 0) + output
        return SoftmaxAttention.norm_parameters(self, each) + output

    @property
    def normed_elements(self) -> int:
        """Queries, and the keys that it makes itself."""
        if self.qk_norm not in ("head", "full"):
            return 0
        queries, keys, _ = self.widths
        return queries if self.takes_keys else queries + keys

    @property
    def projections(self) -> tuple[Projection, ...]:
        """Linear layers with Llama's names.

        **Source**: transformers 5.23, LlamaAttention.
        """
        queries, keys, values = self.widths
        gate = (Projection("gate_proj", self.taken, self.gate_width, self.gate_bias),)
        key_projection = (Projection("k_proj", self.taken, keys, self.qkv_bias),)
        value_projection = (Projection("v_proj", self.taken, self.value_width, self.qkv_bias),)
        return (
            Projection("q_proj", self.taken, queries, self.qkv_bias),
            *(() if self.takes_keys else key_projection),
            *(() if self.takes_keys or self.values_are_keys else value_projection),
            *(gate if self.gate_width else ()),
            Projection("o_proj", values, self.hidden, self.output_bias),
        )

    def core_flops(self, sequence: int) -> float:
        """FLOPs of scores and of their product with the values, of each map anew.

        **Source**: DiffLlamaAttention of transformers 5.23 calls it for each half of the values.
        """
        return self.maps * SoftmaxAttention.core_flops(self, sequence)

    def core_elements(self, sequence: int) -> float:
        """Elements that each map reads and writes."""
        return self.maps * SoftmaxAttention.core_elements(self, sequence)

    @property
    def products(self) -> tuple[Product, ...]:
        """Queries, keys, values and gate at once, and the output."""
        queries, keys, values = self.widths
        projected = keys + (0 if self.values_are_keys else self.value_width)
        width = queries + (0 if self.takes_keys else projected) + self.gate_width
        return (
            Product(self.taken, width, "outputs"),
            Product(values, self.hidden, "inputs"),
        )

    @property
    def exchanged(self) -> tuple[tuple[int, int], ...]:
        """Widths of keys and of values, each with its least width on a tensor rank.

        That is one head: heads are copied where there are more tensor ranks than heads.
        """
        return (self.widths.keys, self.head_dim), (self.value_width, self.value_dim)

    def kept_elements(self, *, repeats_keys: bool, packs: bool) -> int:
        """Elements of queries, keys, values and output, and what a gate or a norm on it keeps.

        Where queries, keys and values are one product, rotation makes new queries and keys, but the
        values remain a view, which keeps the whole product alive. **Source**: Megatron-LM
        core_v0.16.1, megatron/core/transformer/attention.py, get_query_key_value_tensors; the ranks
        of Llama 70B measured on B200 show it. Copies of keys and values: transformers 5.23,
        repeat_kv.
        """
        queries, keys, output = self.widths
        copies = self.heads // self.kv_heads if repeats_keys else 1
        copied, values = copies * keys, copies * self.value_width
        packed = queries + copied if packs and self.rotary else 0

        # The gate's sigmoid and the gated output, or the input and output of the norm, are kept
        # beside the core's output, which its own backward pass takes.
        gated = self.gate_width + output if self.gate_width else 0
        normed = output if self.output_norm else 0
        # Of each further map its values and output; then all outputs side by side (`maps`), their
        # difference, and the difference normalised (2).
        # Source: saved-tensor hooks in DiffLlamaAttention.
        further = (self.maps - 1) * (values + output)
        subtracted = (self.maps + 2) * output if self.maps > 1 else 0
        kept = (self.inputs or 0) + queries + copied + values + output + packed + gated + normed
        return kept + further + subtracted
