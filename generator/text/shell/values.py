"""Values of a shell's variables, in pieces that know where they were written.

Where branches leave different values, what they have in common stays.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Final, NamedTuple

from ...places import IN_WORDS
from .tokens import Token

_CLOSE: Final = 4  # characters between two pieces of one word: quotes, or a backslash
#: A value may cost this much (pieces, or 64 characters each), and a whole script that much: a text
#: that doubles itself line by line ends as an unknown value instead of filling the memory.
_MOST_PER_VALUE: Final = 10_000
_MOST_PER_SCRIPT: Final = 300_000
# blocks in blocks; what is set deeper is unknown, or each would merge what all within it set
_DEEPEST: Final = 30
_MOST_PERHAPS: Final = 100  # words that may be in the place of one
_MOST_EITHER: Final = 8  # texts that one word may have
_MOST_MERGED: Final = 100_000  # branches times variables of one `if` or `case`
_GUARDS: Final = frozenset({"if", "loop", "case", "function"})
_RUNS: Final = re.compile(rf"[ \t\n]+|(?:[^ \t\n<]+|{IN_WORDS.pattern}|<)+")
#: An option, or a key of Hydra with its value: neither is another option's value.
_OPTION_OR_KEY: Final = re.compile(r"-|\+{0,2}\w+\.[\w.]*=")
#: The beginning of such a word up to its value.
BEGUN: Final = re.compile(r"--[\w.-]+=|\+{0,2}\w+\.[\w.]*=")


# Named tuples, where the house has frozen dataclasses: a long script makes hundreds of thousands of
# them.
class Piece(NamedTuple):
    """A part of a value; `text` is None where it can't be known.

    `start` and `end` are places in the document.
    """

    text: str | None
    start: int
    end: int
    names: tuple[str, ...] = ()  #: the variables whose expansion gave this piece
    perhaps: tuple[str | None, ...] = ()  #: as in `Word`
    either: tuple[str, ...] = ()  #: as in `Word`

    @property
    def mapped(self) -> bool:
        """Return whether the text is in the document character by character."""
        return self.text is not None and not self.names and self.end - self.start == len(self.text)

    def cut(self, start: int, end: int) -> Piece:
        """The characters `start` up to `end` of this piece."""
        text = self.text or ""
        if self.mapped:
            return Piece(text[start:end], self.start + start, self.start + end)
        return Piece(text[start:end], self.start, self.end, self.names)


class Element(NamedTuple):
    """One word of an array, with the place where it was written."""

    pieces: tuple[Piece, ...]
    start: int
    end: int


class Value(NamedTuple):
    """The value of a variable: pieces, or an array's elements."""

    pieces: tuple[Piece, ...] = ()
    elements: tuple[Element, ...] | None = None

    @property
    def text(self) -> str | None:
        """The text, or None where a part can't be known.

        An array's is that of its first element, as in bash.
        """
        return text_of_pieces(self.scalar)

    @property
    def words(self) -> tuple[Element, ...]:
        """The elements that `${NAME[@]}` stands for."""
        return self.elements if self.elements is not None else (Element(self.pieces, 0, 0),)

    @property
    def scalar(self) -> tuple[Piece, ...]:
        """The pieces that `$NAME` stands for."""
        if self.elements is None:
            return self.pieces
        return self.elements[0].pieces if self.elements else ()


UNKNOWN: Final = Value(pieces=(Piece(None, 0, 0),))
#: What a loop has added to a variable so far, of which the loop's own words say what it may be.
_MORE: Final = Piece(None, 0, 0)


def text_of_pieces(pieces: Iterable[Piece]) -> str | None:
    """The text of pieces, or None where one of them can't be known."""
    texts: list[str] = []
    for piece in pieces:
        if piece.text is None:
            return None
        texts.append(piece.text)
    return "".join(texts)


def parts_of_pieces(pieces: Iterable[Piece]) -> tuple[str | None, ...]:
    """The known and unknown parts in order; neighbours of one kind are one part."""
    texts = groupby((piece.text for piece in pieces), key=lambda text: text is not None)
    return tuple(
        "".join(text or "" for text in group) if is_known else None for is_known, group in texts
    )


def region_of(pieces: Sequence[Piece]) -> tuple[int, int]:
    """The place in the document of pieces that make one word.

    It is that of all pieces where they are side by side.
    """
    start, end = pieces[0].start, pieces[0].end
    for piece in pieces[1:]:
        if piece.start == start and piece.end == end:
            continue
        if not end <= piece.start <= end + _CLOSE:
            break
        end = piece.end
    return start, end


def blanks(text: str) -> list[tuple[int, int, bool]]:
    """Runs of blanks and of other characters: start, end, whether blank."""
    return [(match.start(), match.end(), match[0][0] in " \t\n") for match in _RUNS.finditer(text)]


class Source:
    """A text to read, and the place in the document of each of its characters."""

    __slots__ = ("_pieces", "_starts", "direct", "text")

    def __init__(self, text: str, pieces: Sequence[Piece] = ()) -> None:
        self.text = text
        #: whether it is the document itself, so that places in both are the same
        self.direct = not pieces
        self._pieces = pieces
        self._starts: list[int] = []
        position = 0
        for piece in pieces:
            self._starts.append(position)
            position += 1 if piece.text is None else len(piece.text)

    def region(self, start: int, end: int) -> tuple[int, int]:
        """The place in the document of the characters `start` up to `end`."""
        if self.direct:
            return start, end
        return region_of(self.pieces(start, end)) if end > start else (self.place(start),) * 2

    def place(self, offset: int) -> int:
        """The place in the document of one character."""
        if self.direct:
            return offset
        index = max(bisect_right(self._starts, offset) - 1, 0)
        piece = self._pieces[index]
        if piece.mapped:
            return piece.start + min(offset - self._starts[index], piece.end - piece.start)
        return piece.start

    def pieces(self, start: int, end: int) -> tuple[Piece, ...]:
        """The characters `start` up to `end` as pieces; unknown ones where there is a hole."""
        if self.direct:
            return (Piece(self.text[start:end], start, end),)
        pieces: list[Piece] = []
        index = max(bisect_right(self._starts, start) - 1, 0)
        while index < len(self._pieces) and self._starts[index] < end:
            piece, first = self._pieces[index], self._starts[index]
            length = 1 if piece.text is None else len(piece.text)
            if piece.text is None:
                pieces.append(piece)
            elif first + length > start:
                pieces.append(piece.cut(max(start - first, 0), min(end - first, length)))
            index += 1
        return tuple(pieces)


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
    counts: bool  #: whether it takes arguments by their number
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

    def set(self, name: str, value: Value | None) -> None:
        """Give a variable a value; one that is too large becomes unknown.

        None unsets it: its value is unknown then, as the environment may still have it.
        """
        pieces = (
            [piece for word in value.words for piece in word.pieces] if value is not None else ()
        )
        size = len(pieces) + sum([len(piece.text) for piece in pieces if piece.text]) // 64
        if size > _MOST_PER_VALUE or not self.spend(size) or len(self.frames) > _DEEPEST:
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
                self._put(name, _with_more(before) if name in adding else UNKNOWN)

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
        frame = next((one for one in reversed(self.frames) if one.kind == "call"), None)
        if frame is not None:
            frame.locals.setdefault(name, self.values.get(name))

    def leave(self, certain: bool) -> None:
        """Say that the function that is being read returns here: what follows may not run."""
        inner = list[Frame]()
        for frame in reversed(self.frames):
            if frame.kind == "call":
                may_run = not any(one.runs is False or one.chosen for one in inner)
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
                self._put(name, _merged(left))
        if not self.frames:
            return
        for name, before in frame.before.items():
            self.frames[-1].touch(name, before)


def _with_more(value: Value) -> Value:
    """A value behind which there may be more words."""
    if value == UNKNOWN:
        return value
    if value.elements is None:
        return Value((*value.pieces, Piece(" ", 0, 0), _MORE))
    return Value((), (*value.elements, Element((_MORE,), 0, 0)))


def _merged(values: Sequence[Value | None]) -> Value:
    """The value of a variable that holds any one of these values.

    What is known of it are the words that all of them begin with, and those that all end with.
    """
    known_values = [value for value in values if value is not None]
    if not known_values or len(known_values) < len(values):
        # A branch that leaves the variable unset gives no text that a script is meant to use.
        single = [split(value.pieces) for value in known_values if value.elements is None]
        either = _either(single) if len(single) == len(known_values) else ()
        return Value((Piece(None, 0, 0, (), (), either),)) if either else UNKNOWN
    first = known_values[0]
    # Most branches leave the very same value, which needn't be compared with itself.
    others = [value for value in known_values if value is not first]
    if not others or len({_identity_of_words(value) for value in (first, *others)}) == 1:
        return first
    arrays = [value.elements for value in known_values if value.elements is not None]
    if len(arrays) == len(known_values):
        return Value(elements=_common(arrays))
    if arrays:
        return UNKNOWN
    words = _common([split(value.pieces) for value in known_values])
    spaced = [
        piece for word in words for piece in (Piece(" ", word.start, word.start), *word.pieces)
    ]
    return Value(pieces=tuple(spaced[1:]))


def _common(lists: Sequence[Sequence[Element]]) -> tuple[Element, ...]:
    """The elements that all lists begin with, one unknown, and those that all end with."""
    shortest = min(len(elements) for elements in lists)
    front = back = 0
    while front < shortest and _equal([elements[front] for elements in lists]):
        front += 1
    while back < shortest - front and _equal([elements[-1 - back] for elements in lists]):
        back += 1
    longest = max(lists, key=len)
    place = longest[front] if front < len(longest) else Element((), 0, 0)
    differing = [
        [
            element
            for element in elements[front : len(elements) - back]
            if not any(piece is _MORE for piece in element.pieces)
        ]
        for elements in lists
    ]
    piece = Piece(None, place.start, place.end, (), perhaps(differing), _either(differing))
    hole = Element((piece,), place.start, place.end)
    return (*longest[:front], hole, *(longest[len(longest) - back :]))


def perhaps(lists: Sequence[Sequence[Element]]) -> tuple[str | None, ...]:
    """The texts of the words of all lists, of which one is there; in a text's place None where an
    option's value isn't known.

    Empty where a list begins with anything but an option or a key, where another word isn't known,
    or where there are too many.
    """
    texts_of_words: list[str | None] = []
    for elements in lists:
        texts = [text for element in elements for text in _texts(element.pieces)]
        if texts and not _OPTION_OR_KEY.match(texts[0] or ""):
            return ()
        texts_of_words += texts
    for before, text in pairwise(texts_of_words):
        is_options_value = (before or "").startswith("-")
        if text is None and not is_options_value:
            return ()
    return tuple(texts_of_words) if len(texts_of_words) <= _MOST_PERHAPS else ()


def _either(lists: Sequence[Sequence[Element]]) -> tuple[str, ...]:
    """The texts of one word that differs by branches; none where one has more words, or none."""
    if any(len(elements) != 1 for elements in lists):
        return ()
    texts = [texts_of_pieces(elements[0].pieces) for elements in lists]
    every = tuple(dict.fromkeys(text for alternatives in texts for text in alternatives))
    return every if all(texts) and len(every) <= _MOST_EITHER else ()


def texts_of_pieces(pieces: Sequence[Piece]) -> tuple[str, ...]:
    """The texts that pieces may have; none where a part can't be known, or two depend on
    branches.
    """
    unknown = [piece for piece in pieces if piece.text is None]
    if not unknown:
        return (text_of_pieces(pieces) or "",)
    if len(unknown) > 1:
        return ()
    return tuple(
        "".join(text if piece.text is None else piece.text for piece in pieces)
        for text in unknown[0].either
    )


def _texts(pieces: Sequence[Piece]) -> tuple[str | None, ...]:
    """The texts that a word may have: those that branches leave, or its one text.

    Of an option or a key it is the first piece, which may lack the value.
    """
    first = pieces[0] if pieces else Piece("", 0, 0)
    beginning = first.text or ""
    is_begun = beginning.startswith("--") or BEGUN.match(beginning)
    return first.perhaps or (beginning if is_begun else text_of_pieces(pieces),)


def _equal(elements: Sequence[Element]) -> bool:
    return len({_identity(element.pieces) for element in elements}) == 1


def _identity_of_words(value: Value) -> tuple[object, ...]:
    """The mark of a whole value: whether it is an array, and the marks of its words."""
    return value.elements is None, *(_identity(word.pieces) for word in value.words)


def _identity(pieces: Sequence[Piece]) -> tuple[object, ...] | str:
    """The mark of a value, by which two are the same: the text, or the place of what is unknown."""
    text = text_of_pieces(pieces)
    return text if text is not None else tuple((p.text, p.start, p.end) for p in pieces)


def split(pieces: Sequence[Piece]) -> list[Element]:
    """The words that a value falls into where bash splits it at blanks.

    Unknown pieces stay in the word they touch.
    """
    words: list[list[Piece]] = [[]]
    for piece in pieces:
        if piece.text is None:
            words[-1].append(piece)
            continue
        for start, end, blank in blanks(piece.text):
            if not blank:
                words[-1].append(piece.cut(start, end))
            elif words[-1]:
                words.append([])
    return [Element(tuple(word), *region_of(word)) for word in words if word]
