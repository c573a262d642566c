"""The published JSON Schemas, and names that only the schema of job specs lists."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

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
    """The schemas of the keys that `launch.<target>` may have; empty for a target that there isn't."""
    section: Mapping[str, Any] = load_schema()["$defs"]["launch"]["properties"].get(target, {})
    keys: Mapping[str, Any] = section.get("properties", {})
    return keys


def conforms(value: Any, schema: Any, parts: Mapping[str, Any]) -> bool:
    """Ask whether a value of JSON follows a schema, whose `$defs` are `parts`.

    The answer is jsonschema's, without what is wrong: to load jsonschema takes a tenth of a short command.
    """
    if isinstance(schema, bool):
        return schema
    keywords = ((*_KEYWORDS[word], wanted) for word, wanted in schema.items() if word in _KEYWORDS)
    return all(
        holds(value, wanted, schema, parts)
        for kind, holds, wanted in keywords
        if is_of_type(value, kind)
    )


_TYPES: Final = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "null": type(None),
    "any": object,
}
#: Types of JSON Schema in messages.
TYPE_WORDS: Final = {
    "object": "a mapping",
    "array": "a list",
    "string": "text",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "null": "empty",
}


def is_of_type(value: object, kind: str) -> bool:
    """Ask whether a value is of a type of JSON Schema, or of `any`: 1.0 is an integer, true is not."""
    if kind in _TYPES:
        return isinstance(value, _TYPES[kind])
    whole = isinstance(value, int) or (
        isinstance(value, float) and (kind == "number" or value.is_integer())
    )
    return whole and not isinstance(value, bool)


def _same(one: object, other: object) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)  # 1 is not true


#: Keywords of JSON Schema: the type that each is about, and whether a value of it holds: by value, the keyword's own
#: value, the schema that it stands in, and `$defs`.
_KEYWORDS: Final[Mapping[str, tuple[str, Callable[[Any, Any, Any, Any], bool]]]] = {
    "type": (
        "any",
        lambda v, w, *_: any(is_of_type(v, kind) for kind in ([w] if isinstance(w, str) else w)),
    ),
    "enum": ("any", lambda v, w, *_: any(_same(v, choice) for choice in w)),
    "$ref": ("any", lambda v, w, _, parts: conforms(v, parts[w.rpartition("/")[2]], parts)),
    "oneOf": ("any", lambda v, w, _, parts: sum(conforms(v, one, parts) for one in w) == 1),
    "not": ("any", lambda v, w, _, parts: not conforms(v, w, parts)),
    "if": (
        "any",
        lambda v, w, s, parts: conforms(
            v, s.get("then" if conforms(v, w, parts) else "else", True), parts
        ),
    ),
    "properties": (
        "object",
        lambda v, w, _, parts: all(conforms(v[k], w[k], parts) for k in w if k in v),
    ),
    "additionalProperties": (
        "object",
        lambda v, w, s, parts: all(
            conforms(v[k], w, parts) for k in v if k not in s.get("properties", ())
        ),
    ),
    "propertyNames": ("object", lambda v, w, _, parts: all(conforms(key, w, parts) for key in v)),
    "required": ("object", lambda v, w, *_: all(key in v for key in w)),
    "dependentRequired": (
        "object",
        lambda v, w, *_: all(other in v for key in w if key in v for other in w[key]),
    ),
    "maxProperties": ("object", lambda v, w, *_: len(v) <= w),
    "items": ("array", lambda v, w, _, parts: all(conforms(item, w, parts) for item in v)),
    "minItems": ("array", lambda v, w, *_: len(v) >= w),
    "maxItems": ("array", lambda v, w, *_: len(v) <= w),
    "uniqueItems": ("array", lambda v, *_: len(set(map(repr, v))) == len(v)),
    "pattern": ("string", lambda v, w, *_: re.search(w, v) is not None),
    "minLength": ("string", lambda v, w, *_: len(v) >= w),
    "maxLength": ("string", lambda v, w, *_: len(v) <= w),
    "minimum": ("number", lambda v, w, *_: v >= w),
    "maximum": ("number", lambda v, w, *_: v <= w),
    "exclusiveMinimum": ("number", lambda v, w, *_: v > w),
    "exclusiveMaximum": ("number", lambda v, w, *_: v < w),
}
