"""Models that no reader describes, keys that would change size or cost, and the language models of multimodal ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from .hf_reader import ConfigReader, Problem
from .wording import show

_DELTA = "linear attention layers (Gated DeltaNet)"
_LIGHTNING = "lightning (linear) attention layers"
_MAMBA = "state-space layers (Mamba)"
_SPARSE = "sparse attention with an indexer"

#: What is not modelled of each `model_type`.
REFUSED: Final[Mapping[str, str]] = {
    "arctic": "a dense MLP beside the experts of each layer",
    "bailing_hybrid": _LIGHTNING,
    "bamba": _MAMBA,
    "dbrx": "blocks described by nested keys (attn_config, ffn_config)",
    "deci": "attention heads and MLP widths that differ by layer",
    "deepseek_v32": _SPARSE,
    "deepseek_v4": _SPARSE,
    "ernie4_5_vl_moe_text": "experts of their own for each modality",
    "falcon_h1": _MAMBA,
    "falcon_mamba": _MAMBA,
    "gemma3n_text": "per-layer embeddings, AltUp and layers that share keys and values",
    "gemma4_text": "per-layer embeddings, heads that differ by layer and shared keys and values",
    "glm_moe_dsa": _SPARSE,
    "granitemoehybrid": _MAMBA,
    "jamba": _MAMBA,
    "kimi_linear": "linear attention layers (Kimi Delta Attention)",
    "lfm2": "short-convolution layers",
    "lfm2_moe": "short-convolution layers",
    "longcat_flash": "two attentions per layer and experts that compute nothing",
    "mamba": _MAMBA,
    "mamba2": _MAMBA,
    "mimo_v2_flash": "attention heads that differ by layer",
    "minicpm3": "scaled residuals around latent attention",
    "minimax": _LIGHTNING,
    "minimax_m1": _LIGHTNING,
    "minimax_text_01": _LIGHTNING,
    "minimax_m3_vl": _SPARSE,
    "minimax_m3_vl_text": _SPARSE,
    "mllama_text_model": "cross-attention layers to image features",
    "mllama": "cross-attention layers to image features",
    "nemotron-nas": "attention heads and MLP widths that differ by layer",
    "nemotron_h": _MAMBA,
    "nemotron_h_omni": _MAMBA,
    "nemotron_hybrid": _MAMBA,
    "olmo_hybrid": _DELTA,
    "openelm": "attention heads and MLP widths that differ by layer",
    "phi4_multimodal": "adapters of its own for each modality",
    "phi4mm": "adapters of its own for each modality",
    "qwen3_5_moe_text": _DELTA,
    "qwen3_5_text": _DELTA,
    "qwen3_next": _DELTA,
    "recurrent_gemma": "recurrent layers (RG-LRU)",
    "rwkv": "recurrent layers (RWKV)",
    "step3p5": "attention heads that differ by layer",
    "t5": "an encoder and a decoder",
    "xlstm": "recurrent layers (xLSTM)",
    "zamba": _MAMBA,
    "zamba2": _MAMBA,
}

_HYBRID = "layers of several kinds"
_UNEVEN = "attention heads or MLP widths that differ by layer"
_EXPERTS = "experts"
_LATENT = "latent attention"
#: Keys, or how they begin, that say what a layer is made of.
_TELLING: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (("mamba_", "ssm_", "time_step_", "state_size", "use_mamba"), _MAMBA),
    (("hybrid_", "layers_block_type", "attn_layer_", "full_attention_interval", "block_types"), _HYBRID),
    (("attn_type_list", "linear_", "lightning_", "gla_", "use_linear_attn"), "linear attention layers"),
    (("conv_L_cache", "conv_kernel"), "convolution layers"),
    (("index_topk", "index_n_heads", "indexer_"), _SPARSE),
    (("block_configs", "num_query_heads", "num_heads_per_layer", "ffn_multipliers", "qkv_multipliers"), _UNEVEN),
    (("cross_attention_layers",), "cross-attention layers"),
    (("use_cla", "num_kv_shared_layers"), "layers that share keys and values"),
    (("altup_", "laurel_", "hidden_size_per_layer_input"), "per-layer embeddings or AltUp"),
    (("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "moe_intermediate_size"), _EXPERTS),
    (("n_shared_experts", "num_shared_expert", "shared_expert_intermediate_size", "moe_num_shared"), "shared experts"),
    (("shared_intermediate_size", "moe_shared_expert_intermediate_size"), "shared experts"),
    (("moe_latent_size",), "experts behind a narrower projection"),
    (("moe_layer", "decoder_sparse_step", "interleave_moe_layer_step", "mlp_only_layers", "first_k_dense"), _EXPERTS),
    (("mlp_layer_types",), _EXPERTS),
    (("kv_lora_rank", "q_lora_rank"), _LATENT),
    (("use_qk_norm", "qk_layernorm", "qk_norm", "use_qk_layernorm"), "normalised queries and keys"),
    (("use_bidirectional_attention",), "attention to later tokens"),
)
_EXTRA_TOKENS = ("num_nextn_predict_layers", "num_mtp_layers", "mtp_num_layers", "mtp_num_hidden_layers",
                 "num_mtp_modules")  # fmt: skip
_LARGEST_WRITTEN = 3


def costly_keys(read: ConfigReader) -> Iterator[tuple[str, str]]:
    """Keys that no reader asked for and that change a model's size or cost, with what they stand for."""
    for key, value in read.config.items():
        if key in read.read or not isinstance(key, str) or _says_nothing(value):
            continue
        meaning = next((meaning for starts, meaning in _TELLING if key.startswith(starts)), None)
        if meaning is not None:
            yield key, meaning


def refuse_costly_keys(read: ConfigReader, model: str) -> None:
    """Report what the config says and its reader doesn't know; `model` is the model in words."""
    for key, meaning in costly_keys(read):
        message = f"{key} is {show(read.config[key])}: {meaning} are not modelled for {model}"
        read.report(key, message.replace("attention are", "attention is"), f"remove {key} if the model has none")


def unknown(read: ConfigReader, family: str, nearest: str | None, known: str) -> Problem:
    """Why a `model_type` can't be planned: what is missing, where that is known."""
    found = list(dict.fromkeys(meaning for _, meaning in costly_keys(read)))
    parts = REFUSED.get(family) or ", ".join(found[:_LARGEST_WRITTEN])
    if family in REFUSED:
        return "model_type", f"{family} has {parts}, which dsgen doesn't model", "plan a model of another family"
    if parts:
        message = f"unknown model_type {show(family)}; its config has {parts}"
        return "model_type", message, "plan a model of another family, or report this one"
    hint = f"did you mean {nearest}?" if nearest and nearest[:2] == family[:2] else f"use one of {known}"
    return "model_type", f"unknown model_type {show(family)}", hint


def more_predictions(read: ConfigReader) -> tuple[str, ...]:
    """Note that layers which predict more than the next token are left out, as transformers leaves them out."""
    for key in _EXTRA_TOKENS:
        value = read.config.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return (f"{key} is {value}: multi-token prediction is neither counted nor planned",)
    return ()


def _says_nothing(value: object) -> bool:
    """Return whether a value switches its key off: nothing, false, 0, 1, or the same of these for each layer."""
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
_SAME: Final[Mapping[str, str]] = {"qwen2_5_vl_text": "qwen2_vl_text", "kimi_k2": "deepseek_v3"}


def language_model(config: Mapping[str, object]) -> tuple[Mapping[str, object], tuple[str, ...]]:
    """The config of the language model, and that the rest is left out; `config` itself where nothing is nested."""
    outer = config.get("model_type")
    if isinstance(outer, str) and outer in REFUSED:
        return config, ()
    place = next((key for key in _PLACES if isinstance(config.get(key), dict)), None)
    if place is None:
        flat = _TEXT_MODELS.get(outer) if isinstance(outer, str) else None
        if flat is None or "hidden_size" not in config:
            return config, ()
        return {**config, "model_type": flat}, (_left_out(str(outer), "its own keys"),)
    inner: Mapping[str, object] = config[place] if isinstance(config[place], dict) else {}  # type: ignore[assignment]
    own = inner.get("model_type") or _TEXT_MODELS.get(str(outer), outer)
    if own == "bert":  # the text encoder of another model
        return config, ()
    shared = {key: config[key] for key in ("tie_word_embeddings",) if key in config}
    name = show(outer) if not isinstance(outer, str) else outer
    return {**shared, **inner, "model_type": own}, (_left_out(name, place),)


def reader_of(family: str) -> str:
    """The family whose reader reads `family`."""
    return _SAME.get(family, family)


def is_multimodal(read: ConfigReader) -> bool:
    """Return whether the config is one of a multimodal model without the language model's."""
    return read.config.get("model_type") in _TEXT_MODELS


def _left_out(outer: str, place: str) -> str:
    return f"{outer} is multimodal: its language model alone is planned, as {place} describes it"
