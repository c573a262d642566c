"""Conversions of JSON values by pydantic, as DeepSpeed's models ask for them.

Both generations are here: DeepSpeed's models follow pydantic 2 from 0.15 on, and pydantic 1 before.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from ...shape import Coercion, Mismatch, Profile, Refused, Shape, Type, any_of, convert, items, keep, one_of

_TRUE: Final = frozenset({"1", "on", "t", "true", "y", "yes"})
_FALSE: Final = frozenset({"0", "off", "f", "false", "n", "no"})
_WHOLE: Final = re.compile(r"[+-]?[0-9]+(?:_[0-9]+)*(?:\.0+)?", re.ASCII)
_WHOLE_DIGITS: Final = 4300  # Python's limit on the digits of an int in text (sys.int_info.default_max_str_digits)
_INT64: Final = 2.0**63  # pydantic 2 makes no int of a float beyond


def mismatch(value: object, shape: Shape, *, pydantic: int = 2) -> Mismatch | None:
    """Return why the value isn't accepted; None where it is."""
    held = convert(value, shape, PROFILES[pydantic])
    return held if isinstance(held, Mismatch) else None


def _bool(value: object, kind: Type, profile: Profile) -> bool:
    if isinstance(value, str) and value.lower() in _TRUE | _FALSE:
        return value.lower() in _TRUE
    if isinstance(value, int | float) and value in (0, 1):
        return bool(value)
    raise Refused("type")


def _whole(value: object, kind: Type, profile: Profile) -> int:
    """The int of pydantic 2."""
    if isinstance(value, float) and not (value.is_integer() and abs(value) < _INT64):
        raise Refused("fraction" if math.isfinite(value) else "type")
    if isinstance(value, str):
        if not _WHOLE.fullmatch(value.strip()) or len(value.strip().partition(".")[0]) > _WHOLE_DIGITS:
            raise Refused("text")
        return int(value.strip().partition(".")[0])
    return _cut(value, kind, profile)


def _cut(value: object, kind: Type, profile: Profile) -> int:
    """The int of pydantic 1, which cuts fractions off."""
    return int(_number(value, kind, profile, int))


def _number(value: object, kind: Type, profile: Profile, make: Callable[[Any], int | float] = float) -> int | float:
    try:
        if isinstance(value, int | float | str):
            return make(value)
    except (ValueError, OverflowError):
        pass
    raise Refused("text" if isinstance(value, str) else "type")


def _ascii_number(value: object, kind: Type, profile: Profile) -> float:
    """The float of pydantic 2."""
    if isinstance(value, str) and not value.strip().isascii():
        raise Refused("text")
    return _number(value, kind, profile)


def _only(*accepted: type) -> Coercion:
    """Accept values of these Python types as they are."""

    def accept(value: object, kind: Type, profile: Profile) -> object:
        if isinstance(value, accepted):
            return value
        raise Refused("type")

    return accept


def _pairs(value: object, kind: Type, profile: Profile) -> object:
    """Accept what Python's `dict` does: objects, and lists of pairs, the empty one included."""
    try:
        dict[object, object](value if isinstance(value, dict | list | str) else None)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise Refused("type") from None
    return value


def _member(value: object, kind: Type, profile: Profile) -> object:
    """The value of an enum, of pydantic 2: a text may be the number."""
    if kind.of[0].name != "int":
        return one_of(value, kind, profile)
    try:
        return one_of(_whole(value, kind, profile), kind, profile)
    except Refused:
        raise Refused("choice") from None


def _equal(value: object, kind: Type, profile: Profile) -> object:
    """The value of an enum, of pydantic 1."""
    one_of(value, kind, profile)
    return next(choice for choice in kind.values if choice == value)


_SECOND: Final[Profile] = {
    "any": keep,
    "bool": _bool,
    "int": _whole,
    "float": _ascii_number,
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
#: By pydantic's generation. The first makes text of numbers, and of an empty list or text an empty object.
PROFILES: Final[Mapping[int, Profile]] = {
    1: {
        **_SECOND,
        "int": _cut,
        "float": _number,
        "str": _only(str, int, float),
        "dict": _pairs,
        "section": _pairs,
        "enum": _equal,
    },
    2: _SECOND,
}
