"""Models by their sizes, and with some of them changed."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from dsgen.catalog.layers.softmax import SoftmaxAttention
from dsgen.catalog.layers.stack import Stack
from dsgen.catalog.model import Model


def changed(model: Model, *, layers: int | None = None, **sizes: Any) -> Model:
    """`model` with other sizes: its own, and those of each mixer and feed-forward that has a field
    of the name.

    `layers`: as many of the last kind more, or less.
    """
    names = {field.name for field in fields(Model)}
    whole = {name: value for name, value in sizes.items() if name in names}
    parts = {name: value for name, value in sizes.items() if name not in names}

    def part(old: Any) -> Any:
        return replace(
            old, **{name: value for name, value in parts.items() if name in old.__slots__}
        )

    kinds = [
        replace(layer, mixer=part(layer.mixer), feed_forward=part(layer.feed_forward))
        for layer in model.stack.kinds
    ]
    order = [*model.stack.order]
    if layers is not None:
        order = order[:layers] + order[-1:] * (layers - len(order))
    return replace(model, stack=Stack.of(kinds[place] for place in order), **whole)


#: Names that sizes have in configs, and those of the parts' fields.
_NAMES = {
    "qkv_bias": "qkv_bias",
    "attention_sinks": "sinks",
    "gated_mlp": "gated",
    "activation_clamp": "clamp",
    "mlp_bias": "bias",
    "experts_per_token": "per_token",
    "moe_ffn": "expert_width",
    "shared_ffn": "width",
}


class Sizes:
    """The sizes of a model by name, wherever its parts have them."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def __getattr__(self, name: str) -> Any:
        model = self.model
        if name not in _NAMES and hasattr(model, name):
            return getattr(model, name)
        parts = (model.softmax, model.feed_forward)
        field = _NAMES.get(name, name)
        return next(getattr(part, field) for part in parts if hasattr(part, field))

    @property
    def norm(self) -> str:
        """The kind of its norms."""
        return self.model.norm.kind

    @property
    def norm_epsilon(self) -> float:
        """What its norms add to the variance."""
        return self.model.norm.epsilon

    @property
    def full_attention_layers(self) -> tuple[int, ...]:
        """Layers without the window that others have."""
        if self.model.sliding_window is None:
            return ()
        return self.model.stack.where(
            lambda layer: (
                isinstance(layer.mixer, SoftmaxAttention) and layer.mixer.span.window is None
            )
        )

    @property
    def chunked_attention(self) -> bool:
        """Whether a window is a chunk."""
        return any(mixer.span.chunked for mixer in self.model.attentions)

    @property
    def layers_without_rotary(self) -> tuple[int, ...]:
        """Layers without positions, where others have rotary ones."""
        bare = self.model.stack.where(lambda layer: not layer.mixer.rotary)
        return bare if self.model.position_embedding == "rotary" else ()

    @property
    def dense_layer_indices(self) -> tuple[int, ...]:
        """Which layers have a dense MLP among experts, where they aren't the first."""
        dense = self.model.stack.where(lambda layer: not layer.feed_forward.experts)
        return () if dense == tuple(range(len(dense))) else dense
