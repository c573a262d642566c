"""A JSON Schema as Markdown: a section for each object, a table of its keys in it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from .markdown import code, prose, table

Schema = Mapping[str, Any]

#: JSON's names of types, as the pages call them.
TYPES = {
    "object": "mapping",
    "array": "list",
    "string": "text",
    "boolean": "true or false",
    "null": "null",
    "integer": "integer",
    "number": "number",
}


def schema_sections(
    schema: Schema, *, level: int, name: str = "", whole: Schema | None = None
) -> Iterator[str]:
    """The keys of an object, and after them a section for each key that is an object itself."""
    root = whole or schema
    yield from keys_table(schema, root, follow=True)
    for key, part in _properties(schema, root):
        for inner, is_list in _objects(part, root):
            path = f"{name}.{key}" if name else key
            yield from ("", f"{'#' * level} {path}{'[]' if is_list else ''}", "")
            yield from _introduction(part, inner)
            yield from schema_sections(inner, level=min(level + 1, 6), name=path, whole=root)


def definition_sections(schema: Schema, *, level: int) -> Iterator[str]:
    """A section for each definition; where one is meant, the tables lead to it."""
    for name, part in schema.get("$defs", {}).items():
        yield from ("", f"{'#' * level} {name}", "", prose(part.get("description", "")), "")
        if "properties" in part:
            yield from keys_table(part, schema)


def keys_table(schema: Schema, root: Schema, *, follow: bool = False) -> Iterator[str]:
    """A row for each key of an object; a reference is followed, or leads to the section of its
    definition.
    """
    required = set(_object(schema, root).get("required", ()))
    rows = (
        _row(key, part, required, root) for key, part in _properties(schema, root, follow=follow)
    )
    yield from table(("key", "type", "values", "default", "meaning"), rows)


def _introduction(part: Schema, inner: Schema) -> Iterator[str]:
    text = part.get("description") or inner.get("description")
    if text:
        yield from (prose(text), "")


def _resolved(schema: Schema, root: Schema) -> Schema:
    if "$ref" not in schema:
        return schema
    found: Schema = root
    for step in schema["$ref"].removeprefix("#/").split("/"):
        found = found[step]
    return {**found, **{key: value for key, value in schema.items() if key != "$ref"}}


def _object(schema: Schema, root: Schema) -> Schema:
    """The form of `schema` that is an object: itself, or what it is if it is one."""
    schema = _resolved(schema, root)
    if "properties" not in schema and schema.get("if") == {"type": "object"}:
        return _resolved(schema["then"], root)
    return schema


def _properties(schema: Schema, root: Schema, *, follow: bool = True) -> list[tuple[str, Schema]]:
    parts = _object(schema, root).get("properties", {})
    return [(key, _resolved(part, root) if follow else part) for key, part in parts.items()]


def _objects(part: Schema, root: Schema) -> Iterator[tuple[Schema, bool]]:
    """Objects with keys of their own that a key holds: itself, the values of its names, or the
    items of its list.
    """
    if _properties(part, root):
        yield _object(part, root), False
    for holder in (part.get("additionalProperties"), part.get("items")):
        if isinstance(holder, Mapping) and _properties(holder, root):
            yield _object(holder, root), True


def _row(key: str, part: Schema, required: set[str], root: Schema) -> tuple[str, ...]:
    meaning = prose(part.get("description", "") or _object(part, root).get("description", ""))
    if key in required:
        meaning = f"Required. {meaning}".strip()
    if "examples" in part and "enum" not in part:
        meaning += f" Example: {code(_shown(part['examples'][0]))}."
    default = code(_shown(part["default"])) if "default" in part else ""
    return code(key), _type(part, root), _values(part), default, meaning.strip()


def _type(part: Schema, root: Schema) -> str:
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        return f"[{name}](#{name})"
    if "anyOf" in part:
        return " or ".join(dict.fromkeys(_type(choice, root) for choice in part["anyOf"]))
    types = part.get("type", "string" if "enum" in part else "any")
    names = [TYPES.get(name, name) for name in ([types] if isinstance(types, str) else types)]
    if isinstance(part.get("items"), Mapping) and "list" in names:
        inner = _type(part["items"], root)
        names[names.index("list")] = f"list of {inner}" if inner != "any" else "list"
    return " or ".join(names)


def _values(part: Schema) -> str:
    if "enum" in part:
        return ", ".join(code(_shown(value)) for value in part["enum"])
    if "patternErrorMessage" in part:
        return prose(part["patternErrorMessage"])
    low, high = part.get("minimum"), part.get("maximum")
    if "exclusiveMinimum" in part or "exclusiveMaximum" in part:
        bounds = (("more than", part.get("exclusiveMinimum")), ("from", low), ("to", high))
        last = (("less than", part.get("exclusiveMaximum")),)
        return ", ".join(
            f"{word} {value:,}" for word, value in (*bounds, *last) if value is not None
        )
    if low is not None and high is not None:
        return f"{low:,} to {high:,}"
    return f"from {low:,}" if low is not None else f"to {high:,}" if high is not None else ""


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
