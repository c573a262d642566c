"""A JSON Schema of DeepSpeed configs for editors, made from the table of keys of a release.

It refuses what the release's own parser refuses, and no more: which values a model takes is asked
of `coercions`.
"""

from __future__ import annotations

from collections.abc import Mapping
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
#: Of the tables, and of JSON Schema.
_KINDS: Final = {"null": "null", "bool": "boolean", "int": "integer", "float": "number"} | {
    "str": "string",
    "list": "array",
    "object": "object",
}
_WORD: Final = "|".join(
    "".join(f"[{c}{c.upper()}]" for c in word)
    for word in ("true", "false", "yes", "no", "on", "off")
)
#: A value of each kind, from the widest form of a type to the narrowest; the first that is accepted
#: is enough.
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
        ("true", {"type": "string", "pattern": f"^({_WORD}|[tTfFyYnN01])$"}),
    ),
    (
        ("text", {"type": "string"}),
        ("1.5", {"type": "string", "pattern": r"^\s*[-+]?[0-9._]+([eE][-+]?[0-9]+)?\s*$"}),
        ("3", {"type": "string", "pattern": r"^\s*[-+]?[0-9_]+(\.0*)?\s*$"}),
    ),
)
_AUTO: Final[Schema] = {"const": "auto"}
#: A variable that a program fills in before DeepSpeed reads the config, as the rules on templates
#: know them.
_VARIABLE: Final[Schema] = {"type": "string", "pattern": r"^\s*([$@<%{].*|[A-Z][A-Z0-9_]*)\s*,?$"}
#: As DeepSpeed's documentation writes them.
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
_NAMES: Final = {name.lower(): name for name in _OPTIMIZERS}
_WORDS: Final[Mapping[str, Mapping[str, str]]] = yaml.safe_load(
    read_text(__package__, "deepspeed_words.yaml")
)


def deepspeed_json_schema(version: str) -> Schema:
    """The schema of a release's config, or of the nearest release that has a table."""
    release = load_schema(version)
    made: Schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"DeepSpeed {dots(release.version)} config",
    }
    return made | _section(release, "")


def _section(release: DeepSpeedSchema, pointer: str) -> Schema:
    section = release.section(pointer)
    assert section is not None
    written = {key.written: key for key in section.keys.values()}
    properties = {name: _key(release, section, key) for name, key in sorted(written.items())}
    properties |= {
        key.name: properties[key.written]
        for key in written.values()
        if key.alias and key.name not in properties
    }
    properties |= {
        name: _removed(pointer, name) for name in sorted(release.removed.get(pointer, ()))
    }
    made: Schema = {"type": "object", "properties": properties}
    if section.kind == "model" and section.extra == "forbidden":
        properties["strict"] = {"description": "Not a setting: DeepSpeed drops it."}
        refusal = f"DeepSpeed {dots(release.version)} refuses keys that it doesn't have here"
        made["additionalProperties"] = {**_AUTO, "errorMessage": refusal}
    return made


def _key(release: DeepSpeedSchema, section: Section, key: Key) -> Schema:
    accepted = (
        _of_model(release, section, key) if section.kind == "model" else _of_mapping(section, key)
    )
    inner = _inside(release, section, key)
    if inner is not None:
        accepted = [inner if choice == {"type": "object"} else choice for choice in accepted]
    pointer = section.pointer
    first, last = first_version_of(pointer, key.name), last_version_of(pointer, key.name)
    parts = [_words(pointer, key.written)]
    if key.default is not None:
        default = f"{key.default:,}" if isinstance(key.default, int) else key.default
        parts.append(
            f"Default: {str(key.default).lower() if isinstance(key.default, bool) else default}."
        )
    if first is not None and first != versions()[0]:
        parts.append(f"Since 0.{first[1]}.")
    if last is not None and last != versions()[-1]:
        parts.append(f"Removed after {dots(last)}.")
    made: Schema = {"description": " ".join(filter(None, parts))}
    if key.default is not None and key.default != "auto":
        made["default"] = key.default
    if key.deprecated is not None:
        new = section.keys.get(key.deprecated.by)
        by = new.written if new else key.deprecated.by
        told = f"Deprecated: write {by} instead." if by else "Deprecated: it has no effect."
        made |= {"deprecated": True, "deprecationMessage": told}
    if len(accepted) < len(_KINDS):
        made["anyOf"] = (
            accepted if {"type": "string"} in accepted else [*accepted, _AUTO, _VARIABLE]
        )
    elif inner is not None:
        made["properties"] = inner["properties"]
    return made


def _inside(release: DeepSpeedSchema, section: Section, key: Key) -> Schema | None:
    """Return the schema of what an object has as this key's value."""
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
    made: dict[str, Schema] = {}
    for name in sorted({name for keys in keys_by_taker.values() for name in keys}):
        by = sorted(
            _NAMES.get(taker, taker) for taker, keys in keys_by_taker.items() if name in keys
        )
        made[name] = {"description": f"{_words(where, name)} Taken by {', '.join(by)}."}
        defaults = [keys[name].default for keys in keys_by_taker.values() if name in keys]
        if all(default == defaults[0] for default in defaults) and defaults[0] is not None:
            made[name]["default"] = defaults[0]
    return made


def _of_model(release: DeepSpeedSchema, section: Section, key: Key) -> list[Schema]:
    """Return the schema of what a pydantic model accepts: each kind of value is tried."""
    free = replace(key, ge=None, gt=None, le=None, lt=None)
    bounds = {
        "minimum": key.ge,
        "exclusiveMinimum": key.gt,
        "maximum": key.le,
        "exclusiveMaximum": key.lt,
    }
    bounds = {name: bound for name, bound in bounds.items() if bound is not None}
    schemas: list[Schema] = []
    if key.type.name == "list" and key.type.of and key.type.of[0].values:
        return [{"type": "array", "items": {"enum": list(key.type.of[0].values)}}, {"type": "null"}]
    if key.type.name in ("enum", "literal"):
        schemas.append({"enum": list(key.type.values)})
        forms = (form for value in key.type.values for form in (str(value), bool(value)))
        others = [form for form in forms if not mismatch(form, free, pydantic=release.pydantic)]
        schemas += [
            {"const": form} for form in dict.fromkeys(others) if form not in key.type.values
        ]
        return schemas + ([{"type": "null"}] if key.optional else [])
    for group in _PROBES:
        held = (
            form
            for probe, form in group
            if mismatch(probe, free, pydantic=release.pydantic) is None
        )
        form = next(held, {"type": None})
        form = form | bounds if form["type"] in ("integer", "number") else form
        schemas += [form] if form["type"] and form not in schemas else []
    if key.name == "leaf_module":
        schemas.append({"type": "null"})
    if key.type.name == "list" and "_coerce_container_types" in section.checks:
        schemas.append({"type": "string"})
    return schemas


def _of_mapping(section: Section, key: Key) -> list[Schema]:
    """Return the schema of what DeepSpeed doesn't fail on: a plain mapping checks no types."""
    # An elastic config may have the batch keys in any form.
    is_batch = not section.pointer and key.name in BATCH_KEYS
    refused, schemas = key.refuses & {"str", "object"} if is_batch else key.refuses, list[Schema]()
    if section.pointer == "/optimizer" and key.name == "type":
        refused, schemas = refused | {"str"}, [{"type": "string", "examples": sorted(_OPTIMIZERS)}]
    for kind, name in _KINDS.items():
        if kind not in refused:
            whole = kind == "float" and "int" in refused
            schemas.append({"type": name, "not": {"type": "integer"}} if whole else {"type": name})
    return schemas


def _removed(pointer: str, name: str) -> Schema:
    last = last_version_of(pointer, name)
    told = f"Removed after {dots(last)}: it is refused." if last else "Removed: it is refused."
    return {
        "description": f"{_words(pointer, name)} {told}".strip(),
        "deprecated": True,
        "not": {},
        "errorMessage": told,
    }


def _words(pointer: str, name: str) -> str:
    return _WORDS.get(pointer, {}).get(name) or _WORDS["*"].get(name, "")
