"""Bash launch scripts as far as they can be known without running them, with the place of every word.

What isn't understood is skipped; nothing in a script makes the reader fail.
"""

from __future__ import annotations

import gc
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from ...findings import Location
from ...job.text import Text
from .context import Context, Reading
from .pieces import Source
from .reader import Reader
from .records import Assignment, Command, Directive, Heredoc, Word

__all__ = ["Assignment", "Command", "Directive", "Heredoc", "ShellScript", "Word", "read_command_text", "read_script"]

#: The last assignments of a variable: the index of the next command, and the value, None where it can't be known.
History = dict[str, list[tuple[int, str | None]]]

_LINE_BREAK: Final = re.compile("\r\n|[\n\r\x85\u2028\u2029]")  # as `Text` counts lines


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellScript:
    """A script's commands, assignments, directives and here-documents, each in order."""

    text: Text
    shebang: str | None
    directives: tuple[Directive, ...]
    commands: tuple[Command, ...]
    assignments: tuple[Assignment, ...]
    heredocs: tuple[Heredoc, ...]
    history: History = field(default_factory=dict, repr=False)
    unterminated: int | None = None  #: the offset of a quote, bracket or here-document that nothing closes
    place: Callable[[int], Location] | None = field(default=None, repr=False)
    line_starts: tuple[int, ...] = field(default=(), repr=False)

    def locate(self, thing: Word | Assignment | Command | Directive | Heredoc | int, pointer: str = "") -> Location:
        """The place of a part of the script, or of an offset."""
        offset = thing if isinstance(thing, int) else thing.offset
        if self.place is not None:
            return self.place(offset)
        line = max(bisect_right(self.line_starts, offset) - 1, 0)
        return self.text.locate(line, offset - self.line_starts[line], pointer)

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
    """Reads a command that stands in another document; `place` gives the place there of an offset in `content`."""
    return _read(Text(path=path, content=content, lines=content.splitlines()), place)


def _read(text: Text, place: Callable[[int], Location] | None) -> ShellScript:
    reading = Reading(text.content)
    context = Context(reading, Source(text.content))
    with _no_collections():
        Reader(context).read()
    first = text.lines[0] if text.lines else ""
    return ShellScript(
        text=text,
        shebang=first if first.startswith("#!") else None,
        directives=tuple(reading.directives),
        commands=tuple(reading.commands),
        assignments=tuple(reading.assignments),
        heredocs=tuple(reading.heredocs),
        history=context.state.history,
        unterminated=reading.unterminated,
        place=place,
        line_starts=(0, *(match.end() for match in _LINE_BREAK.finditer(text.content))),
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
