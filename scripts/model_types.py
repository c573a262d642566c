"""Writes what the config classes of the installed transformers take for keys that a config lacks:
`python scripts/model_types.py`.

Of each `model_type` that has a causal language model, or is the language part of a multimodal one,
`generator/job/model_types.json` has the keys with their values, other names of keys, the base of
rotary positions, whether the class ties its head at all, and the classes of its layers and of the
model. Keys that change neither size nor cost are left out. Of a multimodal type it has where its
language model's config is, and what that is without one.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import warnings
from pathlib import Path
from typing import Any, Final

OUTPUT: Final = Path(__file__).parent.parent / "generator" / "job" / "model_types.json"
#: Keys of token ids, of generation, of classification heads, and of how weights start.
IDLE: Final = re.compile(
    r"(_token_id|_token_index|_cutoff_factor)$|^(summary_|initializer_|init_|classifier_|use_cache$"
    r"|output_router|pretraining_tp$|id2label|label2id|vision_config$|audio_config$|vq_config$)"
)


def main() -> None:
    """Write the table."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import transformers
    from transformers.models.auto import modeling_auto as auto
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES

    causal = auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    generating = {*causal, *auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES}
    types: dict[str, Any] = {}
    multimodal: dict[str, Any] = {}
    for name in sorted({*causal, *CONFIG_MAPPING_NAMES}):
        try:
            config_class = CONFIG_MAPPING[name]
        except (ImportError, KeyError, AttributeError):
            continue
        text = _text_class(config_class, CONFIG_MAPPING)
        if text is not None and (name in generating or text[1].model_type in causal):
            place, inner = text
            multimodal[name] = {
                "place": place,
                "text": inner.model_type,
                **_tied(config_class),
                **_sizes(config_class, place),
            }
            inner_class = getattr(transformers, causal.get(inner.model_type, ""), None)
            entry = _entry(inner, None) | _layers(inner, inner_class)
            types.setdefault(inner.model_type, entry | _named(causal, inner.model_type))
        elif text is None and name in generating:
            model_class = getattr(transformers, causal.get(name, ""), None)
            entry = _entry(config_class, model_class) | _layers(config_class, model_class)
            types[name] = entry | _named(causal, name)

    table = {
        "source": f"transformers {transformers.__version__}, models/*/configuration_*.py",
        "types": dict(sorted(types.items())),
        "multimodal": multimodal,
    }
    OUTPUT.write_text(_text(table), encoding="utf-8")
    print(f"{OUTPUT}: {len(types)} types, {len(multimodal)} multimodal ones")


def _text_class(config_class: Any, mapping: Any) -> tuple[str, Any] | None:
    """The place of the language model's config in a multimodal one, and its class."""
    parts = {**getattr(config_class, "sub_configs", {})}
    specs = getattr(config_class, "sub_configs_defaults", {})
    for place in ("text_config", "llm_config", "language_config"):
        spec, part = specs.get(place), parts.get(place)
        found = getattr(spec, "model_type", None)
        if found is not None:
            return place, mapping[found]
        inner = getattr(spec, "config_class", None) or part
        if getattr(inner, "model_type", ""):
            return place, inner
    return None


def _sizes(config_class: Any, place: str) -> dict[str, Any]:
    """What a multimodal config gives its language model where it has no config of that."""
    spec = getattr(config_class, "sub_configs_defaults", {}).get(place)
    given = getattr(spec, "init_kwargs", None) or {}
    plain = {
        key: value for key, value in given.items() if _is_plain(value) and not IDLE.search(key)
    }
    return {"sizes": plain} if plain else {}


def _layers(config_class: Any, model_class: Any) -> dict[str, Any]:
    """The classes that FSDP makes units of: those that the model names, else that of its layers."""
    named = getattr(model_class, "_no_split_modules", None)
    if named:
        return {"layers": sorted(named)}
    if model_class is None:
        return {}

    import torch

    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = model_class(config_class())
        except Exception:  # a class that can't be made of its defaults
            return {}
    lists = [part for part in model.modules() if isinstance(part, torch.nn.ModuleList) and part]
    classes = {type(layer).__name__ for layer in max(lists, key=len, default=())}
    return {"layers": sorted(classes), "names_layers": False} if classes else {}


def _named(causal: Any, name: str) -> dict[str, str]:
    """The causal language model's class, as configs name it in `architectures`."""
    return {"model": causal[name]} if isinstance(causal.get(name), str) else {}


def _tied(config_class: Any) -> dict[str, bool]:
    for field in dataclasses.fields(config_class):
        if field.name == "tie_word_embeddings":
            return {"tied": field.default is True}
    return {}


def _entry(config_class: Any, model_class: Any) -> dict[str, Any]:
    from transformers import PreTrainedConfig

    base = {field.name for field in dataclasses.fields(PreTrainedConfig)} - {"tie_word_embeddings"}
    keys = {
        field.name: field.default
        for field in dataclasses.fields(config_class)
        if field.name not in base and not IDLE.search(field.name)
    }
    plain = {key: value if _is_plain(value) else None for key, value in keys.items()}
    entry: dict[str, Any] = {"keys": plain}
    names = {k: v for k, v in config_class.attribute_map.items() if not IDLE.search(k)}
    if names:
        entry["names"] = names
    theta = getattr(config_class, "default_theta", 10000.0)
    if theta != 10000.0:
        entry["rotary_base"] = theta
    if model_class is not None and not getattr(model_class, "_tied_weights_keys", None):
        entry["ties"] = False
    return entry


def _is_plain(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str))


def _text(table: dict[str, Any]) -> str:
    """JSON with a line for each type."""
    parts = [f'{{\n"source": {json.dumps(table["source"])}']
    for part in ("types", "multimodal"):
        lines = (f"{json.dumps(k)}: {json.dumps(v)}" for k, v in table[part].items())
        parts.append(f'"{part}": {{\n' + ",\n".join(lines) + "\n}")
    return ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    main()
