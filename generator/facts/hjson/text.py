"""DeepSpeed's JSON with the place of every key and value, as both of its readers see it, read without recursion.

DeepSpeed reads its config with hjson, which accepts comments, bare keys and much more; accelerate, Hugging Face and
Megatron-DeepSpeed read the same file with Python's strict `json`. A `JsonText` has what each of them reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Final, NamedTuple

from ...dataclass import dataclass
from ...findings import Location
from ...job.source import escape
from ...job.text import Text
from ...job.wording import value_at
from ..places import Lines, Reader
from .tokens import Mark, Refused, Tokens

MAX_DEPTH: Final = 64
MAX_VALUES: Final = 20_000  # as many as of a YAML document
MAX_POINTER_CHARACTERS: Final = 100_000_000  # of all pointers together: long keys around many values would fill memory

# What nearly every word is: blanks, then a plain text, number or name with nothing odd after it.
_KEY: Final = re.compile(r'"([^"\\\x00-\x1f]*)"[ \t\n\r]*:[ \t\n\r]*')
_WORD: Final = re.compile(
    r'"([^"\\\x00-\x1f]*)"'
    r"|(-?(?:0|[1-9][0-9]{0,17}))(?=[ \t]*[,}\]\r\n])"
    r"|(?:(true)|(false)|null)(?=[ \t]*[,}\]\r\n])"
)
_BLANK: Final = re.compile(r"[ \t\n\r]*")
_BYTE_ORDER_MARKS: Final = ("\ufeff", "\xef\xbb\xbf")


class Span(NamedTuple):
    """The place of a value: characters `start` up to `end` of the text; `key_*`: its key, quotes included."""

    start: int
    end: int
    key_start: int | None = None
    key_end: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate:
    """A key that an object has twice: DeepSpeed refuses it, `json` keeps the last. Offsets of the two keys."""

    pointer: str
    first: int
    second: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """The place from which on a reader fails, and why."""

    offset: int
    message: str


def read_document(content: str, line_of: Callable[[int], int], *, constants: bool = False) -> _Document:
    """The whole text: with braces, else as members without them, else as one bare value, as hjson tries them."""
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


@dataclass(slots=True)
class _Open:
    """A collection that is being read."""

    value: dict[str, object] | list[object]
    pointer: str
    closer: str  #: empty: it has no braces and ends with the text
    start: int
    key_start: int | None
    key_end: int | None
    hidden: bool  #: it belongs to a key that was there before: its values are not kept
    keys: dict[str, int] = field(default_factory=dict)  #: offsets, in an object
    twice: bool = False  #: it has a key twice


class _Document:
    """Puts words together: `root`, `places`, `duplicates`, `broken`; `tokens` has the deviations."""

    def __init__(self, content: str, line_of: Callable[[int], int], constants: bool, start: int) -> None:
        self.tokens = Tokens(content=content, constants=constants)
        self.root: object = None
        self.places: dict[str, Span] = {}
        self.duplicates: list[Duplicate] = []
        self.broken: Broken | None = None
        self.twice = False  #: an object that is closed has a key twice
        self.one_value_next = False  #: hjson would now try to read the whole as one value
        self._content = content
        self._line = line_of
        self._start = start
        self._stack: list[_Open] = []
        self._room = MAX_POINTER_CHARACTERS
        self._values = 0
        # the next value's place
        self._key: str | None = None
        self._key_start: int | None = None
        self._key_end: int | None = None
        self._pointer = ""
        self._hidden = False

    def run(self, *, braces: bool | None) -> None:
        """Read to the end, or to where it can't be read on. `braces` None: an object may have none around it."""
        try:
            self._document(braces)
        except Refused as problem:
            swallowed, where = self.tokens.swallowed, problem.offset
            at_end = where >= len(self._content.rstrip())
            if at_end and swallowed is not None and self._line(swallowed) < self._line(where):
                where = swallowed  # which took the bracket that is missed
            self.broken = Broken(offset=where, message=problem.message + self._hint(problem.offset))
            without = bool(self._stack) and self._stack[0].closer == ""
            self.one_value_next = without and not problem.final and not self.twice
            for opened in self._stack:
                self._place(opened, len(self._content))

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
            self._push({}, "", pos)
            end = self._members(self._next_key(pos))
        else:
            end = self._members(pos)
        end = self.tokens.skip(end)
        if end != len(content):
            raise Refused(end, "the document ends before this, but more text follows")

    def _members(self, pos: int) -> int:
        """The value at `pos` and all that follows it up to the end of the outermost collection."""
        content, tokens, stack = self._content, self.tokens, self._stack
        while True:
            first = content[pos : pos + 1]
            if first == "{" or first == "[":
                self._push({} if first == "{" else [], "}" if first == "{" else "]", pos)
                pos = tokens.skip(pos + 1)
                if content.startswith(stack[-1].closer, pos):
                    pos += 1
                    self._place(stack.pop(), pos)
                else:
                    pos = self._next(pos)
                    continue
            else:
                pos = self._scalar(pos)
            while stack:
                pos, closed = self._after(pos)
                if not closed:
                    break
            if not stack:
                return pos
            pos = self._next(pos)

    def _after(self, pos: int) -> tuple[int, bool]:
        """Past what follows a value: a comma, the end of its collection, or nothing where the comma is left out."""
        content, opened, value_end = self._content, self._stack[-1], pos
        pos = self._skip(pos)
        comma = pos
        comes = content[pos : pos + 1]
        if comes == ",":
            pos = self._skip(pos + 1)
            comes = content[pos : pos + 1]
            if comes == opened.closer:
                self.tokens.marks.append(Mark("a trailing comma", comma, comma + 1, ""))
        elif comes != opened.closer:
            self.tokens.marks.append(Mark("a missing comma", value_end, value_end, ","))
        if comes != opened.closer:
            return pos, False
        pos += len(comes)
        self._stack.pop()
        self.twice = self.twice or opened.twice
        if opened.closer:
            self._place(opened, pos)
        else:
            self.tokens.marks.append(Mark("", pos, pos, "}"))
            self._place(opened, comma if comma < pos else value_end)
        return pos, True

    def _skip(self, pos: int) -> int:
        blank = _BLANK.match(self._content, pos)
        pos = blank.end() if blank else pos
        return self.tokens.skip(pos) if self._content[pos : pos + 1] in ("#", "/") else pos

    def _next(self, pos: int) -> int:
        """Settle where the next value of the innermost collection goes; the offset where it starts."""
        opened = self._stack[-1]
        if isinstance(opened.value, list):
            self._key = self._key_start = self._key_end = None
            self._pointer = f"{opened.pointer}/{len(opened.value)}"
            self._hidden = opened.hidden
            return pos
        return self._next_key(pos)

    def _next_key(self, pos: int) -> int:
        opened = self._stack[-1]
        plain = _KEY.match(self._content, pos)
        if plain:
            key, end, behind = plain.group(1), plain.end(1) + 1, plain.end()
        else:
            key, end = self.tokens.key(pos)
            behind = self.tokens.skip(end) + 1
            if not self._content.startswith(":", behind - 1):
                raise Refused(behind - 1, "`:` is missing after a key")
        value = self._skip(behind)
        self._key, self._key_start, self._key_end = key, pos, end
        self._pointer = f"{opened.pointer}/{escape(key)}"
        self._hidden = opened.hidden
        first = opened.keys.setdefault(key, pos)
        if first != pos:
            self.duplicates.append(Duplicate(pointer=self._pointer, first=first, second=pos))
            self._hidden = opened.twice = True
        return value

    def _scalar(self, pos: int) -> int:
        word = _WORD.match(self._content, pos)
        value: object
        if word is None:
            value, end = self.tokens.word(pos)
        else:
            end, kind = word.end(), word.lastindex
            value = word[1] if kind == 1 else int(word[2]) if kind == 2 else None if kind is None else kind == 3
        self._keep(value)
        if not self._hidden:
            self.places[self._pointer] = Span(pos, end, self._key_start, self._key_end)
        return end

    def _keep(self, value: object) -> None:
        self._values += 1
        if self._values > MAX_VALUES:
            raise Refused(self._key_start or 0, f"there are more than {MAX_VALUES:,} values before this", final=True)
        self._room -= len(self._pointer)
        if self._room < 0:
            message = f"the paths to here have {MAX_POINTER_CHARACTERS:,} characters: keys are too long"
            raise Refused(self._key_start or 0, message, final=True)
        target = self._stack[-1].value if self._stack else None
        if self._hidden:
            return
        if isinstance(target, list):
            target.append(value)
        elif target is None:
            self.root = value
        else:
            target[self._key or ""] = value

    def _push(self, value: dict[str, object] | list[object], closer: str, pos: int) -> None:
        if len(self._stack) >= MAX_DEPTH:
            raise Refused(pos, f"this is nested more than {MAX_DEPTH} deep", final=True)
        self._keep(value)
        opened = _Open(value, self._pointer, closer, pos, self._key_start, self._key_end, self._hidden)
        self._place(opened, pos)  # for the order; the end comes when it is closed
        self._stack.append(opened)

    def _place(self, opened: _Open, end: int) -> None:
        if not opened.hidden:
            self.places[opened.pointer] = Span(opened.start, end, opened.key_start, opened.key_end)

    def _hint(self, offset: int) -> str:
        """Name what else may be the cause, where the text breaks off."""
        hints = ""
        if offset >= len(self._content.rstrip()) and self._stack and self._stack[-1].closer:
            opened = self._stack[-1]
            hints += f"; the `{self._content[opened.start]}` in line {self._line(opened.start)} is not closed"
        if self.tokens.swallowed is not None:
            line = self._line(self.tokens.swallowed)
            hints += f"; the string without quotes in line {line} goes on to the end of its line, brackets included"
        return hints


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonText(Reader):
    """A JSON or HJSON document. Offsets count characters of `text.content`; pointers are JSON pointers (RFC 6901).

    `data` is what DeepSpeed reads, or what `json` reads where only that reads it; of a broken text, what was read up to
    there. Numbers are those of `json`: hjson makes an int of `1e9` and of every whole float below 1e10.
    """

    text: Text
    data: object  #: dict, list, str, int, float, bool, None; of duplicate keys the first is kept
    spans: Mapping[str, Span]  #: of every value of `data`
    duplicates: tuple[Duplicate, ...]
    deviations: tuple[Mark, ...]  #: in the order of the text; none: `json` reads it, unless it is broken
    broken: Broken | None  #: neither of the two reads it
    json_data: object = None  #: what `json` reads: `data`, save where `json_only` has something
    json_only: tuple[Mark, ...] = ()  #: NaN, Infinity, 1e999: `json` reads floats, hjson text or nothing
    hjson_broken: Broken | None = None  #: why hjson doesn't read it; `broken` unless `json` does
    marks: tuple[Mark, ...] = field(default=(), repr=False)  #: the deviations with what strict JSON has there
    lines: Lines = field(repr=False, compare=False)

    @property
    def json_reads(self) -> bool:
        """Return whether Python's `json.load` reads the text."""
        return self.broken is None and not self.deviations

    def has(self, pointer: str) -> bool:
        """Return whether there is a value at `pointer`."""
        return pointer in self.spans

    def value(self, pointer: str, default: object = None) -> object:
        """The value at `pointer`, else `default`."""
        return value_at(self.data, pointer, default) if pointer in self.spans else default

    def locate(self, pointer: str) -> Location:
        """The place of a value, else of the nearest thing around it."""
        span = self._nearest(pointer)
        return self.lines.locate(span.start, pointer) if span else Location(path=self.text.path, pointer=pointer)

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
    """`text` as data. Never raises: what is wrong with it is in `broken`, `duplicates` and `deviations`."""
    lines = Lines(text)
    read = read_document(text.content, lines.line_of)
    strict = None
    if read.tokens.json_only:
        strict = read_document(text.content, lines.line_of, constants=True)
        if strict.broken or strict.tokens.marks:
            strict = None  # not JSON for another reason as well
    shown = strict if strict and read.broken else read
    marks = () if strict else tuple(sorted(read.tokens.marks, key=lambda mark: mark.start))
    return JsonText(
        text=text,
        data=shown.root,
        spans=shown.places,
        duplicates=tuple(shown.duplicates),
        deviations=tuple(mark for mark in marks if mark.what),
        broken=None if strict else read.broken,
        json_data=strict.root if strict else read.root,
        json_only=tuple(strict.tokens.json_only) if strict else (),
        hjson_broken=read.broken,
        marks=marks,
        lines=lines,
    )
