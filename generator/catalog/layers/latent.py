"""Multi-head latent attention (MLA): keys and values of all heads are made of one narrow state,
which alone is cached.

**Source**: DeepSeek-V2 (2405.04434) sec 2.1.
"""

from __future__ import annotations

from typing import ClassVar

from ...dataclass import dataclass
from .mixer import Product, Projection, Widths
from .softmax import SoftmaxAttention, Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent(SoftmaxAttention):
    """Softmax attention over keys and values expanded from latents.

    Queries are expanded from a latent too, unless `q_lora_rank` is 0.
    """

    called: ClassVar[str] = "latent attention (MLA)"
    # The norm before this attention is a module of its own. Source: Megatron-LM core_v0.16.1,
    # core/models/gpt/gpt_layer_specs.py.
    modules: ClassVar[tuple[str, ...]] = ("mla_up_proj", "layernorm")

    keeps_ring: ClassVar[bool] = True  # Source: Transformer Engine 2.12, which refuses MLA with a2a

    hidden: int
    heads: int
    kv_heads: int  #: as many as heads: keys are expanded before they are multiplied
    q_lora_rank: int = 0  #: 0: a full query projection
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    head_dim: int  #: of queries and keys: what is rotated and what isn't
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: str = "none"
    sinks: bool = False
    #: what the output is multiplied with: none | heads (one a head, Ling 3) | elements (Hy4)
    gate: str = "none"
    rotary_norm: bool = False  #: of the part of keys that is rotated (Dots 3)
    vectors: int = 0  #: learned elements in no projection and no norm (scales of queries)
    rotary: bool = True
    span: Span = Span()

    @property
    def widths(self) -> Widths:
        """Widths of queries, keys and output, expanded."""
        query = self.heads * (self.qk_nope_head_dim + self.qk_rope_head_dim)
        return Widths(query, query, self.heads * self.v_head_dim)

    @property
    def projections(self) -> tuple[Projection, ...]:
        """Linear layers with DeepSeek's names.

        **Source**: transformers 5.23, DeepseekV3Attention.
        """
        queries, _, values = self.widths
        down = self.kv_lora_rank + self.qk_rope_head_dim
        query = (
            Projection("q_a_proj", self.hidden, self.q_lora_rank, self.qkv_bias),
            Projection("q_b_proj", self.q_lora_rank, queries),
        )
        return (
            *(query if self.q_lora_rank else (Projection("q_proj", self.hidden, queries),)),
            Projection("kv_a_proj_with_mqa", self.hidden, down, self.qkv_bias),
            Projection("kv_b_proj", self.kv_lora_rank, self._expanded),
            *((Projection("g_proj", self.hidden, self.gate_width),) if self.gate_width else ()),
            Projection("o_proj", values, self.hidden, self.output_bias),
        )

    @property
    def gate_width(self) -> int:
        """Width of the gate on the output."""
        return {"none": 0, "heads": self.heads, "elements": self.widths.values}[self.gate]

    @property
    def value_dim(self) -> int:
        """Elements of a head's values."""
        return self.v_head_dim

    @property
    def has_learned_norms(self) -> bool:
        """Always: the norms of the latents have parameters."""
        return True

    @property
    def _expanded(self) -> int:
        """Width of what is made of the latent of keys and values."""
        return self.heads * (self.qk_nope_head_dim + self.v_head_dim)

    def norm_parameters(self, each: int) -> int:
        """Norms of queries and keys, and of the latents (RMSNorm, whatever the model's)."""
        heads = SoftmaxAttention.norm_parameters(self, each)
        rotated = self.qk_rope_head_dim if self.rotary_norm else 0
        return heads + self.q_lora_rank + self.kv_lora_rank + rotated

    @property
    def other_parameters(self) -> int:
        """Sinks, and learned vectors."""
        return (self.heads if self.sinks else 0) + self.vectors

    @property
    def products(self) -> tuple[Product, ...]:
        """The latents and the gate, on every tensor rank, and the output."""
        down = self.q_lora_rank + self.kv_lora_rank + self.qk_rope_head_dim + self.gate_width
        return Product(self.hidden, down), Product(self.widths.values, self.hidden, "inputs")

    @property
    def reads(self) -> int:
        """That of queries, and that of keys and values."""
        return 2

    @property
    def latent_products(self) -> tuple[Product, ...]:
        """From latents (or the hidden state) to queries, and to keys and values."""
        return (
            Product(self.q_lora_rank or self.hidden, self.widths.queries, "outputs"),
            Product(self.kv_lora_rank, self._expanded, "outputs"),
        )

    @property
    def repeated_parameters(self) -> int:
        """Weights that the latents are multiplied with; full queries are of the hidden state."""
        again = self.latent_products[0 if self.q_lora_rank else 1 :]
        return sum(product.inputs * product.outputs for product in again)

    @property
    def rebuilt_elements(self) -> int:
        """Queries, keys and values.

        **Source**: Megatron-LM core_v0.16.1, multi_latent_attention.py:838 (mla_up_proj keeps the
        latents).
        """
        return sum(self.widths)

    @property
    def normed_elements(self) -> int:
        """Both latents."""
        return self.q_lora_rank + self.kv_lora_rank

    def kept_elements(self, *, repeats_keys: bool, packs: bool) -> int:
        """Elements of queries, keys, values and output, of the latents, and what a gate keeps."""
        queries, keys, values = self.widths
        keys_and_values = 2 * queries if repeats_keys else keys + values
        gated = self.gate_width + values if self.gate_width else 0
        return queries + keys_and_values + values + self.q_lora_rank + self.kv_lora_rank + gated

    @property
    def exchanged_heads(self) -> tuple[int, int]:
        """All heads: keys and values are expanded before they are exchanged."""
        return self.heads, self.heads
