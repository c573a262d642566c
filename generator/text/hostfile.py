"""DeepSpeed's hostfile and its `.deepspeed_env`, as its launcher reads them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import ClassVar, Final

from ..dataclass import dataclass
from ..findings import Location
from ..numerals import python_int
from ..patterns import lazy_pattern
from ..places import Lines
from .document import FileText, Kind
from .text import Text

#: deepspeed/launcher/runner.py, _parse_hostfile @ 0.19.8: what follows the number isn't looked at.
_ENTRY: Final = lazy_pattern(r"(\S+)\s+slots=([0-9]+)")
# Universal newlines: what Python's readlines() of a text file splits at.
_LINE: Final = lazy_pattern(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEntry:
    """A line of a hostfile that is neither blank nor a comment."""

    host: str
    slots: int | None  #: None where DeepSpeed refuses the line
    offset: int  #: of `raw`
    raw: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hostfile:
    """The hosts of a hostfile in order."""

    document_kind: ClassVar[Kind] = "hostfile"
    entries: tuple[HostEntry, ...]
    text: Text
    lines: Lines = field(repr=False, compare=False)

    @property
    def path(self) -> str:
        return self.text.path

    def locate(self, entry: HostEntry | int) -> Location:
        return self.lines.locate(entry if isinstance(entry, int) else entry.offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentFile:
    """A `.deepspeed_env`: variables that DeepSpeed's launcher sends to every node.

    The launcher (runner.py, main @ 0.19.8) skips neither blank lines nor comments.
    """

    document_kind: ClassVar[Kind] = "environment file"
    path: str
    lines: tuple[tuple[str, Location], ...]  #: each line's text and place


def read_hosts(file: FileText) -> Iterator[Hostfile]:
    """Read `HOST slots=N` lines. Lines that DeepSpeed refuses are entries without slots."""
    text = file.text
    entries: list[HostEntry] = []
    for match in _LINE.finditer(text.content):
        line, stripped = match[0], match[0].strip()
        if not stripped or stripped.startswith("#"):
            continue
        entry = _ENTRY.match(stripped)
        slots = python_int(entry[2]) if entry else None
        offset = match.start() + len(line) - len(line.lstrip())
        entries.append(
            HostEntry(host=stripped.split()[0], slots=slots, offset=offset, raw=stripped)
        )
    yield Hostfile(entries=tuple(entries), text=text, lines=Lines(text))


def read_environment(file: FileText) -> Iterator[EnvironmentFile]:
    """Read `NAME=VALUE` lines. Lines that the launcher refuses are kept."""
    lines = tuple(
        (line, file.text.locate(number, 0)) for number, line in enumerate(file.text.lines)
    )
    yield EnvironmentFile(path=file.text.path, lines=lines)
