"""The variables that the loops of a script change: they are unknown from a loop's first line on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from ...patterns import lazy_pattern
from .commands import SETS_IN_ARITHMETIC
from .tokens import ARRAY, ASSIGNMENT, TEST, WORD, Token

DEEPEST_LOOP: Final = 20  # deeper, every variable counts as changed
SHIFTS: Final = "shift"  # stands for the arguments, as a name that no variable has
_LOOPS: Final = frozenset({"for", "while", "until", "select"})
#: A text that begins with a blank.
_BLANK_FIRST: Final = lazy_pattern(r"[\"'](?:\\\n)?[ \t\n]")
#: A text that begins with a variable and a blank, as in `NAME="$NAME more"`.
_ITSELF: Final = lazy_pattern(r"\"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})(?:\\\n)?[ \t\n]")

#: Variables that a loop assigns, each with whether the loop only adds words to it.
Changes = dict[str, bool]


class _Loop(NamedTuple):
    """A loop that is open."""

    start: int  #: the place of its first token
    changes: Changes


def loop_changes(tokens: Sequence[Token], text: str) -> dict[int, Changes]:
    """What each loop changes, by the place of its first token."""
    changes_by_place: dict[int, Changes] = {}
    if "done" not in text:
        return changes_by_place
    loops: list[_Loop] = []
    computes = False  # whether the words of `let` come next
    for token in tokens:
        computes = token.kind in (WORD, ARRAY) and (computes or token.text == "let")
        if token.text in _LOOPS and token.kind == WORD:
            if len(loops) < DEEPEST_LOOP:
                loops.append(_Loop(token.start, {}))
            continue
        if not loops:
            continue
        changes = loops[-1].changes
        if computes or (token.kind == TEST and text.startswith("((", token.start)):
            for counted in SETS_IN_ARITHMETIC.finditer(text, token.start, token.end):
                changes[counted[1] or counted[2]] = False
        elif token.kind not in (WORD, ARRAY):
            continue
        elif token.text == SHIFTS:
            changes[SHIFTS] = False
        elif token.text == "done":
            changes_by_place[loops.pop().start] = changes
            if loops:
                outer = loops[-1].changes
                for name, adds in changes.items():
                    outer[name] = adds and outer.get(name, True)
        elif match := ASSIGNMENT.match(text, token.start, token.end):
            name = match[1]
            changes[name] = _adds(token, match, text) and changes.get(name, True)
    return changes_by_place


def _adds(token: Token, match: re.Match[str], text: str) -> bool:
    """Return whether an assignment keeps what a variable has and puts words behind it."""
    index, plus = match[2], match[3]  # NAME[index]+=
    if index:
        return False
    if plus:
        return token.kind == ARRAY or _BLANK_FIRST.match(text, match.end(), token.end) is not None
    if token.kind == ARRAY:
        first = text[slice(*token.words[0])] if token.words else ""
        return first == f'"${{{match[1]}[@]}}"'
    itself = _ITSELF.match(text, match.end(), token.end)
    return itself is not None and match[1] == (itself[1] or itself[2])
