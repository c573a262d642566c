"""Types of plain data, and one checker of values, with a profile of coercions for each reader."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import ge, gt, le, lt
from typing import Final, Literal

from .dataclass import dataclass

TypeName = Literal[
    "any",
    "bool",
    "int",
    "float",
    "str",
    "path",
    "dtype",
    "dict",
    "list",
    "enum",
    "literal",
    "union",
    "section",
]
#: `text`: text that is no such number. `fraction`: a number that is not whole. `choice`: none of
#: the values. `bound`: out of range. `null`: null. `type`: anything else.
Slip = Literal["type", "text", "fraction", "choice", "bound", "null"]

_WORDS: Final[Mapping[str, str]] = {
    "bool": "true or false",
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "path": "a path",
    "list": "a list",
    "dict": "an object",
    "section": "an object",
    "dtype": "no JSON value",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Type:
    """The type of a value."""

    name: TypeName
    values: tuple[int | str, ...] = ()  #: of an enum or literal
    #: the choices of a union; the one type of a list's items, or of an enum's values
    of: tuple[Type, ...] = ()
    section: str | None = None  #: the section's JSON pointer

    def __str__(self) -> str:
        """Return the type in a message, such as `an integer`."""
        if self.values:
            return "one of " + ", ".join(map(str, self.values))
        if self.name == "union":
            return " or ".join(map(str, self.of))
        if self.name == "list" and self.of:
            return "a list of strings" if self.of[0].name == "str" else f"a list, each {self.of[0]}"
        return _WORDS.get(self.name, "a value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The values that a key accepts."""

    type: Type = Type(name="any")
    optional: bool = False  #: null is accepted
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None

    def bounds(self, value: float | None = None) -> str:
        """Return the bounds in a message; of a value, those that it breaks."""
        bounds = (
            ("of at least", self.ge, ge),
            ("greater than", self.gt, gt),
            ("of at most", self.le, le),
            ("less than", self.lt, lt),
        )
        named = []
        for words, bound, holds in bounds:
            if bound is None:
                continue
            if value is None or not holds(value, bound):
                named.append(f"{words} {bound:g}")
        return " and ".join(named)

    def __str__(self) -> str:
        """Return what is accepted in a message: type and bounds."""
        return f"{self.type} {self.bounds()}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """The reason why a value is refused."""

    slip: Slip
    expected: str  #: such as "an integer", "one of 0, 1, 2, 3", "an integer greater than 0"


class Refused(Exception):
    """Raised by a coercion on a value that it doesn't accept."""

    def __init__(self, slip: Slip) -> None:
        super().__init__(slip)
        self.slip: Slip = slip


#: Converts a value as a reader does, or raises `Refused`. The profile is the reader's: by it the
#: values inside a list or a union are converted.
Coercion = Callable[[object, Type, "Profile"], object]
Profile = Mapping[TypeName, Coercion]


def convert(value: object, shape: Shape, profile: Profile) -> object:
    """The value as a reader converts it, or a `Mismatch` where it refuses it.

    A section's inside is not looked at.
    """
    if value is None and shape.optional:
        return None
    try:
        converted = profile[shape.type.name](value, shape.type, profile)
    except Refused as refused:
        return Mismatch(slip="null" if value is None else refused.slip, expected=str(shape))
    if isinstance(converted, int | float):
        broken = shape.bounds(converted)
        if broken:
            return Mismatch(slip="bound", expected=f"{shape.type} {broken}")
    return converted


def keep(value: object, kind: Type, profile: Profile) -> object:
    """Accept any value as it is."""
    return value


def items(value: object, kind: Type, profile: Profile) -> object:
    """Accept a list as it is, if each item has the type that the list has for its items."""
    if not isinstance(value, list):
        raise Refused("type")
    if kind.of:
        for item in value:
            any_of(item, kind, profile)  # `of` has one type here
    return value


def any_of(value: object, kind: Type, profile: Profile) -> object:
    """Accept a value as it is, if it has one of the types that `kind` lists."""
    for choice in kind.of:
        try:
            profile[choice.name](value, choice, profile)
        except Refused:
            continue
        return value
    raise Refused("type")


def one_of(value: object, kind: Type, profile: Profile) -> object:
    """Accept one of an enum's values; 1.0 and true are 1."""
    if isinstance(value, str | int | float) and value in kind.values:
        return value
    raise Refused("choice")
