"""The published JSON Schemas, and names that only the schema of job specs lists."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from ..resources import read_text


@cache
def load_schema(name: str = "job") -> dict[str, Any]:
    """A published schema: of the job spec, or of another document."""
    schemas = __package__.split(".")[0] + ".schemas"
    schema: dict[str, Any] = json.loads(read_text(schemas, f"{name}.schema.json"))
    return schema


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
