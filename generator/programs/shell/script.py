"""Bash launch scripts as far as they can be known without running them, with the place of every word.

What isn't understood is skipped; nothing in a script makes the reader fail.
"""

from __future__ import annotations

import gc
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field

from ...dataclass import dataclass
from ...facts.places import Lines
from ...findings import Location
from ...job.text import Text
from .commands import Reading, Shell
from .reader import Reader
from .records import Assignment, Command, Directive, Heredoc, Word
from .values import Source

__all__ = ["Assignment", "Command", "Directive", "Heredoc", "ShellScript", "Word", "read_command_text", "read_script"]

#: The last assignments of a variable: the index of the next command, and the value, None where it can't be known.
History = dict[str, list[tuple[int, str | None]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellScript:
    """A script's commands, assignments, directives and here-documents, each in order."""

    text: Text
    shebang: str | None
    directives: tuple[Directive, ...]
    commands: tuple[Command, ...]
    assignments: tuple[Assignment, ...]
    heredocs: tuple[Heredoc, ...]
    written: tuple[Word, ...]  #: the words that name files which commands write
    edited: tuple[Word, ...] = ()  #: the words that name files to which commands add, or which they change in place
    history: History = field(default_factory=dict, repr=False)
    unterminated: int | None = None  #: the offset of a quote, bracket or here-document that nothing closes
    place: Callable[[int], Location] | None = field(default=None, repr=False)
    lines: Lines = field(repr=False, compare=False)

    def locate(self, thing: Word | Assignment | Command | Directive | Heredoc | int, pointer: str = "") -> Location:
        """The place of a part of the script, or of an offset."""
        offset = thing if isinstance(thing, int) else thing.offset
        return self.lines.locate(offset, pointer) if self.place is None else self.place(offset)

    def value_of(self, name: str, before: int | None = None) -> str | None:
        """The value of a variable where the command of index `before` begins; at the end of the script with None."""
        changes = self.history.get(name, [])
        if before is None:
            return changes[-1][1] if changes else None
        index = bisect_right(changes, before, key=lambda change: change[0])
        return changes[index - 1][1] if index else None


def read_script(text: Text) -> ShellScript:
    """Reads a bash script."""
    return _read(text, None)


def read_command_text(content: str, place: Callable[[int], Location], path: str = "") -> ShellScript:
    """Reads a command within another document; `place` gives the place there of an offset in `content`."""
    return _read(Text(path=path, content=content, lines=content.splitlines()), place)


def _read(text: Text, place: Callable[[int], Location] | None) -> ShellScript:
    reading = Reading(text.content)
    shell = Shell(reading, Source(text.content))
    with _no_collections():
        Reader(shell).read()
    first = text.lines[0] if text.lines else ""
    return ShellScript(
        text=text,
        shebang=first if first.startswith("#!") else None,
        directives=tuple(reading.directives),
        commands=tuple(reading.commands),
        assignments=tuple(reading.assignments),
        heredocs=tuple(reading.heredocs),
        written=tuple(reading.written),
        edited=tuple(reading.edited),
        history=shell.state.history,
        unterminated=reading.unterminated,
        place=place,
        lines=Lines(text),
    )


@contextmanager
def _no_collections() -> Iterator[None]:
    """Keeps Python from looking for cycles: a script's parts have none, and it would go through all of them often."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
