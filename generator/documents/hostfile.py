"""DeepSpeed's hostfile, and its `.deepspeed_env`, as its launcher reads them."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

from ..findings import Location
from ..job.text import Text

#: deepspeed/launcher/runner.py, _parse_hostfile @ 0.19.8: what follows the number isn't looked at.
_ENTRY: Final = re.compile(r"(\S+)\s+slots=(\d+)")
_MOST_DIGITS: Final = 4300  # int() of Python refuses longer numbers
# Universal newlines: what Python's readlines() of a text file splits at.
_LINE: Final = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")
_LINE_BREAK: Final = re.compile("\r\n|[\n\r\x85\u2028\u2029]")  # as `Text` counts lines


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

    entries: tuple[HostEntry, ...]
    text: Text
    line_starts: tuple[int, ...] = (0,)

    @property
    def path(self) -> str:
        """As the user named it."""
        return self.text.path

    def locate(self, entry: HostEntry | int) -> Location:
        """The place of an entry, or of an offset."""
        return _locate(self.text, self.line_starts, entry if isinstance(entry, int) else entry.offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentLine:
    """A line of `.deepspeed_env`."""

    name: str
    value: str | None  #: None where the line has no equals sign, which ends DeepSpeed's launcher with a ValueError
    offset: int
    raw: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentFile:
    """The lines of a `.deepspeed_env`, blank ones and comments too: DeepSpeed passes over none."""

    entries: tuple[EnvironmentLine, ...]
    text: Text
    line_starts: tuple[int, ...] = (0,)

    def locate(self, entry: EnvironmentLine | int) -> Location:
        """The place of a line, or of an offset."""
        return _locate(self.text, self.line_starts, entry if isinstance(entry, int) else entry.offset)


def read_hostfile(text: Text) -> Hostfile:
    """Reads `HOST slots=N` lines. Lines that DeepSpeed refuses are entries without slots."""
    entries: list[HostEntry] = []
    for offset, line in _lines(text.content):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        match = _ENTRY.match(stripped)
        slots = int(match[2]) if match and len(match[2]) <= _MOST_DIGITS else None
        place = offset + len(line) - len(line.lstrip())
        entries.append(HostEntry(host=stripped.split()[0], slots=slots, offset=place, raw=stripped))
    return Hostfile(entries=tuple(entries), text=text, line_starts=_line_starts(text.content))


def read_env_file(text: Text) -> EnvironmentFile:
    """Reads `NAME=VALUE` lines (runner.py, main @ 0.19.8): a line without an equals sign ends the launcher."""
    entries: list[EnvironmentLine] = []
    for offset, line in _lines(text.content):
        raw = line.rstrip("\r\n")
        name, equals, value = raw.partition("=")
        entries.append(EnvironmentLine(name=name, value=value if equals else None, offset=offset, raw=raw))
    return EnvironmentFile(entries=tuple(entries), text=text, line_starts=_line_starts(text.content))


def _lines(content: str) -> list[tuple[int, str]]:
    return [(match.start(), match[0]) for match in _LINE.finditer(content)]


def _line_starts(content: str) -> tuple[int, ...]:
    return (0, *(match.end() for match in _LINE_BREAK.finditer(content)))


def _locate(text: Text, starts: tuple[int, ...], offset: int) -> Location:
    line = max(bisect_right(starts, offset) - 1, 0)
    return text.locate(line, offset - starts[line])
