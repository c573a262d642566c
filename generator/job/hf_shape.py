"""Typed reading of Hugging Face configs, and what their families share: heads, biases, positions,
and Llama's shape.

Source: the configuration and modeling modules of huggingface/transformers 5.23,
models/<model_type>/.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from typing import Any, Final, NamedTuple, TypeVar

from ..catalog.layers.stack import MOST_LAYERS
from ..catalog.names import closest
from ..catalog.yarn import Yarn
from ..dataclass import dataclass
from ..numerals import read_whole
from ..text.slips import is_slip
from ..text.wording import show


class Problem(NamedTuple):
    """What is wrong with a key of a config."""

    key: str
    message: str
    hint: str | None


_LARGEST_NUMBER = 1e12  # of a base or a factor
_MOST_TRIED: Final = 512  # counts around one that doesn't fit: a bound on time
LARGEST = 10_000_000  # of a width or a count; products of such still fit 64-bit columns

#: Where a size stands that nobody can guess.
PUBLISHED: Final = "the model's published config.json"

_Value = TypeVar("_Value")


def _meant(value: object) -> int | None:
    """The integer that a text or a float such as 3072.0 stands for; `None` without one."""
    if isinstance(value, str):
        return read_whole(value)
    return int(value) if isinstance(value, float) and value.is_integer() else None


class ConfigReader:
    """Reads keys of `config` with transformers' defaults, and collects what is wrong in `problems`.

    Of several keys the first that is present counts. A value that is wrong is replaced by the
    default (else 1), so that one mistake doesn't hide the next.
    """

    def __init__(self, config: Mapping[str, object]) -> None:
        self.config = config
        #: by a key's usual name, the names that the class reads instead, the first one first
        self.names: Mapping[str, str] = {}
        self.problems: list[Problem] = []
        self.read: set[str] = set()  #: keys that were asked for, there or not
        self.ignored: set[str] = set()  #: those of them that change nothing

    def has(self, key: str) -> bool:
        """Return whether the config has `key` with a value other than null."""
        return self.given(key) is not None

    def ignore(self, *keys: str) -> None:
        """Take note of keys that change neither size nor cost of a model of this class."""
        self.read.update(keys)
        self.ignored.update(keys)

    def report(self, key: str, message: str, hint: str | None = None) -> None:
        """Add a problem."""
        self.problems.append(Problem(key, message, hint))

    def integer(
        self,
        *keys: str,
        default: int | None = None,
        low: int = 1,
        high: int = LARGEST,
    ) -> int:
        """An integer from `low` to `high`; without a default it is required."""
        fallback = low if default is None else default
        nulls = (key for key in self.called(*keys) if key in self.config)
        key = self.given(*keys) or next(nulls, None)
        if key is None:
            if default is None:
                hint = f"add {keys[0]}, as {PUBLISHED} has it"
                self.report(keys[0], f"{keys[0]} is missing", hint)
            return fallback
        value = self.config[key]
        if isinstance(value, bool) or not isinstance(value, int):
            meant = _meant(value)
            is_size = meant is not None and low <= meant <= high
            hint = f"set {key}: {meant}" if is_size else f"set {key} as {PUBLISHED} has it"
            self.report(key, f"{key} is {show(value)}, not an integer", hint)
        elif not low <= value <= high:
            bound = f"at least {low}" if value < low else f"at most {high}"
            message = f"{key} is {show(value)}, but must be {bound}"
            self.report(key, message, f"set {key} as {PUBLISHED} has it")
        else:
            return value
        return fallback

    def optional_integer(self, *keys: str, low: int = 1, high: int = LARGEST) -> int | None:
        """As `integer`, where null or no key is an answer: `None`."""
        present = self.given(*keys)
        return None if present is None else self.integer(present, low=low, high=high)

    def boolean(self, key: str, default: bool) -> bool:
        """true or false; null counts as the default, but in a class of transformers as false."""
        value = self._typed((key,), bool, default, "true or false", str(default).lower())
        if self.given(key) is not None or "model_type" not in self.config:
            return value
        is_null = any(name in self.config for name in self.called(key))
        return value and not is_null

    def text(self, *keys: str, default: str) -> str:
        """A string; null counts as the default."""
        return self._typed(keys, str, default, "text", default)

    def mapping(self, *keys: str) -> Mapping[str, object]:
        """A mapping; null or no key is an empty one."""
        empty: dict[str, object] = {}
        return self._typed(keys, dict, empty, "a mapping", "null")

    def fraction(self, *keys: str, default: float = 0.0) -> float:
        """A probability, 0 up to but not including 1; null counts as the default."""
        return self._number(
            keys, default, lambda value: "" if 0 <= value < 1 else "at least 0 and below 1"
        )

    def weight(self, *keys: str) -> float | None:
        """A finite number of at least 0; `None` where no key has one."""
        if self.given(*keys) is None:
            return None
        return self._number(
            keys, 0.0, lambda value: "" if 0 <= value < _LARGEST_NUMBER else "finite and at least 0"
        )

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
            self.report(
                key,
                f"{key} is {show(value)}, not one of {', '.join(choices)}",
                f"set {key}: {nearest}",
            )
            return default
        return value

    def layer_indices(self, key: str) -> frozenset[int]:
        """A list of integers; null or no key is the empty list."""
        value = self.config.get(key)
        if not self.has(key):
            return frozenset()
        if isinstance(value, (list, tuple)) and all(type(number) is int for number in value):
            return frozenset(value)
        self.report(key, f"{key} is {show(value)}, not a list of layer numbers", f"set {key}: []")
        return frozenset()

    def given(self, *keys: str) -> str | None:
        """The first of `keys` with a value, by any name that the class reads."""
        names = self.called(*keys)
        self.read.update(names)
        for name in names:
            if self.config.get(name) is not None:
                return name
        return None

    def called(self, *keys: str) -> list[str]:
        """The names that the class reads for `keys`, in the order in which it looks."""
        if len(keys) == 1:  # the usual case, on which reading spends its time
            return self.names.get(keys[0], keys[0]).split()
        return [name for key in keys for name in self.names.get(key, key).split()]

    def _typed(
        self, keys: tuple[str, ...], kind: type[_Value], default: _Value, what: str, shown: str
    ) -> _Value:
        """The value, if it is a `kind`.

        A message calls that `what`, and its hint has the default as it is `shown`.
        """
        key = self.given(*keys)
        if key is None:
            return default
        value = self.config[key]
        if isinstance(value, kind):
            return value
        self.report(key, f"{key} is {show(value)}, not {what}", f"set {key}: {shown}")
        return default

    def _number(
        self, keys: tuple[str, ...], default: float, bound: Callable[[float], str]
    ) -> float:
        """The value, if it is a number within a bound, which `bound` says of one that isn't."""
        key = self.given(*keys)
        if key is None:
            return default
        value = self.config[key]
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            problem = "not a number"
        else:
            wanted = bound(value)
            if not wanted:
                return float(value)
            problem = f"but must be {wanted}"
        self.report(key, f"{key} is {show(value)}, {problem}", f"set {key}: {default:g}")
        return default


LONG = 2**30  #: positions need no table, so only absurd values are refused
Shape = dict[str, Any]  #: fields of `Model`
Dropouts = tuple[float, float]  #: of the hidden state, and of attention
#: A reader of one field or of several, from a config and the fields found so far.
More = Callable[[ConfigReader, Shape], Any]


def dense_layers(layers: int, dense: Iterable[int]) -> Shape:
    """Return which layers of a mixture of experts have a dense MLP."""
    indices = tuple(sorted(index for index in set(dense) if 0 <= index < layers))
    scattered = indices != tuple(range(len(indices)))
    return {"dense_layers": len(indices), "dense_layer_indices": indices if scattered else ()}


def mlp_layer_types(read: ConfigReader, layers: int) -> Shape | None:
    """Dense layers as `mlp_layer_types` lists them; `None` without that list."""
    types = layer_list(read, "mlp_layer_types", layers, ("dense", "sparse"))
    if types is None:
        return None
    return dense_layers(layers, (i for i, kind in enumerate(types) if kind == "dense"))


def windows(
    read: ConfigReader,
    layers: int,
    window: int | None,
    full: Iterable[int] = (),
    *,
    chunked: bool = False,
) -> Shape:
    """Local attention over `window` tokens, but in the layers `full`; or as `layer_types` says."""
    types = layer_list(
        read, "layer_types", layers, ("full_attention", "sliding_attention", "chunked_attention")
    )
    if types is not None:
        full = (index for index, kind in enumerate(types) if kind == "full_attention")
        chunked = "chunked_attention" in types
    whole = tuple(full)
    if window is None or len(whole) == layers:
        return {"sliding_window": None}
    return {"sliding_window": window, "full_attention_layers": whole, "chunked_attention": chunked}


def read_window(read: ConfigReader, default: int | None, key: str = "sliding_window") -> int | None:
    """The width of local attention; null means none."""
    return read.optional_integer(key, high=LONG) if key in read.config else default


def switched_window(read: ConfigReader, default: int | None) -> int | None:
    """The width of local attention where `use_sliding_window` asks for it."""
    return read_window(read, default) if read.boolean("use_sliding_window", False) else None


def without_rotary(read: ConfigReader, layers: int) -> tuple[int, ...]:
    """Layers without positions: 0 in `no_rope_layers`, else every `no_rope_layer_interval`-th."""
    every = read.integer("no_rope_layer_interval", default=4)
    if read.config.get("no_rope_layers"):  # an empty list counts as none, in transformers too
        rotary = layer_list(read, "no_rope_layers", layers, (0, 1))
        return tuple(index for index, kind in enumerate(rotary or ()) if kind == 0)
    return tuple(range(every - 1, layers, every))


def layer_list(
    read: ConfigReader, key: str, layers: int, known: tuple[object, ...]
) -> list[object] | None:
    """One of `known` for each layer; `None` without the key, or where the list is wrong, which is
    reported.
    """
    if not read.has(key):
        return None
    value = read.config[key]
    if not isinstance(value, (list, tuple)):
        read.report(
            key, f"{key} is {show(value)}, not a list with a value for each layer", f"remove {key}"
        )
        return None
    odd = next((kind for kind in value if kind not in known or isinstance(kind, bool)), None)
    if odd is not None:
        report_odd_kind(read, key, odd, known, usual=known)
        return None
    if len(value) < layers:
        read.report(
            key,
            f"{key} has {len(value)} values for {layers} layers",
            one_a_layer(len(value), layers),
        )
        return None
    return list(value[:layers])


def one_a_layer(listed: int, layers: int) -> str:
    """A hint on a list that is shorter than a model's layers: it may be their pattern."""
    if listed and layers % listed == 0:
        return (
            f"write one value for each layer, as the {listed} repeated {layers // listed} times, "
            f"or set num_hidden_layers: {listed}"
        )
    return f"write one value for each of the {layers} layers, or set num_hidden_layers: {listed}"


def report_odd_kind(
    read: ConfigReader, key: str, odd: object, known: Iterable[object], usual: Iterable[object]
) -> None:
    """Report a kind of layers that isn't `known`: a slip of a known one, or a kind nobody models.

    The hint names the known kind, or the `usual` ones.
    """
    name = odd if isinstance(odd, str) else ""
    near = next((kind for kind in known if isinstance(kind, str) and is_slip(name, kind)), None)
    if near is not None:
        message = f"{key} has {show(odd)}, which is no kind of layers"
        hint = f"did you mean {near}?"
    else:
        said = name.replace("_", " ") or "such"
        message = f"{key} has {show(odd)}: {said} layers are not modelled"
        hint = f"use a model whose layers are {' or '.join(map(str, usual))}"
    read.report(key, message, hint)


def gpt_block(bias: bool = True) -> Shape:
    """GPT's block: LayerNorm, a plain MLP, biases everywhere or nowhere."""
    return {
        "gated_mlp": False,
        "norm": "layernorm",
        "qkv_bias": bias,
        "output_bias": bias,
        "mlp_bias": bias,
    }


def read_head_dim(read: ConfigReader, hidden: int, heads: int) -> int:
    """`head_dim`, or hidden over heads, which must then be whole."""
    head_dim = read.optional_integer("head_dim")
    if head_dim is None and hidden % heads:
        _report_uneven_heads(read, hidden, heads)
    return head_dim or max(1, hidden // heads)


def _report_uneven_heads(read: ConfigReader, hidden: int, heads: int) -> None:
    """Report a hidden size that the heads don't divide, with the nearest that go together."""
    key = read.given("hidden_size") or "hidden_size"
    heads_key = read.given("num_attention_heads") or "num_attention_heads"
    kv_heads = read.config.get(read.given("num_key_value_heads") or "")
    groups = kv_heads if isinstance(kv_heads, int) and 0 < kv_heads <= heads else 1
    counts = range(max(1, heads - _MOST_TRIED), heads + _MOST_TRIED)
    passing = [count for count in counts if hidden % count == 0 and count % groups == 0]
    near = min(passing, key=lambda count: abs(count - heads), default=None)
    multiple = max(1, round(hidden / heads)) * heads
    hint = f"{key}: {multiple}"
    if near:
        hint = f"{heads_key}: {near}, or {hint}"
    message = f"{key} is {hidden}, not a multiple of the {heads} attention heads"
    read.report(key, message, f"set {hint}")


def read_kv_heads(
    read: ConfigReader, heads: int, default: int | None, *, rounds: bool = False
) -> int:
    """Key/value heads; null or no default means as many as heads. They must divide the heads.

    Where the heads themselves don't divide the hidden size, that alone is reported, unless the
    class `rounds` their width.
    """
    key = read.given("num_key_value_heads") or "num_key_value_heads"
    kv_heads = read.optional_integer(key)
    if kv_heads is None:
        is_null = key in read.config
        kv_heads = heads if default is None or is_null else default
    if heads % kv_heads:
        hidden = read.config.get(read.given("hidden_size") or "")
        are_uneven = isinstance(hidden, int) and hidden % heads != 0
        if are_uneven and read.given("head_dim") is None and not rounds:
            return heads
        counts = range(1, min(kv_heads, heads) + 1)
        largest_divisor = max(count for count in counts if heads % count == 0)
        message = f"{key} is {kv_heads}, which doesn't divide the {heads} attention heads"
        read.report(key, message, f"set {key}: {largest_divisor}")
        return heads
    return kv_heads


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The defaults of the config class of a `model_type`; called, it reads a config.

    Fields have Llama's values. Most families share its rotary positions, gated MLP, RMSNorm and
    grouped queries; `gpt_like` has the others.
    """

    vocab: int = 32000
    hidden: int = 4096
    ffn: int | None = 11008  #: None: four times hidden
    layers: int = 32
    heads: int = 32
    kv_heads: int | None = None  #: None: as many as heads; 0: as many, without a key
    positions: int = 2048
    head_dim: int | None = None  #: None: hidden over heads
    rounds_heads: bool = False  #: hidden over heads is rounded down where it isn't whole
    derives_heads: bool = False  #: the same where `head_dim` is null, but not where it is missing
    activation: str = "silu"
    tied: bool = False
    position_embedding: str = "rotary"
    rotary_base: float = 10000.0
    rotary_fraction: float = 1.0
    epsilon: float = 1e-6
    attention_bias: bool | None = None  #: of the key; None: the class has no such key, as below
    mlp_bias: bool | None = None
    window: int | None = None  #: of `sliding_window`
    has_window: bool = False
    #: which layers have no window: every how many-th, of `sliding_window_pattern`
    every: int | None = None
    #: `layer_types` has more than windows, and `more` reads it
    mixed: bool = False
    names: Mapping[str, str] = field(default_factory=dict)  #: as those of `ConfigReader`
    dropout: str | None = None  #: the key of hidden dropout
    dropouts: Dropouts = (0.0, 0.0)  #: their defaults
    #: what the model's code decides, or a `More` for a key of its own
    fields: Shape = field(default_factory=dict)
    more: More = lambda read, shape: {}  #: several fields at once
    #: for a model without a class: what is missing is an error, and sizes here are examples
    required: bool = False

    def __call__(self, read: ConfigReader) -> Shape:
        """Return the shape that a config of this class describes."""
        read.names = self.names
        hidden_dropout, attention_dropout = self.dropouts
        shape = self._sizes(read)
        shape |= {
            "gated_mlp": True,
            "activation": read.text("hidden_act", default=self.activation),
            "tied_embeddings": read.boolean("tie_word_embeddings", self.tied),
            "position_embedding": self.position_embedding,
        }
        if self.position_embedding == "rotary":
            shape |= read_rotary(read, self.rotary_base, self.rotary_fraction)
        shape["norm_epsilon"] = read.positive("rms_norm_eps", default=self.epsilon)
        shape["attention_dropout"] = read.fraction("attention_dropout", default=attention_dropout)
        if self.attention_bias is not None:  # of the query, key, value and output projections
            has_bias = read.boolean("attention_bias", self.attention_bias)
            shape["qkv_bias"] = shape["output_bias"] = has_bias
        if self.mlp_bias is not None:
            shape["mlp_bias"] = read.boolean("mlp_bias", self.mlp_bias)
        if self.dropout is not None:
            shape["dropout"] = read.fraction(self.dropout, default=hidden_dropout)
        shape.update(self._windows(read, shape["layers"]))
        for name, value in self.fields.items():
            shape[name] = value(read, shape) if callable(value) else value
        return {**shape, **self.more(read, shape)}

    def _sizes(self, read: ConfigReader) -> Shape:
        """The sizes of a config of this class."""
        is_learned = self.position_embedding == "learned"

        def size(key: str, usual: int, high: int = LARGEST) -> int:
            return read.integer(key, default=None if self.required else usual, high=high)

        hidden, heads = size("hidden_size", self.hidden), size("num_attention_heads", self.heads)
        if self.ffn:
            ffn = size("intermediate_size", self.ffn)
        else:
            ffn = read.optional_integer("intermediate_size") or 4 * hidden
        # Only learned positions have a table, so that their number is a size of the model.
        positions = read.integer(
            "max_position_embeddings",
            default=None if self.required and is_learned else self.positions,
            high=LARGEST if is_learned else LONG,
        )
        vocab = size("vocab_size", self.vocab)
        layers = size("num_hidden_layers", self.layers, high=MOST_LAYERS)
        kv_heads = heads
        if self.kv_heads != 0:
            kv_heads = read_kv_heads(read, heads, self.kv_heads, rounds=self.rounds_heads)
        return {
            "vocab": vocab,
            "hidden": hidden,
            "ffn": ffn,
            "layers": layers,
            "heads": heads,
            "kv_heads": kv_heads,
            "head_dim": self._head_dim(read, hidden, heads),
            "max_positions": positions,
            "position_rows": positions if is_learned else 0,
        }

    def _head_dim(self, read: ConfigReader, hidden: int, heads: int) -> int:
        """The width of a head, as this class takes it where the key is missing or null."""
        divided = max(1, hidden // heads)
        if self.derives_heads and "head_dim" in read.config and not read.has("head_dim"):
            return divided
        default = divided if self.rounds_heads else self.head_dim
        if default:
            return read.integer("head_dim", default=default)
        return read_head_dim(read, hidden, heads)

    def _windows(self, read: ConfigReader, layers: int) -> Shape:
        """Which layers have a window, and how wide it is."""
        if self.mixed:
            return {}
        if not self.has_window:
            whole = windows(read, layers, None)  # refuses kinds that aren't modelled
            read.read.discard("layer_types")  # nothing came of it
            return whole
        window = read_window(read, self.window)
        every = self.every
        if every is not None and not read.has("layer_types"):
            every = read.integer("sliding_window_pattern", default=every)
        return windows(read, layers, window, range(every - 1, layers, every) if every else ())


def gpt_like(
    names: Mapping[str, str] | None = None, fields: Shape | None = None, **values: Any
) -> Family:
    """GPT or a relative, with LayerNorm, a plain MLP, tied embeddings, and no grouped queries."""
    keys_that_it_lacks = ("head_dim", "hidden_act", "intermediate_size", "layer_types")
    usual: dict[str, Any] = {
        "ffn": None,
        "kv_heads": 0,
        "activation": "gelu",
        "tied": True,
        "epsilon": 1e-5,
        "position_embedding": "learned",
        "dropout": "resid_pdrop",
        **values,
    }
    called = {
        **dict.fromkeys(keys_that_it_lacks, ""),
        "rms_norm_eps": "layer_norm_epsilon",
        "attention_dropout": "attn_pdrop",
        **(names or {}),
    }
    return Family(names=called, fields={**gpt_block(), **(fields or {})}, **usual)


def switch(key: str, default: bool, on: object = True, off: object = False) -> More:
    """A reader of a key that is true or false, and the field's value `on` and `off`."""
    return lambda read, _: on if read.boolean(key, default) else off


def biases(key: str, default: bool, *more: str) -> Shape:
    """The fields of biases everywhere or nowhere, as one key says, which decides `more` too."""
    return dict.fromkeys(("qkv_bias", "output_bias", "mlp_bias", *more), switch(key, default))


def read_rotary(read: ConfigReader, base: float = 10000.0, fraction: float = 1.0) -> Shape:
    """Rotary positions: their base, the share of a head that rotates, and how they are scaled.

    `rope_parameters` is transformers 5's place for them; older configs have `rope_theta` and
    `rope_scaling`.
    """
    parameters = read.mapping("rope_scaling") or read.mapping("rope_parameters")
    of_full = parameters.get("full_attention")
    if isinstance(of_full, Mapping):  # Gemma 3, whose local layers have a base of their own
        parameters = of_full
    inner = ConfigReader(parameters)
    base = inner.positive("rope_theta", default=read.positive("rope_theta", default=base))
    share = "partial_rotary_factor"
    fraction = inner.positive(share, default=read.positive(share, default=fraction))
    kind = inner.text("rope_type", "type", default="default")
    shape: Shape = {
        "rotary_base": base,
        "rotary_fraction": min(1.0, fraction),
        "rotary_scaling": "none",
        "rotary_scaling_factor": 1.0,
    }
    if kind != "default":
        factor = inner.positive("factor", default=1.0)
        shape |= {"rotary_scaling": kind, "rotary_scaling_factor": factor}
    if kind == "yarn":
        shape |= _read_yarn(read, inner, parameters)
    read.problems.extend(inner.problems)
    return shape


def _read_yarn(read: ConfigReader, inner: ConfigReader, parameters: Mapping[str, object]) -> Shape:
    """YaRN's numbers, where it is certain how they scale attention.

    Where one of `mscale` and `mscale_all_dim` is absent or 0, transformers 5.23 leaves the other
    out of the rotation, and DeepSeek's own code doesn't.
    """
    scale_keys = _given(parameters, _SCALES)
    scales = [inner.positive(key, default=0.0) for key in scale_keys]
    is_uncertain = len(scales) == 1 and (scales != [1.0] or scale_keys == ["mscale_all_dim"])
    if is_uncertain:
        return {}
    longest = read.positive("max_position_embeddings", default=2048)
    has_factor = parameters.get("attention_factor") is not None
    numbers = Yarn(
        positions=int(inner.positive("original_max_position_embeddings", default=longest)),
        beta_fast=inner.positive("beta_fast", default=32.0),
        beta_slow=inner.positive("beta_slow", default=1.0),
        rounds=parameters.get("truncate") is not False,
        attention_factor=inner.positive("attention_factor", default=1.0) if has_factor else None,
    )
    if len(scales) == len(_SCALES):
        numbers = replace(numbers, mscale=scales[0], mscale_all_dim=scales[1])
    return {"yarn": numbers}


#: The scales of attention by YaRN's factor: of all of it, over that of keys and queries.
_SCALES: Final = ("mscale", "mscale_all_dim")


def _given(parameters: Mapping[str, object], keys: Iterable[str]) -> list[str]:
    return [key for key in keys if parameters.get(key)]
