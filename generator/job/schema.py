"""The published JSON Schemas, and names that only the schema of job specs lists."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any, Final

from ..resources import read_text

#: Schemas of what commands answer with about jobs, any of which may be taken for a spec.
_ANSWERS: Final = ("plan", "sweep", "tune", "submit")


@cache
def load_schema(name: str = "job") -> dict[str, Any]:
    """A published schema: of the job spec, or of another document."""
    schemas = __package__.split(".")[0] + ".schemas"
    schema: dict[str, Any] = json.loads(read_text(schemas, f"{name}.schema.json"))
    return schema


def answer_with(keys: Collection[str]) -> str | None:
    """The name of the schema of the answers that have these keys at their top.

    None for a job spec: it has a key that specs alone must have, or lacks one that the answers
    must have.
    """
    if not keys or not _required(load_schema()).isdisjoint(keys):
        return None
    for name in _ANSWERS:
        schema = load_schema(name)
        forms = [
            schema["$defs"][each["$ref"].rpartition("/")[2]] for each in schema.get("anyOf", ())
        ]
        if any(_required(form).issubset(keys) for form in forms or [schema]):
            return name
    return None


def _required(schema: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(schema["required"])


def frameworks() -> tuple[str, ...]:
    """The values of `framework`."""
    return tuple(load_schema()["properties"]["framework"]["enum"])


def launch_targets() -> tuple[str, ...]:
    """The values of `launch.target`."""
    return tuple(load_schema()["$defs"]["launch"]["properties"]["target"]["enum"])


def launch_keys(target: str) -> Mapping[str, Any]:
    """The schemas of the keys that `launch.<target>` may have.

    Empty for a target that doesn't exist.
    """
    section: Mapping[str, Any] = load_schema()["$defs"]["launch"]["properties"].get(target, {})
    keys: Mapping[str, Any] = section.get("properties", {})
    return keys
