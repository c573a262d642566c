"""From offsets in a text to lines and columns."""

from __future__ import annotations

from bisect import bisect_right

from ..findings import Location
from ..job.text import Text


class Lines:
    """Where the lines of a text start; counted once, when first asked for."""

    __slots__ = ("_starts", "_text")

    def __init__(self, text: Text) -> None:
        self._text = text
        self._starts: list[int] = []

    @property
    def starts(self) -> list[int]:
        """The offset of each line's first character."""
        if not self._starts:
            self._count()
        return self._starts

    def locate(self, offset: int, pointer: str = "") -> Location:
        """The place of the character at `offset`."""
        line = bisect_right(self.starts, max(offset, 0)) - 1
        return self._text.locate(line, offset - self.starts[line], pointer)

    def line_of(self, offset: int) -> int:
        """The number of the line of the character at `offset`, from 1."""
        return self.locate(offset).line or 1

    def _count(self) -> None:
        content, start = self._text.content, 0
        for line in self._text.lines or [""]:
            self._starts.append(start)
            start += len(line)
            start += 2 if content.startswith("\r\n", start) else 1
