"""A mixture of experts: a router sends each token to a few of many MLPs; shared experts meet every
token.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ...dataclass import dataclass
from .feed_forward import FeedForward, mlp_parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts(FeedForward):
    """Routed experts, and shared ones that are together an MLP as wide as `width`."""

    called: ClassVar[str] = "experts"
    letter: ClassVar[str] = "E"

    hidden: int
    width: int = 0  #: of all shared experts together
    gated: bool
    activation: str = "gelu"
    bias: bool = False  #: of the shared experts
    clamp: float | None = None
    vectors: int = 0  #: learned elements beside all experts
    experts: int
    per_token: int
    expert_width: int
    expert_bias: bool = False
    #: identity experts beside these, which return their input (LongCat), and how many of them a
    #: token is sent to in the mean
    idle: int = 0
    idle_per_token: int = 0
    others: int = 0  #: parameters of experts that no token of text meets (ERNIE 4.5 VL)
    #: whether what they give is added behind the next layer (LongCat's shortcut)
    adds_later: bool = False
    #: width of the state that routed experts take and give, between two products of all experts
    #: (Nemotron 3); 0: the hidden one
    latent: int = 0
    shared_experts: int = 0
    shared_gate: bool = False
    router_bias: bool = False
    router_groups: int = 0  #: of which a token picks some first (DeepSeek); 0 when there are none
    router_top_groups: int = 0
    router_scale: float = 1.0  #: factor on the routed experts' output
    router_scores: str = "softmax"  #: softmax | sigmoid
    router_normalizes: bool = True  #: whether the weights of a token's experts add up to 1
    #: coefficient of the loss that balances the experts, where its config says
    router_loss: float | None = None

    @property
    def modules(self) -> tuple[str, ...]:
        """All of it, the activation, shared experts, and the norm before them.

        **Source**: Megatron-LM core_v0.16.1, core/models/gpt/gpt_layer_specs.py, where that norm is
        a module of its own.
        """
        return ("moe", "moe_act", "layernorm", *(("shared_experts",) if self.width else ()))

    @property
    def whole_parameters(self) -> int:
        """Shared experts and their gate, the products around a latent state, and what is learned
        beside them.
        """
        around = sum((a + self.bias) * b for a, b in self.latent_products) + self.vectors
        if not self.width:
            return around
        gate = self.hidden if self.shared_gate else 0
        shared = mlp_parameters(self.hidden, self.width, gated=self.gated, bias=self.bias)
        return shared + gate + around

    @property
    def latent_products(self) -> tuple[tuple[int, int], ...]:
        """To the latent state and back."""
        wide, narrow = self.hidden, self.latent
        return ((wide, narrow), (narrow, wide)) if self.latent else ()

    @property
    def routed_hidden(self) -> int:
        """Width of the latent state, where there is one, else of the hidden state."""
        return self.latent or self.hidden

    @property
    def router_parameters(self) -> int:
        """A score for each expert, identity experts among them."""
        return (self.experts + self.idle) * (self.hidden + self.router_bias)

    @property
    def matrix_parameters(self) -> int:
        """Those of all experts, those for images too.

        Transformers makes weights of the first product for identity experts as well, and never
        uses them.

        **Source**: transformers 5.23, LongcatFlashExperts.
        """
        unused = self.idle * self.ups * self.routed_hidden * self.expert_width
        routed = self.experts * self.expert_parameters
        return self.whole_parameters + routed + unused + self.others

    def kept_bytes(
        self, copies: int, element: float, input_element: float, *, weighs_output: bool
    ) -> float:
        """Bytes a token kept for the backward pass, as of every feed-forward.

        An identity expert keeps two states: its output, which the token's weight multiplies, and
        the product.

        **Source**: counted with autograd's saved-tensor hooks in LongcatFlashExperts.
        """
        kept = FeedForward.kept_bytes(
            self, copies, element, input_element, weighs_output=weighs_output
        )
        return kept + 2 * self.idle_per_token * self.routed_hidden * element

    @property
    def routing_bytes(self) -> int:
        """Bytes of fp32 probabilities, of the scores of the loss that balances experts, of sigmoids
        once more, and a mask.

        **Source**: counted with autograd's saved-tensor hooks in TopKRouter and permute of
        Megatron-LM core_v0.16.1, core/transformer/moe.
        """
        return self.experts * (4 + 4 + 4 * (self.router_scores == "sigmoid") + 1)

    @property
    def expert_parameters(self) -> int:
        """One routed expert's."""
        return mlp_parameters(
            self.routed_hidden, self.expert_width, gated=self.gated, bias=self.expert_bias
        )

    @property
    def expert_cuts(self) -> Mapping[str, int]:
        """Widths of the experts."""
        named = {
            "expert feed-forward size": self.expert_width,
            "shared experts' feed-forward size": self.width,
        }
        return {name: width for name, width in named.items() if width}
