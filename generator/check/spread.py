"""Spread the work on many files over processes, where the machine has several cores."""

from __future__ import annotations

import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import zip_longest
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from ..faults import Fault, collected, note_again

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkProcess

#: Bytes of files for which a process more pays: about 0.3 s of work, and it costs some 0.05 s.
#: 1,000 scripts of 6.7 MB are read in 8.5 s and judged in 4.9 s, 1,000 configs of 1.0 MB in 0.6 s
#: and 1.6 s.
_LEAST_BYTES: Final = 300_000
_OF_EACH: Final = 1_000  # bytes that take as long as an empty file does
#: Processes at most: a login node is shared.
_MOST: Final = 4

_T = TypeVar("_T")
_R = TypeVar("_R")


class _Sent(NamedTuple):
    """What a process made of its part."""

    results: list[bytes | None]  #: pickled; None where a result can't be
    faults: list[Fault]


def spread(
    work: Callable[[_T], _R], items: Sequence[_T], size_of: Callable[[_T], int]
) -> Iterable[_R]:
    """What `work` makes of each item, in their order; `size_of` has the bytes of files of an item.

    Parts of the items go to processes that are forked off: they know all that this one knows, and
    send their results back. What one fails to send is done here.
    """
    parts = _parts(items, size_of)
    if len(parts) == 1:
        return map(work, items)

    others = list[_Process]()
    try:
        with suppress(OSError):  # no process may be started, or there is no memory for one
            for part in parts[1:]:
                others.append(_started(work, part))
        results = list(map(work, parts[0]))
        sent = [_received(other.receiver) for other in others]
    finally:
        for other in others:
            other.receiver.close()
            other.process.kill()
            other.process.join()
    sent += [[] for _ in parts[1 + len(sent) :]]
    for part, pickled in zip(parts[1:], sent, strict=True):
        results += (
            work(item) if result is None else pickle.loads(result)
            for item, result in zip_longest(part, pickled)
        )
    return results


class _Process(NamedTuple):
    """A process that works on a part."""

    process: ForkProcess
    receiver: Connection  #: of what it sends


def _started(work: Callable[[_T], _R], part: Sequence[_T]) -> _Process:
    """A process that works on a part. Raises `OSError` where none can be started."""
    from multiprocessing import get_context  # saves start-up time for few files

    context = get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    with sender:
        process = context.Process(target=_send, args=(sender, work, part), daemon=True)
        process.start()
    return _Process(process, receiver)


def _parts(items: Sequence[_T], size_of: Callable[[_T], int]) -> list[Sequence[_T]]:
    """The items in one part for each process, in their order, of about as many bytes each.

    Neighbours stay together: they share the files around them, which a process keeps.
    """
    sizes = [size_of(item) + _OF_EACH for item in items]
    total = sum(sizes)
    count = min(_cores(), total // _LEAST_BYTES)
    if count < 2:
        return [items]

    parts: list[list[_T]] = [[] for _ in range(count)]
    before = 0
    for item, size in zip(items, sizes, strict=True):
        middle = before + size / 2
        parts[min(int(middle * count / total), count - 1)].append(item)
        before += size
    return [part for part in parts if part]


def _cores() -> int:
    """The cores that this process may use; 1 where it can't be forked safely.

    A fork copies no threads, and locks that they hold are never released in the copy. On macOS
    libraries of the system have threads of their own.
    """
    if sys.platform != "linux" or threading.active_count() > 1:
        return 1
    return min(len(os.sched_getaffinity(0)), _MOST)


def _send(sender: Connection, work: Callable[[_T], _R], part: Sequence[_T]) -> None:
    """Send what `work` makes of a part; nothing where it raises: then it is done once more."""
    with suppress(BaseException), collected() as faults:
        results = [_pickled(result) for result in map(work, part)]
        sender.send(_Sent(results, list(faults)))
    sender.close()


def _pickled(result: object) -> bytes | None:
    """A result as it is sent; None where a part of it, such as a function, can't be."""
    try:
        return pickle.dumps(result, pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError):
        return None


def _received(receiver: Connection) -> list[bytes | None]:
    """The results that a process sends; none where it ended without."""
    try:
        sent: _Sent = receiver.recv()
    except EOFError:
        return []
    for fault in sent.faults:
        note_again(fault)
    return sent.results
