"""Prints the keys that the DeepSpeed of this process knows, as JSON; `deepspeed_keys.py` starts it
once per release.

Two kinds of sections: models, whose fields pydantic tells; and plain mappings, whose keys come out
by letting DeepSpeed's parser read a mapping that notes what it is asked for.
"""

from __future__ import annotations

import contextlib
import copy
import json
import logging
import os
import sys
from typing import Any

os.environ.setdefault("DS_ACCELERATOR", "cpu")

from asked_keys import Asked, Recorder
from model_fields import Models
from signatures import optimizers, schedulers
from stand_ins import stand_in_for_the_past

#: A value of each JSON kind; what the parser refuses is refused whatever the value of the kind.
SAMPLES: dict[str, tuple[Any, ...]] = {
    "null": (None,),
    "bool": (True, False),
    "int": (0, 1, 4096),
    "float": (0.0, 0.5, 2.5),
    "str": ("dsgen", "", "8", "fp16", "WARN", "mean", "FAST", "REPLICA", "fixed"),
    "list": ([], ["dsgen"]),
    "object": ({}, {"enabled": False}),
}

#: Asked for only when the section is on, with what else it then needs.
SWITCHED_ON: dict[str, dict[str, Any]] = {
    "/fp16": {"enabled": True, "initial_scale_power": 16},
    "/bf16": {"enabled": True},
    "/elasticity": {
        "enabled": True,
        "max_train_batch_size": 8,
        "micro_batch_sizes": [1],
        "min_gpus": 1,
    },
    "/curriculum_learning": {"enabled": True},
    "/progressive_layer_drop": {"enabled": True},
    "/eigenvalue": {"enabled": True},
    "/sparse_attention": {"mode": "fixed"},
    "/torch_autocast": {"enabled": True, "dtype": "bfloat16", "lower_precision_safe_modules": []},
    "/data_efficiency/data_sampling/dynamic_batching": {"enabled": True, "max_tokens": 8},
    "/data_efficiency/data_sampling/curriculum_learning": {
        "enabled": True,
        "curriculum_metrics": {},
    },
    "/data_efficiency/data_routing/random_ltd": {"enabled": True},
    "/quantize_training": {
        "enabled": True,
        "quantize_bits": {},
        "quantize_schedule": {},
        "quantize_algo": {},
    },
    "/amp": {"enabled": True},
    "/optimizer": {"type": "AdamW", "params": {}},
    "/scheduler": {"type": "WarmupLR", "params": {}},
}

#: Blocks that some release refuses as removed.
ONCE_ACCEPTED: dict[str, tuple[str, ...]] = {
    "": (
        "amp",
        "compression_training",
        "curriculum_learning",
        "eigenvalue",
        "elasticity",
        "graph_harvesting",
        "nebula",
        "progressive_layer_drop",
        "quantize_training",
        "sparse_attention",
        "sparse_gradients",
    ),
    "/zero_optimization": (
        "mics_hierarchical_params_gather",
        "mics_shard_size",
        "zeropp_loco_param",
    ),
}

#: Read outside the parser: by `deepspeed.initialize` (deepspeed/__init__.py), which takes them for
#: the device mesh.
READ_ELSEWHERE = ("data_parallel_size", "sequence_parallel_size")
#: A model or a whole mapping is taken as it is; its keys can't be asked for.
PROBE = "dsgen_probe"
DEPTH = 5


def main() -> None:
    """Print the table of the DeepSpeed that is imported here; the argument is its version."""
    logging.disable(logging.CRITICAL)
    stand_in_for_the_past()
    release = sys.argv[1]
    parse = _parser()
    models = Models.watch()
    sections = _plain_sections(parse, models)
    removed = _removed(parse)
    for path, keys in removed.items():
        for key in keys:
            sections.get(path, {"keys": {}})["keys"].pop(key, None)
    table = {
        "deepspeed": release,
        "source": f"deepspeed-{release}.tar.gz",
        "pydantic": models.generation,
        "sections": {**sections, **models.sections()},
        "removed": removed,
        "optimizers": optimizers(),
        "schedulers": schedulers(),
    }
    json.dump(table, sys.stdout)


def _parser() -> Any:
    from deepspeed.runtime.config import DeepSpeedConfig

    def parse(config: dict[str, Any]) -> None:
        DeepSpeedConfig(config)

    return parse


def _at(path: str, value: Any) -> dict[str, Any]:
    """A config that parses, but for what `value` at the JSON pointer `path` does to it."""
    config: dict[str, Any] = {"train_batch_size": 8}
    *parents, key = path.split("/")[1:]
    place = config
    for parent in parents:
        place = place.setdefault(parent, {})
    place[key] = copy.deepcopy(value)
    return config


def _asked(parse: Any, config: dict[str, Any]) -> Asked:
    """Return what the parser asks for while it reads `config`, up to where it gives up."""
    asked = Asked()
    # That it fails is an answer to another question; what it asked for until then counts.
    with contextlib.suppress(Exception):
        parse(Recorder(config, "", asked))
    return asked


def _refused(parse: Any, path: str, value: Any) -> bool:
    try:
        parse(_at(path, value))
    except Exception:
        return True
    return False


def _plain_sections(parse: Any, models: Models) -> dict[str, Any]:
    """Sections that are plain mappings: JSON pointer to what is known of their keys."""
    found: dict[str, dict[str, Any]] = {"": dict(_asked(parse, {"train_batch_size": 8}).at(""))}
    for key in READ_ELSEWHERE:
        found[""].setdefault(key, None)
    found["/pipeline"] = _pipeline()
    taken_whole: set[str] = set()
    for path, value in SWITCHED_ON.items():
        asked = _asked(parse, _at(path, value))
        taken_whole |= asked.taken_whole
        _merge(found, asked)
    todo = [(f"{path}/{key}", 1) for path, keys in list(found.items()) for key in keys]
    seen: set[str] = set()
    while todo:
        path, depth = todo.pop()
        if path in seen or depth > DEPTH:
            continue
        seen.add(path)
        with models.seen(path, PROBE):
            asked = _asked(parse, _at(path, {PROBE: 0}))
        taken_whole |= asked.taken_whole
        if models.has(path):
            continue
        asked.drop(f"{path}/{PROBE}")
        for section, keys in _merge(found, asked):
            todo.extend((f"{section}/{key}", section.count("/") + 1) for key in keys)
    plain = {path: keys for path, keys in found.items() if not models.has(path) and keys}
    return {
        path: {
            "kind": "mapping",
            "extra": "taken" if path in taken_whole else "ignored",
            "keys": {
                key: _plain_key(parse, f"{path}/{key}", plain, models, default)
                for key, default in keys.items()
            },
        }
        for path, keys in plain.items()
    }


def _pipeline() -> dict[str, Any]:
    """The pipeline's keys: its function starts from a mapping of all of them, so it never asks."""
    from deepspeed.runtime.config import get_pipeline_config

    return dict(get_pipeline_config({}))


def _merge(found: dict[str, dict[str, Any]], asked: Asked) -> list[tuple[str, dict[str, Any]]]:
    """Take over what was asked for; what of it is new."""
    new = []
    for path, keys in asked.sections.items():
        known = found.setdefault(path, {})
        fresh = {key: default for key, default in keys.items() if key not in known}
        for key, default in keys.items():
            known[key] = default if known.get(key) is None else known[key]
        if fresh:
            new.append((path, fresh))
    return new


def _plain_key(
    parse: Any, path: str, plain: dict[str, Any], models: Models, default: Any
) -> dict[str, Any]:
    key: dict[str, Any] = (
        {} if default in (None, {}) or not _is_json(default) else {"default": default}
    )
    if path in plain or models.has(path):
        key["type"] = {"section": path}
    refuses = [
        kind
        for kind, values in SAMPLES.items()
        if all(_refused(parse, path, value) for value in values)
    ]
    # Where nothing goes, something beside the key is missing, and the answers are about that.
    if refuses and len(refuses) < len(SAMPLES):
        key["refuses"] = refuses
        if "type" in key and "object" not in refuses and _refused(parse, path, {}):
            key["needs"] = ["enabled"]
    return key


def _removed(parse: Any) -> dict[str, list[str]]:
    """Keys that this release refuses with any value; the parser says so before it looks at anything
    else.
    """
    removed = {}
    for section, keys in ONCE_ACCEPTED.items():
        gone = [key for key in keys if _says_removed(parse, f"{section}/{key}")]
        if gone:
            removed[section] = sorted(gone)
    return removed


def _says_removed(parse: Any, path: str) -> bool:
    try:
        parse(_at(path, None))
    except Exception as error:
        return type(error).__name__ == "DeepSpeedConfigError" and "removed" in str(error)
    return False


def _is_json(value: Any) -> bool:
    return isinstance(value, (bool, int, float, str, list, dict, type(None))) and not isinstance(
        value, Recorder
    )


if __name__ == "__main__":
    main()
