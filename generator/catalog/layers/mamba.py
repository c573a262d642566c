"""State spaces: Mamba-1, whose every channel has a state of its own, and Mamba-2, whose channels
are in heads, which share steps, and in groups, which share both sides of the state.

The sides of the state are what its paper calls B, which writes it, and C, which reads it.

**Source**: Mamba (2312.00752), Mamba-2 (2405.21060); transformers 5.23, MambaMixer,
JambaMambaMixer, Mamba2Mixer, NemotronHMamba2Mixer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ...dataclass import dataclass
from .mixer import Mixer, Product, Projection, Widths, conv_parameters

_KERNELS = ("mamba-ssm", "causal-conv1d")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba1(Mixer):
    """Selective state space of each channel, behind a short convolution, its output gated."""

    called: ClassVar[str] = "Mamba-1 layers"
    has_state: ClassVar[bool] = True
    kernels: ClassVar[tuple[str, ...]] = _KERNELS

    hidden: int
    width: int
    state: int
    step_rank: int  #: of the product that makes a step of each channel
    kernel: int = 4
    conv_bias: bool = True
    bias: bool = False
    norms: bool = False  #: of steps and of both sides of the state (Jamba)
    heads: int = 1  #: parts of the width, each with steps and sides of its own (Zamba)
    fused: bool = True  #: whether one kernel has all between the outer products; never with norms

    @property
    def _selected(self) -> int:
        """Width of the selection that is made of each token: its step's latent, and both sides of
        the state.
        """
        return self.step_rank + 2 * self.state

    @property
    def _selected_of_heads(self) -> int:
        """The same of all heads."""
        return self.heads * self._selected

    @property
    def widths(self) -> Widths:
        """The inner width is what it takes, and what it makes."""
        return Widths(self.width, 0, self.width)

    @property
    def projections(self) -> tuple[Projection, ...]:
        """Linear layers, with the names of transformers."""
        return (
            Projection("in_proj", self.hidden, 2 * self.width, self.bias),
            Projection("x_proj", self.width, self._selected),
            Projection("dt_proj", self.step_rank, self.width, True),
            Projection("out_proj", self.width, self.hidden, self.bias),
        )

    @property
    def other_parameters(self) -> int:
        """The convolution's, a decay (A) for each element of the state, a skip (D) of each
        channel.
        """
        conv = conv_parameters(self.width, self.kernel, bias=self.conv_bias)
        return conv + self.width * (self.state + 1)

    def norm_parameters(self, each: int) -> int:
        """Norms of steps and of both sides of the state."""
        return self._selected if self.norms else 0

    @property
    def products(self) -> tuple[Product, ...]:
        """Both halves of the inner state, the selection, its step, and the output."""
        return (
            Product(self.hidden, 2 * self.width, "outputs"),
            # Each head makes its own of its part of the width.
            Product(self.width // self.heads, self._selected_of_heads, "inputs"),
            Product(self.step_rank, self.width, "outputs"),
            Product(self.width, self.hidden, "inputs"),
        )

    def kept_elements(self, *, repeats_keys: bool, packs: bool) -> int:
        """What its kernels keep: all in one, or convolution and scan by themselves where norms lie
        between (Jamba).

        **Source**: `save_for_backward` of mamba_ssm, ops/selective_scan_interface.py @ 01887ed7:
        MambaInnerFn (both halves, the selection and copies of both sides of the state, and the
        scan's output), SelectiveScanFn (the convolution's output, steps, both sides, the gate, the
        output); causal-conv1d keeps its input. Counted with autograd's saved-tensor hooks in
        JambaMambaMixer with these in the place of their kernels: exactly this, its eager norms
        having fp32 inputs and factors.
        """
        if self.fused:
            return 3 * self.width + self._selected + 2 * self.state
        if not self.norms:
            return 7 * self.width + self._selected_of_heads
        eager = 2 + 1  # fp32 input and 16-bit result before the weight
        factors = 3 * 2
        return 6 * self.width + (eager + 1) * self._selected + factors

    def core_flops(self, sequence: int) -> float:
        """FLOPs of the scan, element by element, and of the convolution.

        **Source**: 9 operations an element of the state (2312.00752 appendix D: exponential, two
        products of the step, update and reading).
        """
        return float(self.width * (9 * self.state + 2 * self.kernel))

    def core_elements(self, sequence: int) -> float:
        """Convolution: in and out. Scan: input, steps, gate, both sides, output twice."""
        return 7 * self.width + 2 * self.state

    @property
    def tensor_cuts(self) -> Mapping[str, int]:
        """Channels."""
        return {"inner channels": self.width}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba2(Mixer):
    """Heads with a state each, of which groups share both sides (SSD)."""

    called: ClassVar[str] = "Mamba-2 layers"
    letter: ClassVar[str] = "M"
    has_state: ClassVar[bool] = True
    kernels: ClassVar[tuple[str, ...]] = _KERNELS

    hidden: int
    heads: int
    head_dim: int
    groups: int
    state: int
    chunk: int = 256  #: tokens that are computed at once
    kernel: int = 4
    conv_bias: bool = True
    bias: bool = False  #: of the product of the hidden state
    output_bias: bool = False
    gated_norm: bool = True  #: else the output is gated alone (Falcon-H1)

    @property
    def width(self) -> int:
        """The inner width."""
        return self.heads * self.head_dim

    @property
    def _mixed(self) -> int:
        """Channels of the convolution: the inner state, and both sides of each group's."""
        return self.width + 2 * self.groups * self.state

    @property
    def _projected(self) -> int:
        """What is made of the hidden state: gate, what the convolution takes, a step a head."""
        return self.width + self._mixed + self.heads

    @property
    def widths(self) -> Widths:
        """One side of the state is read by queries, the other written by keys."""
        side = self.groups * self.state
        return Widths(side, side, self.width)

    @property
    def projections(self) -> tuple[Projection, ...]:
        """Linear layers, with the names of transformers."""
        return (
            Projection("in_proj", self.hidden, self._projected, self.bias),
            Projection("out_proj", self.width, self.hidden, self.output_bias),
        )

    @property
    def other_parameters(self) -> int:
        """The convolution's, and three of each head: its step's bias, decay (A) and skip (D)."""
        return conv_parameters(self._mixed, self.kernel, bias=self.conv_bias) + 3 * self.heads

    def norm_parameters(self, each: int) -> int:
        """Those of the gated norm, an RMSNorm whatever the model's."""
        return self.width if self.gated_norm else 0

    @property
    def products(self) -> tuple[Product, ...]:
        """Everything of the hidden state at once, and the output."""
        return (
            Product(self.hidden, self._projected, "outputs"),
            Product(self.width, self.hidden, "inputs"),
        )

    def kept_elements(self, *, repeats_keys: bool, packs: bool) -> int:
        """What its kernel keeps: all that is made of the hidden state, and the scan's output; the
        rest is computed again. Where norm and output aren't in the kernel, their inputs too.

        **Source**: `save_for_backward` of mamba_ssm, ops/triton/ssd_combined.py @ e9594ce1
        (MambaSplitConv1dScanCombinedFn), which transformers hands norm and output, and Megatron-LM
        core_v0.16.1, megatron/core/ssm/mamba_mixer.py, doesn't. Counted with autograd's
        saved-tensor hooks in NemotronHMamba2Mixer, this in the place of the kernel: exactly this.
        **Assumes** the kernel: torch's own code keeps some 35 fp32 values an element.
        """
        return self._projected + self.width + (2 * self.width if packs else 0)

    def core_flops(self, sequence: int) -> float:
        """FLOPs of the scan by chunks of `Q` tokens, and of the convolution.

        **Symbols**: 2 Q n G (both sides with one another), 2 Q P H (with the values), 4 n P H
        (writing and reading states); G groups, n their state, H heads of P. **Source**: 2405.21060
        section 6; torch's FlopCounterMode counts in transformers' code 2 Q n H for the first, for
        it repeats groups, and 0.3 % more in all between chunks.
        """
        chunk = min(self.chunk, sequence)
        within = 2 * chunk * (self.state * self.groups + self.width)
        between = 4 * self.state * self.width
        return float(within + between + 2 * self.kernel * self._mixed)

    def state_elements(self, sequence: int) -> float:
        """A state of each head for every chunk."""
        return self.width * self.state / self.chunk

    def core_elements(self, sequence: int) -> float:
        """Convolution: in and out. Scan: input, gate, steps, output, and states."""
        return 3 * self._mixed + 4 * self.width + 4 * self.state_elements(sequence)

    @property
    def tensor_cuts(self) -> Mapping[str, int]:
        """Heads and groups, whole."""
        return {"state-space heads": self.heads, "state-space groups": self.groups}

    @property
    def context_cuts(self) -> Mapping[str, int]:
        """Heads, whole."""
        return {"state-space heads": self.heads}

    @property
    def exchanged_heads(self) -> tuple[int, int]:
        """All heads, and groups."""
        return self.heads, self.groups
