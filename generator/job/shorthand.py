"""Short forms that a spec may have, written out: `16x8xh100`, `sequence_length: 8k`, `duration: 100B`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from ..catalog.names import counted
from .source import Source

_KIBI: Final = re.compile(r"([1-9]\d{0,4}(?:\.5)?) ?[kK]")
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
    return replace(source, data=data)


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
