"""The spec's shape against `schemas/job.schema.json`, with every breach told in the user's terms."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from ..catalog import closest
from ..findings import Finding, Location
from . import codes
from .codes import error
from .source import Source, escape

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

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
_NOT_YET: Final = {"kubernetes": "jobs for Kubernetes are not written yet"}


@cache
def load_schema() -> dict[str, Any]:
    """The published schema of the job spec."""
    schema_package = __package__.split(".")[0] + ".schemas"
    text = files(schema_package).joinpath("job.schema.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def check_schema(source: Source) -> tuple[Finding, ...]:
    """Every breach of the schema by `source.data`, one finding for each."""
    from jsonschema import Draft202012Validator  # takes a tenth of a second to import

    errors = Draft202012Validator(load_schema()).iter_errors(source.data)
    return tuple(finding for breach in errors for finding in _translate(source, breach))


def locate(source: Source, pointer: str) -> Location:
    """The place of a value, else of the nearest thing around it."""
    probe = pointer
    while probe and probe not in source.locations:
        probe = probe.rpartition("/")[0]
    known = source.locations.get(probe, Location(path=source.path))
    return Location(
        path=known.path, pointer=pointer, line=known.line, column=known.column, excerpt=known.excerpt
    )


def locate_key(source: Source, pointer: str) -> Location:
    """The place of the key whose value is at `pointer`."""
    return source.keys.get(pointer) or locate(source, pointer)


def dotted(pointer: str) -> str:
    """A JSON pointer as people write it: `training.global_batch`, `launch.arguments[2]`."""
    name = ""
    for part in pointer.split("/")[1:]:
        plain = part.replace("~1", "/").replace("~0", "~")
        name += f"[{plain}]" if plain.isdigit() else f".{plain}" if name else plain
    return name or "the job spec"


def show(value: object) -> str:
    """A value in a message: short, and text as text."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "empty"
    if isinstance(value, str):
        return repr(value if len(value) <= 60 else f"{value[:57]}...")
    return str(value)


def _translate(source: Source, breach: ValidationError) -> Iterator[Finding]:
    pointer = "".join(f"/{escape(str(part))}" for part in breach.absolute_path)
    if breach.validator == "additionalProperties":
        yield from _unknown_keys(source, pointer, breach)
    elif breach.validator == "required":
        yield from _missing_keys(source, pointer, breach)
    elif breach.validator == "oneOf":
        if isinstance(breach.instance, dict):  # anything else is a breach of `type` too, which says it better
            yield _alternatives(source, pointer, breach)
    elif breach.validator == "dependentRequired":
        message = f"`{dotted(pointer)}.epochs` counts times through `samples`, which is missing"
        yield error(codes.MISSING_KEY, locate_key(source, f"{pointer}/epochs"), message, "add samples, or take epochs out")
    elif breach.validator == "propertyNames":
        yield error(codes.WRONG_VALUE, locate(source, pointer), f"a key of `{dotted(pointer)}` is empty or too long")
    else:
        rule, message, hint = _value_breach(dotted(pointer), breach)
        yield error(rule, locate(source, pointer), message, hint)


def _unknown_keys(source: Source, pointer: str, breach: ValidationError) -> Iterator[Finding]:
    known = tuple(breach.schema["properties"])
    for key in breach.instance:
        if key in known:
            continue
        near = closest(key, known)
        place = f"`{dotted(pointer)}`" if pointer else "a job spec"
        hint = f"did you mean `{near}`?" if near else f"its keys are {', '.join(known)}"
        where = locate_key(source, f"{pointer}/{escape(key)}")
        yield error(codes.UNKNOWN_KEY, where, f"{show(key)} is no key of {place}", hint)


def _missing_keys(source: Source, pointer: str, breach: ValidationError) -> Iterator[Finding]:
    # jsonschema reports one missing key at a time, and names it only in its message.
    key = next(name for name in breach.validator_value if breach.message.startswith(repr(name)))
    name = dotted(f"{pointer}/{key}")
    hint = f"add `{key}: {_example(_properties(breach)[key])}`"
    empty = source.keys.get(f"{pointer}/{key}")  # there, but without a value
    message = f"`{name}` is empty" if empty else f"`{name}` is missing"
    yield error(codes.MISSING_KEY, empty or locate(source, pointer), message, hint)


def _properties(breach: ValidationError) -> Mapping[str, Any]:
    properties: Mapping[str, Any] = breach.schema["properties"]
    return properties


def _alternatives(source: Source, pointer: str, breach: ValidationError) -> Finding:
    choices = _ONE_OF[pointer]
    given = [key for key in choices if key in breach.instance]
    examples = _properties(breach)
    if not given:
        hint = f"add `{choices[0]}: {_example(examples[choices[0]])}`"
        message = f"{' or '.join(f'`{key}`' for key in choices)} is missing"
        return error(codes.MISSING_KEY, locate(source, pointer), message, hint)
    message = f"{' and '.join(f'`{key}`' for key in given)} are both given; one of them decides"
    where = locate_key(source, f"{pointer}/{given[-1]}")
    return error(codes.CONFLICTING_KEYS, where, message, f"keep `{given[0]}: {show(breach.instance[given[0]])}`")


def _value_breach(name: str, breach: ValidationError) -> tuple[str, str, str | None]:
    """Rule, message and hint for one value that the schema refuses."""
    value, wanted, kind = breach.instance, breach.validator_value, breach.validator
    key = re.sub(r"\[\d+\]$", "", name.rpartition(".")[2])
    hint = f"such as `{key}: {_example(breach.schema)}`" if "examples" in breach.schema else None
    if kind == "type":
        return codes.WRONG_TYPE, f"`{name}` is {show(value)}; it takes {_types(wanted)}", _type_hint(value, wanted, hint)
    if kind == "enum":
        return _enum_breach(name, key, value, wanted)
    if kind in _BOUNDS:
        return codes.WRONG_VALUE, f"`{name}` is {show(value)}; it takes {_BOUNDS[kind]} {wanted}", hint
    if kind == "pattern" and value:
        return codes.WRONG_VALUE, f"`{name}` is {show(value)}; it takes {breach.schema['patternErrorMessage']}", hint
    if kind in _SIZES:
        return codes.WRONG_VALUE, f"`{name}` has {len(value)} {_SIZES[kind]}; at most {wanted}", hint
    return codes.WRONG_VALUE, f"`{name}` is empty", hint


def _types(wanted: str | list[str]) -> str:
    names = [_TYPE_NAMES[kind] for kind in ([wanted] if isinstance(wanted, str) else wanted) if kind != "null"]
    return " or ".join(names)


def _type_hint(value: object, wanted: str | list[str], hint: str | None) -> str | None:
    if "string" in wanted and isinstance(value, (bool, int, float)):
        return f'write it in quotes, or else {hint}' if hint else "write it in quotes"
    return hint


def _enum_breach(name: str, key: str, value: object, wanted: list[object]) -> tuple[str, str, str]:
    choices = [str(choice) for choice in wanted]
    if isinstance(value, str) and value.lower() in _NOT_YET:
        return codes.WRONG_VALUE, f"`{name}` is {show(value)}; {_NOT_YET[value.lower()]}", f"it takes {', '.join(choices)}"
    near = closest(value, choices) if isinstance(value, str) else None
    message = f"`{name}` is {show(value)}; it takes {', '.join(choices[:-1])} or {choices[-1]}"
    return codes.WRONG_VALUE, message, f"did you mean `{near}`?" if near else f"such as `{key}: {choices[0]}`"


def _example(schema: Mapping[str, Any]) -> str:
    """A value that passes, as the user would write it in YAML."""
    if "examples" in schema:
        example = schema["examples"][0]
        return example if isinstance(example, str) else json.dumps(example)
    return str(schema.get("default", schema.get("enum", ["..."])[0]))
