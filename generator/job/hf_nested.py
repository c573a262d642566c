"""Configs of multimodal models: the language model inside is what is planned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .hf_reader import ConfigReader
from .hf_refused import REFUSED
from .wording import show

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
    inner: Mapping[str, object] = {**_mapping(config, place)}
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
    """Whether the config is one of a multimodal model without the language model's."""
    return read.config.get("model_type") in _TEXT_MODELS


def _mapping(config: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = config[key]
    return value if isinstance(value, dict) else {}


def _left_out(outer: str, place: str) -> str:
    return f"{outer} is multimodal: its language model alone is planned, as {place} describes it"
