"""DeepSpeed's JSON with the place of every key and value, as both of its readers see it.

DeepSpeed reads its config with hjson, which accepts comments, bare keys and much more; accelerate, Hugging Face and
Megatron-DeepSpeed read the same file with Python's strict `json`. A `JsonText` has what each of them reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from ...dataclass import dataclass
from ...findings import Location
from ...job.text import Text
from ...job.wording import value_at
from ..places import Lines, Reader
from .reader import Broken as Broken
from .reader import Duplicate as Duplicate
from .reader import Span as Span
from .reader import read_document
from .tokens import Mark


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
