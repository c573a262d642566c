"""The dense MLP, plain (GPT) or gated (Llama)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ...dataclass import dataclass
from .feed_forward import FeedForward, mlp_parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Dense(FeedForward):
    """An MLP that every token meets."""

    called: ClassVar[str] = "dense MLPs"
    letter: ClassVar[str] = "-"

    hidden: int
    width: int
    gated: bool
    activation: str = "gelu"
    bias: bool = False
    clamp: float | None = None
    #: parameters of a norm on the input of the second product, for each of its width (BitNet)
    inner_norm: int = 0
    vectors: int = 0  #: learned elements in no projection (xIELU's two)

    @property
    def modules(self) -> tuple[str, ...]:
        """All of it."""
        return ("mlp",)

    @property
    def whole_parameters(self) -> int:
        """Two or three matrices, their biases, and what is learned beside them."""
        matrices = mlp_parameters(self.hidden, self.width, gated=self.gated, bias=self.bias)
        return matrices + self.width * self.inner_norm + self.vectors

    @property
    def tensor_cuts(self) -> Mapping[str, int]:
        """Its width."""
        return {"feed-forward size": self.width}
