"""What the code of each `model_type` decides and no key of its config says, for the reader by keys.

Source: the configuration and modeling modules of huggingface/transformers 5.23,
models/<model_type>/.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace
from math import ceil, floor
from typing import Any, Final

from ..catalog.layers.altup import AltUp
from ..catalog.layers.compressed import Compressed, CompressedIndexer
from ..catalog.layers.feed_forward import mlp_parameters
from ..catalog.layers.kimi_delta import KimiDelta
from ..catalog.layers.mixer import Mixer
from ..catalog.layers.recurrent import Recurrent
from ..catalog.layers.side_by_side import SideBySide
from ..catalog.layers.stack import MOST_LAYERS, Layer
from ..catalog.layers.streams import Streams
from ..numerals import read_whole
from ..text.wording import show
from .hf_by_keys import BLOCKS, FULL, INDEXED, LOCAL, SOFTMAX, Traits, every, first_dense
from .hf_dense import SCALED_EMBEDDINGS, multipliers
from .hf_keys import PER_LAYER, KeyReader
from .hf_shape import LARGEST, ConfigReader, Shape, switch, without_rotary
from .hf_zamba import ZAMBA

_SINUSOIDS: Final = ("sinusoidal positions",)
_GRANITE: Final = (
    "embedding_multiplier logits_scaling residual_multiplier attention_multiplier layer_rope_theta"
)
_SIGMOID: Final[Shape] = {"router_scores": "sigmoid"}
#: Every layer has an indexer, whatever a list says.
_DSA_NAMES: Final = {
    "layer_types": "",
    "num_experts": "num_experts num_local_experts n_routed_experts",
}


def _full_first(period: int) -> Any:
    """Return a reader of layers of which the first of so many attends to everything."""
    return lambda read, shape: [LOCAL if i % period else FULL for i in range(shape["layers"])]


def _beam(read: KeyReader, shape: Shape) -> list[str]:
    kinds: list[str] = every(6)(read, shape)
    return [*kinds[:-1], FULL]


def _flint(read: KeyReader, shape: Shape) -> list[str]:
    last = shape["layers"] - 1
    return [FULL if i < 2 or i % 4 == 1 or i == last else LOCAL for i in range(last + 1)]


def _flint_dense(read: KeyReader, shape: Shape) -> frozenset[int]:
    named = frozenset({0, 1})
    if read.value("mlp_only_layers") is not None:
        named = read.layer_indices("mlp_only_layers")
    step = read.integer("decoder_sparse_step", default=1)
    return frozenset(i for i in range(shape["layers"]) if i in named or (i + 1) % step)


def _indexed(read: KeyReader, shape: Shape) -> list[str]:
    """An indexer in every layer."""
    return [INDEXED] * shape["layers"]


def _mistral_large(read: KeyReader, shape: Shape) -> list[str]:
    """An indexer in every layer, whose keys and values are its own."""
    layers, sources = shape["layers"], read.value("kv_source_layers")
    if sources is not None and list(sources) != list(range(layers)):
        message = "kv_source_layers has layers that share keys and values, which are not modelled"
        read.report("kv_source_layers", message, "remove kv_source_layers")
    return _indexed(read, shape)


def _mistral_large_attention(read: KeyReader, shape: Shape, kind: str, index: int) -> Shape:
    """Two numbers for each head scale its queries by their place; nothing is rotated in some
    layers.
    """
    scales = {"vectors": 2 * shape["heads"]}
    if index not in without_rotary(read, shape["layers"]):
        return scales
    rotated = read.integer("qk_rope_head_dim", default=64)
    whole = read.integer("qk_nope_head_dim", default=64) + rotated
    return {**scales, "qk_rope_head_dim": 0, "qk_nope_head_dim": whole}


def _dots3(read: KeyReader, shape: Shape) -> list[str]:
    """An indexer in the first two layers of Dots 3, and in every fourth; windows in the others."""
    whole = FULL if read.value("use_dsa") is False else INDEXED
    if not read.boolean("use_sliding_window", True):
        return [whole] * shape["layers"]
    return [whole if i < 2 or i % 4 == 1 else LOCAL for i in range(shape["layers"])]


def _dots3_local(read: KeyReader, shape: Shape, kind: str, index: int) -> Shape:
    """The widths of Dots 3's local layers, which have their own.

    They are in keys that begin with swa_. Where the config lists layers, they are in the layer's
    entry, and what that leaves out is as in other layers.
    """
    if kind != LOCAL:
        return {}
    settings, is_listed = read.of_layer(index), bool(read.of_layers)
    settings.ignore("num_key_value_heads")

    def width(name: str, usual: int) -> int:
        key = name if is_listed else f"swa_{name}"
        return settings.integer(name, default=read.integer(key, default=usual))

    nope, whole = width("qk_nope_head_dim", 192), width("head_dim", 256)
    heads, rope = width("num_attention_heads", 64), width("qk_rope_head_dim", whole - nope)
    return {
        "heads": heads,
        "kv_heads": heads,
        "q_lora_rank": width("q_lora_rank", 1024),
        "kv_lora_rank": width("kv_lora_rank", 1024),
        "qk_nope_head_dim": nope,
        "qk_rope_head_dim": rope,
        "v_head_dim": width("v_head_dim", 128),
        "head_dim": nope + rope,
    }


def _dots3_attention(read: KeyReader, shape: Shape, kind: str, index: int) -> Shape:
    return {"rotary_norm": True, **_dots3_local(read, shape, kind, index)}


def _dots3_experts(read: KeyReader, shape: Shape) -> Shape:
    """Each shared expert of Dots 3 has a width of its own."""
    each = read.integer("shared_experts_intermediate_size", default=1536)
    shared = read.integer("n_shared_experts", default=1)
    return {"width": each * shared, "shared_experts": shared, **_SIGMOID}


def _minimax(read: KeyReader, shape: Shape) -> list[str]:
    """Whole attention in each layer of MiniMax-M3, or an indexer of blocks where a list has 1."""
    listed = read.value("sparse_attention_freq")
    marks = listed if isinstance(listed, list) else []
    return [BLOCKS if i < len(marks) and marks[i] else FULL for i in range(shape["layers"])]


def _minimax_dense(read: KeyReader, shape: Shape) -> frozenset[int]:
    listed = read.value("moe_layer_freq")
    marks = listed if isinstance(listed, list) else []
    return frozenset(i for i, mark in enumerate(marks) if not mark)


def _blocks(read: KeyReader, shape: Shape) -> float:
    width: int = shape["head_dim"]
    return min(1.0, read.integer("rotary_dim", default=64) / width)


def _mimo_kinds(read: KeyReader, shape: Shape) -> list[str]:
    """Windows but in the first layer of MiMo-V2 and in every sixth, whatever a pattern says."""
    layers = range(shape["layers"])
    whole = [i == 0 or (i + 1) % 6 == 0 for i in layers]
    _agrees(read, "hybrid_layer_pattern", [int(not full) for full in whole])
    return [FULL if full else LOCAL for full in whole]


def _mimo_dense(read: KeyReader, shape: Shape) -> Container[int]:
    """A dense MLP in the first layer of MiMo-V2, whatever a list says."""
    _agrees(read, "moe_layer_freq", [int(i > 0) for i in range(shape["layers"])])
    return (0,)


def _agrees(read: KeyReader, key: str, usual: list[int]) -> None:
    """Report a list for other programs that isn't what the class takes."""
    read.ignore(key)
    listed = read.config.get(key)
    if listed is not None and (not isinstance(listed, list) or listed[: len(usual)] != usual):
        message = f"{key} says other layers than the class of this model_type has whatever it says"
        read.report(key, message, f"remove {key}, or write layer_types and mlp_layer_types")


def _mimo(read: KeyReader, shape: Shape, kind: str, index: int) -> Shape:
    """MiMo-V2's local layers have more key-value heads, and sinks."""
    wide = read.optional_integer("v_head_dim") or shape["head_dim"]
    local = {"kv_heads": 2 * shape["kv_heads"], "sinks": True} if kind == LOCAL else {}
    return {"v_head_dim": wide, **local}


def _gemma4(read: KeyReader, shape: Shape, kind: str, index: int) -> Shape:
    """Whole attention of Gemma 4 has other heads; its last layers take keys of layers before."""
    takes = {"takes_keys": _takes_keys(read, shape, index)}
    shares_keys = kind != LOCAL and read.boolean("attention_k_eq_v", False)
    width, heads = read.optional_integer("global_head_dim") or 512, None
    if shares_keys:
        heads = read.optional_integer("num_global_key_value_heads")
    if kind == LOCAL or PER_LAYER in read.config:
        # As transformers writes configs: a layer's own keys, in place of those above.
        settings = read.of_layer(index)
        width = settings.optional_integer("head_dim") or shape["head_dim"]
        heads = settings.optional_integer("num_key_value_heads")
    return {
        "head_dim": width,
        "kv_heads": heads or shape["kv_heads"],
        "values_are_keys": shares_keys,
        **takes,
    }


def _takes_keys(read: KeyReader, shape: Shape, index: int) -> bool:
    shared = read.optional_integer("num_kv_shared_layers", low=0) or 0
    first: int = shape["layers"] - shared
    return index >= first > 0


def _streams(read: KeyReader, shape: Shape) -> Streams:
    """Streams that are mixed with one another where the class has steps for it."""
    has_steps = read.knows("hc_sinkhorn_iters")
    return Streams(
        hidden=shape["hidden"],
        count=read.integer("hc_mult", default=4),
        iterations=read.integer("hc_sinkhorn_iters", default=20) if has_steps else 0,
    )


def _averaged_streams(read: KeyReader, shape: Shape) -> Streams:
    """GLM-5-Next takes the mean of its streams at the end."""
    return replace(_streams(read, shape), learned_head=False)


#: Kinds of DeepSeek-V4's layers by the tokens of which one compressed key is made in them.
_FEW, _MANY = "compressed_sparse_attention", "heavily_compressed_attention"
_BY_RATE: Final = {0: LOCAL, 4: _FEW, 128: _MANY}


def _compressed_kinds(read: KeyReader, shape: Shape) -> list[str]:
    """Those that published configs list by their rates, else the two kinds by turns."""
    layers: int = shape["layers"]
    rates = read.value("compress_ratios")
    if rates is None:
        return [_FEW if i > 2 and i % 2 else _MANY for i in range(layers)]
    listed = rates if isinstance(rates, list) else []
    if len(listed) < layers or any(rate not in _BY_RATE for rate in listed):
        message = f"compress_ratios is {show(rates)}: not 0, 4 or 128 for each of {layers} layers"
        read.report("compress_ratios", message, "write layer_types and compress_rates")
        return [LOCAL] * layers
    return [_BY_RATE[rate] for rate in listed[:layers]]


def _rate(read: KeyReader, kind: str) -> int:
    """Tokens of one compressed key: of a key that older configs have, of a mapping, or as usual."""
    older = read.optional_integer({_FEW: "compress_rate_csa", _MANY: "compress_rate_hca"}[kind])
    rates = ConfigReader(read.mapping("compress_rates"))
    usual = {name: rate for rate, name in _BY_RATE.items()}[kind]
    rate = older or rates.integer(kind, default=usual)
    read.problems.extend(rates.problems)
    return rate


def _nearby(read: KeyReader, shape: Shape) -> Compressed:
    """DeepSeek-V4's attention without compressed keys."""
    width: int = shape["head_dim"]
    rotated = read.optional_integer("qk_rope_head_dim")
    share = read.positive("partial_rotary_factor", default=(rotated or width / 8) / width)
    mixer = Compressed(
        hidden=shape["hidden"],
        heads=shape["heads"],
        head_dim=width,
        query_rank=read.integer("q_lora_rank"),
        groups=read.integer("o_groups"),
        group_rank=read.integer("o_lora_rank"),
        window=read.integer("sliding_window"),
        rotated=int(width * min(1.0, share)),
    )
    if mixer.widths.values % mixer.groups:
        message = f"o_groups is {mixer.groups}, which doesn't divide the {mixer.heads} heads"
        read.report("o_groups", message, f"set o_groups: {mixer.heads}")
    return mixer


def _of_many(read: KeyReader, shape: Shape) -> Mixer:
    return replace(_nearby(read, shape), rate=_rate(read, _MANY))


def _of_few(read: KeyReader, shape: Shape) -> Mixer:
    near, rate = _nearby(read, shape), _rate(read, _FEW)
    heads, head_dim = read.integer("index_n_heads"), read.integer("index_head_dim")
    top = read.integer("index_topk")
    indexer = CompressedIndexer(
        hidden=near.hidden,
        query_rank=near.query_rank,
        heads=heads,
        head_dim=head_dim,
        top=top,
        rate=rate,
    )
    mixer = replace(near, rate=rate, overlaps=True, top=top)
    return SideBySide(hidden=near.hidden, mixers=(mixer, indexer))


def _glm5_next_kinds(read: KeyReader, shape: Shape) -> list[str]:
    """KDA but in each fourth layer, which has an indexer, or as a list says."""
    layers = shape["layers"]
    read.read.add("layer_types")
    listed = read.config.get("layer_types")
    if listed is None:
        return [INDEXED if i % 4 == 3 else _LINEAR for i in range(layers)]
    kinds = {FULL: INDEXED, INDEXED: INDEXED, _LINEAR: _LINEAR}
    names = map(str, listed if isinstance(listed, list) else [])
    whole = [SOFTMAX.get(name, name) for name in names]
    if len(whole) < layers or any(kind not in kinds for kind in whole):
        message = f"layer_types is {show(listed)}: not a known kind for each of {layers} layers"
        read.report("layer_types", message, "remove layer_types")
        return [_LINEAR] * layers
    return [kinds[kind] for kind in whole[:layers]]


def _glm5_next_delta(read: KeyReader, shape: Shape) -> KimiDelta:
    inner = ConfigReader(read.mapping("linear_attn_config"))
    inner.ignore("gate_lower_bound", "safe_gate")
    head = inner.integer("head_dim", default=read.integer("linear_head_dim", default=128))
    kernel = read.integer("linear_conv_kernel_dim", default=4)
    mixer = KimiDelta(
        hidden=shape["hidden"],
        heads=inner.integer("num_heads", default=read.integer("linear_num_heads", default=64)),
        head_dim=head,
        kernel=inner.integer("short_conv_kernel_size", default=kernel),
        gate_rank=head,
    )
    read.problems.extend(inner.problems)
    return mixer


def _per_layer_inputs(read: KeyReader) -> int:
    """Width of the embeddings that each layer of Gemma 4 has of its own."""
    return read.optional_integer("hidden_size_per_layer_input", low=0) or 0


def _gemma4_layer(read: KeyReader, shape: Shape, index: int, layer: Layer) -> Layer:
    """A wider MLP where keys are taken, and a norm and two projections of the layer's embedding."""
    part: Any = layer.feed_forward
    wide = read.boolean("use_double_wide_mlp", False) and _takes_keys(read, shape, index)
    part = replace(part, width=part.width * (2 if wide else 1))
    width = _per_layer_inputs(read)
    if width == 0:
        return replace(layer, feed_forward=part)
    part = replace(part, vectors=2 * width * shape["hidden"])
    return replace(layer, feed_forward=part, norms=layer.norms + 1)


def _gemma4_tables(read: KeyReader, shape: Shape) -> int:
    """Elements of the table of all layers' embeddings, with a projection to it and its norm."""
    width = _per_layer_inputs(read)
    rows = read.optional_integer("vocab_size_per_layer_input") or shape["vocab"]
    return (rows + shape["hidden"]) * width * shape["layers"] + width if width else 0


def _gemma4_experts(read: KeyReader, shape: Shape) -> Shape:
    """Experts beside the dense MLP; the router has a scale for each expert."""
    return {"shared_experts": 1, "width": shape["ffn"], "router_bias": True}


def _step(read: KeyReader, shape: Shape, kind: str, index: int) -> Shape:
    """Step's local layers may have another number of heads."""
    of_local = ConfigReader(read.mapping("attention_other_setting"))
    heads = read.optional_integer("num_sliding_attention_heads")
    heads = heads or of_local.optional_integer("num_attention_heads")
    lists_layers = PER_LAYER in read.config
    if lists_layers:
        heads = read.of_layer(index).optional_integer("num_attention_heads")
    return {"heads": heads} if heads and (kind == LOCAL or lists_layers) else {}


def _step_plain(read: KeyReader, shape: Shape) -> frozenset[int]:
    """Step's dense layers: those that no text and no list names, else the first three."""
    listed = read.value("moe_layers_enum")
    if listed is None:
        return frozenset(range(read.integer("first_k_dense_replace", default=3, low=0)))
    items = listed.split(",") if isinstance(listed, str) else listed
    numbers = {read_whole(str(item).strip()) for item in items}
    return frozenset(range(shape["layers"])) - numbers


def _laguna(read: KeyReader, shape: Shape, kind: str, index: int) -> Shape:
    listed = read.value("num_attention_heads_per_layer")
    if not isinstance(listed, list) or len(listed) <= index:
        return {}
    return {"heads": listed[index]}


def _codegen(read: KeyReader, shape: Shape) -> float:
    width: int = shape["head_dim"]
    return min(1.0, (read.optional_integer("rotary_dim") or width) / width)


def _gpt_neo(read: KeyReader, shape: Shape) -> list[str]:
    types = read.value("attention_types")
    layers = shape["layers"]
    if not types:
        return [("global", "local")[i % 2] for i in range(layers)]
    try:
        kinds = [str(name) for names, times in types for _ in range(times) for name in names]
    except (TypeError, ValueError):
        kinds = []
    if len(kinds) < layers or not set(kinds) <= {"global", "local"}:
        message = f"attention_types has {len(kinds)} global and local layers for {layers}"
        read.report("attention_types", message, "write [[['global', 'local'], number of both]]")
        return [FULL] * layers
    return kinds


def _last_bias(read: KeyReader, shape: Shape, index: int, layer: Any) -> Any:
    """GPT-NeoX-Japanese adds its attention's bias in the last layer alone."""
    last = index == shape["layers"] - 1
    return replace(layer, mixer=replace(layer.mixer, vectors=shape["hidden"] if last else 0))


_RECURRENT: Final = "recurrent"


def _griffin_kinds(read: KeyReader, shape: Shape) -> list[str]:
    """Recurrent layers and windows as a list has them, again and again."""
    listed = read.value("block_types")
    turns = list(listed) if isinstance(listed, (list, tuple)) else []
    kinds = {_RECURRENT: _RECURRENT, "attention": LOCAL}
    if not turns or any(not isinstance(kind, str) or kind not in kinds for kind in turns):
        message = f"block_types is {show(listed)}: not a list of recurrent and attention"
        read.report("block_types", message, "remove block_types")
        return [LOCAL] * shape["layers"]
    return [kinds[turns[i % len(turns)]] for i in range(shape["layers"])]


def _griffin(read: KeyReader, shape: Shape) -> Recurrent:
    width = read.optional_integer("lru_width") or shape["hidden"]
    if width % shape["heads"]:
        message = f"lru_width is {width}, not a multiple of the {shape['heads']} heads"
        multiple = max(1, round(width / shape["heads"])) * shape["heads"]
        read.report("lru_width", message, f"set lru_width: {multiple}")
    return Recurrent(
        hidden=shape["hidden"],
        width=width,
        blocks=shape["heads"],
        kernel=read.integer("conv1d_width"),
    )


def _of_longcat(read: KeyReader, shape: Shape, kind: str, index: int) -> Shape:
    """No more fields; a width of queries and keys that isn't that of their parts is a problem."""
    nope, rope = read.integer("qk_nope_head_dim"), read.integer("qk_rope_head_dim", low=0)
    whole = read.optional_integer("qk_head_dim")
    if index == 0 and whole not in (None, nope + rope):
        message = f"qk_nope_head_dim and qk_rope_head_dim, {nope} and {rope}, are to make up "
        read.report("qk_head_dim", f"{message}qk_head_dim, {whole}", "remove qk_head_dim")
    return {}


def _paired(read: KeyReader) -> int:
    """Layers of LongCat: pairs (`num_layers`), or all of them, of which an odd one is left out."""
    half = MOST_LAYERS // 2
    if read.given("num_hidden_layers") == "num_hidden_layers":
        return max(1, read.integer("num_hidden_layers", high=half) // 2) * 2
    return 2 * read.integer("num_hidden_layers", high=half)


def _shortcut(read: KeyReader, shape: Shape) -> Shape:
    """LongCat's experts beside the first MLP of a pair of layers.

    Some that a token picks are identity experts: in the mean, by their share of all experts.
    """
    count, picked = read.integer("num_experts"), read.integer("num_experts_per_tok")
    idle = read.optional_integer("zero_expert_num", low=0) or 0
    if picked > count + idle:
        key = read.given("num_experts_per_tok") or "moe_topk"
        message = f"{key} is {picked}, more than the {count + idle} experts"
        read.report(key, message, f"set {key}: {count}")
    return {
        "per_token": ceil(picked * count / (count + idle)),
        "idle": idle,
        "idle_per_token": floor(picked * idle / (count + idle)),
        "adds_later": True,
        "shared_experts": 1,
        "width": shape["ffn"],
        "router_bias": read.boolean("router_bias", False),
        "router_normalizes": False,
    }


def _of_modalities(read: KeyReader, shape: Shape) -> Shape:
    """ERNIE 4.5 VL's experts of text, and beside them as many of images, which are narrower."""
    key, usual = "moe_intermediate_size", (1536, 512)
    read.read.add(key)
    written = read.config.get(key)
    listed = list(written) if isinstance(written, (list, tuple)) else []
    widths = [each for each in listed if type(each) is int and 0 < each <= LARGEST]
    if written is not None and not len(listed) == len(widths) == len(usual):
        message = f"{key} is {show(written)}: not the widths of experts of text and of images"
        read.report(key, message, "write two numbers")
        widths = []
    text, images = widths or usual
    count = read.integer("num_experts")
    of_images = mlp_parameters(shape["hidden"], images, gated=True, bias=False)
    return {
        "expert_width": text,
        "width": read.integer("n_shared_experts", low=0) * text,
        # each with its score and its bias
        "image_parameters": count * (of_images + shape["hidden"] + 1),
        "router_bias": True,
    }


_GPT: Final = Traits(
    norm="layernorm",
    head_dim=False,
    gated=False,
    qkv_bias=True,
    output_bias=True,
    mlp_bias=True,
    positions="learned",
)
_FAIRSEQ: Final = replace(_GPT, extras=(SCALED_EMBEDDINGS,))
_MLA: Final = Traits(head_dim=False)
_KOSMOS: Final = replace(
    _FAIRSEQ,
    positions="none",
    attention=lambda read, shape, kind, index: {"output_norm": True},
    dense={"inner_norm": 2},
    extras=(SCALED_EMBEDDINGS, *_SINUSOIDS),
)
_GEMMA4: Final = Traits(
    norms=4,
    routed_norms=8,  # three more around the experts, and the scale before the router
    qk_norm="head",
    attention=_gemma4,
    kinds=_beam,
    last=FULL,
    routes=switch("enable_moe_block", False),
    plain=lambda read, shape: (),
    experts=_gemma4_experts,
    layer=_gemma4_layer,
    table_elements=_gemma4_tables,
    extras=(SCALED_EMBEDDINGS, "soft-capped logits", "normalised values"),
    others="global_head_dim num_global_key_value_heads",
    idle="use_bidirectional_attention",
)


def _gemma3n(read: KeyReader, shape: Shape, kind: str, index: int) -> Shape:
    """Keys and values of layers before in the last ones, of which some must be left."""
    shared, makers = read.integer("num_kv_shared_layers", low=0), shape["layers"] - 1
    if index == 0 and shared > makers:
        message = f"num_kv_shared_layers is {shared}, more than the {makers} that can take keys"
        read.report("num_kv_shared_layers", message, f"set num_kv_shared_layers: {makers // 2}")
    return {"takes_keys": _takes_keys(read, shape, index)}


def _gemma3n_layer(read: KeyReader, shape: Shape, index: int, layer: Layer) -> Layer:
    """Gemma 3n's MLP of this layer: its width, and whether its gate keeps the largest elements."""
    part: Any = layer.feed_forward
    width = _of_place(read, "intermediate_size", shape["layers"], index, 16384)
    usual = 0.95 if shape["layers"] > 10 > index else 0.0
    share = _of_place(read, "activation_sparsity_pattern", shape["layers"], index, usual)
    return replace(
        layer, feed_forward=replace(part, width=int(width) or 1, keeps_largest=share > 0)
    )


def _of_place(read: KeyReader, key: str, layers: int, index: int, usual: float) -> float:
    """The number of one layer, of a key that has one for each, or for all."""
    read.read.add(key)
    written = read.config.get(key)
    if written is None:
        return usual
    listed = written if isinstance(written, (list, tuple)) else [written] * layers
    numbers = [each for each in listed if isinstance(each, (int, float))]
    if len(listed) == len(numbers) == layers and all(0 <= each <= LARGEST for each in numbers):
        return numbers[index]
    if index == 0:
        message = f"{key} is {show(written)}: not a number for each of {layers} layers"
        read.report(key, message, f"write {layers} numbers")
    return usual


def _altup(read: KeyReader, shape: Shape) -> AltUp:
    return AltUp(
        hidden=shape["hidden"],
        count=read.integer("altup_num_inputs", high=_MOST_STREAMS),
        rank=read.integer("laurel_rank"),
        inputs=read.integer("hidden_size_per_layer_input"),
    )


#: More than any model has: what predicts streams grows with the third power of their number.
_MOST_STREAMS: Final = 1000

_LINEAR: Final = "linear_attention"

#: DeepSeek-V3.2's layers: latent attention with an indexer, experts after three dense ones.
_DSA: Final = Traits(
    mlp_bias=False,
    head_dim=False,
    kinds=_indexed,
    plain=first_dense(3, "first_k_dense_replace"),
    experts=_SIGMOID,
    names=_DSA_NAMES,
    idle="layer_types",
)

TYPES: Final[Mapping[str, Traits]] = {
    "afmoe": Traits(
        norms=4,
        qk_norm="head",
        gate="elements",
        kinds=every(4, "global_attn_every_n_layers"),
        bare=lambda read, shape: (),
        experts={"router_bias": True, "router_scores": "sigmoid"},
        extras=switch("mup_enabled", False, (SCALED_EMBEDDINGS,), ()),
    ),
    "apertus": Traits(qk_norm="head", gated=False, dense={"vectors": 2}),
    "aria_text": Traits(),
    "axk1": Traits(
        head_dim=False,
        routed_norms=3,
        plain=first_dense(1, "first_k_dense_replace"),
        experts=_SIGMOID,
        others="first_k_dense_replace",
    ),
    "beam": Traits(
        norms=4,
        qk_norm="head",
        gate="elements",
        attention=lambda read, shape, kind, index: {"vectors": shape["heads"]},
        kinds=_beam,
        plain=first_dense(3),
        experts=_SIGMOID,
        extras=("soft-capped logits",),
    ),
    "biogpt": replace(_FAIRSEQ, position_offset=2),
    "bitnet": Traits(
        square=True,
        attention=lambda read, shape, kind, index: {"output_norm": True},
        dense={"inner_norm": 1},
    ),
    "codegen": replace(
        _GPT,
        qkv_bias=False,
        output_bias=False,
        norms=1,
        positions="rotary",
        rotary_fraction=_codegen,
        head_bias=True,
    ),
    "cohere2_moe": Traits(
        norm="layernorm-no-bias",
        norms=1,
        kinds=every(4, "sliding_window_pattern"),
        plain=first_dense(0, "first_k_dense_replace"),
        dense=lambda read, shape: {
            "width": read.optional_integer("prefix_dense_intermediate_size") or shape["ffn"]
        },
        others="first_k_dense_replace",
        idle="prefix_dense_sliding_window_pattern shared_expert_combination_strategy",
    ),
    "ctrl": replace(
        _GPT, positions="none", head_bias=True, extras=(SCALED_EMBEDDINGS, *_SINUSOIDS)
    ),
    "cwm": Traits(kinds=_full_first(4)),
    "deepseek_v32": _DSA,
    "deepseek_v4": Traits(
        kinds=_compressed_kinds,
        mixers={LOCAL: _nearby, _MANY: _of_many, _FEW: _of_few},
        streams=_streams,
        fields={"is_eager": True},
        plain=lambda read, shape: (),
        experts=lambda read, shape: {
            "shared_experts": 1,
            "width": shape["ffn"],
            "router_scores": "sqrtsoftplus",
        },
        rotary_fraction=0.125,
        names={"moe_intermediate_size": "intermediate_size moe_intermediate_size"},
        others="compress_ratios compress_rate_csa compress_rate_hca qk_rope_head_dim",
        idle="swiglu_limit compress_rope_theta router_jitter_noise mlp_layer_types num_hash_layers "
        "attention_bias n_shared_experts index_n_heads index_head_dim index_topk",
    ),
    "diffllama": Traits(
        attention=lambda read, shape, kind, index: {"maps": 2, "vectors": 4 * shape["head_dim"]}
    ),
    "emu3_text_model": Traits(),
    "exaone_moe": Traits(
        qk_norm="head", kinds=every(4, "sliding_window_pattern"), experts=_SIGMOID
    ),
    "flex_olmo": Traits(qk_norm="full", norm_after=True),
    "flint": Traits(qk_norm="head", sinks=True, kinds=_flint, plain=_flint_dense, experts=_SIGMOID),
    "gpt_neo": replace(_GPT, qkv_bias=False, kinds=_gpt_neo),
    "gpt_neox_japanese": replace(
        # its width is a multiple of the hidden size
        _GPT,
        qkv_bias=False,
        output_bias=False,
        mlp_bias=False,
        positions="rotary",
        layer=_last_bias,
        ffn=lambda read, hidden: read.integer("intermediate_multiple_size") * hidden,
    ),
    "glm_moe_dsa": replace(
        _DSA, others="index_topk_freq index_skip_topk_offset index_topk_pattern"
    ),
    "glm5_next_text": Traits(
        mlp_bias=False,
        head_dim=False,
        positions="none",
        kinds=_glm5_next_kinds,
        mixers={_LINEAR: _glm5_next_delta},
        streams=_averaged_streams,
        plain=first_dense(3),
        experts=_SIGMOID,
        names={"layer_types": ""},
        others="index_topk_freq index_skip_topk_offset index_topk_pattern linear_attn_config",
        idle="swiglu_limit index_kpool_always_select_tail linear_lower_bound",
    ),
    "granite_swa": Traits(sinks=True, kinds=_full_first(4), extras=multipliers, idle=_GRANITE),
    "granitemoe_swa": Traits(sinks=True, kinds=_full_first(4), extras=multipliers, idle=_GRANITE),
    "helium": Traits(output_bias=False, square=True),
    "hy_v4": Traits(
        mlp_bias=False,
        head_dim=False,
        sinks=True,
        gate="elements",
        fields={"is_eager": True},
        kinds=_indexed,
        index_period=4,
        streams=_streams,
        plain=first_dense(1),
        experts=_SIGMOID,
        names={"layer_types": ""},
        idle="layer_types swiglu_limit hc_magnitude learnable_sink_init",
    ),
    "hy_v3": Traits(qk_norm="head", plain=first_dense(1), experts=_SIGMOID),
    "hyperclovax": Traits(norms=switch("use_post_norm", True, 4, 2), extras=multipliers),
    "internlm3": Traits(),
    "iquestcoder": Traits(),
    "jais2": Traits(norm="layernorm", gated=False),
    "kolibri1": Traits(norms=4, qk_norm="head", kinds=every(5), experts={"shared_gate": False}),
    "laguna": Traits(
        qk_norm="head",
        gate=lambda read, shape: (
            "heads" if read.value("gating") in (True, "per-head") else "elements"
        ),
        attention=_laguna,
        plain=first_dense(1),
        experts={"router_bias": True, "router_scores": "sigmoid"},
    ),
    # Two attentions and MLPs a layer there: two layers here.
    "longcat_flash": Traits(
        mlp_bias=False,
        head_dim=False,
        layers=_paired,
        attention=_of_longcat,
        plain=lambda read, shape: range(1, shape["layers"], 2),
        experts=_shortcut,
        extras=("scaled latents",),
        others="router_bias num_hidden_layers",
    ),
    "mellum": Traits(qk_norm="head"),
    "mimo_v2_flash": Traits(
        output_bias=False,
        attention=_mimo,
        kinds=_mimo_kinds,
        plain=_mimo_dense,
        experts=_SIGMOID,
    ),
    "minicpm3": replace(
        _MLA, extras=("scaled embeddings, residuals and logits",), idle="dim_model_base"
    ),
    "moshi": Traits(
        dense=lambda read, shape: {"width": shape["ffn"] // 2},
        table_elements=lambda read, shape: shape["hidden"],
        idle="num_codebooks depth_decoder_config audio_encoder_config",
    ),
    "nanochat": Traits(norm="none", qk_norm="l2", gated=False, extras=("soft-capped logits",)),
    "openai-gpt": replace(_GPT, norm_after=True, final_norms=0),
    "persimmon": replace(
        _GPT,
        positions="rotary",
        rotary_fraction=0.5,
        qk_norm=switch("qk_layernorm", True, "head", "none"),
    ),
    "recurrent_gemma": Traits(
        mlp_bias=True,
        output_bias=True,
        kinds=_griffin_kinds,
        mixers={_RECURRENT: _griffin},
        dense=lambda read, shape: {"width": max(1, shape["ffn"] // 2)},
        rotary_fraction=0.5,
        extras=(SCALED_EMBEDDINGS, "soft-capped logits"),
        names={"layer_types": ""},
        idle="logits_soft_cap w_init_variance_scale",
    ),
    "solar_open": Traits(output_bias=False, experts=_SIGMOID, plain=lambda read, shape: ()),
    "vaultgemma": Traits(
        kinds=every(2), extras=(SCALED_EMBEDDINGS, "soft-capped attention scores and logits")
    ),
    "xglm": replace(_FAIRSEQ, positions="none", extras=(SCALED_EMBEDDINGS, *_SINUSOIDS)),
    "youtu": _MLA,
    **ZAMBA,
    # Language parts of multimodal models.
    "deepseek_ocr2_text": Traits(
        plain=first_dense(1, "first_k_dense_replace"), others="first_k_dense_replace"
    ),
    "dots3_note_text": Traits(
        mlp_bias=False,
        head_dim=False,
        gate="heads",
        kinds=_dots3,
        attention=_dots3_attention,
        plain=first_dense(1, "first_k_dense_replace"),
        experts=_dots3_experts,
        others="first_k_dense_replace use_dsa use_sliding_window "
        "swa_num_attention_heads swa_num_key_value_heads swa_q_lora_rank swa_kv_lora_rank "
        "swa_head_dim swa_qk_nope_head_dim swa_qk_rope_head_dim swa_v_head_dim",
        names={
            "shared_experts_intermediate_size": "moe_shared_expert_intermediate_size "
            "shared_experts_intermediate_size",
            "sliding_window": "sliding_window sliding_window_size",
        },
        idle="swa_num_key_value_heads",
    ),
    "granite4_vision_text": Traits(extras=multipliers, idle=_GRANITE),
    "hunyuan_vl_text": Traits(qk_norm="head"),
    "kosmos_2_text_model": _KOSMOS,
    "kosmos_2_5_text_model": replace(
        # a row for text, and one for what an image stands in for
        _KOSMOS,
        attention=None,
        table_elements=lambda read, shape: 2 * shape["hidden"],
    ),
    "mistral4": _MLA,
    "mistral_large4_text": Traits(
        mlp_bias=False,
        head_dim=False,
        kinds=_mistral_large,
        bare=lambda read, shape: without_rotary(read, shape["layers"]),
        attention=_mistral_large_attention,
        indexes_state=True,
        plain=first_dense(1, "first_k_dense_replace"),
        extras=("soft-capped logits", "scaled queries"),
        names=_DSA_NAMES,
        others="index_topk_freq index_skip_topk_offset index_topk_pattern no_rope_layer_interval",
        idle="layer_types final_logit_softcapping",
    ),
    "cosmos3_edge_text": Traits(gated=False),
    "gemma3n_text": Traits(
        norms=7,  # one of the product of low rank, the layer's embedding and the router each
        qk_norm="head",
        attention=_gemma3n,
        kinds=every(5),
        streams=_altup,
        layer=_gemma3n_layer,
        table_elements=_gemma4_tables,
        extras=(SCALED_EMBEDDINGS, "soft-capped logits", "normalised values"),
        names={"intermediate_size": ""},
        idle="altup_active_idx altup_coef_clip altup_correct_scale final_logit_softcapping",
    ),
    "gemma4_text": _GEMMA4,
    "gemma4_unified_text": _GEMMA4,
    "ernie4_5_vl_moe_text": Traits(
        plain=first_dense(1),
        experts=_of_modalities,
        names={"moe_intermediate_size": ""},
        idle="moe_norm_min",
    ),
    "glm4v_text": Traits(head_dim=False, norms=4, qkv_bias=True, rotary_fraction=0.5),
    "glm4v_moe_text": Traits(rounds_heads=True, output_bias=False, experts=_SIGMOID),
    "glm_ocr_text": Traits(norms=4),
    "granite_docling_text": Traits(extras=multipliers, idle=_GRANITE),
    "minimax_m3_vl_text": Traits(
        qk_norm="head",
        rotary_fraction=_blocks,
        kinds=_minimax,
        plain=_minimax_dense,
        dense=lambda read, shape: {"width": read.integer("dense_intermediate_size")},
        experts=lambda read, shape: {
            "shared_experts": 1,
            "width": read.integer("shared_intermediate_size"),
            **_SIGMOID,
        },
        others="moe_layer_freq",
        nested={
            "sparse_attention_config": {
                "sparse_attention_freq": "sparse_attention_freq",
                "index_n_heads": "sparse_num_index_heads",
                "index_head_dim": "sparse_index_dim",
                "index_block_size": "sparse_block_size",
                "index_topk_blocks": "sparse_topk_blocks",
                "index_local_blocks": "sparse_local_block",
            }
        },
        idle="swiglu_alpha swiglu_limit index_n_heads index_head_dim index_block_size "
        "index_topk_blocks index_local_blocks first_k_dense_replace use_qk_norm qk_norm_type "
        "moe_intermediate_size",
    ),
    "muse_glimmer_text": Traits(norms=4, gate="elements", qk_norm="l2"),
    "molmo2_text": Traits(
        output_bias=False,
        qk_norm=lambda read, shape: (
            "full" if read.text("qk_norm_type", default="qwen3") == "olmo" else "head"
        ),
        table_elements=lambda read, shape: (
            shape["hidden"] * (read.optional_integer("additional_vocab_size", low=0) or 0)
        ),
    ),
    "paddleocr_vl_text": Traits(),
    "qwen2_5_omni_text": Traits(qkv_bias=True),
    "qwen3_omni_moe_text": Traits(rounds_heads=True, qk_norm="head"),
    "step3p5": Traits(
        qk_norm="head",
        gate="heads",
        attention=_step,
        plain=_step_plain,
        experts=lambda read, shape: {
            "shared_experts": 1,
            "width": read.integer("shared_expert_intermediate_size"),
            **_SIGMOID,
        },
        rotary_fraction=lambda read, shape: read.positive("partial_rotary_factors", default=1.0),
        others="attention_other_setting moe_layers_enum first_k_dense_replace "
        "partial_rotary_factors",
        firsts="rope_theta partial_rotary_factors",
        names={"num_experts": "moe_num_experts n_routed_experts"},
        idle="swiglu_limits swiglu_limits_shared num_local_experts",
    ),
    "unlimited_ocr_text": Traits(
        head_dim=False,
        plain=first_dense(1, "first_k_dense_replace"),
        others="first_k_dense_replace",
    ),
}
