"""Tables of what each release of DeepSpeed knows of its config: sections, keys, types, defaults.

The tables in `deepspeed_keys/` are read out of DeepSpeed's own classes by
`scripts/deepspeed_keys.py`, one a release.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import cache, lru_cache
from typing import Any, Final, Literal, NamedTuple

from ...dataclass import dataclass
from ...numerals import python_int
from ...patterns import lazy_pattern
from ...resources import file_names, read_text
from ...shape import (
    Coercion,
    Mismatch,
    Profile,
    Refused,
    Shape,
    Type,
    any_of,
    convert,
    items,
    keep,
    one_of,
)
from ...text.wording import dots
from ..pins import numbers

# What pydantic takes for a bool or an int.
_TRUE: Final = frozenset({"1", "on", "t", "true", "y", "yes"})
_FALSE: Final = frozenset({"0", "off", "f", "false", "n", "no"})
_WHOLE: Final = lazy_pattern(r"[+-]?[0-9]+(?:_[0-9]+)*(?:\.0+)?", re.ASCII)
#: Python's limit on the digits of an int in text (sys.int_info.default_max_str_digits).
_MOST_DIGITS: Final = 4300
_INT64: Final = 2.0**63  #: from here on pydantic 2 makes no int of a float
_HJSON_WHOLE: Final = 1e10  #: below it hjson makes an int of a whole float


def mismatch(value: object, shape: Shape, *, pydantic: int = 2) -> Mismatch | None:
    """Return why the value isn't accepted; None where it is."""
    converted = convert(value, shape, PROFILES[pydantic])
    return converted if isinstance(converted, Mismatch) else None


def _bool(value: object, kind: Type, profile: Profile) -> bool:
    """Convert to a bool as pydantic does: its words, 0 and 1."""
    if isinstance(value, str) and value.lower() in _TRUE | _FALSE:
        return value.lower() in _TRUE
    if isinstance(value, int | float) and value in (0, 1):
        return bool(value)
    raise Refused("type")


def _whole_int(value: object, kind: Type, profile: Profile) -> int:
    """Convert to an int as pydantic 2 does, which refuses fractions."""
    if isinstance(value, float):
        is_whole = value.is_integer() and abs(value) < _INT64
        if not is_whole:
            raise Refused("fraction" if math.isfinite(value) else "type")
    if isinstance(value, str):
        written = value.strip()
        number = python_int(written.partition(".")[0], _MOST_DIGITS)
        if not _WHOLE.fullmatch(written) or number is None:
            raise Refused("text")
        return number
    return _cut_int(value, kind, profile)


def _cut_int(value: object, kind: Type, profile: Profile) -> int:
    """Convert to an int as pydantic 1 does, which cuts fractions off."""
    return int(_converted(value, int))


def _float(value: object, kind: Type, profile: Profile) -> float:
    """Convert to a float as pydantic 1 does."""
    return _converted(value, float)


def _ascii_float(value: object, kind: Type, profile: Profile) -> float:
    """Convert to a float as pydantic 2 does, which refuses the digits of other scripts."""
    if isinstance(value, str) and not value.strip().isascii():
        raise Refused("text")
    return _converted(value, float)


def _converted(value: object, convert: Callable[[Any], int | float]) -> int | float:
    """Convert a number, or its text, by Python's own `int` or `float`."""
    try:
        if isinstance(value, int | float | str):
            return convert(value)
    except (ValueError, OverflowError):
        pass
    raise Refused("text" if isinstance(value, str) else "type")


def _only(*accepted: type) -> Coercion:
    """Accept values of these Python types as they are."""

    def accept(value: object, kind: Type, profile: Profile) -> object:
        if isinstance(value, accepted):
            return value
        raise Refused("type")

    return accept


def _pairs(value: object, kind: Type, profile: Profile) -> object:
    """Accept what Python's `dict` does: objects, and lists of pairs, the empty one included."""
    if not isinstance(value, dict | list | str):
        raise Refused("type")
    try:
        dict[object, object](value)  # type: ignore[arg-type]  # which is what is asked here
    except (TypeError, ValueError):
        raise Refused("type") from None
    return value


def _member(value: object, kind: Type, profile: Profile) -> object:
    """Accept an enum's value as pydantic 2 does: the text of its number, too."""
    if kind.of[0].name != "int":
        return one_of(value, kind, profile)
    try:
        return one_of(_whole_int(value, kind, profile), kind, profile)
    except Refused:
        raise Refused("choice") from None


_PYDANTIC_2: Final[Profile] = {
    "any": keep,
    "bool": _bool,
    "int": _whole_int,
    "float": _ascii_float,
    "str": _only(str),
    "path": _only(str),
    "dtype": _only(),  # JSON has none
    "dict": _only(dict),
    "section": _only(dict),
    "list": items,
    "union": any_of,
    "enum": _member,
    "literal": one_of,
}
#: How values are converted, by pydantic's major version. Version 1 takes numbers for strings, and
#: an empty list or string for an empty object.
PROFILES: Final[Mapping[int, Profile]] = {
    1: {
        **_PYDANTIC_2,
        "int": _cut_int,
        "float": _float,
        "str": _only(str, int, float),
        "dict": _pairs,
        "section": _pairs,
        "enum": one_of,
    },
    2: _PYDANTIC_2,
}

Version = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deprecation:
    """What becomes of a deprecated key."""

    by: str  #: the field that replaces it, by its name, not its alias; empty where none does
    moved: bool  #: whether DeepSpeed gives the value to the new key, so that both are an error


@dataclass(frozen=True, slots=True, kw_only=True)
class Key(Shape):
    """A key of a section.

    Where the section is a plain mapping, only `default`, `type` (section or any), `refuses` and
    `needs` are known.
    """

    name: str  #: the field's
    alias: str | None = None  #: the name one writes; the field's name is accepted as well
    default: object = None
    deprecated: Deprecation | None = None
    #: JSON kinds that fail: null, bool, int, float, str, list, object
    refuses: frozenset[str] = frozenset()
    needs: tuple[str, ...] = ()  #: keys that an object here must have
    required: bool = False  #: whether a scheduler needs it; known of these alone

    @property
    def written(self) -> str:
        """The name to write."""
        return self.alias or self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One object of the config."""

    pointer: str
    #: whether it is a pydantic model, which checks types, or a plain mapping, which doesn't
    kind: Literal["model", "mapping"]
    #: what becomes of unknown keys; "taken": they are handed on to something else
    extra: Literal["forbidden", "ignored", "taken"]
    checks: frozenset[str]  #: names of the model's own validators
    keys: Mapping[str, Key]  #: by every name accepted
    names: tuple[str, ...]  #: the names to write, deprecated ones left out, sorted


class KeyPlace(NamedTuple):
    """What a release knows of one place in a config."""

    parent: str  #: pointer of the object that the key is in
    section: Section | None  #: None where the release doesn't know that object
    key: Key | None  #: None where it doesn't know the key
    #: pointers under which the key's value may be written: by its alias, by its field's name, and
    #: by deprecated keys whose value DeepSpeed gives to it
    spellings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepSpeedSchema:
    """The keys of one release."""

    version: Version  #: of the table: the release asked for, or one near it
    pydantic: int  #: 1 or 2: whose conversions the models follow
    #: section to keys that are refused because they were removed
    removed: Mapping[str, frozenset[str]]
    #: by name in lower case; None: parameters not known
    optimizers: Mapping[str, Mapping[str, Key] | None]
    schedulers: Mapping[str, Mapping[str, Key]]
    _sections: Mapping[str, Any] = field(repr=False)
    _read: dict[str, Section | None] = field(default_factory=dict, repr=False, compare=False)
    _places: dict[str, KeyPlace] = field(default_factory=dict, repr=False, compare=False)

    def section(self, pointer: str) -> Section | None:
        """The section at a JSON pointer such as `/zero_optimization` (`""`: the whole), or None."""
        if pointer not in self._read:
            table = self._sections.get(pointer)
            self._read[pointer] = _section(pointer, table) if table else None
        return self._read[pointer]

    def key(self, pointer: str) -> Key | None:
        """The key at a JSON pointer such as `/fp16/enabled`."""
        return self.at(pointer).key

    def at(self, pointer: str) -> KeyPlace:
        """The place that a JSON pointer leads to, known or not."""
        place = self._places.get(pointer)
        if place is None:
            parent, _, name = pointer.rpartition("/")
            section = self.section(parent)
            key = section.keys.get(name) if section else None
            names = _names_of(key, section) if section and key else ()
            spellings = tuple(f"{parent}/{name}" for name in names)
            place = self._places[pointer] = KeyPlace(parent, section, key, spellings)
        return place

    @property
    def pointers(self) -> tuple[str, ...]:
        """Pointers of all sections, sorted."""
        return tuple(sorted(self._sections))


def _section(pointer: str, table: Mapping[str, Any]) -> Section:
    keys = _keys(table["keys"])
    return Section(
        pointer=pointer,
        kind=table["kind"],
        extra=table["extra"],
        checks=frozenset(table.get("checks", ())),
        keys=keys,
        names=tuple(sorted({key.written for key in keys.values() if key.deprecated is None})),
    )


def _names_of(key: Key, section: Section) -> tuple[str, ...]:
    """A key's two names, and those of deprecated keys whose value DeepSpeed gives to it."""

    def is_moved_here(old: Key) -> bool:
        if old.deprecated is None or old.type != key.type:
            return False
        return old.deprecated.moved and old.deprecated.by == key.name

    deprecated = (old.written for old in section.keys.values() if is_moved_here(old))
    return key.written, key.name, *deprecated


def as_hjson(value: Any) -> Any:
    """A number as hjson reads it: whole floats below 1e10 are ints.

    **Source**: hjson 3.1.0, scanner.py, `getfn`.
    """
    if isinstance(value, float) and value.is_integer() and abs(value) < _HJSON_WHOLE:
        return int(value)
    return value


@cache
def versions() -> tuple[Version, ...]:
    """The releases that have a table, oldest first."""
    files = file_names(__package__, "deepspeed_keys")
    releases = (name.removesuffix(".json") for name in files if name.endswith(".json"))
    return tuple(sorted(map(numbers, releases)))


def load_schema(version: Version | str) -> DeepSpeedSchema:
    """The keys of a release: from its own table, else from one near it.

    Of the tables of its minor version, the nearest that isn't later counts, else the first: a key
    too many is a milder mistake than one too few. A release whose minor version has no table gets
    the nearest table below it, else the oldest.
    """
    return _load(table_for(numbers(version) if isinstance(version, str) else version))


def table_for(version: Version) -> Version:
    """The release whose table is used for `version`."""
    of_minor = [release for release in versions() if release[:2] == version[:2]]
    candidates = of_minor or versions()
    not_later = [release for release in candidates if release <= version]
    return not_later[-1] if not_later else candidates[0]


@lru_cache(maxsize=4096)
def first_version_of(section: str, key: str, after: Version = ()) -> Version | None:
    """The first release after `after` that knows this key of `section`, or None."""
    later = (version for version in versions() if version > after)
    return next((version for version in later if _knows(version, section, key)), None)


@lru_cache(maxsize=4096)
def last_version_of(section: str, key: str) -> Version | None:
    """The last release with a table that knows this key of `section`, or None."""
    newest_first = reversed(versions())
    return next((version for version in newest_first if _knows(version, section, key)), None)


def _knows(version: Version, section: str, key: str) -> bool:
    table = _load(version).section(section)
    return table is not None and key in table.keys


@cache
def _load(version: Version) -> DeepSpeedSchema:
    table = json.loads(read_text(__package__, "deepspeed_keys", f"{dots(version)}.json"))
    return DeepSpeedSchema(
        version=version,
        pydantic=table["pydantic"],
        removed={section: frozenset(keys) for section, keys in table["removed"].items()},
        optimizers={
            name: None if keys is None else _keys(keys)
            for name, keys in table["optimizers"].items()
        },
        schedulers={name: _keys(keys) for name, keys in table["schedulers"].items()},
        _sections=table["sections"],
    )


def _keys(table: Mapping[str, Any]) -> dict[str, Key]:
    """Keys by both of their names, from a table by the field's name."""
    keys: dict[str, Key] = {}
    for name, facts in table.items():
        deprecated = facts.get("deprecated")
        parsed = {
            "type": _type(facts.get("type", "any")),
            "deprecated": Deprecation(**deprecated) if deprecated else None,
            "refuses": frozenset(facts.get("refuses", ())),
            "needs": tuple(facts.get("needs", ())),
        }
        key = Key(name=name, **{**facts, **parsed})
        keys[key.written] = key
        keys[name] = key
    return keys


def _type(facts: Any) -> Type:
    """A type from its name or mapping: `{"list": "str"}`, `{"enum": [...], "of": "int"}`."""
    if isinstance(facts, str):
        return Type(name=facts)  # type: ignore[arg-type]
    if "section" in facts:
        return Type(name="section", section=facts["section"])
    if "union" in facts:
        return Type(name="union", of=tuple(map(_type, facts["union"])))
    if "list" in facts:
        return Type(name="list", of=(_type(facts["list"]),))
    if "enum" in facts:
        return Type(name="enum", values=tuple(facts["enum"]), of=(_type(facts["of"]),))
    return Type(name="literal", values=tuple(facts["literal"]))
