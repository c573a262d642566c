"""The reader of configs by their keys, for any `model_type`: what no key says is a trait of it.

Source: the configuration and modeling modules of huggingface/transformers 5.23,
models/<model_type>/.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import cache
from typing import Any, Final

from ..catalog.layers.dense import Dense
from ..catalog.layers.experts import Experts
from ..catalog.layers.grouped import GroupedQuery
from ..catalog.layers.indexer import BlockIndexer, Indexer
from ..catalog.layers.latent import Latent
from ..catalog.layers.mixer import Mixer
from ..catalog.layers.side_by_side import SideBySide
from ..catalog.layers.softmax import Span
from ..catalog.layers.stack import MOST_LAYERS, Layer, Norm, Stack
from ..catalog.layers.streams import Streams
from ..dataclass import dataclass
from ..text.wording import show
from .hf_keys import PER_LAYER, KeyReader
from .hf_shape import (
    LONG,
    PUBLISHED,
    Shape,
    one_a_layer,
    read_head_dim,
    read_kv_heads,
    read_rotary,
    report_odd_kind,
)

#: A value, or a function that finds it from the reader and the sizes found so far.
Trait = Any

_USUAL_BASE: Final = 10000.0  # of rotary positions, as Llama's
#: Positions of a model that says none, where they are no table: as many as Llama 3.1's.
_USUAL_POSITIONS: Final = 131072

FULL, LOCAL, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
#: Whole attention with an indexer of keys, or of their blocks, beside it.
INDEXED, BLOCKS = "indexed_attention", "minimax_m3_sparse"
#: Names of layers with softmax attention in `layer_types` and the like.
SOFTMAX: Final[Mapping[str, str]] = {
    **dict.fromkeys((FULL, "attention", "global", "full"), FULL),
    **dict.fromkeys(
        (LOCAL, "reference_sliding_attention", "sliding", "local", "sliding_window", "swa"), LOCAL
    ),
    CHUNKED: CHUNKED,
    # The second as configs were published before transformers had a name for it.
    **dict.fromkeys((INDEXED, "deepseek_sparse_attention"), INDEXED),
    BLOCKS: BLOCKS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What the code of a `model_type` decides and no key says, by default as Llama's does."""

    norm: Trait = "rmsnorm"
    norms: Trait = None  #: of a layer, as wide as the hidden state; None: two, or as a key says
    routed_norms: int | None = None  #: of a layer with experts, where it has others
    norm_after: Trait = False
    final_norms: Trait = 1
    embedding_norms: Trait = 0

    head_dim: bool = True  #: whether `head_dim` counts: else it is hidden over heads
    rounds_heads: bool = False  #: hidden over heads is rounded down where it isn't whole
    square: bool = False  #: heads and their width have to make up the hidden size
    qk_norm: Trait = None  #: None: as a key says, per head
    gate: Trait = "none"
    sinks: Trait = False
    qkv_bias: Trait = None  #: None: as a key says
    output_bias: Trait = None
    #: further fields of the attention, from the reader, the sizes, the layer's name and its place
    attention: Callable[[KeyReader, Shape, str, int], Shape] | None = None
    #: readers of other kinds of mixers, by their names in `layer_types` and the like
    mixers: Mapping[str, Callable[[KeyReader, Shape], Mixer]] = field(default_factory=dict)
    #: the streams of its hidden state, where it has several
    streams: Callable[[KeyReader, Shape], Streams] | None = None
    index_period: int = 1  #: of how many layers one has an indexer, where no key says it
    indexes_state: bool = False  #: an indexer's queries are of the hidden state, not of a latent

    gated: Trait = None  #: None: as `gated_mlp` says, else gated but for activations of plain MLPs
    mlp_bias: Trait = None  #: None: as a key says
    layers: Callable[[KeyReader], int] | None = None  #: how many; None: as a key says
    ffn: Callable[[KeyReader, int], int] | None = None  #: width of its MLP, of the hidden size
    dense: Trait = field(default_factory=dict)  #: further fields of dense MLPs
    experts: Trait = field(default_factory=dict)  #: further fields of experts
    routes: Trait = True  #: whether the experts that keys describe are there at all
    #: numbers of the layers without experts; None: as keys say
    plain: Callable[[KeyReader, Shape], Container[int]] | None = None

    positions: Trait = "rotary"
    position_offset: int = 0  #: rows of a learned table before the first position
    rotary_fraction: Trait = 1.0
    #: the name of each layer, as in `layer_types`, where no key lists them
    kinds: Callable[[KeyReader, Shape], Sequence[str]] | None = None
    last: str | None = None  #: the name of the last layer, whatever a list says
    #: numbers of the layers without rotary positions
    bare: Callable[[KeyReader, Shape], Container[int]] | None = None

    tied: Trait = None  #: None: as a key says
    head_bias: Trait = False
    table_elements: Trait = 0
    extras: Trait = ()
    fields: Trait = field(default_factory=dict)  #: further fields of the model
    #: a layer as it is at a place, of what it would be
    layer: Callable[[KeyReader, Shape, int, Layer], Layer] | None = None
    #: all layers as they are, of what they would be
    stack: Callable[[KeyReader, Shape, Sequence[Layer]], Iterable[Layer]] | None = None

    names: Mapping[str, str] = field(default_factory=dict)  #: as those of `KeyReader`
    others: str = ""  #: keys that the class's code reads without naming them
    #: keys by the names that they have in a mapping of the config, by its key
    nested: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    #: keys that may have a list of a value for each layer, of which the first counts: what differs
    #: changes neither size nor cost
    firsts: str = ""
    idle: str = ""  #: keys that change neither size nor cost


def every(period: int, *keys: str, first: str = LOCAL, last: str = FULL) -> Any:
    """Return a reader of layers of which every so many-th, as a key may say, has another name."""

    def kinds(read: KeyReader, shape: Shape) -> list[str]:
        step = read.integer(*keys, default=period) if keys else period
        return [first if (i + 1) % step else last for i in range(shape["layers"])]

    return kinds


def first_dense(count: int, *keys: str) -> Any:
    """Return a reader of the first layers, as many as a key may say, which have no experts."""

    def plain(read: KeyReader, shape: Shape) -> range:
        return range(read.integer(*keys, default=count, low=0) if keys else count)

    return plain


def read_by_keys(read: KeyReader, traits: Traits) -> Shape:
    """The fields of a model, its layers among them, as a config of these traits describes it."""
    _prepare(read, traits)
    shape = _sizes(read, traits)

    def value_of(trait: Trait) -> Any:
        return trait(read, shape) if callable(trait) else trait

    shape["norm"] = Norm(
        kind=value_of(traits.norm), epsilon=read.positive("rms_norm_eps", default=1e-6)
    )
    layers = _layers(read, traits, shape, value_of)
    model = {
        "final_norms": value_of(traits.final_norms),
        "embedding_norms": value_of(traits.embedding_norms),
        "head_bias": value_of(traits.head_bias),
        "table_elements": value_of(traits.table_elements),
        "extras": tuple(value_of(traits.extras)),
        **value_of(traits.fields),
    }
    of_layers = ("layers", "heads", "kv_heads", "head_dim", "activation")
    of_model = {name: value for name, value in shape.items() if name not in of_layers}
    whole = layers if traits.stack is None else traits.stack(read, shape, layers)
    return {**of_model, **model, "stack": Stack.of(whole)}


def _prepare(read: KeyReader, traits: Traits) -> None:
    """Have a reader find keys where a config of these traits has them."""
    read.names = traits.names if traits.head_dim else {**traits.names, "head_dim": ""}
    read.others |= frozenset(traits.others.split())
    for place, names in traits.nested.items():
        read.others |= {place, *names}
        inner = read.mapping(place)
        values = {key: inner[name] for key, name in names.items() if name in inner}
        read.config = {**read.config, **values}
    for key in traits.firsts.split():
        listed = read.config.get(key)
        if isinstance(listed, (list, tuple)) and listed:
            read.config = {**read.config, key: listed[0]}


def _layers(
    read: KeyReader, traits: Traits, shape: Shape, value_of: Callable[[Trait], Any]
) -> list[Layer]:
    """Every layer, as traits have it at its place."""
    mixers = _mixers(read, traits, shape, value_of)
    dense, experts, plain = _feed_forwards(read, traits, shape, value_of)
    read.read.update(traits.idle.split())

    norms = _norms(read) if traits.norms is None else value_of(traits.norms)
    norm_after = value_of(traits.norm_after)
    streams = traits.streams(read, shape) if traits.streams else None
    layers = []
    for i in range(shape["layers"]):
        is_routed = experts is not None and i not in plain
        layer = Layer(
            hidden=shape["hidden"],
            mixer=mixers[i],
            feed_forward=experts if experts is not None and is_routed else dense,
            norm=shape["norm"],
            norms=traits.routed_norms if is_routed and traits.routed_norms else norms,
            norm_after=norm_after,
            streams=streams,
        )
        layers.append(layer if traits.layer is None else traits.layer(read, shape, i, layer))
    _report_of_layers(read, shape["layers"])
    return layers


def _report_of_layers(read: KeyReader, layers: int) -> None:
    """Report what the config has for single layers and nobody read."""
    for index, of_layer in (read.of_layers or {}).items():
        read.problems.extend(of_layer.problems)
        if index not in range(layers):
            message = f"{PER_LAYER} has layer {index}, of layers 0 to {layers - 1}"
            read.report(PER_LAYER, message, f"remove {index} from it")
        for key in of_layer.config.keys() - of_layer.read:
            if of_layer.config[key] != read.config.get(key):
                message = f"{PER_LAYER} has {show(key)} for layer {index}, which is not modelled"
                read.report(PER_LAYER, message, f"remove {show(key)} from it")
                return


def _norms(read: KeyReader) -> int:
    """Norms of a layer: before its two parts, and behind them too where a key asks for it."""
    are_around = read.knows("sandwich_norm") and read.boolean("sandwich_norm", False)
    return 2 * 2 if are_around else 2


def _sizes(read: KeyReader, traits: Traits) -> Shape:
    """Sizes of the whole model, and those that its layers share."""
    hidden = read.integer("hidden_size")
    heads = read.integer("num_attention_heads")
    experts = read.optional_integer("num_experts", low=0)
    ffn = read.optional_integer("intermediate_size")
    if traits.ffn is not None:
        ffn = traits.ffn(read, hidden)
    if not ffn and experts:
        ffn = read.optional_integer("moe_intermediate_size")
    if traits.layers is not None:
        layers = traits.layers(read)
    else:
        layers = read.integer("num_hidden_layers", high=MOST_LAYERS)
    shape: Shape = {
        "hidden": hidden,
        "heads": heads,
        "layers": layers,
        "vocab": read.integer("vocab_size"),
        "ffn": ffn or 4 * hidden,
        "max_positions": read.integer(
            "max_position_embeddings", default=_USUAL_POSITIONS, high=LONG
        ),
        "activation": read.text("hidden_act", default="silu"),
        "attention_dropout": read.fraction("attention_dropout", default=0.0),
        "dropout": read.fraction("hidden_dropout", default=0.0),
    }
    has_width = any(name in read.config for name in read.called("intermediate_size"))
    if not has_width and not experts and read.known is None:
        read.integer("intermediate_size")  # which reports that it is missing

    kv_keys = read.called("num_key_value_heads")
    read.read.update(kv_keys)
    is_latent = read.optional_integer("kv_lora_rank") is not None
    shape["kv_heads"] = heads
    if kv_keys and not is_latent:
        default = read.usual(*kv_keys)
        shape["kv_heads"] = read_kv_heads(read, heads, default, rounds=traits.rounds_heads)

    shape["head_dim"] = _head_dim(read, traits, hidden, heads, rounds=is_latent)
    shape |= _positions(read, traits, shape)
    shape["tied_embeddings"] = _tied(read, traits)
    return shape


def _head_dim(read: KeyReader, traits: Traits, hidden: int, heads: int, *, rounds: bool) -> int:
    """The width of a head; one that isn't written may be rounded down with latent attention."""
    if not traits.head_dim:
        read.ignore("head_dim")
    head_dim = read.optional_integer("head_dim")
    if head_dim is None and (traits.rounds_heads or rounds):
        head_dim = max(1, hidden // heads)
    head_dim = head_dim or read_head_dim(read, hidden, heads)

    if traits.square and heads * head_dim != hidden:
        message = f"head_dim is {head_dim}, but {heads} heads are to make up {hidden}"
        read.report("head_dim", message, f"set head_dim: {hidden // heads}")
    return head_dim


def _positions(read: KeyReader, traits: Traits, shape: Shape) -> Shape:
    """How positions come into the model: rotary ones, or rows of a learned table."""
    kind = traits.positions(read, shape) if callable(traits.positions) else traits.positions
    is_learned = kind == "learned"
    positions: Shape = {
        "position_embedding": kind,
        "position_rows": shape["max_positions"] + traits.position_offset if is_learned else 0,
    }
    if kind == "rotary":
        base = _USUAL_BASE if read.known is None else read.known.rotary_base
        base = read.usual("rope_theta", "rotary_emb_base", default=base)
        fraction = traits.rotary_fraction
        share = fraction(read, shape) if callable(fraction) else fraction
        positions |= read_rotary(read, base, read.usual("partial_rotary_factor", default=share))
    return positions


def _tied(read: KeyReader, traits: Traits) -> bool:
    if traits.tied is not None:
        read.given("tie_word_embeddings")
        return bool(traits.tied)
    ties = read.known is None or read.known.ties
    return read.boolean("tie_word_embeddings", False) and ties


def _mixers(
    read: KeyReader, traits: Traits, shape: Shape, value_of: Callable[[Trait], Any]
) -> list[Mixer]:
    """The mixer of each layer."""
    kinds = _kinds(read, traits, shape)
    bare = traits.bare(read, shape) if traits.bare else ()
    rotates = shape["position_embedding"] == "rotary"
    attention = _attention_maker(read, traits, shape, kinds, value_of)
    is_indexed = INDEXED in kinds or BLOCKS in kinds
    shared = _shared_indexers(read, shape["layers"], traits.index_period) if is_indexed else []

    @cache
    def other(name: str) -> Mixer:
        return traits.mixers[name](read, shape)

    mixers: list[Mixer] = []
    for i, name in enumerate(kinds):
        if name in traits.mixers:
            mixers.append(other(name))
        else:
            kind = SOFTMAX[name]
            rotary = rotates and i not in bare
            is_shared = is_indexed and shared[i]
            mixers.append(attention(kind, rotary, is_shared, i if traits.attention else None))
    return mixers


def _attention_maker(
    read: KeyReader,
    traits: Traits,
    shape: Shape,
    kinds: Sequence[str],
    value_of: Callable[[Trait], Any],
) -> Callable[[str, bool, bool, int | None], Mixer]:
    """A function that makes the attention of a layer, each once.

    It takes the layer's kind, whether it is rotary and whether its indexer is an earlier layer's;
    and its place, where `traits.attention` may change it there.
    """
    window = read.optional_integer("sliding_window", low=0, high=LONG) or None
    if CHUNKED in kinds:
        window = read.optional_integer("attention_chunk_size", high=LONG) or window
    bias = _bias(read, "attention_bias", "qkv_bias", "use_qkv_bias", "use_bias", "bias")
    output = _bias(read, "attention_bias", "use_bias", "bias")
    common = {
        "hidden": shape["hidden"],
        "heads": shape["heads"],
        "kv_heads": shape["kv_heads"],
        "head_dim": shape["head_dim"],
        "qkv_bias": bias if traits.qkv_bias is None else value_of(traits.qkv_bias),
        "output_bias": output if traits.output_bias is None else value_of(traits.output_bias),
        "qk_norm": _qk_norm(read) if traits.qk_norm is None else value_of(traits.qk_norm),
        "sinks": value_of(traits.sinks),
    }
    latent = _latent(read, shape) if read.optional_integer("kv_lora_rank") else None
    gate = {"gate": value_of(traits.gate)}

    @cache
    def attention(kind: str, rotary: bool, is_shared: bool, place: int | None) -> Mixer:
        is_sparse = kind in (INDEXED, BLOCKS)
        local = window if kind in (LOCAL, CHUNKED) else None
        chunked = kind == CHUNKED and local is not None
        span = Span(window=local, chunked=chunked, masked=is_sparse)
        of_place = {}
        if traits.attention is not None and place is not None:
            of_place = traits.attention(read, shape, kind, place)
        sizes = {**common, "span": span, "rotary": rotary}
        mixer: Mixer
        if latent:
            mixer = Latent(**{**sizes, **latent, **gate, **of_place})
        else:
            mixer = GroupedQuery(**{**sizes, **gate, **of_place})
        if not is_sparse:
            return mixer
        rank = latent["q_lora_rank"] if latent else 0
        if traits.indexes_state:
            rank = shape["hidden"]
        indexer = _indexer(read, shape, kind, rank, is_shared)
        if traits.indexes_state:
            indexer = replace(indexer, of_state=True)
        return SideBySide(hidden=shape["hidden"], mixers=(mixer, indexer))

    return attention


def _indexer(read: KeyReader, shape: Shape, kind: str, rank: int, is_shared: bool) -> Indexer:
    """What chooses keys, or blocks of them, for the attention beside it."""
    heads, head_dim = read.integer("index_n_heads"), read.integer("index_head_dim")
    if kind == BLOCKS:
        read.ignore("index_local_blocks")
        block = read.integer("index_block_size")
        return BlockIndexer(
            hidden=shape["hidden"],
            heads=heads,
            head_dim=head_dim,
            block=block,
            top=read.integer("index_topk_blocks") * block,
            attention_heads=shape["heads"],
        )
    if not rank:
        message = "q_lora_rank is null or 0, but the indexer's queries are made of that latent"
        read.report("q_lora_rank", message, f"set q_lora_rank as {PUBLISHED} has it")
    return Indexer(
        hidden=shape["hidden"],
        query_rank=max(rank, 1),
        heads=heads,
        head_dim=head_dim,
        top=read.integer("index_topk"),
        shared=is_shared,
        pool=(read.optional_integer("index_kpool") or 0) if read.knows("index_kpool") else 0,
    )


def _shared_indexers(read: KeyReader, layers: int, period: int) -> list[bool]:
    """Whether each layer takes an earlier one's choice: by a list or a pattern, or by turns."""
    every = read.integer("index_topk_freq", default=period)
    offset = read.integer("index_skip_topk_offset", default=2, low=0)
    key = "indexer_types" if read.value("indexer_types") else "index_topk_pattern"
    read.ignore("indexer_types", "index_topk_pattern", "indexer_rope_interleave")
    listed = read.value(key)
    if listed is None:
        # Of the layers from `offset` - 1 on, every so many-th has an indexer; those before have.
        return [max(i - offset + 1, 0) % every != 0 for i in range(layers)]

    is_shared = {"F": False, "S": True, "full": False, "shared": True}
    kinds = [str(kind) for kind in listed] if isinstance(listed, (str, list, tuple)) else []
    are_known = len(kinds) >= layers and all(kind in is_shared for kind in kinds)
    if not are_known or not kinds or is_shared[kinds[0]]:
        message = f"{key} is {show(listed)}: not full or shared for each layer, the first one full"
        read.report(key, message, f"remove {key}")
        return [False] * layers
    return [is_shared[kind] for kind in kinds[:layers]]


def _gated(read: KeyReader, shape: Shape) -> bool:
    """Whether an MLP is gated; without a class, as most with its activation are."""
    if read.known is not None:
        return True
    return read.boolean("gated_mlp", shape["activation"] not in _PLAIN)


#: Activations of which more classes of transformers have plain MLPs than gated ones.
_PLAIN: Final = ("gelu", "gelu_new", "gelu_fast", "relu", "relu2", "xielu")


def _bias(read: KeyReader, *keys: str) -> bool:
    """Whether a key asks for biases. All are read, so that none is reported as unread."""
    asked = [read.boolean(key, False) for key in keys if read.knows(key)]
    return any(asked)


def _qk_norm(read: KeyReader) -> str:
    keyed = read.knows("qk_norm") and read.boolean("qk_norm", False)
    return "head" if keyed else "none"


def _kinds(read: KeyReader, traits: Traits, shape: Shape) -> list[str]:
    """The name of each layer, as a list has them, else as traits or a window say."""
    layers: int = shape["layers"]
    listed = read.value("layer_types") if read.knows("layer_types") else None
    if listed is not None:
        read.read.update(_PERIODS)
        kinds = _listed(read, listed, layers, traits.mixers)
        return kinds if traits.last is None else [*kinds[:-1], traits.last]
    if traits.kinds is not None:
        return list(traits.kinds(read, shape))
    if read.known is None and read.has("index_topk") and read.has("kv_lora_rank"):
        return [INDEXED] * layers
    if read.knows("use_sliding_window") and not read.boolean("use_sliding_window", False):
        return [FULL] * layers
    if not read.optional_integer("sliding_window", low=0, high=LONG):
        return [FULL] * layers
    period = read.optional_integer("sliding_window_pattern") if read.known is None else None
    return every(period)(read, shape) if period else [LOCAL] * layers


#: Mixers by the beginnings of words that layers with them are called by, each with a `model_type`
#: that has it.
_MIXERS: Final[Mapping[str, Mapping[str, str]]] = {
    "linear delta gdn kda lightning": {
        "gated delta": "qwen3_next",
        "KDA": "kimi_linear",
        "lightning attention": "minimax",
    },
    "mamba ssm": {"Mamba-2": "nemotron_h", "Mamba-1": "jamba"},
    "conv shortconv": {"a short convolution": "lfm2"},
}
SET_TYPE: Final = (
    "set model_type to the one that has such layers, with its keys, or describe the model without "
    "them in the job spec, as model: {hidden_size: ..., num_hidden_layers: ...}"
)


def mixers_like(name: object) -> str:
    """What layers of a name may be, and in which known `model_type`s; nothing where nothing is
    like it.
    """
    words = re.split(r"[\W_]+", name.lower()) if isinstance(name, str) else []
    for beginnings, mixers in _MIXERS.items():
        if any(word.startswith(tuple(beginnings.split())) for word in words):
            likely = " or ".join(f"{mixer} as in {family}" for mixer, family in mixers.items())
            return f"such layers may be {likely}"
    return ""


#: Keys that say which layers are local, where no list does.
_PERIODS: Final = (
    "sliding_window_pattern",
    "_sliding_window_pattern",
    "global_attn_every_n_layers",
    "max_window_layers",
    "hybrid_layer_pattern",
)


def _listed(read: KeyReader, listed: object, layers: int, others: Iterable[str]) -> list[str]:
    """The layers that a list names, if each is of a kind that is known."""
    if not isinstance(listed, (list, tuple)):
        message = f"layer_types is {show(listed)}, not a list with a value for each layer"
        read.report("layer_types", message, "remove layer_types")
        return [FULL] * layers
    kinds = (*SOFTMAX, *others)
    odd = [name for name in listed if not isinstance(name, str) or name not in kinds]
    if odd:
        like = mixers_like(odd[0]) if read.known is None else ""
        if like:
            message = f"layer_types has {show(odd[0])}, and this model_type is unknown: {like}"
            read.report("layer_types", message, SET_TYPE)
        else:
            report_odd_kind(read, "layer_types", odd[0], kinds, usual=(FULL, LOCAL))
        return [FULL] * layers
    if len(listed) < layers:
        message = f"layer_types has {len(listed)} values for {layers} layers"
        read.report("layer_types", message, one_a_layer(len(listed), layers))
        return [FULL] * layers
    return [SOFTMAX.get(name, name) for name in map(str, listed[:layers])]


def _latent(read: KeyReader, shape: Shape) -> Shape:
    """Widths of latent attention."""
    nope, rope = read.integer("qk_nope_head_dim"), read.integer("qk_rope_head_dim", low=0)
    values = read.optional_integer("v_head_dim") or shape["head_dim"]
    return {
        "q_lora_rank": read.optional_integer("q_lora_rank", low=0) or 0,
        "kv_lora_rank": read.integer("kv_lora_rank"),
        "qk_nope_head_dim": nope,
        "qk_rope_head_dim": rope,
        "v_head_dim": values,
        "head_dim": nope + rope,
        "kv_heads": shape["heads"],
    }


def _feed_forwards(
    read: KeyReader, traits: Traits, shape: Shape, value_of: Callable[[Trait], Any]
) -> tuple[Dense, Experts | None, Container[int]]:
    """The dense MLP, the experts, and the numbers of the layers without them."""
    bias = _bias(read, "mlp_bias", "use_mlp_bias", "use_bias", "bias")
    mlp = {
        "hidden": shape["hidden"],
        "gated": _gated(read, shape) if traits.gated is None else value_of(traits.gated),
        "activation": shape["activation"],
        "bias": bias if traits.mlp_bias is None else value_of(traits.mlp_bias),
    }
    dense = Dense(**{**mlp, "width": shape["ffn"], **value_of(traits.dense)})
    # A class that has experts has one at least.
    count = read.optional_integer("num_experts", low=1 if read.usual("num_experts") else 0)
    if not value_of(traits.routes):
        read.ignore(*read.called("num_experts_per_tok", "moe_intermediate_size"))
        return dense, None, ()
    if not count:
        return dense, None, ()
    listed = read.value("mlp_layer_types") if read.knows("mlp_layer_types") else None
    plain = traits.plain if traits.plain and listed is None else dense_places
    return (
        dense,
        Experts(**{**mlp, **_routed(read, shape, count), **value_of(traits.experts)}),
        plain(read, shape),
    )


def _routed(read: KeyReader, shape: Shape, count: int) -> Shape:
    """Routed and shared experts, as keys say."""
    key = read.given("num_experts_per_tok") or "num_experts_per_tok"
    per_token = read.integer(key)
    if per_token > count:
        message = f"{key} is {per_token}, more than the {count} experts"
        read.report(key, message, f"set {key}: {count}")
    width = read.optional_integer("moe_intermediate_size") or shape["ffn"]
    counts_shared = read.knows("n_shared_experts")
    shared = (read.optional_integer("n_shared_experts", low=0) or 0) if counts_shared else 0
    shared_width = read.optional_integer("shared_expert_intermediate_size", low=0)
    if not counts_shared:
        shared = 1 if shared_width else 0
    elif shared == 0 and shared_width and read.known is None:
        name = read.given("n_shared_experts") or "n_shared_experts"
        key_of_width = read.given("shared_expert_intermediate_size")
        message = (
            f"{name} is 0, but {key_of_width} is {shared_width}: is there a shared expert, or none?"
        )
        read.report(name, message, f"remove {name}, or {key_of_width}")
    groups = read.optional_integer("n_group", low=0) or 0
    has_groups = groups > 1
    read.ignore("num_experts_per_group")  # of routing alone
    is_sigmoid = read.text("scoring_func", default="softmax") == "sigmoid"
    top_groups = (read.optional_integer("topk_group", low=0) or 0) if has_groups else 0
    return {
        "experts": count,
        "per_token": per_token,
        "expert_width": width,
        "shared_experts": shared,
        "width": shared_width if shared_width is not None and shared else shared * width,
        "router_groups": groups if has_groups else 0,
        "router_top_groups": top_groups,
        "router_scale": read.positive("routed_scaling_factor", default=1.0),
        "router_scores": "sigmoid" if is_sigmoid else "softmax",
        "router_normalizes": read.boolean("norm_topk_prob", True),
        "router_loss": read.weight("router_aux_loss_coef"),
    }


def dense_places(read: KeyReader, shape: Shape) -> Container[int]:
    """Numbers of the layers without experts, by whichever key says it."""
    layers: int = shape["layers"]
    listed = read.value("mlp_layer_types") if read.knows("mlp_layer_types") else None
    if isinstance(listed, (list, tuple)) and len(listed) >= layers:
        first = "first_k_dense_replace"  # which a class may not even have
        read.ignore(*read.called(first), first, "moe_layer_freq")
        return frozenset(i for i, kind in enumerate(listed) if kind == "dense")
    plain = set(range(read.optional_integer("first_k_dense_replace", low=0) or 0))
    if read.knows("mlp_only_layers"):
        plain |= read.layer_indices("mlp_only_layers")
    step = read.optional_integer("decoder_sparse_step") or 1
    plain |= {i for i in range(layers) if (i + 1) % step}
    often = read.value("moe_layer_freq") if read.knows("moe_layer_freq") else None
    if isinstance(often, list) and len(often) >= layers:
        plain |= {i for i in range(layers) if not often[i]}
    elif isinstance(often, int) and often > 1:
        plain |= {i for i in range(layers) if i % often}
    return plain
