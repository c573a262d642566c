"""A JSON Schema of DeepSpeed configs for editors, made from the table of keys of a release.

It refuses what the release's own parser refuses, and no more. Which values a key takes is found out
by giving values of each kind to the same conversions that check configs (`schema.mismatch`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import yaml

from ...resources import read_text
from ...text.wording import dots
from .config import BATCH_KEYS
from .schema import (
    DeepSpeedSchema,
    Key,
    Section,
    first_version_of,
    last_version_of,
    load_schema,
    mismatch,
    versions,
)

Schema = dict[str, Any]
#: JSON Schema's names of types, by those of the tables.
_KINDS: Final = {
    "null": "null",
    "bool": "boolean",
    "int": "integer",
    "float": "number",
    "str": "string",
    "list": "array",
    "object": "object",
}
#: The words that pydantic takes for a bool, in any case: JSON Schema's patterns have no such flag.
_BOOL_WORD: Final = "|".join(
    "".join(f"[{letter}{letter.upper()}]" for letter in word)
    for word in ("true", "false", "yes", "no", "on", "off")
)
#: Values to try on a key, each with the schema of what the key takes if it takes the value. In each
#: group the widest schema is first, and the first value that is accepted ends the group.
_PROBES: Final[tuple[tuple[tuple[object, Schema], ...], ...]] = (
    ((None, {"type": "null"}),),
    ((True, {"type": "boolean"}),),
    (
        (1.5, {"type": "number"}),
        (3, {"type": "integer"}),
        (1, {"type": "integer", "minimum": 0, "maximum": 1}),
    ),
    (
        (["text"], {"type": "array"}),
        ([3], {"type": "array"}),
        ([], {"type": "array", "maxItems": 0}),
    ),
    (({}, {"type": "object"}),),
    (
        ("text", {"type": "string"}),
        ("true", {"type": "string", "pattern": f"^({_BOOL_WORD}|[tTfFyYnN01])$"}),
    ),
    (
        ("text", {"type": "string"}),
        ("1.5", {"type": "string", "pattern": r"^\s*[-+]?[0-9._]+([eE][-+]?[0-9]+)?\s*$"}),
        ("3", {"type": "string", "pattern": r"^\s*[-+]?[0-9_]+(\.0*)?\s*$"}),
    ),
)
_AUTO: Final[Schema] = {"const": "auto"}
#: A variable that a program fills in before DeepSpeed reads the config; the rules on placeholders
#: know the same.
_VARIABLE: Final[Schema] = {"type": "string", "pattern": r"^\s*([$@<%{].*|[A-Z][A-Z0-9_]*)\s*,?$"}
#: Types of optimizers as DeepSpeed's documentation writes them; it ignores case.
_OPTIMIZERS: Final = (
    "Adam",
    "AdamW",
    "Lamb",
    "Lion",
    "Adagrad",
    "Muon",
    "OneBitAdam",
    "OneBitLamb",
    "ZeroOneAdam",
    "MuAdam",
    "MuAdamW",
    "MuSGD",
)
_DOCUMENTED_NAMES: Final = {name.lower(): name for name in _OPTIMIZERS}
#: Descriptions by section and key; those under `*` are of keys in any section.
_WORDS: Final[Mapping[str, Mapping[str, str]]] = yaml.safe_load(
    read_text(__package__, "deepspeed_words.yaml")
)


def deepspeed_json_schema(version: str) -> Schema:
    """The schema of a release's config, or of the nearest release that has a table."""
    release = load_schema(version)
    head: Schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"DeepSpeed {dots(release.version)} config",
    }
    return head | _section(release, "")


def _section(release: DeepSpeedSchema, pointer: str) -> Schema:
    """The schema of a section: its keys by both names, and the keys that were removed."""
    section = release.section(pointer)
    assert section is not None
    written = {key.written: key for key in section.keys.values()}
    properties = {name: _key(release, section, key) for name, key in sorted(written.items())}
    for key in written.values():
        if key.alias and key.name not in properties:
            properties[key.name] = properties[key.written]
    for name in sorted(release.removed.get(pointer, ())):
        properties[name] = _removed(pointer, name)
    schema: Schema = {"type": "object", "properties": properties}
    if section.kind == "model" and section.extra == "forbidden":
        properties["strict"] = {"description": "Not a setting: DeepSpeed drops it."}
        refusal = f"DeepSpeed {dots(release.version)} refuses keys that it doesn't have here"
        schema["additionalProperties"] = {**_AUTO, "errorMessage": refusal}
    return schema


def _key(release: DeepSpeedSchema, section: Section, key: Key) -> Schema:
    """The schema of a key's values, with its description, default and deprecation."""
    if section.kind == "model":
        accepted = _of_model(release, section, key)
    else:
        accepted = _of_mapping(section, key)
    inner = _inside(release, section, key)
    if inner is not None:
        accepted = [inner if choice == {"type": "object"} else choice for choice in accepted]

    schema: Schema = {"description": _description(section.pointer, key)}
    if key.default is not None and key.default != "auto":
        schema["default"] = key.default
    if key.deprecated is not None:
        new = section.keys.get(key.deprecated.by)
        by = new.written if new else key.deprecated.by
        message = f"Deprecated: write {by} instead." if by else "Deprecated: it has no effect."
        schema |= {"deprecated": True, "deprecationMessage": message}

    if len(accepted) < len(_KINDS):
        takes_text = {"type": "string"} in accepted
        schema["anyOf"] = accepted if takes_text else [*accepted, _AUTO, _VARIABLE]
    elif inner is not None:
        schema["properties"] = inner["properties"]
    return schema


def _description(pointer: str, key: Key) -> str:
    """What a key of a section is for, its default, and the releases that have it."""
    first, last = first_version_of(pointer, key.name), last_version_of(pointer, key.name)
    sentences = [_words(pointer, key.written)]
    if isinstance(key.default, bool):
        sentences.append(f"Default: {str(key.default).lower()}.")
    elif isinstance(key.default, int):
        sentences.append(f"Default: {key.default:,}.")
    elif key.default is not None:
        sentences.append(f"Default: {key.default}.")
    if first is not None and first != versions()[0]:
        sentences.append(f"Since 0.{first[1]}.")
    if last is not None and last != versions()[-1]:
        sentences.append(f"Removed after {dots(last)}.")
    return " ".join(filter(None, sentences))


def _inside(release: DeepSpeedSchema, section: Section, key: Key) -> Schema | None:
    """The schema of the object that is this key's value; None where its keys aren't known."""
    where = f"{section.pointer}/{key.name}"
    if where == "/optimizer/params":
        return {"type": "object", "properties": _parameters(where, release.optimizers)}
    if where == "/scheduler/params":
        return {"type": "object", "properties": _parameters(where, release.schedulers)}
    if key.type.section is None or release.section(key.type.section) is None:
        return None
    needed = {"required": list(key.needs)} if key.needs else {}
    return _section(release, key.type.section) | needed


def _parameters(where: str, takers: Mapping[str, Mapping[str, Key] | None]) -> dict[str, Schema]:
    """The parameters of all optimizers or schedules, with who takes them."""
    keys_by_taker = {taker: keys for taker, keys in takers.items() if keys}
    parameters: dict[str, Schema] = {}
    for name in sorted({name for keys in keys_by_taker.values() for name in keys}):
        of_name = {taker: keys[name] for taker, keys in keys_by_taker.items() if name in keys}
        by = ", ".join(sorted(_DOCUMENTED_NAMES.get(taker, taker) for taker in of_name))
        parameters[name] = {"description": f"{_words(where, name)} Taken by {by}."}
        first, *others = (key.default for key in of_name.values())
        if first is not None and all(default == first for default in others):
            parameters[name]["default"] = first
    return parameters


def _of_model(release: DeepSpeedSchema, section: Section, key: Key) -> list[Schema]:
    """Schemas of what a pydantic model accepts: each kind of value is tried."""
    # The probes show which types are accepted, whatever the bounds; these are added to the schemas.
    unbounded = replace(key, ge=None, gt=None, le=None, lt=None)

    def accepts(value: object) -> bool:
        return mismatch(value, unbounded, pydantic=release.pydantic) is None

    if key.type.name == "list" and key.type.of and key.type.of[0].values:
        return [{"type": "array", "items": {"enum": list(key.type.of[0].values)}}, {"type": "null"}]
    if key.type.name in ("enum", "literal"):
        return _of_choices(key, accepts)

    bounds = _bounds(key)
    schemas: list[Schema] = []
    for group in _PROBES:
        schema = next((schema for probe, schema in group if accepts(probe)), None)
        if schema is None:
            continue
        if schema["type"] in ("integer", "number"):
            schema = schema | bounds
        if schema not in schemas:
            schemas.append(schema)
    if key.name == "leaf_module":
        schemas.append({"type": "null"})
    if key.type.name == "list" and "_coerce_container_types" in section.checks:
        schemas.append({"type": "string"})
    return schemas


def _of_choices(key: Key, accepts: Callable[[object], bool]) -> list[Schema]:
    """Schemas of an enum's values, and of the other forms in which pydantic takes them."""
    values = key.type.values
    schemas: list[Schema] = [{"enum": list(values)}]
    forms = (form for value in values for form in (str(value), bool(value)))
    accepted = dict.fromkeys(form for form in forms if accepts(form))
    schemas += [{"const": form} for form in accepted if form not in values]
    if key.optional:
        schemas.append({"type": "null"})
    return schemas


def _bounds(key: Key) -> Schema:
    bounds = {
        "minimum": key.ge,
        "exclusiveMinimum": key.gt,
        "maximum": key.le,
        "exclusiveMaximum": key.lt,
    }
    return {name: bound for name, bound in bounds.items() if bound is not None}


def _of_mapping(section: Section, key: Key) -> list[Schema]:
    """Schemas of what DeepSpeed doesn't fail on: a plain mapping checks no types."""
    schemas: list[Schema] = []
    refused = key.refuses
    if not section.pointer and key.name in BATCH_KEYS:
        # An elastic config may have the batch keys in any form.
        refused = key.refuses & {"str", "object"}
    if section.pointer == "/optimizer" and key.name == "type":
        schemas.append({"type": "string", "examples": sorted(_OPTIMIZERS)})
        refused = refused | {"str"}  # instead of the schema of text without examples
    for kind, name in _KINDS.items():
        if kind in refused:
            continue
        schema: Schema = {"type": name}
        if kind == "float" and "int" in refused:  # to JSON Schema an integer is a number
            schema["not"] = {"type": "integer"}
        schemas.append(schema)
    return schemas


def _removed(pointer: str, name: str) -> Schema:
    """The schema of a key that is refused because it was removed."""
    last = last_version_of(pointer, name)
    message = f"Removed after {dots(last)}: it is refused." if last else "Removed: it is refused."
    return {
        "description": f"{_words(pointer, name)} {message}".strip(),
        "deprecated": True,
        "not": {},
        "errorMessage": message,
    }


def _words(pointer: str, name: str) -> str:
    """The description of a key, by its section or for all sections."""
    return _WORDS.get(pointer, {}).get(name) or _WORDS["*"].get(name, "")
