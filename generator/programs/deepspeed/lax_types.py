"""Whether pydantic accepts a JSON value for a type, as DeepSpeed's models ask it to, and what it makes of it.

Both generations are here: DeepSpeed's models follow pydantic 2 from 0.15 on, and pydantic 1 before.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from .schema import Key, Type

#: `text`: text that is no such value. `fraction`: a number that is not whole. `choice`: none of the values.
#: `bound`: out of range. `null`: null. `type`: anything else.
Slip = Literal["type", "text", "fraction", "choice", "bound", "null"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """Why a value is not accepted."""

    slip: Slip
    expected: str  #: such as "an integer", "one of 0, 1, 2, 3", "greater than 0"


_TRUE: Final = frozenset({"1", "on", "t", "true", "y", "yes"})
_FALSE: Final = frozenset({"0", "off", "f", "false", "n", "no"})
_WHOLE: Final = re.compile(r"[+-]?[0-9]+(?:_[0-9]+)*(?:\.0+)?", re.ASCII)
_WHOLE_DIGITS: Final = 4300  # Python's limit on the digits of an int in text (sys.int_info.default_max_str_digits)
_INT64: Final = 2.0**63  # pydantic 2 makes no int of a float beyond
_WORDS: Final[Mapping[str, str]] = {
    "bool": "true or false",
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "path": "a path",
    "list": "a list",
    "dict": "an object",
    "section": "an object",
}


def mismatch(value: object, key: Key, *, pydantic: int = 2) -> Mismatch | None:
    """Why the value isn't accepted for the key; None where it is. The inside of a section is not checked."""
    if value is None and key.optional:
        return None
    problem = _CHECKS[pydantic](value, key.type)
    if problem is not None:
        if value is None:
            return Mismatch(slip="null", expected=expected(key))
        return problem
    return _out_of_bounds(value, key)


def converted(value: object, key: Key, *, pydantic: int = 2) -> object:
    """What a model holds of a value that it accepts: `"3"` as 3, `"yes"` as true."""
    kind = key.type
    if kind.name == "enum" and pydantic == 1:
        return next(choice for choice in kind.values if choice == value)
    whole = kind.name == "int" or (kind.name == "enum" and kind.of[0].name == "int")
    if value is None or not (whole or kind.name in ("bool", "float")):
        return value
    if whole:
        return _as_whole(value) if pydantic == 2 else _cut(value)
    return _as_bool(value) if kind.name == "bool" else _as_number(value, ascii_only=pydantic == 2)


def expected(key: Key) -> str:
    """What a key accepts, for a message: its type and bounds."""
    bounds = [f"{word} {bound:g}" for word, bound in _bounds(key)]
    return " ".join((_words(key.type), " and ".join(bounds))).strip()


def _words(kind: Type) -> str:
    if kind.name in ("enum", "literal"):
        return "one of " + ", ".join(str(value) for value in kind.values)
    if kind.name == "union":
        return " or ".join(_words(choice) for choice in kind.of)
    if kind.name == "list" and kind.of:
        inner = kind.of[0]
        return "a list of strings" if inner.name == "str" else f"a list, each {_words(inner)}"
    if kind.name == "dtype":
        return "no JSON value"
    return _WORDS.get(kind.name, "a value")


def _fails(slip: Slip, kind: Type) -> Mismatch:
    return Mismatch(slip=slip, expected=_words(kind))


def _second(value: object, kind: Type) -> Mismatch | None:
    """pydantic 2."""
    match kind.name:
        case "any":
            return None
        case "bool":
            return None if _as_bool(value) is not None else _fails("text" if isinstance(value, str) else "type", kind)
        case "int":
            return _whole(value, kind)
        case "float":
            return None if _as_number(value) is not None else _fails("text" if isinstance(value, str) else "type", kind)
        case "str" | "path":
            return None if isinstance(value, str) else _fails("type", kind)
        case "list":
            return _list(value, kind, _second)
        case "dict" | "section":
            return None if isinstance(value, dict) else _fails("type", kind)
        case "enum":
            number = _as_whole(value) if kind.of[0].name == "int" else value
            return None if _is_one_of(number, kind) else _fails("choice", kind)
        case "literal":
            return None if _is_one_of(value, kind) else _fails("choice", kind)
        case "union":
            return None if any(_second(value, choice) is None for choice in kind.of) else _fails("type", kind)
        case _:  # a torch.dtype: JSON has none
            return _fails("type", kind)


def _first(value: object, kind: Type) -> Mismatch | None:
    """pydantic 1: fractions are cut off, numbers become text, and an empty list or text is an empty object."""
    match kind.name:
        case "int":
            return None if _cut(value) is not None else _fails("text" if isinstance(value, str) else "type", kind)
        case "float":
            number = _as_number(value, ascii_only=False)
            return None if number is not None else _fails("text" if isinstance(value, str) else "type", kind)
        case "str":
            return None if isinstance(value, str | int | float) else _fails("type", kind)
        case "list":
            return _list(value, kind, _first)
        case "dict" | "section":
            return None if _gives_a_dict(value) else _fails("type", kind)
        case "enum":
            return None if _is_one_of(value, kind) else _fails("choice", kind)
        case "union":
            return None if any(_first(value, choice) is None for choice in kind.of) else _fails("type", kind)
        case _:
            return _second(value, kind)


_CHECKS: Final[Mapping[int, Callable[[object, Type], Mismatch | None]]] = {1: _first, 2: _second}


def _gives_a_dict(value: object) -> bool:
    """Whether Python's `dict` accepts it: objects, and lists of pairs, the empty one included."""
    if not isinstance(value, dict | list | str):
        return False
    try:
        dict[object, object](value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return True


def _list(value: object, kind: Type, check: Callable[[object, Type], Mismatch | None]) -> Mismatch | None:
    if not isinstance(value, list):
        return _fails("type", kind)
    if kind.of and any(check(item, kind.of[0]) for item in value):
        return _fails("type", kind)
    return None


def _is_one_of(value: object, kind: Type) -> bool:
    """Whether the value is among those of an enum or literal; 1.0 and true are 1."""
    return isinstance(value, str | int | float) and value in kind.values


def _as_bool(value: object) -> bool | None:
    if isinstance(value, str):
        word = value.lower()
        return True if word in _TRUE else False if word in _FALSE else None
    return bool(value) if isinstance(value, int | float) and value in (0, 1) else None


def _whole(value: object, kind: Type) -> Mismatch | None:
    if _as_whole(value) is not None:
        return None
    if isinstance(value, float):
        return _fails("fraction", kind)
    return _fails("text" if isinstance(value, str) else "type", kind)


def _as_whole(value: object) -> int | None:
    """The int that pydantic 2 makes of it."""
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < _INT64 else None
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        digits = value.strip().partition(".")[0]
        return int(digits) if len(digits) <= _WHOLE_DIGITS else None
    return None


def _cut(value: object) -> int | None:
    """The int that pydantic 1 makes of it."""
    if isinstance(value, int | float | str):
        try:
            return int(value)
        except (ValueError, OverflowError):
            return None
    return None


def _as_number(value: object, *, ascii_only: bool = True) -> float | None:
    """The float that pydantic makes of it."""
    if isinstance(value, str) and ascii_only and not value.strip().isascii():
        return None
    if isinstance(value, int | float | str):
        try:
            return float(value)
        except (ValueError, OverflowError):
            return None
    return None


def _bounds(key: Key) -> tuple[tuple[str, float], ...]:
    bounds = (("of at least", key.ge), ("greater than", key.gt), ("of at most", key.le), ("less than", key.lt))
    return tuple((word, bound) for word, bound in bounds if bound is not None)


def _out_of_bounds(value: object, key: Key) -> Mismatch | None:
    bounds = _bounds(key)
    if not bounds:
        return None
    number = _as_number(value)
    if number is None:  # an int too long for a float
        number = math.inf if isinstance(value, int) and value > 0 else -math.inf
    holds = {"of at least": key.ge is None or number >= key.ge, "greater than": key.gt is None or number > key.gt}
    holds |= {"of at most": key.le is None or number <= key.le, "less than": key.lt is None or number < key.lt}
    broken = [f"{word} {bound:g}" for word, bound in bounds if not holds[word]]
    return Mismatch(slip="bound", expected=f"{_words(key.type)} {' and '.join(broken)}") if broken else None
