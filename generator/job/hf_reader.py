"""Typed reading of a Hugging Face config: every wrong value becomes a problem, and reading goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from ..catalog.names import closest
from .wording import show

Problem = tuple[str, str, "str | None"]  #: key, what is wrong, hint

_LARGEST_NUMBER = 1e12  # of a base or a factor
_LARGEST = 10_000_000  # of a width or a count; products of such still fit 64-bit columns

_Value = TypeVar("_Value")


class ConfigReader:
    """Reads keys of `config` with transformers' defaults; `problems` collects what is wrong, in reading order.

    Of several keys the first that is present counts. A value that is wrong is replaced by the default (else 1), so that
    one mistake doesn't hide the next.
    """

    def __init__(self, config: Mapping[str, object]) -> None:
        self.config = config
        self.problems: list[Problem] = []
        self.read: set[str] = set()  #: keys that were asked for, there or not

    def has(self, key: str) -> bool:
        """Return whether the config has `key` with a value other than null."""
        self.read.add(key)
        return self.config.get(key) is not None

    def report(self, key: str, message: str, hint: str | None = None) -> None:
        """Add a problem."""
        self.problems.append((key, message, hint))

    def integer(
        self, *keys: str, default: int | None = None, example: int | None = None, low: int = 1, high: int = _LARGEST
    ) -> int:
        """An integer from `low` to `high`; no default: required.

        `example` is a value to name in the hint where there is no default.
        """
        fallback = low if default is None else default
        suggested = example if default is None and example is not None else fallback
        key = self._given(keys) or next((key for key in keys if key in self.config), None)
        if key is None:
            if default is None:
                self.report(keys[0], f"{keys[0]} is missing", f"add {keys[0]}: {suggested}")
            return fallback
        value = self.config[key]
        if isinstance(value, bool) or not isinstance(value, int):
            self.report(key, f"{key} is {show(value)}, not an integer", f"set {key}: {suggested}")
        elif not low <= value <= high:
            bound = f"at least {low}" if value < low else f"at most {high}"
            self.report(key, f"{key} is {show(value)}, but must be {bound}", f"set {key}: {suggested}")
        else:
            return value
        return fallback

    def optional_integer(self, *keys: str, low: int = 1, high: int = _LARGEST) -> int | None:
        """As `integer`, where null or no key is an answer: `None`."""
        present = self._given(keys)
        return None if present is None else self.integer(present, low=low, high=high)

    def boolean(self, key: str, default: bool) -> bool:
        """true or false; null counts as the default."""
        return self._typed((key,), bool, default, "true or false", str(default).lower())

    def text(self, *keys: str, default: str) -> str:
        """A string; null counts as the default."""
        return self._typed(keys, str, default, "text", default)

    def mapping(self, *keys: str) -> Mapping[str, object]:
        """A mapping; null or no key is an empty one."""
        empty: dict[str, object] = {}
        return self._typed(keys, dict, empty, "a mapping", "null")

    def fraction(self, *keys: str, default: float = 0.0) -> float:
        """A probability, 0 up to but not including 1; null counts as the default."""
        return self._number(keys, default, lambda value: "" if 0 <= value < 1 else "at least 0 and below 1")

    def positive(self, *keys: str, default: float) -> float:
        """A finite number above 0; null counts as the default."""

        def bound(value: float) -> str:
            if 0 < value < _LARGEST_NUMBER:
                return ""
            return "above 0" if value < 1 else f"below {_LARGEST_NUMBER:g}"

        return self._number(keys, default, bound)

    def choice(self, key: str, choices: tuple[str, ...], default: str) -> str:
        """One of `choices`; null counts as the default."""
        value = self.text(key, default=default)
        if value not in choices:
            nearest = closest(value, choices) or default
            self.report(key, f"{key} is {show(value)}, not one of {', '.join(choices)}", f"set {key}: {nearest}")
            return default
        return value

    def layer_indices(self, key: str) -> frozenset[int]:
        """A list of integers; null or no key is the empty list."""
        value = self.config.get(key)
        if not self.has(key):
            return frozenset()
        if not isinstance(value, (list, tuple)) or any(isinstance(i, bool) or not isinstance(i, int) for i in value):
            self.report(key, f"{key} is {show(value)}, not a list of layer numbers", f"set {key}: []")
            return frozenset()
        return frozenset(value)

    def _given(self, keys: tuple[str, ...]) -> str | None:
        """The first of `keys` with a value."""
        self.read.update(keys)
        return next((key for key in keys if self.config.get(key) is not None), None)

    def _typed(self, keys: tuple[str, ...], kind: type[_Value], default: _Value, what: str, shown: str) -> _Value:
        """The value, if it is a `kind`: `what` it is called, and how the default is `shown`."""
        key = self._given(keys)
        if key is None:
            return default
        value = self.config[key]
        if isinstance(value, kind):
            return value
        self.report(key, f"{key} is {show(value)}, not {what}", f"set {key}: {shown}")
        return default

    def _number(self, keys: tuple[str, ...], default: float, bound: Callable[[float], str]) -> float:
        """The value, if it is a number that `bound` has nothing to say about."""
        key = self._given(keys)
        if key is None:
            return default
        value = self.config[key]
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            problem = "not a number"
        elif wanted := bound(value):
            problem = f"but must be {wanted}"
        else:
            return float(value)
        self.report(key, f"{key} is {show(value)}, {problem}", f"set {key}: {default:g}")
        return default


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
    """Return which layers of a mixture of experts have a dense MLP."""
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
