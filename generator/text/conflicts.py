"""Merge conflicts that git left in a text: where they are, and the text of one side."""

from __future__ import annotations

import re
from typing import Final

from ..patterns import lazy_pattern

#: A line that is none of git's markers, which are seven signs at a line's beginning.
_LINE: Final = r"(?!(?:<{7}|\|{7}|>{7})(?: |\r?$)|={7}\r?$).*\n"
#: Seven equals signs are a heading's underline too: a conflict has every marker, in order. With
#: diff3 the common ancestor stands between the sides.
_CONFLICT: Final = lazy_pattern(
    rf"^<{{7}}(?: .*)?\r?\n(?P<ours>(?:{_LINE})*)(?:\|{{7}}(?: .*)?\r?\n(?:{_LINE})*)?"
    rf"={{7}}\r?\n(?:{_LINE})*>{{7}}(?: .*|\r)?$",
    re.MULTILINE,
)
_OPENING: Final = "<" * 7


def conflicts_in(content: str) -> tuple[int, ...]:
    """The line of each conflict's opening marker, counted from 0."""
    if _OPENING not in content:  # as in nearly all texts
        return ()
    found = _CONFLICT.finditer(content)
    return tuple(content.count("\n", 0, conflict.start()) for conflict in found)


def one_side(content: str) -> str:
    """The text with the first side of each conflict, which the branch had before the merge.

    Blank lines stand for the rest, so that every line keeps its number.
    """
    return _CONFLICT.sub(_ours, content) if _OPENING in content else content


def _ours(conflict: re.Match[str]) -> str:
    rest = conflict.group().count("\n") - conflict["ours"].count("\n") - 1
    return "\n" + conflict["ours"] + "\n" * rest
