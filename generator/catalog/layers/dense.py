"""The dense MLP, plain (GPT) or gated (Llama)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ...dataclass import dataclass
from .feed_forward import FeedForward, mlp_parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Dense(FeedForward):
    """An MLP that every token passes through: two matrices, or three with a gate."""

    called: ClassVar[str] = "dense MLPs"
    letter: ClassVar[str] = "-"

    hidden: int
    width: int
    gated: bool
    activation: str = "gelu"
    bias: bool = False
    clamp: float | None = None
    #: parameters per element of the inner width, of a norm before the second product (BitNet)
    inner_norm: int = 0
    #: only the largest elements of the gate are kept, by their mean and spread (Gemma 3n)
    keeps_largest: bool = False
    vectors: int = 0  #: further learned elements, outside of any matrix (xIELU has two)

    @property
    def modules(self) -> tuple[str, ...]:
        """The names by which the parts of the layer can be recomputed: it has one."""
        return ("mlp",)

    @property
    def whole_parameters(self) -> int:
        """The matrices with their biases, the inner norm and the other learned elements."""
        matrices = mlp_parameters(self.hidden, self.width, gated=self.gated, bias=self.bias)
        return matrices + self.width * self.inner_norm + self.vectors

    def kept_bytes(
        self, copies: int, element: float, input_element: float, *, weighs_output: bool
    ) -> float:
        """As of any feed-forward; where only the gate's largest elements stay, the gate once more.

        **Source**: counted with autograd's saved-tensor hooks in Gemma3nTextMLP.
        """
        kept = FeedForward.kept_bytes(
            self, copies, element, input_element, weighs_output=weighs_output
        )
        return kept + (self.width + 1) * element * self.keeps_largest

    @property
    def tensor_cuts(self) -> Mapping[str, int]:
        """What tensor parallelism divides, by name: the inner width."""
        return {"feed-forward size": self.width}
