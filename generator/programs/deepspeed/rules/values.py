"""Values in messages, and the keys that have no effect."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from ....facts.hjson.edits import remove_member
from ....findings import Edit, Violation, Violations, printable
from ..config import Config
from .templates import is_placeholder

_MAX_SHOWN: Final = 60  # characters of a value in a message


def shown(value: object) -> str:
    """A value as it is written in JSON, shortened; a placeholder without the comma that hjson reads as a part of it."""
    if isinstance(value, str) and is_placeholder(value):
        value = value.strip().rstrip(",")
    try:
        text = printable(json.dumps(value, ensure_ascii=False))
    except (TypeError, ValueError, RecursionError):
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def removed(config: Config, pointer: str) -> tuple[Edit, ...]:
    """The edit that removes a member; none where the config is a part of a script."""
    return () if config.embedded else remove_member(config.json, pointer)


def unused(config: Config, pointers: Iterable[str], why: str) -> Violations:
    """A violation for each of these keys that is written: it has no effect, and can go."""
    for pointer in pointers:
        if config.has(pointer) and config.value(pointer) != "auto":
            name = pointer.rpartition("/")[2]
            message = f"{name}: {shown(config.value(pointer))} has no effect {why}"
            edits = removed(config, pointer)
            yield Violation(config.locate_key(pointer), message, f"remove {name}", edits=edits)
