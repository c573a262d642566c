"""The gated delta rule (GDN): a state for each head, which every token decays and corrects.

**Source**: Gated Delta Networks (2412.06464); transformers 5.23, Qwen3NextGatedDeltaNet,
OlmoHybridGatedDeltaNet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ...dataclass import dataclass
from .mixer import Mixer, Product, Projection, Widths, conv_parameters

#: Tokens of a chunk. Source: flash-linear-attention, fla/ops/gated_delta_rule/chunk.py, and
#: transformers' torch_chunk_gated_delta_rule.
CHUNK = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedDelta(Mixer):
    """Gated delta rule behind a short convolution, its output normalised and gated."""

    called: ClassVar[str] = "the gated delta rule (GDN)"
    letter: ClassVar[str] = "G"
    has_state: ClassVar[bool] = True
    kernels: ClassVar[tuple[str, ...]] = ("flash-linear-attention", "causal-conv1d")

    hidden: int
    key_heads: int
    key_dim: int
    value_heads: int
    value_dim: int
    kernel: int = 4  #: tokens of the convolution

    @property
    def widths(self) -> Widths:
        """Widths of queries, keys and output."""
        keys = self.key_heads * self.key_dim
        return Widths(keys, keys, self.value_heads * self.value_dim)

    @property
    def _mixed(self) -> int:
        """Channels of the convolution: queries, keys and values."""
        queries, keys, values = self.widths
        return queries + keys + values

    @property
    def projections(self) -> tuple[Projection, ...]:
        """Linear layers with the names of Qwen3.5: queries, keys and values, the output's gate,
        step and decay of each head, and the output.
        """
        values = self.widths.values
        return (
            Projection("in_proj_qkv", self.hidden, self._mixed),
            Projection("in_proj_z", self.hidden, values),
            Projection("in_proj_b", self.hidden, self.value_heads),
            Projection("in_proj_a", self.hidden, self.value_heads),
            Projection("out_proj", values, self.hidden),
        )

    @property
    def other_parameters(self) -> int:
        """The convolution's, and a decay and its bias for each head."""
        return conv_parameters(self._mixed, self.kernel) + 2 * self.value_heads

    def norm_parameters(self, each: int) -> int:
        """One head's norm of the output, an RMSNorm whatever the model's."""
        return self.value_dim

    @property
    def products(self) -> tuple[Product, ...]:
        """Everything of the hidden state at once, and the output."""
        values = self.widths.values
        inner = self._mixed + values + 2 * self.value_heads
        return Product(self.hidden, inner, "outputs"), Product(values, self.hidden, "inputs")

    def kept_elements(self, *, repeats_keys: bool, packs: bool) -> int:
        """What the convolution, the kernel of the rule and the gated norm keep.

        The convolution keeps its input; the rule normalised queries and keys with their factors,
        values, in fp32 what its decays add up to, its steps, and each chunk's inverse; the norm, in
        fp32, its input, the gate and its sigmoid, and three 16-bit tensors, the last of them the
        last product's input.

        **Source**: `save_for_backward` of flash-linear-attention, fla/ops/gated_delta_rule/chunk.py
        @ 0315a70e (ChunkGatedDeltaRuleFunction), and of causal-conv1d (CausalConv1dFn). Counted
        with autograd's saved-tensor hooks in Qwen3.5's module, these two in the place of their
        kernels: exactly this. Where everything is one product, its output stays for the gate, and
        queries and keys are repeated for the heads of values: Megatron-LM core_v0.16.1,
        megatron/core/ssm/gated_delta_net.py. **Assumes** the kernels: torch's own code keeps some
        35 fp32 values an element of the output.
        """
        queries, keys, values = self.widths
        if packs:
            repeated = 2 * self.value_heads * self.key_dim
            inner = self._mixed + values + (8 + CHUNK) * self.value_heads
            return inner + self._mixed + queries + keys + repeated + 2 * values

        rule = queries + keys + values + 4 * self.key_heads + (9 + CHUNK) * self.value_heads
        return self._mixed + rule + 9 * values

    def core_flops(self, sequence: int) -> float:
        """FLOPs of the rule by chunks of `C` tokens, and of the convolution.

        In a chunk each head multiplies keys with keys and queries with keys, inverts a triangle,
        and applies it to keys and values; with the state it reads twice and writes once.

        **Symbols**: Hv · (6 dk dv + 2 C (3 dk + 2 dv)). **Source**: counted by torch's
        FlopCounterMode in transformers' torch_chunk_gated_delta_rule: Hv · (6 dk dv + 2 C (2 dk +
        dv)) exactly, at 512 and 1024 tokens, beside a triangular solve; the kernels do that by two
        more products, of dk and of dv.
        """
        key, value = self.key_dim, self.value_dim
        rule = 6 * key * value + 2 * CHUNK * (3 * key + 2 * value)
        return self.value_heads * rule + 2.0 * self.kernel * self._mixed

    def state_elements(self, sequence: int) -> float:
        """A state of each head for every chunk."""
        return self.value_heads * self.key_dim * self.value_dim / CHUNK

    def core_elements(self, sequence: int) -> float:
        """What convolution, rule and norm read and write, and the states."""
        return 4 * self._mixed + 4 * self.widths.values + 4 * self.state_elements(sequence)

    @property
    def tensor_cuts(self) -> Mapping[str, int]:
        """Heads, whole."""
        return {"key heads": self.key_heads, "value heads": self.value_heads}

    @property
    def context_cuts(self) -> Mapping[str, int]:
        """Heads, whole."""
        return self.tensor_cuts

    @property
    def exchanged_heads(self) -> tuple[int, int]:
        """All heads."""
        return self.value_heads, self.key_heads
