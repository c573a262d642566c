"""The variables of a shell while its script is read: what each holds, and what branches and loops leave of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ...facts.placeholders import IN_WORDS
from .pieces import Element, Piece, Value, region_of, text_of_pieces

#: A value may cost this much (pieces, or 64 characters each), and a whole script that much: a text that doubles itself
#: line by line ends as an unknown value instead of filling the memory.
MOST_PER_VALUE: Final = 10_000
MOST_PER_SCRIPT: Final = 300_000
_DEEPEST: Final = 30  # blocks in blocks; what is set deeper is unknown, or each would merge what all within it set
_MOST_MERGED: Final = 100_000  # branches times variables of one `if` or `case`

_GUARDS: Final = frozenset({"if", "loop", "case", "function"})
_RUNS: Final = re.compile(rf"[ \t\n]+|(?:[^ \t\n<]+|{IN_WORDS.pattern}|<)+")

UNKNOWN: Final = Value(pieces=(Piece(None, 0, 0),))


@dataclass(slots=True)
class Budget:
    """What expansions may still cost in one script."""

    left: int = MOST_PER_SCRIPT

    def spend(self, cost: int) -> bool:
        """Takes `cost`; whether there was enough."""
        self.left -= cost + 1
        return self.left > 0


@dataclass(slots=True)
class Frame:
    """An open `if`, `case`, loop, function, group or subshell."""

    kind: str
    before: dict[str, Value | None] = field(default_factory=dict)  #: as they were when it opened, where changed since
    branches: list[dict[str, Value | None]] = field(default_factory=list)
    touched: set[str] = field(default_factory=set)  #: changed in the branch that is open
    total: bool = False  #: whether one of the branches always runs
    ended: bool = False  #: the last branch has ended, and no other has begun


class State:
    """The variables of one shell. A shell started by another (`parent`) sees what that one exports."""

    def __init__(self, budget: Budget, parent: State | None = None) -> None:
        self.budget = budget
        self.values: dict[str, Value] = {}
        self.exported: set[str] = set()
        self.frames: list[Frame] = []
        self.history: dict[str, list[tuple[int, str | None]]] = {}
        self.commands = 0  #: how many were read
        self.guards = 0  #: how many of the frames may run more or less often than once
        self.all_exported = False
        self._parent = parent

    def get(self, name: str) -> Value | None:
        """What a variable holds, or None when nothing set it."""
        value = self.values.get(name)
        if value is None and self._parent is not None and name in self._parent.exported:
            return self._parent.get(name)
        return value

    def text(self, name: str) -> str | None:
        """The text that a variable holds; None where it can't be known."""
        value = self.get(name)
        return value.text if value else None

    def set(self, name: str, value: Value) -> None:
        """Gives a variable a value; one that is too large becomes unknown."""
        size = value.size
        if size > MOST_PER_VALUE or not self.budget.spend(size) or len(self.frames) > _DEEPEST:
            value = UNKNOWN
        self._touch(name)
        self._put(name, value)
        if self.all_exported:
            self.exported.add(name)

    def unset(self, name: str) -> None:
        """Removes a variable. The environment may still have it, so its value is unknown from here."""
        self._touch(name)
        self._put(name, None if len(self.frames) <= _DEEPEST else UNKNOWN)

    def _touch(self, name: str) -> None:
        if self.frames:
            frame = self.frames[min(len(self.frames), _DEEPEST) - 1]
            frame.before.setdefault(name, self.values.get(name))
            frame.touched.add(name)

    def _put(self, name: str, value: Value | None) -> None:
        if value is None:
            self.values.pop(name, None)
        else:
            self.values[name] = value
        self.history.setdefault(name, []).append((self.commands, value.text if value else None))

    def open(self, kind: str, changing: Iterable[str] = ()) -> None:
        """Opens a block. What a loop will change (`changing`) is unknown from its first line on."""
        self.frames.append(Frame(kind))
        self.guards += kind in _GUARDS
        for name in changing:
            if name in self.values:
                self._touch(name)
                self._put(name, UNKNOWN)

    def next_branch(self, total: bool = False) -> None:
        """Ends a branch of the innermost block; the next one begins from what was before the block."""
        if not self.frames:
            return
        frame = self.frames[-1]
        frame.branches.append({name: self.values.get(name) for name in frame.touched})
        for name in frame.touched:
            self._put(name, frame.before[name])
        frame.touched.clear()
        frame.total = frame.total or total

    def close(self) -> None:
        """Closes the innermost block and merges what its branches left."""
        frame = self.frames.pop()
        self.guards -= frame.kind in _GUARDS
        if frame.kind == "(":
            for name in frame.touched:
                self._put(name, frame.before[name])
            return
        if frame.kind != "{":  # the commands of a group always run
            self._merge(frame)
        for name, before in frame.before.items() if self.frames else ():
            self.frames[-1].before.setdefault(name, before)
            self.frames[-1].touched.add(name)

    def _merge(self, frame: Frame) -> None:
        branches = list(frame.branches)
        if not frame.ended:
            branches.append({name: self.values.get(name) for name in frame.touched})
        if not frame.total:
            branches.append({})
        too_many = len(branches) * len(frame.before) > _MOST_MERGED
        for name, before in frame.before.items():
            ends = [] if too_many else [branch.get(name, before) for branch in branches]
            self._put(name, merged(ends))


def merged(values: Sequence[Value | None]) -> Value:
    """What is known of a variable that may hold any of `values`: the words that all of them begin and end with."""
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return UNKNOWN
    first = known[0]
    if all(value is first or _same(value, first) for value in known):
        return first
    if all(value.elements is not None for value in known):
        return Value(elements=_common([value.elements or () for value in known]))
    if any(value.elements is not None for value in known):
        return UNKNOWN
    words = _common([split_pieces(value.pieces) for value in known])
    spaced = [piece for word in words for piece in (Piece(" ", word.start, word.start), *word.pieces)]
    return Value(pieces=tuple(spaced[1:]))


def _same(one: Value, other: Value) -> bool:
    mine, theirs = ([_identity(word.pieces) for word in value.words] for value in (one, other))
    return (one.elements is None) == (other.elements is None) and mine == theirs


def _common(lists: Sequence[Sequence[Element]]) -> tuple[Element, ...]:
    """The elements that all lists begin with, one unknown, and those that all end with."""
    shortest = min(len(elements) for elements in lists)
    front = 0
    while front < shortest and _equal([elements[front] for elements in lists]):
        front += 1
    back = 0
    while back < shortest - front and _equal([elements[-1 - back] for elements in lists]):
        back += 1
    longest = max(lists, key=len)
    place = longest[front] if front < len(longest) else Element((), 0, 0)
    hole = Element((Piece(None, place.start, place.end),), place.start, place.end)
    return (*longest[:front], hole, *(longest[len(longest) - back :]))


def _equal(elements: Sequence[Element]) -> bool:
    return len({_identity(element.pieces) for element in elements}) == 1


def _identity(pieces: Sequence[Piece]) -> tuple[object, ...] | str:
    """What two values have in common when they are the same: their text, or that one unknown is in both."""
    text = text_of_pieces(pieces)
    return text if text is not None else tuple((p.text, p.start, p.end) for p in pieces)


def split_pieces(pieces: Sequence[Piece]) -> list[Element]:
    """The words that a value falls into where bash splits it at blanks. Unknown pieces stay in the word they touch."""
    words: list[Element] = []
    current: list[Piece] = []
    for piece in pieces:
        if piece.text is None:
            current.append(piece)
            continue
        for start, end, blank in blanks(piece.text):
            if not blank:
                current.append(piece.cut(start, end))
            elif current:
                words.append(Element(tuple(current), *region_of(current)))
                current = []
    if current:
        words.append(Element(tuple(current), *region_of(current)))
    return words


def blanks(text: str) -> list[tuple[int, int, bool]]:
    """Runs of blanks and of other characters: start, end, whether blank."""
    return [(match.start(), match.end(), match[0][0] in " \t\n") for match in _RUNS.finditer(text)]
