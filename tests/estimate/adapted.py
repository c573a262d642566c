"""LoRA by hand, with the operators of peft's LoraLayer, on a real Hugging Face model."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any


def adapter(rank: int, alpha: int, modules: tuple[str, ...]) -> Callable[[Any], None]:
    """What freezes a model and puts adapters on the linear layers of these names."""
    return partial(_adapt, rank=rank, alpha=alpha, modules=modules)


def _adapt(model: Any, *, rank: int, alpha: int, modules: tuple[str, ...]) -> None:
    import torch

    class Adapted(torch.nn.Module):
        """peft 0.21, tuners/lora/layer.py, Linear.forward, without dropout."""

        def __init__(self, base: Any) -> None:
            super().__init__()
            self.base = base
            self.down = torch.nn.Linear(base.in_features, rank, bias=False)
            self.up = torch.nn.Linear(rank, base.out_features, bias=False)

        def forward(self, x: Any) -> Any:
            return self.base(x) + self.up(self.down(x)) * (alpha / rank)

    model.requires_grad_(False)
    model.enable_input_require_grads()
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if name in modules:
                setattr(parent, name, Adapted(child))
