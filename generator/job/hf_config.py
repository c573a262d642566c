"""A Hugging Face `config.json`, or the same keys inline, becomes a `Model`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from ..catalog.layers.experts import Experts
from ..catalog.model import Model, model_of
from ..catalog.names import closest, most_like
from ..text.slips import is_slip
from ..text.wording import show, whole_number
from ..units import count
from .hf_by_keys import SET_TYPE, Traits, mixers_like, read_by_keys
from .hf_dense import DENSE
from .hf_hybrid import HYBRID
from .hf_keys import (
    SPELLINGS,
    KeyReader,
    KnownClass,
    conflicts,
    every_key,
    foreign_keys,
    is_off,
    known_class,
    multimodal,
    odd_keys,
    type_of_model,
    unread_parts,
    unread_sizes,
)
from .hf_mamba import STATE_SPACE
from .hf_moe import MOE, latent_attention, routed_experts
from .hf_remote import REMOTE
from .hf_shape import ConfigReader, Family, Problem, Shape
from .hf_types import TYPES

#: How each Hugging Face `model_type` spells a transformer's shape.
FAMILIES: Final[Mapping[str, Callable[[ConfigReader], Shape]]] = dict(
    sorted({**DENSE, **MOE, **HYBRID, **STATE_SPACE}.items())
)

_MAMBA = "state-space layers (Mamba)"
_SPARSE = "sparse attention with an indexer"

#: The `model_type`s of which something is not modelled, by what it is.
_REFUSED: Final[Mapping[str, str]] = {
    "a dense MLP beside the experts of each layer": "arctic",
    _MAMBA: "nemotron_hybrid",
    "blocks described by nested keys (attn_config, ffn_config)": "dbrx",
    "attention heads and MLP widths that differ by layer": "deci nemotron-nas openelm",
    "gates on latent attention, residuals over blocks and a narrower state between experts": (
        "kimi_k3"
    ),
    "cross-attention layers to image features": "mllama_text_model mllama",
    "adapters of its own for each modality": "phi4_multimodal phi4mm",
    "recurrent layers (RWKV)": "rwkv",
    "an encoder and a decoder": "t5",
    "recurrent layers (xLSTM)": "xlstm",
    "masks that each token makes for itself (dynamic mask attention)": "doge",
    "cross-attention to what it is given beside tokens": "chameleon evolla idefics pi0",
    "experts in its attention": "jetmoe",
    "layers that run several times over": "hrm_text",
    "bytes in patches, with models of their own around": "blt",
    "convolutions in its attention and a router that is an MLP": "zaya",
    "short convolutions and relative positions in its attention": "inkling_text inkling2_text",
    "a gate on the residual and a narrower state between experts": "muse_spark_text",
    "norms with a gate of their own, and gates from the latent of queries": "axk2",
    "gated residuals of several streams, and embeddings of n-grams in its layers": "qwen4_exp_text",
    "no causal language model, but one that denoises": "diffusion_gemma_text",
    "a head with a product and a norm of its own": "modernbert-decoder",
}

_ENCODERS = (
    "albert bert-generation big_bird camembert data2vec-text electra ernie git megatron-bert "
    "modernbert rembert roberta roberta-prelayernorm roc_bert roformer xlm xlm-roberta "
    "xlm-roberta-xl xlnet xmod reformer cpmant"
)
_DECODERS = (
    "bart bigbird_pegasus blenderbot blenderbot-small florence2 marian mbart musicgen "
    "blip_text_model musicgen_melody mvp pegasus pix2struct_text_model plbart pp_formulanet_text "
    "prophetnet vision-encoder-decoder "
    "speech_to_text_2 t5gemma2 t5gemma2_decoder trocr udop whisper"
)
_REFUSED_ROLES: Final[Mapping[str, str]] = {
    "the layers of an encoder": _ENCODERS,
    "the decoder of an encoder-decoder, with attention to the encoder": _DECODERS,
}
REFUSED: Final = {
    family: parts
    for parts, families in {**_REFUSED, **_REFUSED_ROLES}.items()
    for family in families.split()
}

#: The `model_type`s that are read as others.
_SAME: Final[Mapping[str, str]] = {
    "cohere_compass_text": "cohere2",
    "gpt-sw3": "gpt2",
    "kimi_k2": "deepseek_v3",
    "mimo": "qwen2",
    "minimax_m1": "minimax",
    "minimax_m3": "minimax_m3_vl_text",
    "minimax_text_01": "minimax",
    "qwen2_5_vl_text": "qwen2_vl_text",
    "youtu_llm": "youtu",
}

#: The `model_type`s that are read with what their classes decide.
KNOWN: Final = tuple(sorted({*FAMILIES, *TYPES, *REMOTE, *_SAME}))
#: Sizes without which nothing can be read by its keys.
_SIZED: Final = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")

#: The beginnings of keys that say what a layer is made of, by what they say.
_TELLING: Final[Mapping[str, str]] = {
    _MAMBA: "mamba_ ssm_ time_step_ state_size use_mamba",
    "layers of several kinds": (
        "hybrid_ layers_block_type attn_layer_ full_attention_interval block_types"
    ),
    "linear attention layers": "attn_type_list linear_ lightning_ gla_ use_linear_attn",
    "convolution layers": "conv_L_cache conv_kernel",
    _SPARSE: "index_topk index_n_heads indexer_",
    "attention heads or MLP widths that differ by layer": (
        "block_configs num_query_heads num_heads_per_layer ffn_multipliers qkv_multipliers "
        "per_layer_config"
    ),
    "cross-attention layers": "cross_attention_layers add_cross_attention",
    "layers that share keys and values": "use_cla num_kv_shared_layers",
    "per-layer embeddings or AltUp": "altup_ laurel_ hidden_size_per_layer_input",
    "experts": "num_experts num_local_experts n_routed_experts moe_num_experts "
    "moe_intermediate_size",
    "places of dense layers among experts": (
        "moe_layer decoder_sparse_step interleave_moe_layer_step mlp_only_layers "
        "first_k_dense mlp_layer_types"
    ),
    "shared experts": (
        "n_shared_experts num_shared_expert shared_expert_intermediate_size moe_num_shared "
        "shared_intermediate_size "
        "moe_shared_expert_intermediate_size"
    ),
    "experts behind a narrower projection": "moe_latent_size",
    "latent attention": "kv_lora_rank q_lora_rank",
    "normalised queries and keys": "use_qk_norm qk_layernorm qk_norm use_qk_layernorm",
    "attention to later tokens": "use_bidirectional_attention",
    "layers that run several times over": "num_loops loop_num loop_count total_ut_steps",
    "hyper-connections": "hc_mult hc_count mhc_ use_mhc",
    "embeddings of n-grams": "ngram_ emb_neighbor",
    "experts that compute nothing": "zero_expert",
    "an encoder and a decoder": "is_encoder_decoder",
}
_TELLING_STARTS: Final = tuple(" ".join(_TELLING.values()).split())
#: Of layers that predict more than the next token, which transformers leaves out too.
_EXTRA_TOKENS = (
    "num_nextn_predict_layers",
    "num_mtp_layers",
    "mtp_num_layers",
    "mtp_num_hidden_layers",
    "num_mtp_modules",
)
_LARGEST_WRITTEN = 3  #: parts of a config that a message lists
_INLINE = (
    "to estimate it without that part, write its sizes in the spec: `model: {hidden_size: ..., "
    "intermediate_size: ..., num_hidden_layers: ..., num_attention_heads: ..., vocab_size: ...}`"
)


def _costly_keys(read: ConfigReader) -> Iterator[tuple[str, str]]:
    """Keys that no reader asked for and that change a model's size or cost, with what they stand
    for.
    """
    for key, value in read.config.items():
        if key in read.read or not isinstance(key, str) or _says_nothing(value):
            continue
        if key.startswith(_TELLING_STARTS) and not is_off(read.config, key):
            yield key, next(said for said, starts in _TELLING.items() if _starts(key, starts))


def _starts(key: str, starts: str) -> bool:
    return key.startswith(tuple(starts.split()))


def _unknown(read: ConfigReader, family: str, nearest: str | None, known: str) -> Problem:
    """Why a `model_type` can't be planned: what is missing, where that is known."""
    if family in REFUSED:
        message = f"{family} has {REFUSED[family]}, which dsgen doesn't model"
        return Problem("model_type", message, _INLINE)
    unknown = f"unknown model_type {show(family)}"
    parts = list(dict.fromkeys(meaning for _, meaning in _costly_keys(read)))
    if parts:
        message = f"{unknown}; its config has {', '.join(parts[:_LARGEST_WRITTEN])}"
        like = next(filter(None, map(mixers_like, parts)), "")
        if like:
            return Problem("model_type", f"{message}; {like}", SET_TYPE)
        return Problem("model_type", message, _INLINE)
    missing = [key for key in _SIZED if not read.has(key)]
    if isinstance(read, KeyReader) and 0 < len(missing) < len(_SIZED):
        message = f"{unknown}, and its config has no {missing[0]}"
        return Problem("model_type", message, f"add {' and '.join(missing)} to its config")
    hint = f"use one of {known}"
    if nearest and nearest[:2] == family[:2]:  # a name that begins otherwise is hardly a slip
        hint = f"did you mean {nearest}?"
    return Problem("model_type", unknown, hint)


def _unread(read: ConfigReader, family: str, shape: Shape) -> tuple[str, ...]:
    """Notes on keys that the model's class doesn't read.

    They are sizes and settings of routers under names of other classes, and a latent of no width.
    """
    if whole_number(read.config.get("q_lora_rank")) == 0 and "q_lora_rank" in read.read:
        other = "transformers makes a latent of no width of it, and null says no latent"
        return (f"q_lora_rank is 0: queries have no latent here; {other}",)
    known = known_class(_type_read_as(read.config))
    notes = []
    if known is not None and read.has("q_lora_rank") and "q_lora_rank" not in known.keys:
        rank = show(read.config["q_lora_rank"])
        notes.append(
            f"q_lora_rank is {rank}, as the code beside such weights has it: transformers reads no "
            f"such key for {family}"
        )
    for key, value in _foreign_values(read, shape):
        unread = f"{key} {_said_of(value)}: transformers reads no such key for {family}"
        notes.append(f"{unread}{_read_instead(key, read.config, known)}")
    return tuple(notes)


def _foreign_values(read: ConfigReader, shape: Shape) -> Iterator[tuple[str, object]]:
    """Unread keys of `_NOT_OF_ALL` whose values say other than what is planned."""
    present = [key for key in _NOT_OF_ALL if key in read.config and key not in read.read]
    if not present:
        return
    # A size that stands under a key of the class too says nothing new; nor does a router's setting
    # that the class has anyway.
    read_values = [None, *(read.config.get(key) for key in read.read)]
    fields = {**_router_of(shape), **shape}
    router_values = {
        key: (None, fields.get(field, usual), usual == 0 or None)
        for key, (field, usual) in _ROUTER.items()
    }
    for key in present:
        value = read.config[key]
        if not _sees_all(key, read.config) and value not in router_values.get(key, read_values):
            yield key, value


def _read_instead(key: str, config: Mapping[str, object], known: KnownClass | None) -> str:
    """Which key a class reads for what another class calls `key`, and the value that it has."""
    names = next((said.split() for said in SPELLINGS.values() if key in said.split()), ())
    name = next((name for name in names if known is not None and name in known.keys), None)
    if known is None or name in (None, key):
        return ""
    if name in config:
        return f", but {name}, which is {show(config[name])}"
    return f", but {name}, whose default {show(known.keys[name])} is taken"


def _sees_all(key: str, config: Mapping[str, object]) -> bool:
    """Whether a key of local attention says that every layer sees the whole sequence."""
    value = config[key]
    if key == "layer_types":
        return value is None or (isinstance(value, list) and all(kind == _WHOLE for kind in value))
    return key == "sliding_window" and (not value or config.get("use_sliding_window") is False)


def _inline_windows(config: Mapping[str, object]) -> Iterator[str]:
    """The note on local attention of an inline model, which has none."""
    keys = [key for key in _LOCAL if key in config and not _sees_all(key, config)]
    if keys:
        yield (
            f"{' and '.join(keys)}: an inline model's layers see the whole sequence; "
            "set a model_type whose layers don't, such as gemma3_text, or any name of your own, of "
            "which these keys are read"
        )


def _said_of(value: object) -> str:
    """What a value is, or which kinds a list names."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return f"lists {' and '.join(sorted(set(value)))}"
    return f"is {show(value)}"


def _router_of(shape: Shape) -> Shape:
    """The fields of the router, where a shape has its layers ready."""
    kinds = shape["stack"].kinds if "stack" in shape else ()
    parts = [layer.feed_forward for layer in kinds if layer.feed_forward.experts]
    return {field: getattr(parts[0], field) for field, _ in _ROUTER.values()} if parts else {}


def unknown_keys(config: Mapping[str, object]) -> dict[str, str]:
    """Keys of a config that stand for one that isn't given: misspelled, or another program's name
    for it.
    """
    inner, _ = _language_model(config)
    read, _, _ = _read(inner)
    meant_by_key = _slips(read)
    for key in read.config:
        if not isinstance(key, str) or key in read.read:
            continue
        names: list[str] = next(
            (read.called(usual) for usual, others in _FOREIGN.items() if key in others.split()), []
        )
        if not names:
            continue
        meant_by_key.pop(key, None)
        if read.read.issuperset(names) and all(read.config.get(name) is None for name in names):
            meant_by_key[key] = names[0]
    return meant_by_key


def _slips(read: ConfigReader) -> dict[str, str]:
    """Keys that no class has, and that are a slip of one that was asked for and isn't given."""
    absent = {
        key.replace("_", ""): key for key in sorted(read.read) if read.config.get(key) is None
    }
    near_by_key: dict[str, str] = {}
    for key in read.config:
        if not isinstance(key, str) or key in read.read or key in every_key():
            continue
        plain = re.sub(r"[\W_]", "", key.lower())
        near = absent.get(most_like(plain, tuple(absent), _SLIP) or "")
        near = near or next((name for name in absent.values() if is_slip(key, name)), None)
        if near is None:
            continue
        has_further_words = set(near.split("_")) < set(key.split("_"))
        if not has_further_words:  # with a word more it is another key
            near_by_key[key] = near
    return near_by_key


def _says_nothing(value: object) -> bool:
    """Return whether a value switches its key off: nothing, false, 0, 1, or the same of these for
    each layer.
    """
    if isinstance(value, (list, tuple)):
        return all(_says_nothing(item) and item == value[0] for item in value)
    return value is not True and (value is None or value in (False, 0, 1, "", "none", {}))


_PLACES = ("text_config", "llm_config", "language_config")
#: What a language model without `model_type` of its own is, by the `model_type` around it.
_TEXT_MODELS: Final[Mapping[str, str]] = {
    "gemma3": "gemma3_text",
    "gemma3n": "gemma3n_text",
    "gemma4": "gemma4_text",
    "llama4": "llama4_text",
    "llava": "llama",
    "llava_next": "llama",
    "mistral3": "mistral",
    "qwen2_vl": "qwen2_vl_text",
    "qwen2_5_vl": "qwen2_vl_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
}
_TIED = "tie_word_embeddings"
#: Where the language model's own config alone says whether the head is tied.
_TIED_INSIDE: Final = ("llama4",)
#: Where the multimodal config alone says whether the head is tied, and what it is taken for.
#: Mistral 3's would be tied too, but its checkpoints have a head of their own.
_TIED_OUTSIDE: Final[Mapping[str, bool]] = {
    "gemma3": True,
    "llava_next": False,
    "qwen3_vl": False,
    "qwen3_vl_moe": False,
}


def _language_model(config: Mapping[str, object]) -> tuple[Mapping[str, object], tuple[str, ...]]:
    """The config of the language model, and that the rest is left out; `config` itself where
    nothing is nested.
    """
    outer = config.get("model_type")
    family = outer if isinstance(outer, str) else ""
    if family in REFUSED:
        return config, ()

    # Of a model that speaks, the part that writes text has a config of its own (Qwen 3 Omni).
    thinker = config.get("thinker_config")
    if isinstance(thinker, dict) and thinker:
        return _language_model({"model_type": f"{family}_thinker", **thinker})
    place = next((key for key in _PLACES if isinstance(config.get(key), dict)), None)
    known = multimodal(family)
    usual = _TEXT_MODELS.get(family) or (known["text"] if known else None)
    if place is None:
        # Sizes under names of other classes alone are none of a language model that is known.
        has_other_names = _has_sizes(config) and "hidden_size" not in config
        if usual is None or has_other_names:
            return config, ()
        if "hidden_size" in config:
            return {**config, "model_type": usual}, (_left_out(family, "its own keys describe it"),)
        return _usual_language_model(config, family, usual)
    section = config[place]
    inner: Mapping[str, object] = section if isinstance(section, dict) else {}
    inner_type = inner.get("model_type") or usual or outer
    if inner_type == "bert":  # the text encoder of another model
        return config, ()
    tied: object = inner.get(_TIED) or config.get(_TIED)
    if family in _TIED_INSIDE:
        tied = inner.get(_TIED)
    if family in _TIED_OUTSIDE:
        tied = config.get(_TIED, _TIED_OUTSIDE[family])
    notes = (
        _left_out(family or show(outer), f"{place} describes it"),
        *_own_sizes(inner, place, family),
    )
    return {**inner, **({} if tied is None else {_TIED: tied}), "model_type": inner_type}, notes


def _usual_language_model(
    config: Mapping[str, object], family: str, usual: str
) -> tuple[Mapping[str, object], tuple[str, ...]]:
    """The language model that transformers takes for a multimodal config that has none."""
    known = multimodal(family)
    sizes: Mapping[str, object] = known.get("sizes", {}) if known else {}
    tie = config.get(_TIED, known.get("tied") if known else None)
    missing = known["place"] if known else _PLACES[0]
    note = (
        f"{family} is multimodal, and its config has no {missing}: "
        "the language model that transformers takes then is planned"
    )
    return {**sizes, **({} if tie is None else {_TIED: tie}), "model_type": usual}, (note,)


def _has_sizes(config: Mapping[str, object]) -> bool:
    """Whether a config has a size of a language model, under any name."""
    return any(name in config for key in _NOTED for name in (key, *_FOREIGN[key].split()))


def _own_sizes(inner: Mapping[str, object], place: str, outer: str) -> Iterator[str]:
    """A note on sizes that the language model's config leaves to a class.

    It is that of the language model here, and transformers may take other ones of the class around.
    """
    missing = [
        key
        for key in ("hidden_size", "num_hidden_layers")
        if not any(name in inner for name in (key, *_FOREIGN[key].split()))
    ]
    if missing:
        yield (
            f"{place} has no {' or '.join(missing)}: the default of its own class is taken, and "
            f"{outer or 'the class around it'} may have another"
        )


def _left_out(outer: str, described: str) -> str:
    return f"{outer} is multimodal: its language model alone is planned, as {described}"


_EXPERTS = "num_experts num_local_experts n_routed_experts"
#: What other classes, Megatron and Meta's params.json call the keys; transformers takes those of
#: the model's own class.
_FOREIGN: Final[Mapping[str, str]] = {
    "hidden_size": "n_embd n_embed d_model dim embed_dim",
    "num_hidden_layers": "n_layer n_layers num_layers",
    "num_attention_heads": "n_head n_heads num_heads",
    "num_key_value_heads": "n_kv_heads n_head_kv num_kv_heads num_query_groups "
    "multi_query_group_num",
    "head_dim": "kv_channels d_kv",
    "intermediate_size": "ffn_hidden_size ffn_dim n_inner d_ff",
    "vocab_size": "padded_vocab_size n_vocab",
    "max_position_embeddings": "n_positions n_ctx max_seq_len max_sequence_length seq_length",
    "num_experts": "num_moe_experts n_experts moe_num_experts",
    "num_experts_per_tok": "moe_router_topk moe_topk moe_top_k num_experts_per_token",
    "moe_intermediate_size": "moe_ffn_hidden_size",
}
_NOTED: Final = ("hidden_size", "num_hidden_layers", "num_attention_heads")
_SIZES: Final = f"{' '.join(f'{usual} {_FOREIGN[usual]}' for usual in _NOTED)} {_EXPERTS}".split()
#: Likeness of keys that differ by a letter or two; `hidden_dropout_prob` is another key.
_SLIP: Final = 0.9
_LATENT_KEYS = ("q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
_ROUTING_KEYS = (
    "num_experts_per_tok",
    "moe_intermediate_size",
    "n_shared_experts",
    "shared_expert_intermediate_size",
    "first_k_dense_replace",
)
_SHARED_WIDTH: Final = "shared_expert_intermediate_size"  #: of all of them together
#: Keys of DeepSeek's routers, with the fields of a model and the values of routers without them.
_ROUTER: Final[Mapping[str, tuple[str, object]]] = {
    "scoring_func": ("router_scores", "softmax"),
    "norm_topk_prob": ("router_normalizes", True),
    "n_group": ("router_groups", 0),
    "topk_group": ("router_top_groups", 0),
    "routed_scaling_factor": ("router_scale", 1.0),
}
_LOCAL: Final = ("layer_types", "sliding_window")
#: Keys that many classes lack. In classes that have them they change a model's size, its router or
#: what its attention sees.
_NOT_OF_ALL: Final = (*_SIZES, *_ROUTER, *_LOCAL)
#: What keys of local attention say where no layer has any.
_WHOLE: Final = "full_attention"
_POSITIONS_WITHOUT_TABLE = 131072  # what Llama 3.1 and its contemporaries are trained for
_POSITIONS = ("learned", "rotary", "alibi", "none")


class ConfigError(ValueError):
    """The config has errors; `problems` holds every one as (key, message, hint)."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        super().__init__("; ".join(message for _, message, _ in problems))


def model_from_config(config: Mapping[str, object], *, name: str, source: str) -> Model:
    """The shape that `config` describes; keys it lacks take the defaults of transformers' config
    class.

    Without `model_type` it is an inline model: Llama-like or GPT-like, as `gated_mlp` and
    `position_embedding` say. Raises `ConfigError` with every problem at once.
    """
    inner, notes = _language_model(config)
    named = "model_type" in inner
    read, family, shape = _read(inner)
    slips = _slips(read)
    if slips:
        # The rest is checked as if they were spelled right: one slip is one problem.
        inner = {slips.get(key, key): value for key, value in inner.items()}
        read, family, shape = _read(inner)

    if not named or shape:
        if isinstance(read, KeyReader):
            notes = (*notes, *_by_keys(read, family))
        notes = (*notes, *_as_class(read, family))
        _refuse_costly_keys(read, shape, inner, family if named else None)
    misspelled = [
        Problem(key, f"unknown key {key}", f"did you mean {meant}?") for key, meant in slips.items()
    ]
    problems = [*misspelled, *read.problems]
    if problems:
        raise ConfigError(tuple(dict.fromkeys([*problems, *_other_class(read)])))
    if named:
        notes = (*notes, *_quantized(config, inner), *_unread(read, family, shape))
        if known_class(_type_read_as(inner)) is not None:
            notes = (*notes, *_note_on_unread(unread_parts(read), read))
    else:
        notes = (*notes, *_inline_windows(inner))
    make = Model if "stack" in shape else model_of
    model = make(name=name, family=family, source=source, notes=notes, **shape)
    return _with_depths(model, read.config) if named else model


def _refuse_costly_keys(
    read: ConfigReader, shape: Shape, config: Mapping[str, object], family: str | None
) -> None:
    """Report keys that change a model's size or cost, and that its reader doesn't know.

    `family` is None for an inline model.
    """
    model = "an inline model" if family is None else f"model_type {family}"
    parts: dict[str, list[str]] = {}
    for key, meaning in _costly_keys(read):
        if key in {problem.key for problem in read.problems}:
            continue
        if key in _HEAD_NORMS and _normalises_heads(shape):
            continue  # its class always does
        if key in _EXPERTS.split() and _has_experts(shape):
            continue  # under the name of another class: noted
        if key in _SHARED_WIDTHS and whole_number(read.config[key]) in _shared_widths(shape):
            continue  # says what the class reckons
        parts.setdefault(meaning, []).append(key)

    is_unknown = family is not None and known_class(_type_read_as(config)) is None
    for meaning, keys in parts.items():
        key = keys[0]  # one part is one problem
        message = f"{key} is {show(read.config[key])}: {meaning} are not modelled for {model}"
        message = message.replace("attention are", "attention is")
        like = mixers_like(meaning) if is_unknown else ""
        if not like:
            remove = f"remove {', '.join(keys)} if the model has none"
            read.report(key, message, f"{remove}{_by_own_name(key, config)}")
        elif not _has_said_mixers(read):
            read.report(key, f"{message}; {like}", SET_TYPE)


def _by_own_name(key: str, config: Mapping[str, object]) -> str:
    """The end of a hint: that a `model_type` that nobody knows has the part, where it is read."""
    renamed = {**config, "model_type": _OWN_TYPE}
    if known_class(_type_read_as(config)) is None and "model_type" in config:
        return ""
    try:
        model_from_config(renamed, name=_OWN_TYPE, source=_OWN_TYPE)
    except ConfigError:
        return ""
    read, _, _ = _read(renamed)
    name = "another name as model_type, of which these keys are read"
    return f", or set {name}" if key in read.read else ""


_OWN_TYPE: Final = "of-your-own"  #: a `model_type` that no class has


def _with_depths(model: Model, config: Mapping[str, object]) -> Model:
    """The model with the depths of multi-token prediction that its config has, and a note on what
    training them takes.
    """
    written = ((key, whole_number(config[key])) for key in _EXTRA_TOKENS if key in config)
    key, depths = next(((key, number) for key, number in written if number and number > 0), ("", 0))
    like = _layers_of_depth(model, config)
    if not depths:
        return replace(model, depth_like=like) if like else model
    model = replace(model, depths=depths, depth_like=like)
    of_layers = sum(
        number * layer.active_matrix_parameters
        for layer, number in zip(model.stack.kinds, model.stack.counts, strict=True)
    )
    more = depths * model.depth_matrix_parameters / (of_layers + model.vocab * model.hidden)
    note = (
        f"{key} is {depths}: such depths are counted and trained with training.mtp_depths alone; "
        f"{depths} would add {count(depths * model.depth_parameters)} parameters and "
        f"{100 * more:.0f} % of a token's operations"
    )
    return replace(model, notes=(*model.notes, note))


#: What a layer of a depth is, as configs write it: by letter, or by name.
_DEPTH_PARTS: Final[Mapping[str, str]] = {
    **{letter: letter for letter in "*ME-"},
    "attention": "*",
    "mamba": "M",
    "moe": "E",
    "mlp": "-",
}


def _layers_of_depth(model: Model, config: Mapping[str, object]) -> tuple[int, ...]:
    """Numbers of layers like those of one depth, where a config lists them (Nemotron 3)."""
    listed = config.get("mtp_layers_block_type") or config.get("mtp_hybrid_override_pattern")
    parts = list(listed) if isinstance(listed, (str, list, tuple)) else []
    letters = [_DEPTH_PARTS.get(part) if isinstance(part, str) else None for part in parts]
    if not letters:
        return ()
    alone = {kind.letters: place for place, kind in enumerate(model.stack.kinds)}
    if not all(letter in alone for letter in letters):
        return ()
    order = model.stack.order
    return tuple(order.index(alone[letter]) for letter in letters if letter is not None)


def _quantized(*configs: Mapping[str, object]) -> Iterator[str]:
    """The note on weights that are published quantized."""
    for config in configs:
        how = config.get("quantization_config") or config.get("compression_config")
        if isinstance(how, Mapping):
            method = how.get("quant_algo") or how.get("quant_method")
            named = f" ({method})" if isinstance(method, str) else ""
            yield f"its weights are published quantized{named}: planned in the job's own precision"
            return


def _has_experts(shape: Shape) -> bool:
    kinds = shape["stack"].kinds if "stack" in shape else ()
    return bool(shape.get("experts")) or any(layer.feed_forward.experts for layer in kinds)


#: Keys of other classes for the width of shared experts.
_SHARED_WIDTHS: Final = SPELLINGS["shared_expert_intermediate_size"].split()


def _shared_widths(shape: Shape) -> tuple[object, ...]:
    """Widths of a layer's shared experts, all together and of one."""
    kinds = shape["stack"].kinds if "stack" in shape else ()
    parts = [layer.feed_forward for layer in kinds if isinstance(layer.feed_forward, Experts)]
    if parts:
        width, several = parts[0].width, parts[0].shared_experts
    else:
        width, several = shape.get("shared_ffn", 0), shape.get("shared_experts", 0)
    return (width, width // several) if width and several else ()


#: Keys by which other classes than Qwen's ask for what Qwen 3's always does.
_HEAD_NORMS: Final = ("use_qk_norm", "qk_norm", "qk_layernorm", "use_qk_layernorm")


def _normalises_heads(shape: Shape) -> bool:
    if shape.get("kv_lora_rank"):
        return True  # of latents
    kinds = shape["stack"].kinds if "stack" in shape else ()
    norms = [getattr(layer.mixer, "qk_norm", "none") for layer in kinds]
    return all(norm != "none" for norm in norms or [shape.get("qk_norm", "none")])


def _read(config: Mapping[str, object]) -> tuple[ConfigReader, str, Shape]:
    """A config's reader after reading it, its `model_type` or the nearest one, and the shape."""
    read = _reader(config)
    family, shape = _read_family(read) if "model_type" in config else _read_inline(read)
    return read, family, shape


def _reader(config: Mapping[str, object]) -> ConfigReader:
    """A reader of a config: by the keys of its class, or of any class, where no family has a
    reader of its own.
    """
    usual = _type_read_as(config)
    if not usual or usual in FAMILIES:
        return ConfigReader(config)
    return KeyReader(config, known_class(usual))


def _type_read_as(config: Mapping[str, object]) -> str:
    """The `model_type` that a config is read as; empty where it has none.

    It is its own, or the known one that means the same. In place of an unknown one it is that of
    the class in `architectures`.
    """
    family = config.get("model_type")
    if not isinstance(family, str):
        return ""
    if family in KNOWN or family in REFUSED or family in _TEXT_MODELS or multimodal(family):
        return _SAME.get(family, family)
    return type_of_model(config.get("architectures")) or family


def _other_class(read: ConfigReader) -> Iterator[Problem]:
    """Where a config is refused: that its class is of another type than its `model_type`, if so."""
    classes = read.config.get("architectures")
    named, family = type_of_model(classes), _type_read_as(read.config)
    if isinstance(classes, list) and named and family in KNOWN and named != family:
        is_named = f"architectures names {classes[0]}, the class of {named}"
        message = f"{is_named}, but model_type is {family}"
        yield Problem("architectures", message, f"set model_type: {named}")


def _as_class(read: ConfigReader, family: str) -> tuple[str, ...]:
    """The note on a config that is read as the class which it names; report keys that this class
    lacks.
    """
    usual = _type_read_as(read.config)
    known = known_class(usual)
    if known is None or usual == _SAME.get(family, family):
        return ()
    for key in foreign_keys(read, known):
        read.report(
            key,
            f"{key} is {show(read.config[key])}: {usual} has no such key, whose class the config "
            "names",
            f"remove {key} if the model has no such part",
        )
    return (f"model_type {family} is unknown: it is read as {usual}, whose class it names",)


def _by_keys(read: KeyReader, family: str) -> tuple[str, ...]:
    """Report keys that nobody knows; the note on a config that was read by its keys alone."""
    for key in odd_keys(read):
        if key.startswith(_TELLING_STARTS):
            continue  # `_refuse_costly_keys` says what it stands for
        like = mixers_like(key) if read.known is None and family not in REMOTE else ""
        if like and _has_said_mixers(read):
            continue
        known = f"dsgen doesn't know what it changes in a model of model_type {family}"
        read.report(
            key,
            f"{key} is {show(read.config[key])}: {like or known}",
            SET_TYPE if like else f"remove {key} if the model has no such part",
        )
    if read.known is not None or family in REMOTE:
        return ()
    for key, conflicting in conflicts(read):
        message = (
            f"{key} is {show(read.config[key])}, but {conflicting}, and both say the same thing"
        )
        read.report(key, message, "remove the one that the model doesn't read")
    exact, close, checked = BY_KEYS_ALONE
    return (
        f"model_type {family} is unknown: its keys alone were read; of {checked} known types, that "
        f"gives the number of parameters within 0.01 % for {exact}, and within 1 % for {close}",
        *_note_on_unread(unread_sizes(read), read),
    )


def _has_said_mixers(read: ConfigReader) -> bool:
    """Whether a problem says what layers of an unknown type may be: once is enough."""
    return any(hint == SET_TYPE for _, _, hint in read.problems)


def _note_on_unread(keys: Iterable[str], read: ConfigReader) -> Iterator[str]:
    """The note on sizes that nobody read."""
    unread = [f"{key} is {show(read.config[key])}" for key in keys]
    if unread:
        yield f"{', '.join(unread)}: dsgen doesn't know what this changes, and leaves it out"


#: Known types whose parameters are right within 0.01 % when their keys alone are read, those within
#: 1 %, and all that aren't refused then.
#: Source: tests/job/test_every_type.py, on transformers 5.23.
BY_KEYS_ALONE: Final = (75, 88, 94)


def _read_family(read: ConfigReader) -> tuple[str, Shape]:
    family = read.config["model_type"]
    known = ", ".join(KNOWN)
    if not isinstance(family, str):
        read.report("model_type", f"unknown model_type {show(family)}", f"use one of {known}")
        return "", {}
    usual = _type_read_as(read.config)
    if usual in FAMILIES:
        return family, FAMILIES[usual](read)
    if isinstance(read, KeyReader) and _is_readable(read, usual):
        return family, read_by_keys(read, TYPES.get(usual) or REMOTE.get(usual, Traits()))
    if family not in REFUSED and (family in _TEXT_MODELS or multimodal(family)):
        message = f"{family} is a multimodal model, and its config has no text_config"
        read.report("model_type", message, "use its config.json as published")
    else:
        named = usual if usual in REFUSED else family
        read.report(*_unknown(read, named, closest(family, KNOWN), known))
    return "", {}


def _is_readable(read: KeyReader, family: str) -> bool:
    """Whether a config can be read by its keys: its class is known, or it has sizes."""
    if family in TYPES:
        return True
    if family in REFUSED or read.known is not None or multimodal(family):
        return False
    return all(map(read.has, _SIZED))


#: What an inline model's keys may be called; it has no layers of different kinds.
_INLINE_NAMES: Final[Mapping[str, str]] = {
    "num_experts": _EXPERTS,
    "hidden_act": "hidden_act hidden_activation activation_function",
    "rms_norm_eps": "rms_norm_eps layer_norm_eps layer_norm_epsilon",
    "attention_dropout": "attention_dropout attention_probs_dropout_prob attn_pdrop",
    "hidden_dropout": "hidden_dropout hidden_dropout_prob resid_pdrop dropout",
    "layer_types": "",
}


def _read_inline(read: ConfigReader) -> tuple[str, Shape]:
    """Read a model described in the job spec itself, with Hugging Face's keys: the nearest
    `model_type`, and the shape.

    `gated_mlp` stands for Llama's block (RMSNorm, no biases, untied head) and its absence for GPT's
    (LayerNorm, biases, tied head); `attention_bias`, `mlp_bias` and `tie_word_embeddings` say
    otherwise.
    """
    gated = read.boolean("gated_mlp", read.config.get("position_embedding") != "learned")
    positions = read.choice("position_embedding", _POSITIONS, "rotary" if gated else "learned")
    family = Family(
        required=True,
        ffn=11008 if gated else None,
        positions=2048 if positions == "learned" else _POSITIONS_WITHOUT_TABLE,
        activation="silu" if gated else "gelu",
        tied=not gated,
        position_embedding=positions,
        epsilon=1e-5,
        attention_bias=not gated,
        mlp_bias=not gated,
        names=_INLINE_NAMES,
        dropout="hidden_dropout",
        fields={} if gated else {"gated_mlp": False, "norm": "layernorm"},
        more=_inline_parts,
    )
    shape = family(read)
    if shape.get("kv_lora_rank"):
        return "deepseek_v3", shape
    if shape.get("experts"):
        return "mixtral", shape
    return "llama" if gated else "gpt2", shape


def _inline_parts(read: ConfigReader, shape: Shape) -> Shape:
    """Return latent attention and experts of an inline model, each where its first key is there."""
    parts: Shape = {}
    if read.has("kv_lora_rank"):
        parts.update(latent_attention(read, 0))
    else:
        _refuse_orphans(read, _LATENT_KEYS, "kv_lora_rank")
    if read.has("num_experts"):
        scores = read.choice(
            "scoring_func", ("softmax", "sigmoid"), "sigmoid" if parts else "softmax"
        )
        parts.update(routed_experts(read, shape, experts=None, top_k=None, moe_ffn=shape["ffn"]))
        wide = read.optional_integer(_SHARED_WIDTH, low=0)
        if wide is not None:
            parts.update({"shared_experts": min(1, wide), "shared_ffn": wide})
        parts.update(router_scores=scores, router_normalizes=read.boolean("norm_topk_prob", True))
    else:
        _refuse_orphans(read, (*_ROUTING_KEYS, *_ROUTER), "num_experts")
    return parts


def _refuse_orphans(read: ConfigReader, keys: tuple[str, ...], needed: str) -> None:
    for key in keys:
        if read.has(key):
            message = f"{key} is {show(read.config[key])}, but has no effect without {needed}"
            read.report(key, message, f"add {needed}, or remove {key}")
