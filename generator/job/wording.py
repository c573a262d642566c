"""How keys and values are written in messages."""

from __future__ import annotations

from collections.abc import Iterable

from ..findings import printable


def dotted(pointer: str) -> str:
    """A JSON pointer as people write it: `training.global_batch`, `launch.arguments[2]`."""
    name = ""
    for part in pointer.split("/")[1:]:
        plain = printable(part.replace("~1", "/").replace("~0", "~"))
        name += f"[{plain}]" if plain.isdigit() else f".{plain}" if name else plain
    return name or "the job spec"


def counted(number: int, noun: str) -> str:
    """A number with its noun: `1 host`, `2 hosts`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


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


def kind_of_value(value: object) -> str:
    """What a value is, without the value: a file that isn't what it should be may be private."""
    return "text" if isinstance(value, str) else "a number" if type(value) in (int, float) else show(value)


def listed(values: Iterable[object]) -> str:
    """`1`, `1 or 2`, `1, 2 or 4`."""
    words = [str(v) for v in values]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
