"""Slips of the keyboard: names that were meant to be another."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from ..numerals import is_whole
from ..patterns import lazy_pattern

#: Letters that a word has at least in which one may be a slip.
_LETTERS: Final = 4
#: An ending that is there twice: `train.py.py`.
_DOUBLED: Final = lazy_pattern(r"\.([A-Za-z]{1,10})(\.\1)\Z")


def is_slip(name: str, other: str) -> bool:
    """Return whether one name is the other with a slip.

    A slip is one letter more, less or other, or two that are swapped. It is no digit, and not in a
    short word: `zero2` and `zero3`, `_s` and `_m` are meant to differ.
    """
    if abs(len(name) - len(other)) > 1:
        return False
    # Nearly all pairs of names differ at both ends, and no pair of more than two letters with one
    # slip does.
    if name[:1] != other[:1] and name[-1:] != other[-1:] and max(len(name), len(other)) > 2:
        return False

    # Between the beginning and the end that both have, they differ.
    start = _begun_alike(name, other)
    end = min(_begun_alike(name[::-1], other[::-1]), len(name) - start, len(other) - start)
    between, between_other = name[start : len(name) - end], other[start : len(other) - end]
    is_swapped = len(between) == 2 and between == between_other[::-1]
    if not is_swapped and max(len(between), len(between_other)) != 1:
        return False

    changed = between + between_other
    if "/" in changed:
        return False
    if any(map(is_whole, changed)):  # of digits only one that changed places: `zer2o`
        return is_swapped and any(map(str.isalpha, between))
    if not changed.isalpha():
        return True

    # In a word of three letters one may be missing, as in `min.py` for `main.py`; but one that is
    # replaced makes another word.
    longer = max(name, other, key=len)
    before = re.findall(r"(?<![A-Za-z])[A-Za-z]*\Z", longer[:start])[0]
    after = re.findall(r"^[A-Za-z]*", longer[start:])[0]
    is_replaced = len(between) == len(between_other) and not is_swapped
    least = _LETTERS if is_replaced or not start else _LETTERS - 1
    return len(before + after) >= least


def slips_among(name: str, names: Iterable[str]) -> Iterator[str]:
    """Those of many names of files of which `name` is a slip, in order: its ending twice is one."""
    doubled = _DOUBLED.search(name)
    once = name[: doubled.start(2)] if doubled is not None else None
    first, last = name[:1], name[-1:]
    shortest, longest = len(name) - 1, len(name) + 1
    for other in names:
        if other == once:
            yield other
        # Nearly all are passed over here, as `is_slip` would.
        if not shortest <= len(other) <= longest:
            continue
        has_an_end = other[:1] == first or other[-1:] == last or len(other) < 3
        if has_an_end and is_slip(name, other):
            yield other


def is_mistyped(name: str, other: str) -> bool:
    """Return whether one name is the other mistyped, so that no one has both on purpose.

    Two letters are swapped, or one is too many or lacks within a word. A letter that is another may
    make another word (`TRAIN_TEST`, `TRAIN_TEXT`); so may one at a word's end (`NODE`, `NODES`).
    """
    if not is_slip(name, other):
        return False
    if sorted(name) == sorted(other):
        return True
    shorter, longer = sorted((name, other), key=len)
    if len(shorter) == len(longer):
        return False
    end = _begun_alike(shorter[::-1], longer[::-1])
    after = longer[len(longer) - end :]
    start = len(longer) - end - 1
    is_within = start > 0 and longer[start - 1].isalpha() and after[:1].isalpha()
    return is_within and (longer[start].isalpha() or longer[start] == "_")


def _begun_alike(name: str, other: str) -> int:
    """How many characters both begin with."""
    pairs = enumerate(zip(name, other, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(name), len(other)))
