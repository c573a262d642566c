"""The spec's shape against `schemas/job.schema.json`, with every violation told in the user's terms."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

from ..catalog import closest
from ..findings import Finding
from ..rule import Rule
from . import codes
from .codes import error
from .source import Source, escape
from .wording import dotted, show
from .yaml_core import resolve_plain

_TYPE_NAMES: Final = {
    "object": "a mapping",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
}
_BOUNDS: Final = {
    "minimum": "at least",
    "exclusiveMinimum": "more than",
    "maximum": "at most",
    "exclusiveMaximum": "less than",
}
_SIZES: Final = {"maxLength": "characters", "maxItems": "items", "maxProperties": "keys"}
_ONE_OF: Final = {"": ("gpus", "nodes"), "/training/duration": ("tokens", "steps", "samples")}
_FALSE_WORDS: Final = ("no", "No", "NO", "off", "Off", "OFF", "n", "N", "0", 0, "False")
_KEY_KEYWORDS: Final = frozenset({"additionalProperties", "required", "oneOf", "dependentRequired"})
_NOT_YET: Final = {"kubernetes": "jobs for Kubernetes are not written yet"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Breach:
    """One error of the validator: `keyword: wanted` of `schema` refuses `value`, at `pointer`."""

    pointer: str
    keyword: str
    wanted: Any
    value: Any
    shown: str  #: the value as it was written
    schema: Mapping[str, Any]
    message: str

    @property
    def name(self) -> str:
        return dotted(self.pointer)


@cache
def load_schema() -> dict[str, Any]:
    """The published schema of the job spec."""
    schemas = __package__.split(".")[0] + ".schemas"
    schema: dict[str, Any] = json.loads(files(schemas).joinpath("job.schema.json").read_text(encoding="utf-8"))
    return schema


def takes_text(path: tuple[str, ...]) -> bool:
    """Whether the key at `path` takes text, or text and numbers alike, so that text needs no reading as YAML."""
    node = load_schema()
    for part in path:
        node = load_schema()["$defs"][node["$ref"].rpartition("/")[2]] if "$ref" in node else node
        rest = node.get("additionalProperties")
        node = node.get("properties", {}).get(part, rest if isinstance(rest, dict) else {})
    types = node.get("type", ())
    return types == "string" or ("string" in types and "object" not in types)


def check_schema(source: Source) -> tuple[Finding, ...]:
    """Every violation of the schema by `source.data`, one finding for each."""
    from jsonschema import Draft202012Validator  # takes a tenth of a second to import

    findings: list[Finding] = []
    refused: set[str] = set()
    for problem in Draft202012Validator(load_schema()).iter_errors(source.data):
        violation = _breach(source, problem)
        if violation.keyword in _KEY_KEYWORDS:
            findings.extend(_key_breach(source, violation))
        elif violation.pointer not in refused:  # a value's first violation is the most general
            refused.add(violation.pointer)
            rule, message, hint = _value_breach(violation)
            findings.append(error(rule, source.locate(violation.pointer), message, hint))
    return tuple(findings)


def _breach(source: Source, problem: Any) -> _Breach:
    pointer = "".join(f"/{escape(str(part))}" for part in problem.absolute_path)
    return _Breach(
        pointer=pointer,
        keyword=problem.validator,
        wanted=problem.validator_value,
        value=problem.instance,
        shown=source.texts.get(pointer) or show(problem.instance),
        schema=problem.schema,
        message=problem.message,
    )


def _key_breach(source: Source, violation: _Breach) -> Iterator[Finding]:
    if violation.keyword == "additionalProperties":
        yield from _unknown_keys(source, violation)
    elif violation.keyword == "required":
        yield _missing_key(source, violation)
    elif violation.keyword == "oneOf":
        # Of what is no mapping `type` says it better, and of epochs alone `dependentRequired`.
        if isinstance(violation.value, dict) and set(violation.value) != {"epochs"}:
            yield _alternatives(source, violation)
    else:
        where = source.locate_key(f"{violation.pointer}/epochs")
        message = f"`{violation.name}.epochs` counts times through `samples`, which is missing"
        yield error(codes.MISSING_KEY, where, message, "add `samples: 1000000`, or take epochs out")


def _unknown_keys(source: Source, violation: _Breach) -> Iterator[Finding]:
    known = tuple(violation.schema["properties"])
    place = f"`{violation.name}`" if violation.pointer else "a job spec"
    for key in violation.value:
        if key in known:
            continue
        hint = _key_hint(key, known)
        where = source.locate_key(f"{violation.pointer}/{escape(key)}")
        yield error(codes.UNKNOWN_KEY, where, f"{show(key)} is no key of {place}", hint)


def _key_hint(key: str, known: tuple[str, ...]) -> str:
    near, home = closest(key, known), _sections().get(key)
    if home is not None:
        return f"write it under `{home}`"
    return f"did you mean `{near}`?" if near else f"its keys are {', '.join(known)}"


@cache
def _sections() -> dict[str, str]:
    """Where each key below the top level belongs; keys of more than one place are left out."""
    properties, parts = load_schema()["properties"], load_schema()["$defs"]
    sections = {name: parts[name]["properties"] for name in ("training", "layout", "launch")}
    sections["memory"] = properties["memory"]["properties"]
    sections["training.duration"] = parts["training"]["properties"]["duration"]["properties"]
    launch = parts["launch"]["properties"]
    sections |= {f"launch.{name}": launch[name]["properties"] for name in launch["target"]["enum"]}
    homes = [(key, section) for section, keys in sections.items() for key in keys]
    return {key: section for key, section in homes if [other for other, _ in homes].count(key) == 1}


def _missing_key(source: Source, violation: _Breach) -> Finding:
    # jsonschema reports one missing key at a time, and names it only in its message.
    key = next(name for name in violation.wanted if violation.message.startswith(repr(name)))
    pointer = f"{violation.pointer}/{key}"
    hint = f"add `{key}: {_example(violation.schema['properties'][key])}`"
    empty = source.keys.get(pointer)  # there, but without a value
    message = f"`{dotted(pointer)}` is {'empty' if empty else 'missing'}"
    return error(codes.MISSING_KEY, empty or source.locate(violation.pointer), message, hint)


def _alternatives(source: Source, violation: _Breach) -> Finding:
    choices = _ONE_OF[violation.pointer]
    given = [key for key in choices if key in violation.value]
    prefix = f"{violation.name}." if violation.pointer else ""
    if not given:
        hint = f"add `{choices[0]}: {_example(violation.schema['properties'][choices[0]])}`"
        message = f"{' or '.join(f'`{prefix}{key}`' for key in choices)} is missing"
        return error(codes.MISSING_KEY, source.locate(violation.pointer), message, hint)
    message = f"{' and '.join(f'`{prefix}{key}`' for key in given)} are given together; one of them decides"
    where = source.locate_key(f"{violation.pointer}/{given[-1]}")
    kept = str(source.texts.get(f"{violation.pointer}/{given[0]}", violation.value[given[0]]))
    return error(codes.CONFLICTING_KEYS, where, message, f"keep `{given[0]}: {kept[:60]}`")


def _value_breach(violation: _Breach) -> tuple[Rule, str, str | None]:
    """Rule, message and hint for one value that the schema refuses."""
    name, shown, wanted, keyword = violation.name, violation.shown, violation.wanted, violation.keyword
    key = name.rpartition(".")[2]
    hint = _such_as(key, violation.schema)
    if keyword == "type":
        types = [wanted] if isinstance(wanted, str) else wanted
        return (
            codes.WRONG_TYPE,
            f"`{name}` is {shown}; it takes {_types(types)}",
            _type_hint(violation, types, key, hint),
        )
    if keyword == "enum":
        return _enum_breach(violation, key)
    if keyword in _BOUNDS:
        return codes.WRONG_VALUE, f"`{name}` is {shown}; it takes {_BOUNDS[keyword]} {wanted}", hint
    if keyword == "pattern" and violation.value:
        return codes.WRONG_VALUE, f"`{name}` is {shown}; it takes {violation.schema['patternErrorMessage']}", hint
    if keyword in _SIZES:
        message = f"`{name}` has {len(violation.value)} {_SIZES[keyword]}; at most {wanted}"
        return codes.WRONG_VALUE, message, "shorten it"
    return codes.WRONG_VALUE, f"`{name}` is empty", hint or "give it a value, or leave it out"


def _such_as(key: str, schema: Mapping[str, Any]) -> str | None:
    if "examples" not in schema:
        return None
    return f"such as `{_example(schema)}`" if key.endswith("]") else f"such as `{key}: {_example(schema)}`"


def _types(types: list[str]) -> str:
    return " or ".join(_TYPE_NAMES[kind] for kind in types if kind != "null")


def _type_hint(violation: _Breach, types: list[str], key: str, hint: str | None) -> str:
    value = violation.value
    if "string" in types and "object" not in types and (value is None or isinstance(value, (bool, int, float))):
        text = f'"{"" if value is None else violation.shown}"'
        return f"write it in quotes: `{text if key.endswith(']') else f'{key}: {text}'}`"
    if types == ["boolean"]:
        return f"write `{key}: {'false' if value in _FALSE_WORDS else 'true'}`"
    if isinstance(value, str) and "string" not in types and isinstance(resolve_plain(value[:20]), (int, float)):
        return f"write it without quotes: `{key}: {value[:20]}`"
    return hint or ("write its keys below it, indented" if types == ["object"] else f"it takes {_types(types)}")


def _enum_breach(violation: _Breach, key: str) -> tuple[Rule, str, str]:
    """Rule, message and hint for a value that is none of the key's."""
    value, name = violation.value, violation.name
    choices = [str(choice) for choice in violation.wanted]
    listed = f"it takes {', '.join(choices[:-1])} or {choices[-1]}"
    if isinstance(value, str) and value.lower() in _NOT_YET:
        return codes.WRONG_VALUE, f"`{name}` is {violation.shown}; {_NOT_YET[value.lower()]}", listed
    near = closest(value, choices) if isinstance(value, str) else None
    hint = f"did you mean `{near}`?" if near else f"such as `{key}: {choices[0]}`"
    return codes.WRONG_VALUE, f"`{name}` is {violation.shown}; {listed}", hint


def _example(schema: Mapping[str, Any]) -> str:
    """A value that passes, as the user would write it in YAML."""
    if "examples" not in schema:
        return str(schema.get("default", schema.get("enum", ["..."])[0]))
    example = schema["examples"][0]
    is_plain = isinstance(example, str) and isinstance(resolve_plain(example), str)
    return example if is_plain else json.dumps(example)
