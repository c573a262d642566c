"""DeepSpeed's JSON with the place of every key and value, as both of its readers see it.

DeepSpeed reads its config with hjson, which accepts comments, bare keys and much more; accelerate,
Hugging Face and Megatron-DeepSpeed read the same file with Python's strict `json`. A `JsonText` has
what each of them reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from functools import partial
from typing import Final, NamedTuple

from ...dataclass import dataclass
from ...findings import Location
from ...places import Lines, Values
from ..source import escape
from ..text import Text
from ..wording import NOTHING, value_at
from .tokens import Mark, Refused, Tokens

MAX_DEPTH: Final = 64  # of objects in objects, each of which costs Python a few frames
MAX_VALUES: Final = 20_000  # as many as a YAML document may have
#: Characters of all pointers together: long keys around many values would fill memory.
MAX_POINTER_CHARACTERS: Final = 100_000_000

_BYTE_ORDER_MARKS: Final = ("\ufeff", "\xef\xbb\xbf")


class Span(NamedTuple):
    """The place of a value: characters `start` up to `end` of the text.

    `key_start` and `key_end` are those of its key, quotes included.
    """

    start: int
    end: int
    key_start: int | None = None
    key_end: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate:
    """A key that an object has twice: DeepSpeed refuses it, `json` keeps the last."""

    pointer: str
    first: int  #: offset of the first key
    second: int  #: offset of the second


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """The place from which on a reader fails, and why."""

    offset: int
    message: str


def read_document(
    content: str, line_of: Callable[[int], int], *, constants: bool = False
) -> _Document:
    """Read the whole text, in the forms and in the order that hjson tries.

    First as an object with braces, then as members without them, then as one bare value.
    """
    mark = next((mark for mark in _BYTE_ORDER_MARKS if content.startswith(mark)), "")
    first = _Document(content, line_of, constants, len(mark))
    first.run(braces=None)
    if first.broken and first.one_value_next:
        second = _Document(content, line_of, constants, len(mark))
        second.run(braces=True)
        if second.broken is None:
            return second
        first.tokens.json_only.extend(second.tokens.json_only)
    return first


class _Slot(NamedTuple):
    """Where a value goes."""

    pointer: str
    put: Callable[[object], None]  #: puts the value there
    key_start: int | None = None
    key_end: int | None = None
    hidden: bool = False  #: the key, or one around it, was there before: the value is not kept


class _Document:
    """Reads the values of a document: `root`, with `places`, `duplicates` and where it is `broken`.

    `tokens` has the deviations from strict JSON.
    """

    def __init__(
        self, content: str, line_of: Callable[[int], int], constants: bool, start: int
    ) -> None:
        self.tokens = Tokens(content=content, constants=constants)
        self.root: object = None
        self.places: dict[str, Span] = {}
        self.duplicates: list[Duplicate] = []
        self.broken: Broken | None = None
        self.twice = False  #: whether an object that was read to its end has a key twice
        self.one_value_next = False  #: hjson would now try to read the whole as one value
        self._content = content
        self._line = line_of
        self._start = start
        self._room = MAX_POINTER_CHARACTERS
        self._values = self._depth = 0
        #: what was open where the reading broke off, innermost first: offset and closer
        self._unclosed: list[tuple[int, str]] = []

    def run(self, *, braces: bool | None) -> None:
        """Read to the end, or to where it can't be read on.

        With `braces` None, the members of an object may stand without braces around them.
        """
        try:
            self._document(braces)
        except Refused as problem:
            # A text without quotes goes on to the end of its line. It may have taken the bracket
            # that is missing: then the place of the text is told.
            swallowed, where = self.tokens.swallowed, problem.offset
            at_end = where >= len(self._content.rstrip())
            if at_end and swallowed is not None and self._line(swallowed) < self._line(where):
                where = swallowed
            self.broken = Broken(offset=where, message=problem.message + self._hint(problem.offset))

            lacks_braces = bool(self._unclosed) and self._unclosed[-1][1] == ""
            self.one_value_next = lacks_braces and not problem.final and not self.twice

    def _document(self, braces: bool | None) -> None:
        content, marks = self._content, self.tokens.marks
        if self._start:
            marks.append(Mark("a byte order mark", 0, self._start, ""))
        pos = self.tokens.skip(self._start)
        if pos == len(content) and not self._start:
            marks.append(Mark("no value at all", pos, pos, "{}"))
            self.root = {}
            self.places[""] = Span(pos, pos)
            return
        if braces is None and content[pos : pos + 1] not in ("{", "["):
            marks.append(Mark("no braces around the whole", pos, pos, "{"))
            end = self._collection({}, "", pos, _Slot("", partial(setattr, self, "root")))
        else:
            end = self._value(pos, _Slot("", partial(setattr, self, "root")))
        end = self.tokens.skip(end)
        if end != len(content):
            raise Refused(end, "the document ends before this, but more text follows")

    def _value(self, pos: int, slot: _Slot) -> int:
        """Read the value at `pos`, whose end is returned."""
        first = self._content[pos : pos + 1]
        if first == "{":
            return self._collection({}, "}", pos, slot)
        if first == "[":
            return self._collection([], "]", pos, slot)
        value, end = self.tokens.word(pos)
        self._keep(value, slot, pos, end)
        return end

    def _collection(
        self, value: dict[str, object] | list[object], closer: str, pos: int, slot: _Slot
    ) -> int:
        """Read an object or a list from `pos` to its `closer`; return where to read on.

        With an empty `closer` there are no braces, and all up to the end is read.
        """
        if self._depth >= MAX_DEPTH:
            raise Refused(pos, f"this is nested more than {MAX_DEPTH} deep", final=True)
        self._keep(value, slot, pos, pos)  # its end is known when it is closed
        self._depth += 1
        end = len(self._content)
        try:
            first = self.tokens.skip(pos + 1) if closer else pos
            if closer and self._content.startswith(closer, first):
                end = behind = first + 1  # it is empty
            else:
                end, behind = self._members(value, closer, first, slot)
        except Refused:
            self._unclosed.append((pos, closer))
            raise
        finally:
            self._depth -= 1
            self._place(slot, pos, end)
        return behind

    def _members(
        self, value: dict[str, object] | list[object], closer: str, pos: int, slot: _Slot
    ) -> tuple[int, int]:
        """Read values up to the closer; return the end of the collection, and where to read on."""
        content, marks, count = self._content, self.tokens.marks, 0
        keys: dict[str, int] = {}  # offsets, in an object
        while True:
            if isinstance(value, list):
                inner = _Slot(f"{slot.pointer}/{len(value)}", value.append, hidden=slot.hidden)
            else:
                pos, inner = self._key(value, keys, pos, slot)
                count += 1
            value_end = self._value(pos, inner)
            pos = comma = self.tokens.skip(value_end)
            following = content[pos : pos + 1]
            if following == ",":
                pos = self.tokens.skip(pos + 1)
                following = content[pos : pos + 1]
                if following == closer:
                    marks.append(Mark("a trailing comma", comma, comma + 1, ""))
            elif following != closer:
                marks.append(Mark("a missing comma", value_end, value_end, ","))
            if following == closer:
                break
        self.twice = self.twice or count > len(keys)
        if closer:
            return pos + 1, pos + 1
        # Without braces it ends with the text, before comments: behind a comma, or the last value.
        marks.append(Mark("", pos, pos, "}"))
        return comma if comma < pos else value_end, pos

    def _key(
        self, holder: dict[str, object], keys: dict[str, int], pos: int, slot: _Slot
    ) -> tuple[int, _Slot]:
        """Read a key; return where its value starts, and the slot for that."""
        key, end = self.tokens.key(pos)
        colon = self.tokens.skip(end)
        if not self._content.startswith(":", colon):
            raise Refused(colon, "`:` is missing after a key")
        start, pointer = self.tokens.skip(colon + 1), f"{slot.pointer}/{escape(key)}"
        first = keys.setdefault(key, pos)
        is_twice = first != pos
        if is_twice:
            self.duplicates.append(Duplicate(pointer=pointer, first=first, second=pos))
        put = partial(holder.__setitem__, key)
        return start, _Slot(pointer, put, pos, end, hidden=slot.hidden or is_twice)

    def _keep(self, value: object, slot: _Slot, start: int, end: int) -> None:
        """Put a value into its slot, within the limits on how much is kept."""
        self._values += 1
        if self._values > MAX_VALUES:
            raise Refused(
                slot.key_start or 0,
                f"there are more than {MAX_VALUES:,} values before this",
                final=True,
            )
        self._room -= len(slot.pointer)
        if self._room < 0:
            message = (
                f"the paths to here have {MAX_POINTER_CHARACTERS:,} characters: keys are too long"
            )
            raise Refused(slot.key_start or 0, message, final=True)
        if not slot.hidden:
            slot.put(value)
        self._place(slot, start, end)

    def _place(self, slot: _Slot, start: int, end: int) -> None:
        if not slot.hidden:
            self.places[slot.pointer] = Span(start, end, slot.key_start, slot.key_end)

    def _hint(self, offset: int) -> str:
        """Name what else may be the cause, where the text breaks off."""
        hints = ""
        start, closer = self._unclosed[0] if self._unclosed else (0, "")
        if closer and offset >= len(self._content.rstrip()):
            hints += f"; the `{self._content[start]}` in line {self._line(start)} is not closed"
        if self.tokens.swallowed is not None:
            line = self._line(self.tokens.swallowed)
            hints += (
                f"; the string without quotes in line {line} goes on to the end of its "
                "line, brackets included"
            )
        return hints


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonText(Values):
    """A JSON or HJSON document.

    Offsets count characters of `text.content`; pointers are JSON pointers (RFC 6901).

    `data` is what DeepSpeed reads, or what `json` reads where only that can. In a broken text, it
    is what was read before the break. Numbers are those of `json`: hjson makes an int of `1e9` and
    of every whole float below 1e10.
    """

    text: Text
    data: object  #: dict, list, str, int, float, bool, None; of duplicate keys the first is kept
    spans: Mapping[str, Span]  #: of every value of `data`
    duplicates: tuple[Duplicate, ...]
    #: from strict JSON, in the order of the text; without any, `json` reads it unless it is broken
    deviations: tuple[Mark, ...]
    broken: Broken | None  #: where neither hjson nor `json` can read on
    json_data: object = None  #: what `json` reads: `data`, save where `json_only` has something
    #: NaN, Infinity, 1e999: for `json` they are floats, for hjson a text or an error
    json_only: tuple[Mark, ...] = ()
    hjson_broken: Broken | None = None  #: where hjson can't read on; `broken` unless `json` can
    #: the deviations, and places where strict JSON has what isn't there: closing braces
    marks: tuple[Mark, ...] = field(default=(), repr=False)
    lines: Lines = field(repr=False, compare=False)
    #: values by pointer: rules ask for the same ones hundreds of times
    _found: dict[str, object] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def json_reads(self) -> bool:
        """Return whether Python's `json.load` reads the text."""
        return self.broken is None and not self.deviations

    def has(self, pointer: str) -> bool:
        """Return whether there is a value at `pointer`."""
        return pointer in self.spans

    def value(self, pointer: str, default: object = None) -> object:
        """The value at `pointer`, else `default`."""
        if pointer not in self.spans:
            return default
        value = self._found.get(pointer, NOTHING)
        if value is NOTHING:
            value = self._found[pointer] = value_at(self.data, pointer, NOTHING)
        return default if value is NOTHING else value

    def locate(self, pointer: str) -> Location:
        """The place of a value, else of the nearest thing around it."""
        span = self._nearest(pointer)
        if span:
            return self.lines.locate(span.start, pointer)
        return Location(path=self.text.path, pointer=pointer)

    def locate_key(self, pointer: str) -> Location:
        """The place of the key whose value is at `pointer`, else as `locate`."""
        span = self._nearest(pointer)
        if span is None or span.key_start is None or pointer not in self.spans:
            return self.locate(pointer)
        return self.lines.locate(span.key_start, pointer)

    def _nearest(self, pointer: str) -> Span | None:
        while pointer and pointer not in self.spans:
            pointer = pointer.rpartition("/")[0]
        return self.spans.get(pointer)


def read_json(text: Text) -> JsonText:
    """Read a text as data; never raises.

    What is wrong with it is in `broken`, `duplicates` and `deviations`.
    """
    lines = Lines(text)
    by_hjson = read_document(text.content, lines.line_of)
    by_json = None
    if by_hjson.tokens.json_only:
        by_json = read_document(text.content, lines.line_of, constants=True)
        if by_json.broken or by_json.tokens.marks:
            by_json = None  # it isn't strict JSON, for another reason
    shown = by_json if by_json and by_hjson.broken else by_hjson
    marks = () if by_json else tuple(sorted(by_hjson.tokens.marks, key=lambda mark: mark.start))
    return JsonText(
        text=text,
        data=shown.root,
        spans=shown.places,
        duplicates=tuple(shown.duplicates),
        deviations=tuple(mark for mark in marks if mark.what),
        broken=None if by_json else by_hjson.broken,
        json_data=by_json.root if by_json else by_hjson.root,
        json_only=tuple(by_json.tokens.json_only) if by_json else (),
        hjson_broken=by_hjson.broken,
        marks=marks,
        lines=lines,
    )
