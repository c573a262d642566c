"""The schemas that other projects publish for their files, as data: Kubernetes' custom resources, SkyPilot's tasks.

Sources and versions are in the files, which scripts/cluster_schemas.py writes.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final

from ..job.source import escape
from .shapes import Problem

Schema = Mapping[str, Any]

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}
_SLIP: Final = 0.9  # of difflib's ratio: a letter of five, or two of twenty
_ARTICLES: Final = {
    "string": "text",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "object": "a mapping",
    "array": "a list",
    "null": "empty",
}


@lru_cache(maxsize=2)
def published(name: str) -> Schema:
    """A file of schemas: `kubernetes` or `skypilot`."""
    text = files(__package__).joinpath(f"{name}_schema.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


def validator(name: str, kind: str) -> Any:
    """jsonschema's validator of a kind."""
    from jsonschema import Draft202012Validator  # saves start-up time

    return Draft202012Validator({**published(name), "$ref": f"#/$defs/{kind}"})


def differences(document: object, name: str, kind: str) -> Iterator[Problem]:
    """Every place where a document differs from the schema of its kind, top down. What is null counts as left out."""
    definitions: Schema = published(name)["$defs"]
    yield from _Check(definitions).problems(document, definitions[kind], "")


class _Check:
    """Documents against schemas with these definitions."""

    def __init__(self, definitions: Schema) -> None:
        self._definitions = definitions

    def problems(self, value: object, schema: Schema, pointer: str) -> Iterator[Problem]:
        """The differences of a value; of several schemas the one with the fewest counts."""
        if "$ref" in schema:
            schema = self._definitions[schema["$ref"].rpartition("/")[2]]
        choices = schema.get("anyOf") or schema.get("oneOf")
        if value is None:
            return
        if choices:
            found = [list(self.problems(value, choice, pointer)) for choice in choices]
            if all(found):
                yield from self._closest(value, choices, found, pointer)
            return
        if not _has_type(value, schema):
            yield Problem(kind="type", pointer=pointer, expected=_expected(schema))
        elif isinstance(value, dict):
            yield from self._of_mapping(value, schema, pointer)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                yield from self.problems(item, schema.get("items", {}), f"{pointer}/{index}")
        else:
            yield from _of_scalar(value, schema, pointer)

    def _closest(
        self, value: object, choices: list[Schema], found: list[list[Problem]], pointer: str
    ) -> Iterator[Problem]:
        fits = [problems for choice, problems in zip(choices, found, strict=True) if _has_type(value, choice)]
        if fits and (isinstance(value, (dict, list)) or len(fits) == 1):
            yield from min(fits, key=len)
        else:
            yield Problem(kind="type", pointer=pointer, expected=" or ".join(dict.fromkeys(map(_expected, choices))))

    def _of_mapping(self, value: Mapping[str, object], schema: Schema, pointer: str) -> Iterator[Problem]:
        known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
        names = tuple(sorted(key for key in known if not key.startswith("_")))
        for key, inner in value.items():
            at = f"{pointer}/{escape(str(key))}"
            of_pattern = [part for pattern, part in patterns.items() if re.search(pattern, str(key))]
            rest = schema.get("additionalProperties", True)
            if key in known or of_pattern:
                yield from self.problems(inner, known.get(key, *of_pattern[:1]), at)
            elif rest is False:
                yield Problem(kind="unknown", pointer=at, expected=", ".join(names), choices=names)
            elif isinstance(rest, Mapping):
                yield from self.problems(inner, rest, at)
        for key in schema.get("required", ()):
            if value.get(key) is None:
                yield Problem(kind="missing", pointer=f"{pointer}/{key}", expected=_expected(known.get(key, {})))


def _has_type(value: object, schema: Schema) -> bool:
    """Whether a value has one of the types; a quantity may be any number, which the API server reads as text."""
    types = schema.get("type", ())
    types = [types] if isinstance(types, str) else list(types)
    if isinstance(value, bool):
        return not types or "boolean" in types
    if isinstance(value, float) and ("string" in types or value.is_integer()) and "integer" in types:
        return True
    return not types or isinstance(value, tuple(kind for name in types for kind in _TYPES[name]))


def _expected(schema: Schema) -> str:
    types = schema.get("type", ())
    types = [types] if isinstance(types, str) else [name for name in types if name != "null"]
    return " or ".join(_ARTICLES[name] for name in types) or "a value"


def _of_scalar(value: object, schema: Schema, pointer: str) -> Iterator[Problem]:
    """A scalar against the choices, the pattern and the bounds of its schema."""
    choices, loose = schema.get("enum"), schema.get("case_insensitive_enum")
    if choices is not None and value not in choices:
        yield Problem(kind="value", pointer=pointer, expected=_one_of(choices), choices=tuple(map(str, choices)))
    elif loose is not None and str(value).lower() not in [str(choice).lower() for choice in loose]:
        yield Problem(kind="value", pointer=pointer, expected=_one_of(loose), choices=tuple(map(str, loose)))
    elif isinstance(value, str):
        if "pattern" in schema and not re.search(schema["pattern"], value):
            yield Problem(kind="type", pointer=pointer, expected="text of the form that is read there")
        elif len(value) > schema.get("maxLength", len(value)):
            yield Problem(kind="type", pointer=pointer, expected=f"at most {schema['maxLength']} characters long")
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        low, high = schema.get("minimum"), schema.get("maximum")
        if (low is not None and value < low) or (high is not None and value > high):
            bounds = f"from {low} to {high}" if low is not None and high is not None else f"at least {low}"
            yield Problem(kind="type", pointer=pointer, expected=f"a number {bounds}")


def _one_of(choices: list[object]) -> str:
    return "one of " + ", ".join(map(str, choices))


def near(text: str, problem: Problem) -> str | None:
    """The known name that an unknown one is a slip of: other releases have longer and shorter ones."""
    same = {choice.lower(): choice for choice in problem.choices}.get(text.lower())
    found = difflib.get_close_matches(text, problem.choices, n=1, cutoff=_SLIP)
    return same or (found[0] if found else None)
