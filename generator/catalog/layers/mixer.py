"""What every kind of mixer says of itself: sizes, products, what it computes with tokens of a
sequence, what it keeps.

All is of one layer. Widths and kept elements are of one token and of all tensor ranks together,
FLOPs of one token's forward pass. A tensor size may be a number or a numpy column.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple


class Projection(NamedTuple):
    """A linear layer as torch's Linear: its module's name, its widths, and whether it has a
    bias.
    """

    name: str
    inputs: int
    outputs: int
    bias: bool = False

    @property
    def parameters(self) -> int:
        """Weights and biases."""
        return (self.inputs + self.bias) * self.outputs


class Product(NamedTuple):
    """A matrix product of a token's activations with weights, as a program runs it."""

    inputs: int
    outputs: int
    #: the side that tensor ranks share: inputs | outputs; empty: each computes it all
    cut: str = ""

    def of_rank(self, tensor: Any) -> tuple[Any, Any]:
        """Widths of its inputs and outputs on one of `tensor` ranks."""
        return (
            self.inputs / tensor if self.cut == "inputs" else self.inputs,
            self.outputs / tensor if self.cut == "outputs" else self.outputs,
        )


class Widths(NamedTuple):
    """Elements a token of what the core takes and makes, all heads together."""

    queries: int
    keys: int
    values: int  #: of the output, which the last product takes


class Mixer:
    """What mixes the tokens of a sequence: attention of some kind, or what stands in its place."""

    __slots__ = ()

    called: ClassVar[str]  #: in messages: "it has latent attention (MLA)"
    #: in patterns of layers, as Nemotron's configs and Megatron have them; empty: it has none
    letter: ClassVar[str] = ""
    modules: ClassVar[tuple[str, ...]] = ()  #: of its own that programs can compute again
    has_scores: ClassVar[bool] = False  #: whether each token has a score for each other one
    #: Whether context ranks can't all exchange heads for tokens: some exchange keys and values in a
    #: ring.
    keeps_ring: ClassVar[bool] = False
    #: Whether a token's result depends on those before it by a state or a convolution, so that a
    #: rank that has a part of the sequence alone would begin anew there.
    has_state: ClassVar[bool] = False
    #: Whether attention meets keys that are chosen among all before, or compressed ones of these.
    is_sparse: ClassVar[bool] = False
    core_precision: ClassVar[str] = "bf16"  #: that its core computes in
    core_trains: ClassVar[bool] = True  #: whether its core has a backward pass
    kernels: ClassVar[tuple[str, ...]] = ()  #: Python packages that its fast kernels come from
    #: Kernels that the host launches for each token of a sequence, forward and backward, where code
    #: computes one token after the other.
    stepwise: ClassVar[tuple[int, int]] = (0, 0)
    output_bias: bool = False

    hidden: int
    rotary: bool = False  #: whether its queries and keys are rotated

    @property
    def parts(self) -> tuple[Mixer, ...]:
        """The mixers that it consists of: itself, several side by side, or none."""
        return (self,)

    @property
    def needs_whole(self) -> bool:
        """Whether it mixes other tokens where a rank has a part of the sequence alone."""
        return self.has_state or self.is_sparse

    @property
    def shape(self) -> Mixer:
        """Itself without what changes neither sizes nor products."""
        return self

    def averaged(self, alike: Mapping[Mixer, int]) -> Mixer:
        """One mixer that stands for all those `alike` in an estimate.

        They have the same `shape`; each comes with its number of layers.
        """
        return self

    @property
    def widths(self) -> Widths:
        """Widths of queries, keys and output."""
        raise NotImplementedError

    @property
    def projections(self) -> tuple[Projection, ...]:
        """Its linear layers, with the names of transformers."""
        raise NotImplementedError

    @property
    def other_parameters(self) -> int:
        """Parameters that are neither in linear layers nor in norms."""
        return 0

    @property
    def parameters(self) -> int:
        """Everything but its norms."""
        return sum(layer.parameters for layer in self.projections) + self.other_parameters

    def rank_parameters(self, tensor: Any) -> Any:
        """Those of `parameters` that one tensor rank holds."""
        return self.parameters / tensor

    def norm_parameters(self, each: int) -> int:
        """Parameters of the norms inside it, where the model's kind of norm has `each` an
        element.
        """
        return 0

    @property
    def products(self) -> tuple[Product, ...]:
        """Products of the hidden state and of the core's output, in the order of use."""
        raise NotImplementedError

    @property
    def reads(self) -> int:
        """Products that take the normalised state."""
        return int(bool(self.parts))

    @property
    def latent_products(self) -> tuple[Product, ...]:
        """Products between the first and the core, of narrower states."""
        return ()

    @property
    def repeated_parameters(self) -> int:
        """Weights that a token meets once more where `latent_products` are computed again."""
        return 0

    @property
    def rebuilt_elements(self) -> int:
        """Elements that aren't kept where `latent_products` are computed again."""
        return 0

    @property
    def normed_elements(self) -> int:
        """Elements that norms of queries and keys, or of latents, keep; 0 where `kept_elements` has
        them.
        """
        return 0

    def kept_elements(self, *, repeats_keys: bool, packs: bool) -> int:
        """Elements kept for the backward pass, beside the input of the layer.

        `repeats_keys`: every query head gets a copy of its keys and values. `packs`: queries, keys
        and values are one product's output, and stay in its memory.
        """
        raise NotImplementedError

    def core_flops(self, sequence: int) -> float:
        """FLOPs of its core, without what a mask makes needless."""
        raise NotImplementedError

    def computed_flops(self, sequence: int) -> float:
        """FLOPs of its core as programs compute it, those for what a mask hides included."""
        return self.core_flops(sequence)

    def core_elements(self, sequence: int) -> float:
        """Elements that its core reads and writes in a forward pass, where no scores are stored."""
        queries, keys, values = self.widths
        return queries + 2 * keys + values

    def backward_elements(self, sequence: int) -> float:
        """The same of its backward pass."""
        return 2 * self.core_elements(sequence)

    def scores(self, sequence: int) -> int:
        """Scores of one token; none for a kind without."""
        return 0

    def state_elements(self, sequence: int) -> float:
        """Elements a token of fp32 states between chunks, alive while its core runs backward."""
        return 0.0

    def kept_of_sequence(self, sequence: int) -> float:
        """Elements a token kept beside `kept_elements`, which grow with the sequence, and which no
        tensor ranks share.
        """
        return 0.0

    @property
    def exchanged(self) -> tuple[tuple[int, int], ...]:
        """Widths of what context ranks exchange beside queries and output, and the least of each on
        a tensor rank.
        """
        _, keys, values = self.widths
        return (keys, 0), (values, 0)

    @property
    def tensor_cuts(self) -> Mapping[str, int]:
        """What tensor ranks share evenly, by name; each is a multiple of their number."""
        return {}

    @property
    def context_cuts(self) -> Mapping[str, int]:
        """What context ranks share evenly that exchange heads for tokens, by name."""
        return {}

    @property
    def exchanged_heads(self) -> tuple[int, int]:
        """Heads of queries, and of keys and values, that context ranks can exchange for tokens."""
        raise NotImplementedError


def conv_parameters(channels: int, kernel: int, *, bias: bool = False) -> int:
    """Parameters of a causal convolution over time, each channel by itself."""
    return channels * (kernel + bias)
