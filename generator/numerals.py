"""Numbers in text: the one place that reads them, with the digits 0 to 9 and at a bounded length.

`str.isdigit` is true of `²`, which `int` refuses; `int` takes the digits of every script, refuses
more than 4,300 of them, and takes time that grows with their square.
"""

from __future__ import annotations

from typing import Final

#: Digits of a number that is read. Nothing that a run counts has more, and 64 bits hold it.
MOST_DIGITS: Final = 18
#: What a longer number is read as, where there must be one.
LARGEST: Final = 10**MOST_DIGITS


def is_whole(text: str) -> bool:
    """Return whether text is digits from 0 to 9 alone, at least one, however many."""
    return text.isascii() and text.isdigit()


def read_whole(text: str | None, most: int = MOST_DIGITS) -> int | None:
    """The whole number that text is: at most `most` digits from 0 to 9, and nothing else.

    None for other text.
    """
    if text is None or not is_whole(text) or len(text) > most:
        return None
    return int(text)


def whole(text: str) -> int:
    """The number of digits that a pattern has matched; a longer one than is read is `LARGEST`.

    Raises `ValueError` for other text.
    """
    if not is_whole(text):
        raise ValueError(f"{text[:MOST_DIGITS]!r} is not a whole number")
    digits = text.lstrip("0")
    return int(digits or "0") if len(digits) <= MOST_DIGITS else LARGEST


def python_int(text: str, most: int = MOST_DIGITS) -> int | None:
    """The number that Python's `int` reads, with a sign, `_` between digits, and blanks around.

    Digits of every script count. None for other text, and for more than `most` characters, of which
    Python would read up to 4,300.
    """
    text = text.strip()
    if len(text) > most:
        return None
    try:
        return int(text)
    except ValueError:
        return None


def python_float(text: str) -> float | None:
    """The number that Python's `float` reads, `inf` and `nan` among them; None for other text."""
    try:
        return float(text)
    except ValueError:
        return None


def of_base(text: str, base: int, most: int = MOST_DIGITS) -> int:
    """The number of digits of another base that a pattern has matched.

    Raises `ValueError` for more than `most`.
    """
    if len(text) > most:
        raise ValueError(f"a number of {len(text)} digits; at most {most} are read")
    return int(text, base)


def significant(value: float, digits: int) -> float:
    """A number with so many significant digits."""
    return float(f"{value:.{digits}g}")
