"""A line on the terminal while something takes longer than a second; gone at its end."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Final

from ..findings import printable

_EVERY_S: Final = 1.0


@contextmanager
def working(what: str, form: str = "text") -> Iterator[Callable[[str], None]]:
    """Say `what` takes so long, with the seconds, and what the function that this gives is told.

    On standard error, and only where both streams are a terminal and the form is for people. Nothing may be printed
    inside.
    """
    if form not in ("text", "table") or not (sys.stdout.isatty() and sys.stderr.isatty()):
        yield lambda _: None
        return
    line, done = _Line(what), Event()
    thread = Thread(target=line.show_until, args=(done,), daemon=True)
    thread.start()
    try:
        yield line.tell
    finally:
        done.set()
        thread.join()


class _Line:
    def __init__(self, what: str) -> None:
        self._what, self._more, self._since, self._width = what, "", time.monotonic(), 0

    def tell(self, more: str) -> None:
        self._more = more

    def show_until(self, done: Event) -> None:
        """Draw the line again every second, from the first second on, and wipe it at the end."""
        while not done.wait(_EVERY_S):
            parts = (self._what, self._more, f"{time.monotonic() - self._since:.0f} s")
            columns = shutil.get_terminal_size().columns or 80  # Python 3.10 says 0 where the terminal doesn't know
            self._draw(printable(", ".join(filter(None, parts)))[: columns - 1])
        self._draw("")

    def _draw(self, text: str) -> None:
        if text or self._width:
            sys.stderr.write(f"\r{text:<{self._width}}{'' if text else chr(13)}")
            sys.stderr.flush()
        self._width = len(text)
