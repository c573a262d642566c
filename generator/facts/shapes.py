"""Documents against the schemas that their projects publish, or that describe what a program loads.

Besides the keywords that `json_schema` reads, such a schema may have `rules`, the ids of the rules
that report what differs in it and below, by kind; `expected`, what should be there, in words; and
`choices`, the values of a `form`.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import Final, Literal

from ..dataclass import dataclass
from ..json_schema import TYPE_WORDS, Breach, Dialect, Schema, breaches, has_type, types_of
from ..resources import read_text
from ..text.wording import counted, escape

Kind = Literal["unknown", "missing", "null", "type", "value", "key"]

_SLIP: Final = 0.9  # of difflib's ratio: a letter of five, or two of twenty
_SHOWN_KEYS: Final = 6  # in a hint


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
        """The known name that an unknown one is a slip of.

        Only one much alike is: a longer or shorter name may be another release's.
        """
        in_other_case = {choice.lower(): choice for choice in self.choices}.get(text.lower())
        alike = difflib.get_close_matches(text, self.choices, n=1, cutoff=_SLIP)
        return in_other_case or (alike[0] if alike else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """How a program reads documents, and how what it expects is said."""

    dialect: Dialect
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
    broken = breaches(document, definitions[kind], definitions, reader.dialect, odd_keys or ())
    yield from _Differences(reader, odd_keys or ()).problems(broken)


@dataclass(frozen=True, slots=True)
class _Differences:
    """Makes problems of broken keywords."""

    reader: Reader
    odd_keys: Collection[str]

    def problems(self, broken: Iterator[Breach]) -> Iterator[Problem]:
        """Make one problem of what is broken of a value, and one of each key."""
        refused = set[str]()
        for breach in broken:
            if breach.keyword in _OF_KEYS:
                yield from self._of_keys(breach)
            elif breach.pointer not in refused:
                refused.add(breach.pointer)
                yield from self._of_value(breach)

    def _of_keys(self, breach: Breach) -> Iterator[Problem]:
        properties = breach.schema.get("properties", {})
        rules = _rules(breach)
        for key in breach.keys:
            pointer = f"{breach.pointer}/{escape(str(key))}"
            if breach.keyword == "required":
                part = properties.get(key, {})
                yield Problem(
                    kind="missing",
                    pointer=pointer,
                    expected=self._expected(part),
                    rule={**rules, **part.get("rules", {})}.get("missing", ""),
                )
            elif breach.keyword == "additionalProperties":
                names = tuple(sorted(name for name in properties if not name.startswith("_")))
                yield Problem(
                    kind="unknown",
                    pointer=pointer,
                    expected=", ".join(names),
                    choices=names,
                    rule=rules.get("unknown", ""),
                )
            else:
                yield Problem(
                    kind="key", pointer=pointer, expected="text", rule=rules.get("value", "")
                )

    def _of_value(self, breach: Breach) -> Iterator[Problem]:
        schema, rules = breach.schema, _rules(breach)
        if breach.keyword in ("anyOf", "oneOf"):
            yield from self._of_union(breach, rules.get("value", ""))
        elif breach.keyword == "null":
            yield Problem(
                kind="null",
                pointer=breach.pointer,
                expected=self._expected(schema),
                rule=rules.get("null", ""),
            )
        elif breach.keyword in ("type", "form"):
            names = tuple(schema.get("choices", ()))
            yield Problem(
                kind="value" if names else "type",
                pointer=breach.pointer,
                expected=self._expected(schema),
                choices=names,
                rule=rules.get(_kind_of_rule(schema)) or rules.get("value", ""),
            )
        else:
            choices = breach.wanted if breach.keyword in _ENUMS else ()
            in_words = schema.get("expected") if breach.keyword == "enum" else None
            yield Problem(
                kind="value" if choices else "type",
                pointer=breach.pointer,
                expected=in_words or _limit(breach),
                choices=tuple(map(str, choices)),
                rule=rules.get("value", ""),
            )

    def _of_union(self, breach: Breach, rule: str) -> Iterator[Problem]:
        """The problems of a value that none of several schemas accepts.

        The schemas of its type are the likely ones. Where there is one, or the value is a mapping
        or list, the schema with the fewest problems is taken to be meant.
        """
        accepts = self.reader.dialect.accepts
        meant = [
            broken
            for schema, broken in zip(breach.wanted, breach.branches, strict=True)
            if not types_of(schema) or accepts(breach.value, types_of(schema))
        ]
        if meant and (isinstance(breach.value, (dict, list)) or len(meant) == 1):
            yield from min((list(self.problems(iter(broken))) for broken in meant), key=len)
        else:
            either = " or ".join(dict.fromkeys(map(self._expected, breach.wanted)))
            yield Problem(kind="type", pointer=breach.pointer, expected=either, rule=rule)

    def _expected(self, schema: Schema) -> str:
        """Return what a schema requires, in words."""
        if "expected" in schema:
            return str(schema["expected"])
        lists_keys = self.reader.lists_keys
        choices = schema.get("choices")
        if lists_keys:  # such a reader lists values too
            choices = choices or schema.get("case_insensitive_enum")
        if choices:
            return _one_of(choices)

        is_null = schema.get("type") == "null"
        types = [name for name in types_of(schema) if name != "null" or is_null]
        words = " or ".join(TYPE_WORDS[name] for name in types)
        keys = sorted(schema.get("properties", ()))[:_SHOWN_KEYS] if lists_keys else ()
        if keys:
            words += " with " + ", ".join(keys)
        return words or "a value"


#: Keywords about a mapping's keys, and those that list values.
_OF_KEYS: Final = frozenset({"required", "additionalProperties", "text_keys"})
_ENUMS: Final = frozenset({"enum", "case_insensitive_enum"})
#: What is expected by the other keywords.
_LIMITS: Final = {
    "pattern": "text of the form that is read there",
    "uniqueItems": "a list without repetitions",
    "minimum": "a number at least {}",
    "maximum": "a number at most {}",
    "exclusiveMinimum": "a number more than {}",
    "exclusiveMaximum": "a number less than {}",
}
#: Those of the keywords that count something, with its name.
_SIZES: Final = {
    "minLength": ("at least {} long", "character"),
    "maxLength": ("at most {} long", "character"),
    "minItems": ("a list of at least {}", "item"),
    "maxItems": ("a list of at most {}", "item"),
    "maxProperties": ("a mapping of at most {}", "key"),
}


def _limit(breach: Breach) -> str:
    """What a keyword about one value expects, in words."""
    low, high = (breach.schema.get(bound) for bound in ("minimum", "maximum"))
    if breach.keyword in _ENUMS:
        return _one_of(breach.wanted)
    if breach.keyword in ("minimum", "maximum") and low is not None and high is not None:
        return f"a number from {low} to {high}"
    if breach.keyword in _SIZES:
        form, noun = _SIZES[breach.keyword]
        return form.format(counted(breach.wanted, noun))
    return _LIMITS[breach.keyword].format(breach.wanted)


def _kind_of_rule(schema: Schema) -> str:
    """The key by which the rule on a value of another type is looked up in a schema's `rules`."""
    types = types_of(schema)
    if types == ["integer"]:
        return "integer"
    return "section" if "object" in types or "array" in types else "value"


def _rules(breach: Breach) -> dict[str, str]:
    """The rules that report what is broken, by kind.

    Those of an inner schema go before those of an outer one.
    """
    by_kind: dict[str, str] = {}
    for schema in breach.schemas:
        by_kind |= schema.get("rules", {})
    return by_kind


def _one_of(choices: Collection[object]) -> str:
    return "one of " + ", ".join(map(str, choices))


def _is_text_or_number(value: object, types: Collection[str]) -> bool:
    """Return whether a value has one of the types.

    A quantity may be any number, which the API server reads as text.
    """
    is_quantity = isinstance(value, float) and "string" in types and "integer" in types
    return is_quantity or has_type(value, types)


#: The API server's and SkyPilot's own: nothing is converted, and null is the same as nothing.
AS_WRITTEN: Final = Reader(dialect=Dialect(accepts=_is_text_or_number, null="left out"))
