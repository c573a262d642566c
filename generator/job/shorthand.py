"""Short forms of a spec, written out: `16x8xh100`, `sequence_length: 8k`, `duration: 100B`, weights on the Hub."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from ..catalog.names import counted, find_model
from .source import Source

_KIBI: Final = re.compile(r"([1-9]\d{0,4}(?:\.5)?) ?[kK]")
_MODELS: Final = ("--model_name_or_path", "--config_name", "--model_type", "--model", "--config")
_TOKENS: Final = re.compile(r"\d+(?:\.\d+)?(?:e\d+)? ?[kmbt]?(?: tokens)?", re.IGNORECASE)


def written_out(source: Source) -> Source:
    """The spec without short forms; what is none stays, for the schema to judge."""
    if not isinstance(source.data, dict):
        return source
    data: dict[str, Any] = dict(source.data)
    cluster, training = data.get("cluster"), data.get("training")
    machines = counted(cluster) if isinstance(cluster, str) else None
    if machines is not None and machines.nodes is not None and not {"gpus", "nodes"} & data.keys():
        data["nodes"] = machines.nodes
    if isinstance(training, dict):
        data["training"] = {**training, **_of_training(training)}
    if data.get("framework") == "huggingface" and _is_of_the_hub(source, data.get("model")):
        data["launch"] = _with_weights(data.get("launch"), str(data["model"]))
    return replace(source, data=data)


def _is_of_the_hub(source: Source, model: object) -> bool:
    """Tell whether a model is named as on the Hugging Face Hub, `OWNER/NAME`, and isn't a folder here."""
    if not isinstance(model, str) or model.count("/") != 1 or find_model(model) is None:
        return False
    return not ((source.folder or Path()) / model).exists()


def _with_weights(launch: object, model: str) -> object:
    """`launch` with the model's weights as the Trainer's scripts take them, unless its arguments name a model."""
    if not isinstance(launch, dict | None):
        return launch
    arguments = (launch or {}).get("arguments") or []
    if not isinstance(arguments, list) or any(str(word).startswith(_MODELS) for word in arguments):
        return launch
    return {**(launch or {}), "arguments": ["--model_name_or_path", model, *arguments]}


def _of_training(training: Mapping[str, Any]) -> dict[str, Any]:
    length, duration = training.get("sequence_length"), training.get("duration")
    found: dict[str, Any] = {}
    if isinstance(length, str) and (tokens := length_of(length)):
        found["sequence_length"] = tokens
    if type(duration) in (int, float) or (isinstance(duration, str) and _TOKENS.fullmatch(duration)):
        found["duration"] = {"tokens": duration.split(" tokens")[0] if isinstance(duration, str) else duration}
    return found


def length_of(text: str) -> int | None:
    """Tokens of a sequence of `8k`, in units of 1,024; `None` for other text."""
    match = _KIBI.fullmatch(text.strip())
    return int(1024 * float(match[1])) if match else None
