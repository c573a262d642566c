"""The variables of a shell while its script is read: what open blocks change of them.

A block that closes leaves what its branches have in common.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from .tokens import Token
from .values import UNKNOWN, Source, Value, merged, with_more

#: What a value may cost, and what all values of a script may: a text that doubles itself line by
#: line ends as an unknown value instead of filling the memory.
_MOST_PER_VALUE: Final = 10_000
_MOST_PER_SCRIPT: Final = 300_000
#: Blocks in blocks. What is set deeper is unknown, or each would merge what all within it set.
_DEEPEST: Final = 30
_MOST_MERGED: Final = 100_000  # branches times variables of one `if` or `case`
#: Kinds of blocks that may run more or less often than once.
_GUARDS: Final = frozenset({"if", "loop", "case", "function"})


@dataclass(slots=True)
class Frame:
    """An open `if`, `case`, loop, function, group or subshell."""

    kind: str
    name: str = ""  #: of a function
    #: values of variables when the block opened, of those that changed since
    before: dict[str, Value | None] = field(default_factory=dict)
    #: what each branch that ended left of the variables that it changed
    branches: list[dict[str, Value | None]] = field(default_factory=list)
    touched: set[str] = field(default_factory=set)  #: changed in the branch that is open
    #: values before the branch, of variables to which its condition gives one
    assumed: dict[str, Value | None] = field(default_factory=dict)
    #: values before the block, of variables that aren't so in the branches to come
    refuted: dict[str, Value | None] = field(default_factory=dict)
    #: the variables that have the values which the branch's condition tells
    told: set[str] = field(default_factory=set)
    total: bool = False  #: whether one of the branches always runs
    runs: bool | None = None  #: whether the condition of the branch that is open holds
    chosen: bool = False  #: a branch's condition holds, so that none after it runs
    ended: bool = False  #: the last branch has ended, and no other has begun
    exits: bool = False  #: the branch that is open ends the script
    optional: bool = False  #: behind `&&` or `||`, so that it may not run
    fixed: bool = False  #: no variable changes which branch runs
    #: of a `case`: the texts that its word may have, the variable that it is, and whether the
    #: patterns of the branch that begins match
    subjects: tuple[str, ...] = ()
    subject_names: tuple[str, ...] = ()
    matches: bool | None = False
    ways: bool = False  #: whether the branch that begins has a pattern so far
    falls: bool = False  #: of a `case`: a branch goes on with the next one
    #: of a call of a function: its own variables, as they were before; whether it may end early
    locals: dict[str, Value | None] = field(default_factory=dict)
    returns: bool = False

    @property
    def never(self) -> bool:
        """Return whether the branch that is open never runs, whoever starts the script."""
        return self.fixed and (self.runs is False or self.chosen)

    def touch(self, name: str, before: Value | None) -> None:
        """Note that a variable changes in the open branch, and had the value `before`."""
        told = self.assumed.pop(name, before)
        self.before.setdefault(name, self.refuted.get(name, told))
        self.touched.add(name)


@dataclass(slots=True)
class Body:
    """The commands of a function, from `start` up to `end` of a source."""

    source: Source
    tokens: Sequence[Token]
    start: int
    end: int
    names: frozenset[str]  #: of the variables that it sets
    numbers_arguments: bool  #: whether it reads arguments by their number, `$1`, or shifts them
    calls: int = 0  #: how often it was read
    prints: bool = False  #: whether it does nothing but print, so that one reading is enough


class State:
    """The variables of one shell.

    A shell that another starts (`parent`) sees what that one exports.
    """

    def __init__(self, parent: State | None = None) -> None:
        self.values: dict[str, Value] = {}
        self.exported: set[str] = set(parent.exported) if parent is not None else set()
        self.frames: list[Frame] = []
        self.history: dict[str, list[tuple[int, str | None]]] = {}
        self.commands = 0  #: how many were read
        self.guards = 0  #: how many of the frames may run more or less often than once
        self.never = 0  #: how many of the frames have a branch open that never runs
        self.all_exported = False
        #: the variables that each sets, as far as it was read
        self.functions: dict[str, frozenset[str]] = {}
        #: functions that are read where they are called, and those that are being read
        self.bodies: dict[str, Body] = {}
        self.calling: list[str] = []
        #: those that run their arguments; whether as a text that is read anew
        self.runners: dict[str, bool] = {}
        #: what the scheduler tells the script of its directives, by variable
        self.told: dict[str, str | None] = parent.told if parent is not None else {}
        self._assumed: set[str] = set()  # has the value that a condition tells
        self._sourced = False  # a file that wasn't read may have defined functions
        self._parent = parent
        #: what all shells of the script together may still spend
        self._left: list[int] = parent._left if parent is not None else [_MOST_PER_SCRIPT]

    def spend(self, cost: int) -> bool:
        """Take the cost of an expansion from what the script may spend.

        Returns whether that was enough.
        """
        self._left[0] -= cost + 1
        return self._left[0] > 0

    def get(self, name: str) -> Value | None:
        value = self.values.get(name)
        if value is None and self._parent is not None and name in self._parent.exported:
            return self._parent.get(name)
        return value

    def text(self, name: str) -> str | None:
        """The text that a variable holds; None where it can't be known."""
        value = self.get(name)
        return value.text if value else None

    def number(self, name: str) -> str | None:
        """The text of a variable that is calculated with.

        Of one that the scheduler alone sets, it is what its directives say.
        """
        value = self.get(name)
        return value.text if value else self.told.get(name)

    def set(self, name: str, value: Value | None) -> None:
        """Give a variable a value; one that is too large becomes unknown.

        None unsets it: its value is unknown then, as the environment may still have it.
        """
        cost = value.cost if value is not None else 0
        if cost > _MOST_PER_VALUE or not self.spend(cost) or len(self.frames) > _DEEPEST:
            value = UNKNOWN
        self._touch(name)
        self._put(name, value)
        if self.all_exported:
            self.exported.add(name)

    def _touch(self, name: str) -> None:
        if self.frames:
            self.frames[min(len(self.frames), _DEEPEST) - 1].touch(name, self.values.get(name))
            self._assumed.discard(name)

    def _put(self, name: str, value: Value | None) -> None:
        if value is None:
            self.values.pop(name, None)
        else:
            self.values[name] = value
        self.history.setdefault(name, []).append((self.commands, value.text if value else None))

    def open(
        self,
        kind: str,
        changing: Iterable[str] = (),
        adding: Iterable[str] = (),
        *,
        runs: bool | None = True,
    ) -> None:
        """Open a block. What a loop will change (`changing`) is unknown from its first line on.

        A variable to which it only adds words (`adding`) keeps those that are there. Where `runs`
        is None the block may not run, and where it is false it doesn't.
        """
        frame = Frame(kind)
        frame.optional = runs is not True
        if kind == "{":
            frame.runs = runs if frame.optional else None
        self.frames.append(frame)
        self.guards += kind in _GUARDS or frame.optional
        for name in changing:
            if name in self.values:
                before = self.values[name]
                self._touch(name)
                self._put(name, with_more(before) if name in adding else UNKNOWN)

    def assume(self, name: str, value: Value) -> None:
        """Give a variable the value that the condition of the innermost block says.

        The value holds in this branch alone.
        """
        frame, value_before = self.frames[-1], self.text(name)
        if name not in frame.touched:
            frame.assumed.setdefault(name, self.values.get(name))
            is_known_already = value_before == value.text
            if is_known_already:
                frame.told.add(name)
            self._put(name, value if is_known_already or not self._sourced else UNKNOWN)
            self._assumed.add(name)

    def call(self, name: str, sources: bool) -> None:
        """Forget what a function of the script may set, or code that isn't read.

        From here on those values can't be known.
        """
        self._sourced = self._sourced or sources
        for assumed in self._assumed:
            self._put(assumed, UNKNOWN)
        self._assumed.clear()
        changed = self.functions.get(name, frozenset())
        if not self.spend(len(changed)):
            return
        for changing in changed:
            self.set(changing, UNKNOWN)

    def make_local(self, name: str) -> None:
        """Say that a variable is the function's own that is being read."""
        calls = (frame for frame in reversed(self.frames) if frame.kind == "call")
        frame = next(calls, None)
        if frame is not None:
            frame.locals.setdefault(name, self.values.get(name))

    def leave(self, certain: bool) -> None:
        """Say that the function that is being read returns here: what follows may not run."""
        inner = list[Frame]()
        for frame in reversed(self.frames):
            if frame.kind == "call":
                may_run = not any(block.runs is False or block.chosen for block in inner)
                frame.returns = frame.returns or (may_run and (bool(inner) or not certain))
                break
            inner.append(frame)
        if certain:
            self.exit()

    def exit(self) -> None:
        """Say that the branch that is open ends the script: it leaves no values behind it."""
        if self.frames and (self.frames[-1].kind in ("if", "case") or self.frames[-1].optional):
            self.frames[-1].exits = True

    @property
    def in_function(self) -> bool:
        """Return whether a function is open: it may be called with other values."""
        return any(frame.kind == "function" for frame in self.frames[:_DEEPEST])

    def decide(self, runs: bool | None, names: Iterable[str], *, fixed: bool = False) -> None:
        """Say of the branch that is open whether its condition, on these variables, holds.

        Where the values of the variables rule a branch out, the branch runs only with others, which
        are unknown. A `fixed` condition depends on nothing.
        """
        frame = self.frames[-1]
        if frame.chosen or runs is None:
            return
        frame.runs, frame.fixed = runs, fixed
        self.never += frame.never
        for name in names:
            if runs is False:
                self.assume(name, UNKNOWN)
            elif name not in frame.touched:
                frame.told.add(name)

    def _end_branch(self, frame: Frame) -> None:
        """Keep what the branch that is open leaves of the variables, if it may run."""
        for name in tuple(frame.assumed):
            self._put(name, frame.assumed.pop(name))
            self._assumed.discard(name)
        self.never -= frame.never
        if not (frame.runs is False or frame.chosen or frame.ended or frame.exits):
            frame.branches.append({name: self.values.get(name) for name in frame.touched})
        frame.fixed = frame.fixed and (frame.chosen or frame.runs is True)
        frame.chosen = frame.chosen or frame.runs is True
        frame.total, frame.runs, frame.exits = frame.total or frame.chosen, None, False

    def next_branch(self, total: bool = False) -> None:
        """End a branch of the innermost block.

        The next branch begins with the values from before the block.
        """
        if self.frames:
            frame = self.frames[-1]
            self._end_branch(frame)
            for name in frame.touched:
                self._put(name, UNKNOWN if name in frame.refuted else frame.before[name])
            frame.touched.clear()
            frame.total = frame.total or total
            for name in frame.told - frame.refuted.keys():
                frame.refuted[name] = self.values.get(name)
                self._put(name, UNKNOWN)
            frame.told.clear()
            self.never += frame.never

    def close(self) -> None:
        """Close the innermost block, and merge what its branches left."""
        frame = self.frames.pop()
        self._end_branch(frame)
        for name in frame.refuted.keys() - frame.before.keys():
            self._put(name, frame.refuted[name])
        if frame.kind == "function":
            self.functions[frame.name] = frozenset(frame.before)
        self.guards -= frame.kind in _GUARDS or frame.optional
        if frame.kind == "(":
            for name in frame.touched:
                self._put(name, frame.before[name])
            return
        if frame.kind == "call":
            for name, value in frame.locals.items():
                self._put(name, value)
                frame.before.pop(name, None)
            for name in frame.before if frame.returns else ():
                self._put(name, UNKNOWN)
        elif frame.kind != "{" or frame.optional:  # the commands of a group always run
            branches = list(frame.branches)
            if frame.optional or not frame.total:
                branches.append({})  # none of them may run: all stays as it was
            too_many = len(branches) * len(frame.before) > _MOST_MERGED
            for name, before in frame.before.items():
                left = [] if too_many else [branch.get(name, before) for branch in branches]
                self._put(name, merged(left))
        if not self.frames:
            return
        for name, before in frame.before.items():
            self.frames[-1].touch(name, before)
