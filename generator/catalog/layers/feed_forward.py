"""What every kind of feed-forward says of itself: what each token meets, what it is routed to,
parameters, products.

All is of one layer. `width` is that of the part that every token meets and tensor ranks share;
routed experts have widths of their own. A kind without experts has none of them, and 0 wherever
they are counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from .mixer import Product, Projection


class FeedForward:
    """What a layer does with each token by itself."""

    __slots__ = ()

    called: ClassVar[str]  #: in messages
    letter: ClassVar[str] = ""  #: in patterns of layers, as that of a mixer
    hidden: int
    width: int  #: of what every token meets, per gate or up projection; 0: nothing
    gated: bool
    activation: str
    bias: bool
    clamp: float | None  #: bound of gpt-oss's gated activation, which is also shifted and scaled

    experts: int = 0  #: routed ones
    per_token: int = 0  #: of these, those that one token is sent to
    expert_width: int = 0  #: of one, per gate or up projection
    expert_bias: bool = False
    #: a token's experts all lie in so many groups of experts, which it picks first; 0: in any
    router_top_groups: int = 0

    @property
    def is_present(self) -> bool:
        """Whether a layer has a feed-forward: an MLP, experts or both."""
        return bool(self.width or self.experts)

    @property
    def routed_hidden(self) -> int:
        """Width of the state that is sent to experts."""
        return self.hidden

    @property
    def latent_products(self) -> tuple[tuple[int, int], ...]:
        """Products before and after all routed experts: the widths that each takes and gives."""
        return ()

    @property
    def modules(self) -> tuple[str, ...]:
        """Modules of its own that programs can compute again."""
        return ()

    @property
    def active_width(self) -> int:
        """Widths that a token meets, all together."""
        return self.per_token * self.expert_width + self.width

    @property
    def whole_parameters(self) -> int:
        """Parameters of what every token meets."""
        raise NotImplementedError

    @property
    def router_parameters(self) -> int:
        """Parameters of the router, which each tensor rank has."""
        return 0

    @property
    def expert_parameters(self) -> int:
        """Parameters of one routed expert."""
        return 0

    @property
    def matrix_parameters(self) -> int:
        """All but the router's, which are few."""
        return self.whole_parameters + self.experts * self.expert_parameters

    @property
    def parameters(self) -> int:
        """All parameters."""
        return self.matrix_parameters + self.router_parameters

    @property
    def active_matrix_parameters(self) -> int:
        """Those that one token meets, but for the router's."""
        return self.per_token * self.expert_parameters + self.whole_parameters

    @property
    def active_parameters(self) -> int:
        """Those that one token meets."""
        return self.active_matrix_parameters + self.router_parameters

    def rank_parameters(self, tensor: Any) -> Any:
        """Parameters of one tensor rank, without those of routed experts."""
        return self.whole_parameters / tensor + self.router_parameters

    @property
    def ups(self) -> int:
        """Matrices from the hidden state: two where one gates the other."""
        return 2 if self.gated else 1

    def products(self, width: Any, hidden: int | None = None) -> tuple[Product, ...]:
        """Both products of an MLP as wide as `width`: gate and up at once, and down."""
        hidden = hidden or self.hidden
        return Product(hidden, self.ups * width), Product(width, hidden)

    @property
    def projections(self) -> tuple[Projection, ...]:
        """Linear layers of what every token meets, with Llama's names.

        Routed experts and their router are tensors of their own in transformers 5.23, no linear
        layers.
        """
        if not self.width:
            return ()
        names = ("gate_proj", "up_proj")
        first = (Projection(name, self.hidden, self.width) for name in names)
        return (*first, Projection("down_proj", self.width, self.hidden))

    @property
    def reads(self) -> int:
        """Products that take the normalised state."""
        return int(self.width > 0)

    @property
    def routing_bytes(self) -> int:
        """Bytes a token that a router keeps of its scores."""
        return 0

    def width_bytes(self, copies: int, element: float, input_element: float) -> float:
        """Bytes kept of each width: `copies` tensors, the last one the second product's input."""
        return (copies - 1) * element + input_element

    def token_bytes(self, element: float, input_element: float, *, weighs_output: bool) -> float:
        """Bytes that an expert keeps of one token's state: its first product's input, and its
        output where that is what the token's weight multiplies.
        """
        return self.routed_hidden * (input_element + element * weighs_output)

    def kept_bytes(
        self, copies: int, element: float, input_element: float, *, weighs_output: bool
    ) -> float:
        """Bytes a token kept for the backward pass, but for the router's.

        **Symbols**: `copies` tensors of each width, `element` bytes of an activation,
        `input_element` of a product's input; products around all experts keep what they take and
        give.
        """
        token = self.token_bytes(element, input_element, weighs_output=weighs_output)
        more = self.expert_copies(copies, weighs_output=weighs_output)
        routed = token + self.width_bytes(more, element, input_element) * self.expert_width
        around = (element + input_element) * self.routed_hidden * bool(self.latent_products)
        shared = self.width_bytes(copies, element, input_element) * self.width
        return self.per_token * routed + shared + around

    def expert_copies(self, copies: int, *, weighs_output: bool) -> int:
        """Tensors of an expert's width.

        There is one more where the activation is multiplied with the token's weight and no fused
        kernel does both. Gated activations and squared ReLU have such a kernel.

        **Source**: Megatron-LM core_v0.16.1, core/transformer/moe/experts.py, bias_act_func.
        """
        fused = self.gated or self.activation == "relu2"
        return copies if fused or weighs_output else copies + 1

    @property
    def tensor_cuts(self) -> Mapping[str, int]:
        """Widths that tensor ranks share evenly, by name."""
        return {}

    @property
    def expert_cuts(self) -> Mapping[str, int]:
        """Widths of experts that tensor ranks share evenly, by name."""
        return {}


def mlp_parameters(hidden: int, width: int, *, gated: bool, bias: bool) -> int:
    """Parameters of an MLP."""
    return (hidden + bias) * width * (1 + gated) + (width + bias) * hidden
