"""DeepSpeed's hostfile and its `.deepspeed_env`, as its launcher reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import field
from typing import ClassVar, Final

from ...dataclass import dataclass
from ...facts.document import FileText, Kind
from ...facts.places import Lines, Reader
from ...findings import Location
from ...job.text import Text

#: deepspeed/launcher/runner.py, _parse_hostfile @ 0.19.8: what follows the number isn't looked at.
_ENTRY: Final = re.compile(r"(\S+)\s+slots=(\d+)")
_MOST_DIGITS: Final = 4300  # int() of Python refuses longer numbers
# Universal newlines: what Python's readlines() of a text file splits at.
_LINE: Final = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEntry:
    """A line of a hostfile that is neither blank nor a comment."""

    host: str
    slots: int | None  #: None where DeepSpeed refuses the line
    offset: int  #: of `raw`
    raw: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hostfile(Reader):
    """The hosts of a hostfile in order; by name, the slots of each."""

    document_kind: ClassVar[Kind] = "hostfile"
    entries: tuple[HostEntry, ...]
    text: Text
    lines: Lines = field(repr=False, compare=False)

    @property
    def path(self) -> str:
        """The path as the user named it."""
        return self.text.path

    def value(self, name: str, default: object = None) -> object:
        """The slots of a host; `default` where it isn't named, or DeepSpeed refuses its line."""
        slots = next((entry.slots for entry in self.entries if entry.host == name), None)
        return default if slots is None else slots

    def has(self, name: str) -> bool:
        """Return whether the file names a host."""
        return any(entry.host == name for entry in self.entries)

    def locate(self, name: str | HostEntry | int) -> Location:
        """The place of a host's first entry, else the file; of an entry, or of an offset."""
        if isinstance(name, str):
            name = next((entry for entry in self.entries if entry.host == name), -1)
        offset = name if isinstance(name, int) else name.offset
        return Location(path=self.path) if offset < 0 else self.lines.locate(offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentFile(Reader):
    """A `.deepspeed_env`: variables that DeepSpeed's launcher sends to every node.

    The launcher (runner.py, main @ 0.19.8) skips neither blank lines nor comments.
    """

    document_kind: ClassVar[Kind] = "environment file"
    path: str
    lines: tuple[tuple[str, Location], ...]  #: each line's text and place

    def value(self, name: str, default: object = None) -> object:
        """The last value of a variable; `default` where it has none."""
        values = [line.partition("=")[2] for line, _ in self.lines if line.startswith(f"{name}=")]
        return values[-1] if values else default

    def has(self, name: str) -> bool:
        """Return whether a variable is set."""
        return self.value(name) is not None

    def locate(self, name: str) -> Location:
        """The line that sets a variable last, else the file."""
        places = [where for line, where in self.lines if line.startswith(f"{name}=")]
        return places[-1] if places else Location(path=self.path)


def read_hostfile(text: Text) -> Hostfile:
    """Reads `HOST slots=N` lines. Lines that DeepSpeed refuses are entries without slots."""
    entries: list[HostEntry] = []
    for match in _LINE.finditer(text.content):
        line, stripped = match[0], match[0].strip()
        if not stripped or stripped.startswith("#"):
            continue
        entry = _ENTRY.match(stripped)
        slots = int(entry[2]) if entry and len(entry[2]) <= _MOST_DIGITS else None
        offset = match.start() + len(line) - len(line.lstrip())
        entries.append(HostEntry(host=stripped.split()[0], slots=slots, offset=offset, raw=stripped))
    return Hostfile(entries=tuple(entries), text=text, lines=Lines(text))


def read_environment_file(text: Text) -> EnvironmentFile:
    """Reads `NAME=VALUE` lines. Lines that the launcher refuses are kept."""
    lines = tuple((line, text.locate(number, 0)) for number, line in enumerate(text.lines))
    return EnvironmentFile(path=text.path, lines=lines)


def read_hosts(file: FileText) -> Iterator[Hostfile]:
    """The hostfile that a file is."""
    yield read_hostfile(file.text)


def read_environment(file: FileText) -> Iterator[EnvironmentFile]:
    """The environment that a file has."""
    yield read_environment_file(file.text)
