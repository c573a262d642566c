"""A reader of JSON Schema: which keywords a document of plain data breaks, and where.

The answer is jsonschema's (draft 2020-12), which takes a tenth of a short command to load. A schema
that describes what a program makes of a document, rather than the document, is read with the
program's `Dialect`: its conversions, and keywords that JSON Schema lacks:

- `chosen` names a way to choose the definition that a value goes by,
- `form` names a check of its own,
- `case_insensitive_enum` and `text_keys` say what they are called,
- `ignored` lists keys that are dropped unread unless they are null.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import field
from typing import Any, Final, Literal

from .dataclass import dataclass
from .findings import escape

Schema = Mapping[str, Any]

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
    """Whether a value is of a type of JSON Schema, or of `any`: 1.0 is an integer, true is not."""
    if kind in _TYPES:
        return isinstance(value, _TYPES[kind])
    if isinstance(value, bool):
        return False
    if isinstance(value, float):
        return kind == "number" or value.is_integer()
    return isinstance(value, int)


def types_of(schema: Schema) -> list[str]:
    """The types that a schema lists; none where it takes any."""
    types = schema.get("type", [])
    return [types] if isinstance(types, str) else list(types)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """A program's way to read values that its schema has."""

    #: Whether a value is, or is converted to, one of the types.
    accepts: Callable[[object, Collection[str]], bool]
    #: What null is: a value like any other, the same as a key that is left out, or wrong unless its
    #: type is listed.
    null: Literal["a value", "left out", "where listed"] = "a value"
    #: Whether a value has a `form`, by its name.
    forms: Mapping[str, Callable[[object], bool]] = field(default_factory=dict)
    #: The name of the definition that a value goes by, for each way of choosing.
    chosen: Mapping[str, Callable[[Any], str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """One keyword of a schema that a value breaks."""

    pointer: str  #: of the value
    keyword: str
    value: Any
    schemas: tuple[Schema, ...]  #: on the way to the value; the last one has the keyword
    keys: tuple[str, ...] = ()  #: of a mapping: those that are missing, unknown or no text
    #: Of a union that no schema of fits: what breaks each of them.
    branches: tuple[tuple[Breach, ...], ...] = ()

    @property
    def schema(self) -> Schema:
        """The schema that has the keyword."""
        return self.schemas[-1]

    @property
    def wanted(self) -> Any:
        """The keyword's value."""
        return self.schema.get(self.keyword)


def has_type(value: object, types: Collection[str]) -> bool:
    """Whether a value has one of the types, unconverted."""
    return any(is_of_type(value, name) for name in types)


#: Values as they are written.
PLAIN: Final = Dialect(accepts=has_type)


def breaches(
    value: object,
    schema: Schema,
    definitions: Schema,
    dialect: Dialect = PLAIN,
    odd_keys: Collection[str] = (),
) -> Iterator[Breach]:
    """Every keyword that a document breaks, top down.

    `definitions` are the schema's `$defs`; `odd_keys` are pointers of keys that aren't text, which
    no property is named by. Of a value of the wrong type nothing else is said.
    """
    yield from _Walk(definitions, dialect, odd_keys).breaches(value, schema, "", ())


def conforms(value: object, schema: Schema, definitions: Schema) -> bool:
    """Whether a document follows a schema, whose `$defs` are `definitions`."""
    return next(breaches(value, schema, definitions), None) is None


@dataclass(frozen=True, slots=True)
class _Place:
    """A value, and the schemas on the way to it: the last one is the value's own."""

    value: Any
    pointer: str
    schemas: tuple[Schema, ...]

    def breach(
        self,
        keyword: str,
        keys: tuple[str, ...] = (),
        branches: tuple[tuple[Breach, ...], ...] = (),
    ) -> Breach:
        """The value breaks a keyword of its schema."""
        return Breach(
            pointer=self.pointer,
            keyword=keyword,
            value=self.value,
            schemas=self.schemas,
            keys=keys,
            branches=branches,
        )


@dataclass(frozen=True, slots=True)
class _Walk:
    """One document's way through a schema."""

    definitions: Schema
    dialect: Dialect
    odd_keys: Collection[str]

    def breaches(
        self, value: Any, schema: Schema | bool, pointer: str, above: tuple[Schema, ...]
    ) -> Iterator[Breach]:
        """What a value and all within it breaks."""
        if isinstance(schema, bool):
            if not schema:
                yield _Place(value, pointer, (*above, {"not": {}})).breach("not")
            return

        place = _Place(value, pointer, (*above, schema))
        is_elsewhere = "$ref" in schema or "chosen" in schema
        if value is None and not is_elsewhere:
            if self.dialect.null == "left out":
                return
            if self.dialect.null == "where listed":
                if "null" not in types_of(schema):
                    yield place.breach("null")
                return

        types = types_of(schema)
        if types and not self.dialect.accepts(value, types):
            yield place.breach("type")
            return

        for keyword, wanted in schema.items():
            if keyword in _OF_VALUES:
                kind, holds = _OF_VALUES[keyword]
                if is_of_type(value, kind) and not holds(value, wanted):
                    yield place.breach(keyword)
            elif keyword in _WITHIN:
                kind, parts = _WITHIN[keyword]
                if is_of_type(value, kind):
                    yield from parts(self, place, wanted)

    def inside(
        self, place: _Place, schema: Schema | bool, value: Any, key: str | int | None = None
    ) -> Iterator[Breach]:
        """What `value` breaks: the place's own value, or with a key the one at that key."""
        pointer = place.pointer if key is None else f"{place.pointer}/{escape(str(key))}"
        return self.breaches(value, schema, pointer, place.schemas)

    def fits(self, place: _Place, schema: Schema | bool) -> bool:
        """Whether the value of a place follows another schema too."""
        return next(self.inside(place, schema, place.value), None) is None

    def is_odd(self, place: _Place, key: str) -> bool:
        """Whether a key isn't text, so that no property has its name."""
        return bool(self.odd_keys) and f"{place.pointer}/{escape(str(key))}" in self.odd_keys


def _same(value: object, choice: object) -> bool:
    are_alike = isinstance(value, bool) == isinstance(choice, bool)  # 1 is not true
    return are_alike and value == choice


def _lower(values: Collection[object]) -> list[str]:
    return [str(value).lower() for value in values]


#: Keywords about one value: the type that each is about, and whether a value of it holds by the
#: keyword's own value.
_OF_VALUES: Final[Mapping[str, tuple[str, Callable[[Any, Any], bool]]]] = {
    "enum": ("any", lambda value, choices: any(_same(value, choice) for choice in choices)),
    "case_insensitive_enum": (
        "any",
        lambda value, choices: str(value).lower() in _lower(choices),
    ),
    "maxProperties": ("object", lambda value, most: len(value) <= most),
    "minItems": ("array", lambda value, least: len(value) >= least),
    "maxItems": ("array", lambda value, most: len(value) <= most),
    "uniqueItems": ("array", lambda value, _: len(set(map(repr, value))) == len(value)),
    "pattern": ("string", lambda value, pattern: re.search(pattern, value) is not None),
    "minLength": ("string", lambda value, least: len(value) >= least),
    "maxLength": ("string", lambda value, most: len(value) <= most),
    # Not a number is below and above nothing, as jsonschema has it: the spec's reader refuses it.
    "minimum": ("number", lambda value, bound: not value < bound),
    "maximum": ("number", lambda value, bound: not value > bound),
    "exclusiveMinimum": ("number", lambda value, bound: not value <= bound),
    "exclusiveMaximum": ("number", lambda value, bound: not value >= bound),
}


def _ref(walk: _Walk, place: _Place, wanted: str) -> Iterator[Breach]:
    return walk.inside(place, walk.definitions[wanted.rpartition("/")[2]], place.value)


def _chosen(walk: _Walk, place: _Place, wanted: str) -> Iterator[Breach]:
    name = walk.dialect.chosen[wanted](place.value)
    return walk.inside(place, walk.definitions[name], place.value)


def _form(walk: _Walk, place: _Place, wanted: str) -> Iterator[Breach]:
    if not walk.dialect.forms[wanted](place.value):
        yield place.breach("form")


def _any_of(walk: _Walk, place: _Place, wanted: list[Schema]) -> Iterator[Breach]:
    branches = tuple(tuple(walk.inside(place, choice, place.value)) for choice in wanted)
    if all(branches):
        yield place.breach("anyOf", branches=branches)


def _one_of(walk: _Walk, place: _Place, wanted: list[Schema]) -> Iterator[Breach]:
    branches = tuple(tuple(walk.inside(place, choice, place.value)) for choice in wanted)
    if branches.count(()) != 1:
        yield place.breach("oneOf", branches=branches)


def _not(walk: _Walk, place: _Place, wanted: Schema) -> Iterator[Breach]:
    if walk.fits(place, wanted):
        yield place.breach("not")


def _if(walk: _Walk, place: _Place, wanted: Schema) -> Iterator[Breach]:
    branch = "then" if walk.fits(place, wanted) else "else"
    return walk.inside(place, place.schemas[-1].get(branch, True), place.value)


def _properties(walk: _Walk, place: _Place, wanted: Mapping[str, Schema]) -> Iterator[Breach]:
    for key, inner in _read(place):
        if key in wanted and not walk.is_odd(place, key):
            yield from walk.inside(place, wanted[key], inner, key)


def _pattern_properties(
    walk: _Walk, place: _Place, wanted: Mapping[str, Schema]
) -> Iterator[Breach]:
    for key, inner in _read(place):
        for pattern, schema in wanted.items():
            if re.search(pattern, str(key)):
                yield from walk.inside(place, schema, inner, key)


def _additional(walk: _Walk, place: _Place, wanted: Schema | bool) -> Iterator[Breach]:
    """What breaks in keys that no property and no pattern names.

    Where the schema allows none, that is one breach with all of them.
    """
    schema = place.schemas[-1]
    properties, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    others = [
        (key, inner)
        for key, inner in _read(place)
        if (key not in properties or walk.is_odd(place, key))
        and not any(re.search(pattern, str(key)) for pattern in patterns)
    ]
    if wanted is False:
        if others:
            yield place.breach("additionalProperties", keys=tuple(key for key, _ in others))
        return

    for key, inner in others:
        yield from walk.inside(place, wanted, inner, key)


def _property_names(walk: _Walk, place: _Place, wanted: Schema) -> Iterator[Breach]:
    for key in place.value:
        yield from walk.inside(place, wanted, key)


def _text_keys(walk: _Walk, place: _Place, wanted: bool) -> Iterator[Breach]:
    if not wanted:
        return
    odd = tuple(key for key, _ in _read(place) if walk.is_odd(place, key))
    if odd:
        yield place.breach("text_keys", keys=odd)


def _required(walk: _Walk, place: _Place, wanted: list[str]) -> Iterator[Breach]:
    null_is_missing = walk.dialect.null == "left out"
    for key in wanted:
        if key not in place.value or (place.value[key] is None and null_is_missing):
            yield place.breach("required", keys=(key,))


def _dependent(walk: _Walk, place: _Place, wanted: Mapping[str, list[str]]) -> Iterator[Breach]:
    for key, others in wanted.items():
        missing = tuple(other for other in others if other not in place.value)
        if key in place.value and missing:
            yield place.breach("dependentRequired", keys=missing)


def _items(walk: _Walk, place: _Place, wanted: Schema) -> Iterator[Breach]:
    for index, item in enumerate(place.value):
        yield from walk.inside(place, wanted, item, index)


def _read(place: _Place) -> Iterator[tuple[str, Any]]:
    """The keys of a mapping that are read, with their values."""
    ignored = place.schemas[-1].get("ignored", ())
    for key, value in place.value.items():
        if key not in ignored or value is None:
            yield key, value


#: Keywords that hold schemas, or need the dialect: the type that each is about, and what breaks in
#: a place with it.
_WITHIN: Final[Mapping[str, tuple[str, Callable[[_Walk, _Place, Any], Iterator[Breach]]]]] = {
    "$ref": ("any", _ref),
    "chosen": ("any", _chosen),
    "form": ("any", _form),
    "anyOf": ("any", _any_of),
    "oneOf": ("any", _one_of),
    "not": ("any", _not),
    "if": ("any", _if),
    "properties": ("object", _properties),
    "patternProperties": ("object", _pattern_properties),
    "additionalProperties": ("object", _additional),
    "propertyNames": ("object", _property_names),
    "text_keys": ("object", _text_keys),
    "required": ("object", _required),
    "dependentRequired": ("object", _dependent),
    "items": ("array", _items),
}

#: All keywords that are read; what a schema says besides is for people.
KEYWORDS: Final = frozenset({"type", *_OF_VALUES, *_WITHIN})
