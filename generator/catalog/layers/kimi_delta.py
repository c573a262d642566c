"""Kimi Delta Attention (KDA): the gated delta rule whose every channel decays by itself.

**Source**: Kimi Linear (2510.26692); transformers 5.23, KimiLinearDeltaAttention,
BailingHybridDeltaAttention.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ...dataclass import dataclass
from .mixer import Mixer, Product, Projection, Widths, conv_parameters

#: Tokens of a chunk. Source: flash-linear-attention, fla/ops/kda/chunk.py.
CHUNK = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class KimiDelta(Mixer):
    """Delta rule with decays of channels, behind a short convolution, its output normalised and
    gated.
    """

    called: ClassVar[str] = "Kimi Delta Attention (KDA)"
    has_state: ClassVar[bool] = True
    kernels: ClassVar[tuple[str, ...]] = ("flash-linear-attention", "causal-conv1d")

    hidden: int
    heads: int
    head_dim: int
    kernel: int = 4
    #: of the products that decays and the output's gate are made by; 0: one product each (Ling)
    gate_rank: int

    @property
    def width(self) -> int:
        """All heads together."""
        return self.heads * self.head_dim

    @property
    def widths(self) -> Widths:
        """Queries, keys and output are as wide."""
        return Widths(self.width, self.width, self.width)

    def _gate(self, name: str) -> tuple[Projection, ...]:
        """Linear layers that make decays, or the output's gate."""
        if not self.gate_rank:
            return (Projection(f"{name}_proj", self.hidden, self.width),)
        return (
            Projection(f"{name}_a_proj", self.hidden, self.gate_rank),
            Projection(f"{name}_b_proj", self.gate_rank, self.width),
        )

    @property
    def projections(self) -> tuple[Projection, ...]:
        """Linear layers, with the names of transformers."""
        taken = (Projection(f"{name}_proj", self.hidden, self.width) for name in "qkv")
        step = Projection("b_proj", self.hidden, self.heads)
        output = Projection("o_proj", self.width, self.hidden)
        return (*taken, *self._gate("f"), step, *self._gate("g"), output)

    @property
    def other_parameters(self) -> int:
        """The convolution's, a decay of each head and its bias of each channel."""
        return conv_parameters(3 * self.width, self.kernel) + self.heads + self.width

    def norm_parameters(self, each: int) -> int:
        """One head's norm of the output, an RMSNorm whatever the model's."""
        return self.head_dim

    @property
    def products(self) -> tuple[Product, ...]:
        """Everything of the hidden state at once, both gates of their narrow states, the output."""
        gates = 2 * (self.gate_rank or self.width)
        wide = (Product(self.gate_rank, self.width, "outputs"),) * 2 if self.gate_rank else ()
        return (
            Product(self.hidden, 3 * self.width + self.heads + gates, "outputs"),
            *wide,
            Product(self.width, self.hidden, "inputs"),
        )

    def kept_elements(self, *, repeats_keys: bool, packs: bool) -> int:
        """What the convolution, the decays, the kernel of the rule and the gated norm keep.

        The convolution keeps its input; decays three fp32 tensors and a mask of bytes; the rule
        normalised queries and keys with their factors, values, decays as they came and summed, in
        fp32, steps, and of each chunk two squares; the norm four fp32 tensors and the last
        product's input.

        **Source**: `save_for_backward` of flash-linear-attention, fla/ops/kda/chunk.py @ bc3b101d,
        and of causal-conv1d. Counted with autograd's saved-tensor hooks in
        KimiLinearDeltaAttention, these two in the place of their kernels: exactly this. **Assumes**
        no less of Ling's module, which keeps 16-bit decays.
        """
        convolution, gates = 3 * self.width, 2 * self.gate_rank
        decays = 13 * self.width // 2  # three of fp32, and bytes
        rule = (3 + 4) * self.width  # queries, keys and values; two of fp32
        norm = 9 * self.width  # four of fp32, and one
        per_head = 7 + 2 * CHUNK  # steps, factors of queries, keys and norm; the squares
        return convolution + gates + decays + rule + norm + per_head * self.heads

    def core_flops(self, sequence: int) -> float:
        """FLOPs of the rule by chunks, as the gated delta rule's with keys as wide as values, and
        of the convolution.

        **Symbols**: H (6 d² + 10 C d). **Source**: counted by torch's FlopCounterMode in
        transformers' chunk_kimi_delta_attention, but for 4 C d of each head, a triangular solve.
        """
        head = 6 * self.head_dim**2 + 10 * CHUNK * self.head_dim
        return self.heads * head + 2.0 * self.kernel * 3 * self.width

    def state_elements(self, sequence: int) -> float:
        """A state of each head for every chunk."""
        return self.width * self.head_dim / CHUNK

    def core_elements(self, sequence: int) -> float:
        """Convolution, decays (fp32, several kernels), rule and norm, and states."""
        return 6 * self.width + 16 * self.width + 8 * self.width + 4 * self.state_elements(sequence)

    @property
    def tensor_cuts(self) -> Mapping[str, int]:
        """Heads, whole."""
        return {"delta attention heads": self.heads}
