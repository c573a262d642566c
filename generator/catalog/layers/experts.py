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
    bias: bool = False  #: of the shared experts, and of the products around a latent state
    clamp: float | None = None
    vectors: int = 0  #: learned elements outside of the experts' and the latent products' weights
    experts: int
    per_token: int
    expert_width: int
    expert_bias: bool = False
    idle: int = 0  #: further experts that return their input: identity experts (LongCat)
    idle_per_token: int = 0  #: of these, those that one token is sent to in the mean
    image_parameters: int = 0  #: of experts that no token of text meets (ERNIE 4.5 VL)
    #: whether the experts' output is added a layer later (LongCat's shortcut)
    adds_later: bool = False
    #: width of the state that routed experts take and give, where one product before all of them
    #: narrows the hidden state and one behind them widens it (Nemotron 3); 0: the hidden size
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
    #: whether that loss is of each sequence by itself, not of a batch (DeepSeek's `seq_aux`)
    router_loss_by_sequence: bool = False

    @property
    def modules(self) -> tuple[str, ...]:
        """Names of what can be computed again: all of it, the activation, shared experts, and the
        norm before them.

        **Source**: Megatron-LM core_v0.16.1, core/models/gpt/gpt_layer_specs.py, where that norm is
        a module of its own.
        """
        return ("moe", "moe_act", "layernorm", *(("shared_experts",) if self.width else ()))

    @property
    def whole_parameters(self) -> int:
        """Parameters of what every token meets: shared experts and their gate, the products around
        a latent state, and further vectors.
        """
        around = sum((inputs + self.bias) * outputs for inputs, outputs in self.latent_products)
        around += self.vectors
        if not self.width:
            return around
        gate = self.hidden if self.shared_gate else 0
        shared = mlp_parameters(self.hidden, self.width, gated=self.gated, bias=self.bias)
        return shared + gate + around

    @property
    def latent_products(self) -> tuple[tuple[int, int], ...]:
        """To the latent state and back: the widths that each product takes and gives."""
        wide, narrow = self.hidden, self.latent
        return ((wide, narrow), (narrow, wide)) if self.latent else ()

    @property
    def routed_hidden(self) -> int:
        """Width of the latent state, where there is one, else of the hidden state."""
        return self.latent or self.hidden

    @property
    def router_parameters(self) -> int:
        """Weights of a score for each expert, identity experts among them."""
        return (self.experts + self.idle) * (self.hidden + self.router_bias)

    @property
    def matrix_parameters(self) -> int:
        """All but the router's, those of experts for images among them.

        Transformers makes weights of the first product for identity experts as well, and never
        uses them.

        **Source**: transformers 5.23, LongcatFlashExperts.
        """
        unused = self.idle * self.ups * self.routed_hidden * self.expert_width
        routed = self.experts * self.expert_parameters
        return self.whole_parameters + routed + unused + self.image_parameters

    def kept_bytes(
        self, copies: int, element: float, input_element: float, *, weighs_output: bool
    ) -> float:
        """Bytes a token kept for the backward pass: those that every feed-forward keeps, and those
        of identity experts.

        An identity expert keeps two states: its output, and that output times the token's weight.

        **Source**: counted with autograd's saved-tensor hooks in LongcatFlashExperts.
        """
        kept = FeedForward.kept_bytes(
            self, copies, element, input_element, weighs_output=weighs_output
        )
        return kept + 2 * self.idle_per_token * self.routed_hidden * element

    @property
    def routing_bytes(self) -> int:
        """Bytes that the router keeps of a token, for each expert: its probability in fp32, its
        score for the loss that balances experts, the sigmoid where scores are such, and a mask.

        **Source**: counted with autograd's saved-tensor hooks in TopKRouter and permute of
        Megatron-LM core_v0.16.1, core/transformer/moe.
        """
        probability, score, mask = 4, 4, 1
        sigmoid = 4 if self.router_scores == "sigmoid" else 0
        return self.experts * (probability + score + sigmoid + mask)

    @property
    def expert_parameters(self) -> int:
        """Parameters of one routed expert."""
        return mlp_parameters(
            self.routed_hidden, self.expert_width, gated=self.gated, bias=self.expert_bias
        )

    @property
    def expert_cuts(self) -> Mapping[str, int]:
        """Widths of routed and shared experts, which tensor ranks share evenly, by name."""
        width_by_name = {
            "expert feed-forward size": self.expert_width,
            "shared experts' feed-forward size": self.width,
        }
        return {name: width for name, width in width_by_name.items() if width}
