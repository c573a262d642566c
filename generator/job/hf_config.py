"""A Hugging Face `config.json`, or the same keys inline, becomes a `Model`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ..catalog.names import closest
from ..catalog.records import Model
from .hf_dense import DENSE
from .hf_moe import MOE, latent_attention, read_experts
from .hf_reader import ConfigReader, Problem
from .hf_refused import is_multimodal, language_model, more_predictions, reader_of, refuse_costly_keys, unknown
from .hf_shape import LONG, Shape, gpt_block, read_head_dim, read_kv_heads, read_rotary
from .wording import show

#: How each Hugging Face `model_type` spells a transformer's shape.
FAMILIES: Final[Mapping[str, Callable[[ConfigReader], Shape]]] = dict(sorted({**DENSE, **MOE}.items()))

_ACTIVATION_KEYS = ("hidden_act", "hidden_activation", "activation_function")
_EXPERT_KEYS = ("num_experts", "num_local_experts", "n_routed_experts")
_LATENT_KEYS = ("q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
_ROUTING_KEYS = ("num_experts_per_tok", "moe_intermediate_size", "n_shared_experts", "first_k_dense_replace")
_POSITIONS_WITHOUT_TABLE = 131072  # what Llama 3.1 and its contemporaries are trained for
_POSITIONS = ("learned", "rotary", "alibi", "none")


class ConfigError(ValueError):
    """The config has errors; `problems` holds every one as (key, message, hint)."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        super().__init__("; ".join(message for _, message, _ in problems))


def model_from_config(config: Mapping[str, object], *, name: str, source: str) -> Model:
    """The shape that `config` describes; keys it lacks take the defaults of transformers' config class.

    Without `model_type` it is an inline model: Llama-like or GPT-like, as `gated_mlp` and `position_embedding` say.
    Raises `ConfigError` with every problem at once.
    """
    inner, notes = language_model(config)
    read = ConfigReader(inner)
    named = "model_type" in inner
    family, shape = _read_family(read) if named else _read_inline(read)
    if not named or shape:
        refuse_costly_keys(read, f"model_type {family}" if named else "an inline model")
    if read.problems:
        raise ConfigError(tuple(dict.fromkeys(read.problems)))
    return Model(name=name, family=family, source=source, notes=(*notes, *more_predictions(read)), **shape)


def _read_family(read: ConfigReader) -> tuple[str, Shape]:
    family = read.config["model_type"]
    known = ", ".join(FAMILIES)
    if not isinstance(family, str):
        read.report("model_type", f"unknown model_type {show(family)}", f"use one of {known}")
    elif reader_of(family) in FAMILIES:
        return family, FAMILIES[reader_of(family)](read)
    elif is_multimodal(read):
        message = f"{family} is a multimodal model, and its config has no text_config"
        read.report("model_type", message, "use its config.json as published")
    else:
        read.report(*unknown(read, family, closest(family, FAMILIES), known))
    return "", {}


def _read_inline(read: ConfigReader) -> tuple[str, Shape]:
    """Read a model described in the job spec itself, with Hugging Face's keys: the nearest `model_type`, and the shape.

    `gated_mlp` stands for Llama's block (RMSNorm, no biases, untied head) and its absence for GPT's (LayerNorm,
    biases, tied head); `attention_bias`, `mlp_bias` and `tie_word_embeddings` say otherwise.
    """
    gated = read.boolean("gated_mlp", read.config.get("position_embedding") != "learned")
    bias = read.boolean("attention_bias", not gated)
    hidden = read.integer("hidden_size", example=4096)
    heads = read.integer("num_attention_heads", example=32)
    shape: Shape = {
        **({"gated_mlp": True} if gated else gpt_block()),
        "qkv_bias": bias,
        "output_bias": bias,
        "mlp_bias": read.boolean("mlp_bias", not gated),
        "norm_epsilon": read.positive("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", default=1e-5),
        "activation": read.text(*_ACTIVATION_KEYS, default="silu" if gated else "gelu"),
        "tied_embeddings": read.boolean("tie_word_embeddings", not gated),
        "dropout": read.fraction("hidden_dropout", "hidden_dropout_prob", "resid_pdrop", "dropout"),
        "attention_dropout": read.fraction("attention_dropout", "attention_probs_dropout_prob", "attn_pdrop"),
        "vocab": read.integer("vocab_size", example=32000),
        "hidden": hidden,
        "layers": read.integer("num_hidden_layers", example=32),
        "heads": heads,
        "kv_heads": read_kv_heads(read, heads, None),
        "head_dim": read_head_dim(read, hidden, heads),
        "ffn": read.integer("intermediate_size", default=None if gated else 4 * hidden, example=11008),
        "position_embedding": read.choice("position_embedding", _POSITIONS, "rotary" if gated else "learned"),
    }
    if shape["position_embedding"] == "learned":
        shape["position_rows"] = shape["max_positions"] = read.integer("max_position_embeddings", example=2048)
    else:
        limit = read.integer("max_position_embeddings", default=_POSITIONS_WITHOUT_TABLE, high=LONG)
        shape.update(max_positions=limit, **(read_rotary(read) if shape["position_embedding"] == "rotary" else {}))
    shape.update(_inline_parts(read, shape))
    if shape.get("kv_lora_rank"):
        return "deepseek_v3", shape
    return "mixtral" if shape.get("experts") else "llama" if gated else "gpt2", shape


def _inline_parts(read: ConfigReader, shape: Shape) -> Shape:
    """Return latent attention and experts of an inline model, each where its first key is there."""
    parts: Shape = {}
    if read.has("kv_lora_rank"):
        parts.update(latent_attention(read, 0))
    else:
        _refuse_orphans(read, _LATENT_KEYS, "kv_lora_rank: 512")
    if any(read.has(key) for key in _EXPERT_KEYS):
        found = read_experts(read, shape, *_EXPERT_KEYS, experts=None, top_k=None, width=shape["ffn"])
        shared = read.integer("n_shared_experts", default=0, low=0)
        dense = min(shape["layers"], read.integer("first_k_dense_replace", default=0, low=0))
        parts.update(found, shared_experts=shared, shared_ffn=shared * found["moe_ffn"], dense_layers=dense)
    else:
        _refuse_orphans(read, _ROUTING_KEYS, "num_experts: 8")
    return parts


def _refuse_orphans(read: ConfigReader, keys: tuple[str, ...], needed: str) -> None:
    for key in keys:
        if read.has(key):
            message = f"{key} is {show(read.config[key])}, but has no effect without {needed.partition(':')[0]}"
            read.report(key, message, f"add {needed}, or remove {key}")
