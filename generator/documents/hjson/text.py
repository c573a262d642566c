"""DeepSpeed's JSON with the place of every key and value, as both of its readers see it.

DeepSpeed reads its config with hjson, which takes comments, bare keys and much more; accelerate, Hugging Face and
Megatron-DeepSpeed read the same file with Python's strict `json`. A `JsonText` says what each of them makes of it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ...findings import Location
from ...job.text import Text
from .reader import Broken as Broken
from .reader import Duplicate as Duplicate
from .reader import read_document
from .tokens import Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Where a value stands: characters `start` up to `end` of the text; `key_*`: its key, quotes included."""

    start: int
    end: int
    key_start: int | None = None
    key_end: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviation:
    """One place where the text is HJSON but not strict JSON."""

    offset: int
    what: str  #: such as "a comment", "a trailing comma", "text without quotes"


class _Lines:
    """Where the lines of a text start; counted once, when first asked for."""

    __slots__ = ("_starts", "_text")

    def __init__(self, text: Text) -> None:
        self._text = text
        self._starts: list[int] = []

    def locate(self, offset: int, pointer: str = "") -> Location:
        if not self._starts:
            self._starts = list(self._count()) or [0]
        line = bisect_right(self._starts, offset) - 1
        return self._text.locate(line, offset - self._starts[line], pointer)

    def line_of(self, offset: int) -> int:
        return self.locate(offset).line or 1

    def _count(self) -> Iterator[int]:
        content, start = self._text.content, 0
        for line in self._text.lines:
            yield start
            start += len(line)
            start += 2 if content.startswith("\r\n", start) else 1


class _Spans(Mapping[str, Span]):
    """Spans by pointer, in the order of the text; kept as plain tuples, because there may be hundreds of thousands."""

    __slots__ = ("_places",)

    def __init__(self, places: dict[str, tuple[int, int, int | None, int | None]]) -> None:
        self._places = places

    def __getitem__(self, pointer: str) -> Span:
        start, end, key_start, key_end = self._places[pointer]
        return Span(start=start, end=end, key_start=key_start, key_end=key_end)

    def __contains__(self, pointer: object) -> bool:
        return pointer in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonText:
    """A JSON or HJSON document. Offsets count characters of `text.content`; pointers are JSON pointers (RFC 6901).

    `data` is what DeepSpeed reads, or what `json` reads where only that reads it; of a broken text, what was read up to
    there. Numbers are those of `json`: hjson makes an int of `1e9` and of every whole float below 1e10.
    """

    text: Text
    data: object  #: dict, list, str, int, float, bool, None; of duplicate keys the first is kept
    spans: Mapping[str, Span]  #: of every value of `data`
    duplicates: tuple[Duplicate, ...]
    deviations: tuple[Deviation, ...]  #: in the order of the text; none: `json` reads it, unless it is broken
    broken: Broken | None  #: neither of the two reads it
    json_data: object = None  #: what `json` reads: `data`, save where `json_only` has something
    json_only: tuple[Deviation, ...] = ()  #: NaN, Infinity, 1e999: `json` reads floats, hjson text or nothing
    hjson_broken: Broken | None = None  #: why hjson doesn't read it; `broken` unless `json` does
    marks: tuple[Mark, ...] = field(default=(), repr=False)  #: the deviations with what strict JSON has there
    lines: _Lines = field(repr=False, compare=False)

    @property
    def json_reads(self) -> bool:
        """Whether Python's `json.load` reads the text."""
        return self.broken is None and not self.deviations

    @property
    def deepspeed_reads(self) -> bool:
        """Whether DeepSpeed reads the text: as hjson does, but no key twice."""
        return self.hjson_broken is None and not self.duplicates

    def has(self, pointer: str) -> bool:
        """Whether there is a value at `pointer`."""
        return pointer in self.spans

    def value(self, pointer: str, default: object = None) -> object:
        """The value at `pointer`, else `default`."""
        if pointer not in self.spans:
            return default
        value = self.data
        for part in pointer.split("/")[1:]:
            if isinstance(value, dict):
                value = value[part.replace("~1", "/").replace("~0", "~")]
            elif isinstance(value, list):
                value = value[int(part)]
        return value

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

    def locate_offset(self, offset: int, pointer: str = "") -> Location:
        """The place of the character at `offset`."""
        return self.lines.locate(offset, pointer)

    def _nearest(self, pointer: str) -> Span | None:
        while pointer and pointer not in self.spans:
            pointer = pointer.rpartition("/")[0]
        return self.spans.get(pointer)


def read_json(text: Text) -> JsonText:
    """`text` as data. Never raises: what is wrong with it is in `broken`, `duplicates` and `deviations`."""
    lines = _Lines(text)
    line_of = lines.line_of
    read = read_document(text.content, line_of)
    strict = None
    if read.tokens.json_only:
        strict = read_document(text.content, line_of, constants=True)
        if strict.broken or strict.tokens.marks:
            strict = None  # not JSON for another reason as well
    shown = strict if strict and read.broken else read
    marks = () if strict else tuple(sorted(read.tokens.marks, key=lambda mark: mark.start))
    return JsonText(
        text=text,
        data=shown.root,
        spans=_Spans(shown.places),
        duplicates=tuple(shown.duplicates),
        deviations=tuple(Deviation(offset=mark.start, what=mark.what) for mark in marks if mark.what),
        broken=None if strict else read.broken,
        json_data=strict.root if strict else read.root,
        json_only=tuple(Deviation(offset=m.start, what=m.what) for m in strict.tokens.json_only) if strict else (),
        hjson_broken=read.broken,
        marks=marks,
        lines=lines,
    )
