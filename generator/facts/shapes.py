"""Documents of plain data against schemas, which are JSON Schema as far as their projects use it, and what differs.

A schema may also have `rules`, the ids of the rules that report what differs in it and below, by kind; `form`, a
check of its own; `chosen`, which names the definition that holds for a value; `expected`, what should be there, in
words; and `ignored`, keys that are dropped unread unless they are null.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import field
from functools import lru_cache
from typing import Any, Final, Literal

from ..dataclass import dataclass
from ..job.schema import TYPE_WORDS, is_of_type
from ..resources import read_text
from ..text.wording import escape

Schema = Mapping[str, Any]
Kind = Literal["unknown", "missing", "null", "type", "value", "key"]

_SLIP: Final = 0.9  # of difflib's ratio: a letter of five, or two of twenty
_SHOWN_KEYS: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One difference between a document and its schema."""

    kind: Kind
    pointer: str
    expected: str  #: what should be there; of an unknown key, the keys that are known
    choices: tuple[str, ...] = ()
    rule: str = ""  #: that reports it

    @property
    def parts(self) -> tuple[str, ...]:
        """The pointer's parts."""
        return tuple(self.pointer.split("/")[1:])

    def near(self, text: str) -> str | None:
        """The known name that an unknown one is a slip of: other releases have longer and shorter ones."""
        same = {choice.lower(): choice for choice in self.choices}.get(text.lower())
        found = difflib.get_close_matches(text, self.choices, n=1, cutoff=_SLIP)
        return same or (found[0] if found else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """A program's way to convert and check values that its schema has."""

    accepts: Callable[
        [object, Collection[str]], bool
    ]  #: whether a value is, or is converted to, one of the types
    forms: Mapping[str, Callable[[object], bool]] = field(
        default_factory=dict
    )  #: whether a value has a `form`
    chosen: Mapping[str, Callable[[Any], str]] = field(
        default_factory=dict
    )  #: the definition that a value goes by
    takes_null: bool = (
        True  #: what is null counts as left out; else null is wrong where the schema has no `null`
    )
    lists_keys: bool = False  #: whether a mapping that is missing is described by its keys


@lru_cache(maxsize=3)
def read_schemas(program: str) -> Schema:
    """The definitions in the file `schema.json` of a program."""
    text = read_text(f"{__package__.split('.')[0]}.programs.{program}", "schema.json")
    definitions: Schema = json.loads(text)["$defs"]
    return definitions


def differences(
    document: object,
    program: str,
    kind: str,
    reader: Reader,
    odd_keys: Mapping[str, object] | None = None,
) -> Iterator[Problem]:
    """Every place where a document differs from the schema of its kind, top down.

    `odd_keys` has the pointers of keys that aren't text.
    """
    definitions = read_schemas(program)
    yield from _Check(definitions, reader, odd_keys or {}).problems(
        document, definitions[kind], "", {}
    )


@dataclass(frozen=True, slots=True)
class _Check:
    definitions: Schema
    reader: Reader
    odd_keys: Mapping[str, object]

    def problems(
        self, value: object, schema: Schema, pointer: str, rules: Mapping[str, str]
    ) -> Iterator[Problem]:
        """The differences of a value; of several schemas the one with the fewest counts."""
        while "$ref" in schema or "chosen" in schema:
            rules = {**rules, **schema.get("rules", {})}
            name = (
                schema["$ref"].rpartition("/")[2]
                if "$ref" in schema
                else self.reader.chosen[schema["chosen"]](value)
            )
            schema = self.definitions[name]
        rules = {**rules, **schema.get("rules", {})}
        choices = schema.get("anyOf") or schema.get("oneOf")
        if value is None:
            if not self.reader.takes_null and "null" not in _types(schema):
                yield Problem(
                    kind="null",
                    pointer=pointer,
                    expected=self.expected(schema),
                    rule=rules.get("null", ""),
                )
        elif choices:
            found = [list(self.problems(value, choice, pointer, rules)) for choice in choices]
            if all(found):
                fits = [
                    p
                    for choice, p in zip(choices, found, strict=True)
                    if self._accepts(value, choice)
                ]
                if fits and (isinstance(value, (dict, list)) or len(fits) == 1):
                    yield from min(fits, key=len)
                else:
                    either = " or ".join(dict.fromkeys(map(self.expected, choices)))
                    yield Problem(
                        kind="type", pointer=pointer, expected=either, rule=rules.get("value", "")
                    )
        elif not self._accepts(value, schema):
            types = _types(schema)
            column = (
                "integer"
                if types == ["integer"]
                else "section"
                if {"object", "array"} & {*types}
                else "value"
            )
            rule, names = (
                rules.get(column) or rules.get("value", ""),
                tuple(schema.get("choices", ())),
            )
            kind: Kind = "value" if names else "type"
            expected = self.expected(schema)
            yield Problem(kind=kind, pointer=pointer, expected=expected, choices=names, rule=rule)
        elif (wrong := _wrong_scalar(value, schema)) is not None:
            kind, expected, names = wrong
            yield Problem(
                kind=kind,
                pointer=pointer,
                expected=expected,
                choices=names,
                rule=rules.get("value", ""),
            )
        elif isinstance(value, dict):
            yield from self._of_mapping(value, schema, pointer, rules)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                yield from self.problems(item, schema.get("items", {}), f"{pointer}/{index}", rules)

    def _of_mapping(
        self, value: Mapping[str, object], schema: Schema, pointer: str, rules: Mapping[str, str]
    ) -> Iterator[Problem]:
        known, rest = schema.get("properties", {}), schema.get("additionalProperties", True)
        names = tuple(sorted(key for key in known if not key.startswith("_")))
        for key, inner in value.items():
            at = f"{pointer}/{escape(str(key))}"
            odd = at in self.odd_keys
            by_pattern = (
                part
                for name, part in schema.get("patternProperties", {}).items()
                if re.search(name, str(key))
            )
            part = next(by_pattern, rest) if odd or key not in known else known[key]
            if key in schema.get("ignored", ()) and inner is not None:
                continue
            if part is False:
                rule = rules.get("unknown", "")
                yield Problem(
                    kind="unknown", pointer=at, expected=", ".join(names), choices=names, rule=rule
                )
            elif odd and schema.get("text_keys"):
                yield Problem(kind="key", pointer=at, expected="text", rule=rules.get("value", ""))
            if isinstance(part, Mapping):
                yield from self.problems(inner, part, at, rules)
        for key in schema.get("required", ()):
            if key not in value or (value[key] is None and self.reader.takes_null):
                part = known.get(key, {})
                rule = {**rules, **part.get("rules", {})}.get("missing", "")
                yield Problem(
                    kind="missing",
                    pointer=f"{pointer}/{key}",
                    expected=self.expected(part),
                    rule=rule,
                )

    def _accepts(self, value: object, schema: Schema) -> bool:
        types = _types(schema)
        fits = not types or self.reader.accepts(value, types)
        return fits and ("form" not in schema or self.reader.forms[schema["form"]](value))

    def expected(self, schema: Schema) -> str:
        """Return what a schema requires, in words."""
        types = [name for name in _types(schema) if name != "null" or schema["type"] == "null"]
        choices = schema.get("choices") or (
            schema.get("case_insensitive_enum") if self.reader.lists_keys else None
        )
        keys = sorted(schema.get("properties", ()))[:_SHOWN_KEYS] if self.reader.lists_keys else ()
        words = " or ".join(TYPE_WORDS[name] for name in types) + (
            " with " + ", ".join(keys) if keys else ""
        )
        return str(schema.get("expected") or (_one_of(choices) if choices else words or "a value"))


def _types(schema: Schema) -> list[str]:
    types = schema.get("type", [])
    return [types] if isinstance(types, str) else list(types)


def _wrong_scalar(value: object, schema: Schema) -> tuple[Kind, str, tuple[str, ...]] | None:
    """Return what is wrong with a value by the choices, the pattern and the bounds of its schema, and the choices."""
    exact, loose = schema.get("enum"), schema.get("case_insensitive_enum")
    low, high = schema.get("minimum"), schema.get("maximum")
    if exact is not None and value not in exact:
        return "value", schema.get("expected") or _one_of(exact), tuple(map(str, exact))
    if loose is not None and str(value).lower() not in [str(choice).lower() for choice in loose]:
        return "value", _one_of(loose), tuple(map(str, loose))
    if isinstance(value, str) and exact is loose is None:
        if "pattern" in schema and not re.search(schema["pattern"], value):
            return "type", "text of the form that is read there", ()
        if len(value) > schema.get("maxLength", len(value)):
            return "type", f"at most {schema['maxLength']} characters long", ()
    is_number = (
        isinstance(value, (int, float)) and not isinstance(value, bool) and exact is loose is None
    )
    if is_number and ((low is not None and value < low) or (high is not None and value > high)):
        bounds = (
            f"from {low} to {high}" if low is not None and high is not None else f"at least {low}"
        )
        return "type", f"a number {bounds}", ()
    return None


def _one_of(choices: Collection[object]) -> str:
    return "one of " + ", ".join(map(str, choices))


def has_type(value: object, types: Collection[str]) -> bool:
    """Return whether a value has one of the types; a quantity may be any number, which the API server reads as text."""
    quantity = isinstance(value, float) and "string" in types and "integer" in types
    return quantity or any(is_of_type(value, name) for name in types)


#: The API server's and SkyPilot's own: nothing is converted.
AS_WRITTEN: Final = Reader(accepts=has_type)
