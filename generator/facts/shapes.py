"""The shape that a document of plain data must have, as a table, and where a document differs from it.

Most fields refuse null, as those of the schema library marshmallow do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from ..job.source import Source, escape

Kind = Literal["unknown", "missing", "null", "type", "value", "key"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A value that is right or wrong as a whole."""

    fits: Callable[[object], bool]
    expected: str  #: what it should be, as in `an integer`
    choices: tuple[str, ...] = ()  #: where it is one of a few names
    nullable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """A mapping with known keys."""

    known: Mapping[str, Shape]
    required: tuple[str, ...] = ()
    ignored: frozenset[str] = frozenset()  #: keys that are dropped unread unless they are null
    nullable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """A mapping with keys of the user's."""

    values: Shape | None = None  #: None: anything goes
    text_keys: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """A list."""

    each: Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """A value whose shape depends on what it is."""

    choose: Callable[[object], Shape]


Shape = Leaf | Fields | Entries | Items | Switch


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One difference between a document and its shape."""

    kind: Kind
    pointer: str
    expected: str  #: what should be there; of an unknown key, the keys that are known
    choices: tuple[str, ...] = ()

    @property
    def parts(self) -> tuple[str, ...]:
        """The pointer's parts."""
        return tuple(self.pointer.split("/")[1:])


def problems(source: Source, shape: Shape) -> Iterator[Problem]:
    """Every place where the document differs from its shape, top down."""
    yield from _problems(source.data, shape, "", source.odd_keys)


def _problems(value: object, shape: Shape, pointer: str, odd_keys: Mapping[str, object]) -> Iterator[Problem]:
    if isinstance(shape, Switch):
        shape = shape.choose(value)
        if isinstance(shape, Switch):  # a table has one level of choice
            return
    if value is None:
        if not (isinstance(shape, (Leaf, Fields)) and shape.nullable):
            yield Problem(kind="null", pointer=pointer, expected=expectation(shape))
    elif isinstance(shape, Leaf):
        if not shape.fits(value):
            kind: Kind = "value" if shape.choices else "type"
            yield Problem(kind=kind, pointer=pointer, expected=shape.expected, choices=shape.choices)
    elif isinstance(shape, Items) and isinstance(value, list):
        for index, item in enumerate(value):
            yield from _problems(item, shape.each, f"{pointer}/{index}", odd_keys)
    elif isinstance(shape, Items) or not isinstance(value, dict):
        yield Problem(kind="type", pointer=pointer, expected=expectation(shape))
    elif isinstance(shape, Fields):
        yield from _of_fields(value, shape, pointer, odd_keys)
    else:
        yield from _of_entries(value, shape, pointer, odd_keys)


def _of_fields(
    value: Mapping[str, object], shape: Fields, pointer: str, odd_keys: Mapping[str, object]
) -> Iterator[Problem]:
    names = tuple(sorted(shape.known))
    for key, inner in value.items():
        at = f"{pointer}/{escape(key)}"
        if key in shape.ignored and inner is not None:
            continue
        if key not in shape.known or at in odd_keys:
            yield Problem(kind="unknown", pointer=at, expected=", ".join(names), choices=names)
        else:
            yield from _problems(inner, shape.known[key], at, odd_keys)
    for key in shape.required:
        if key not in value:
            yield Problem(kind="missing", pointer=f"{pointer}/{key}", expected=expectation(shape.known[key]))


def _of_entries(
    value: Mapping[str, object], shape: Entries, pointer: str, odd_keys: Mapping[str, object]
) -> Iterator[Problem]:
    for key, inner in value.items():
        at = f"{pointer}/{escape(key)}"
        if shape.text_keys and at in odd_keys:
            yield Problem(kind="key", pointer=at, expected="text")
        if shape.values is not None:
            yield from _problems(inner, shape.values, at, odd_keys)


def expectation(shape: Shape) -> str:
    """What a shape requires, as text."""
    match shape:
        case Leaf():
            return shape.expected
        case Fields():
            return "a mapping with " + ", ".join(sorted(shape.known)[:6])
        case Entries():
            return "a mapping"
        case Items():
            return "a list"
        case _:
            return "a value"


def is_text(value: object) -> bool:
    """Whether YAML read text, not a number or a date."""
    return isinstance(value, (str, bytes))


def is_integer(value: object) -> bool:
    """Whether marshmallow converts it to an integer: int() of anything but true and false."""
    if isinstance(value, bool):
        return False
    if isinstance(value, float):
        return value == value and abs(value) != float("inf")
    if isinstance(value, str) and len(value) <= 100:
        try:
            int(value)
        except ValueError:
            return False
        return True
    return isinstance(value, int)


def choice(*names: str) -> Leaf:
    """One of a few names, in any case of letters."""
    return Leaf(
        fits=lambda value: isinstance(value, str) and value.lower() in names,
        expected="one of " + ", ".join(names),
        choices=names,
    )


def shape_of(data: Any, named: Mapping[str, Shape]) -> Shape:
    """A shape as JSON has it: the name of one, a list of choices, or an object of `fields`, `entries` or `items`."""
    if isinstance(data, str):
        return named[data]
    if isinstance(data, list):
        return choice(*data)
    if "items" in data:
        return Items(each=shape_of(data["items"], named))
    if "entries" in data:
        values = shape_of(data["entries"], named) if data["entries"] else None
        return Entries(values=values, text_keys=data.get("text_keys", True))
    return Fields(
        known={key: shape_of(value, named) for key, value in data["fields"].items()},
        required=tuple(data.get("required", ())),
        ignored=frozenset(data.get("ignored", ())),
        nullable=data.get("nullable", False),
    )


TEXT: Final = Leaf(fits=is_text, expected="text")
NULLABLE_TEXT: Final = Leaf(fits=is_text, expected="text", nullable=True)
INTEGER: Final = Leaf(fits=is_integer, expected="an integer")
ANY: Final = Leaf(fits=lambda value: True, expected="a value")
