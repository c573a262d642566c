"""The blocks of a script that are open: conditions, loops, functions, groups and subshells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .state import State
from .tokens import ARRAY, ASSIGNMENT, WORD, Token

OPENING: Final = {"if": "if", "while": "loop", "until": "loop", "{": "{"}
CLOSING: Final = {"fi": "if", "done": "loop", "esac": "case", "}": "{"}
_LOOPS: Final = frozenset({"for", "while", "until", "select"})
_DEEPEST_LOOP: Final = 20  # deeper, every variable counts as changed


class Blocks:
    """Opens and closes blocks, and tells the variables of it."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._base = len(state.frames)
        self._open: dict[str, int] = {}
        self._loops = 0

    def has(self, kind: str) -> bool:
        """Whether a block of a kind is open."""
        return bool(self._open.get(kind))

    def open(self, kind: str, changing: set[str] | None = None) -> None:
        """Opens a block; `changing` are the names that a loop assigns."""
        self._open[kind] = self._open.get(kind, 0) + 1
        if kind == "loop":
            self._loops += 1
            if self._loops > _DEEPEST_LOOP:
                changing = set(self._state.values) if self._loops == _DEEPEST_LOOP + 1 else None
        self._state.open(kind, changing or ())

    def end(self, word: str) -> None:
        """Closes the block that a reserved word ends, if one is open."""
        kind = CLOSING[word]
        if kind == "{" and self._state.frames and self._state.frames[-1].kind == "function":
            kind = "function"
        if self.has(kind):
            self.close(kind)

    def close_within(self, kind: str) -> None:
        """Closes what was left open inside the innermost block of a kind."""
        while self._state.frames[-1].kind != kind:
            self.close(self._state.frames[-1].kind)

    def close(self, kind: str) -> None:
        """Closes the innermost block of a kind."""
        self.close_within(kind)
        self._open[kind] -= 1
        self._loops -= kind == "loop"
        self._state.close()

    def close_all(self) -> None:
        """Closes what is open at the end of the text."""
        while len(self._state.frames) > self._base:
            self._state.close()


def loop_changes(tokens: Sequence[Token], text: str) -> dict[int, set[str]]:
    """The names that each loop assigns, by the place of its first token."""
    changes: dict[int, set[str]] = {}
    if "done" not in text:
        return changes
    stack: list[tuple[int, set[str]]] = []
    for token in tokens:
        if token.kind != WORD and token.kind != ARRAY:
            continue
        if token.text in _LOOPS:
            if len(stack) < _DEEPEST_LOOP:
                stack.append((token.start, set()))
        elif not stack:
            continue
        elif token.text == "done":
            place, names = stack.pop()
            changes[place] = names
            if stack:
                stack[-1][1].update(names)
        else:
            match = ASSIGNMENT.match(text, token.start, token.end)
            if match:
                stack[-1][1].add(match[1])
    return changes
