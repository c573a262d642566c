"""Which layers of a model differ from the others: local attention, dense MLPs among experts, no positions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .hf_reader import ConfigReader
from .wording import show

_FULL, _SLIDING, _CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
_LONG = 2**30
#: What `layer_types` names beside attention: no layer of these is modelled.
_NOT_MODELLED = {
    "linear_attention": "linear attention",
    "mamba": "state-space (Mamba)",
    "conv": "convolution",
    "recurrent": "recurrent",
    "hybrid": "hybrid (attention and Mamba)",
    "compressed_sparse_attention": "sparse attention",
    "heavily_compressed_attention": "sparse attention",
}

Layers = dict[str, Any]  #: fields of `Model`


def dense_layers(layers: int, dense: Iterable[int]) -> Layers:
    """Which layers of a mixture of experts have a dense MLP."""
    indices = tuple(sorted(index for index in set(dense) if 0 <= index < layers))
    scattered = indices != tuple(range(len(indices)))
    return {"dense_layers": len(indices), "dense_layer_indices": indices if scattered else ()}


def mlp_layer_types(read: ConfigReader, layers: int) -> Layers | None:
    """Dense layers as `mlp_layer_types` lists them; `None` without that list."""
    types = _layer_list(read, "mlp_layer_types", layers, ("dense", "sparse"))
    return None if types is None else dense_layers(layers, (i for i, kind in enumerate(types) if kind == "dense"))


def windows(read: ConfigReader, layers: int, window: int | None, every: int | None = None) -> Layers:
    """Local attention over `window` tokens, but in every `every`-th layer, if there are such; `layer_types` rules."""
    types = _layer_list(read, "layer_types", layers, (_FULL, _SLIDING, _CHUNKED))
    if types is None:
        full = [index for index in range(layers) if every and (index + 1) % every == 0]
    else:
        full = [index for index, kind in enumerate(types) if kind == _FULL]
    return local_layers(layers, window, full, chunked=types is not None and _CHUNKED in types)


def local_layers(layers: int, window: int | None, full: Iterable[int], *, chunked: bool = False) -> Layers:
    """Local attention in all layers but `full`."""
    whole = tuple(full)
    if window is None or len(whole) == layers:
        return {"sliding_window": None}
    return {"sliding_window": window, "full_attention_layers": whole, "chunked_attention": chunked}


def read_window(read: ConfigReader, default: int | None, key: str = "sliding_window") -> int | None:
    """The width of local attention; null means none."""
    return read.optional_integer(key, high=_LONG) if key in read.config else default


def without_rotary(read: ConfigReader, layers: int, interval: int) -> tuple[int, ...]:
    """Layers without positions: 0 in `no_rope_layers`, else every `no_rope_layer_interval`-th."""
    every = read.integer("no_rope_layer_interval", default=interval)
    if read.config.get("no_rope_layers"):  # an empty list counts as none, in transformers too
        rotary = _layer_list(read, "no_rope_layers", layers, (0, 1))
        return tuple(index for index, kind in enumerate(rotary or ()) if kind == 0)
    return tuple(index for index in range(layers) if (index + 1) % every == 0)


def _layer_list(read: ConfigReader, key: str, layers: int, known: tuple[object, ...]) -> list[object] | None:
    """One of `known` for each layer; `None` without the key, or where the list is wrong, which is reported."""
    if not read.has(key):
        return None
    value = read.config[key]
    if not isinstance(value, (list, tuple)):
        read.report(key, f"{key} is {show(value)}, not a list with a value for each layer", f"remove {key}")
        return None
    odd = next((kind for kind in value if kind not in known or isinstance(kind, bool)), None)
    if odd is not None:
        name = _NOT_MODELLED.get(odd) if isinstance(odd, str) else None
        message = f"{key} has {show(odd)}: {f'{name} layers are' if name else 'such layers are'} not modelled"
        read.report(key, message, f"use a model whose layers are {' or '.join(map(str, known))}")
        return None
    if len(value) < layers:
        read.report(key, f"{key} has {len(value)} values for {layers} layers", f"set num_hidden_layers: {len(value)}")
        return None
    return list(value[:layers])
