"""Signals that wait."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# SIGINT first: once it waits, nothing interrupts the rest.
_ENDING: Final = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


@contextmanager
def held() -> Iterator[None]:
    """Signals that end the program wait until the block is over, and are then delivered.

    A mask would not do: it holds for one thread, and numpy starts others, which the system may choose. Outside of the
    main thread Python lets nobody handle signals, and nothing is held.
    """
    came: list[int] = []
    former = {}
    try:
        for number in _ENDING:
            former[number] = signal.signal(number, lambda which, _: came.append(which))
    except ValueError:  # not the main thread
        pass
    try:
        yield
    finally:
        for number, handler in reversed(former.items()):
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for number in came:
            signal.raise_signal(number)
