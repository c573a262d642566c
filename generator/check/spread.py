"""Spread the work on many files over processes, where the machine has several cores."""

from __future__ import annotations

import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from ..dataclass import dataclass
from ..faults import Fault, collected, note_again
from ..lasting import lasting

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
_STEPS: Final = 100  # of a part: each has a byte as its number

_T = TypeVar("_T")
_R = TypeVar("_R")


class _Done(NamedTuple):
    """What was made of an item."""

    result: Any  #: pickled, where another process made it; None where it can't be
    faults: tuple[Fault, ...]


class _Part(NamedTuple):
    """Items that one process begins with; others help with those that it hasn't begun."""

    steps: Sequence[range]  #: the indices of neighbours, which one process takes together
    left: int  #: the descriptor of a pipe with the numbers of the steps that nobody took

    def taken(self) -> Iterator[int]:
        """The indices of the items that this process takes, until none is left."""
        while number := os.read(self.left, 1):
            yield from self.steps[number[0]]


def spread(
    work: Callable[[_T], _R], items: Sequence[_T], size_of: Callable[[_T], int]
) -> Iterable[_R]:
    """What `work` makes of each item, in their order; `size_of` has the bytes of files of an item.

    Processes that are forked off take their share: they know all that this one knows, and send
    their results back. What one fails to send is done here.
    """
    steps_of_parts = _parts([size_of(item) + _OF_EACH for item in items])
    if len(steps_of_parts) == 1:
        return map(work, items)

    parts, others = list[_Part](), list[_Process]()
    try:
        with suppress(OSError):  # no process may be started, or there is no memory for one
            parts += map(_part, steps_of_parts)
            for number in range(1, len(parts)):
                own_first = [*parts[number:], *parts[:number]]
                others.append(_started(_Work(work, items, own_first)))
        done = dict(_Work(work, items, parts).done())
        for other in others:
            done |= _received(other.receiver)
    finally:
        for part in parts:
            os.close(part.left)
        for other in others:
            other.receiver.close()
            other.process.kill()
            other.process.join()

    results = list[_R]()
    for index, item in enumerate(items):
        of_item = done.get(index) or _done(work, item)
        for fault in of_item.faults:
            note_again(fault)
        results.append(of_item.result)
    return results


@dataclass(frozen=True, slots=True)
class _Work(Generic[_T, _R]):
    """What one process does."""

    work: Callable[[_T], _R]
    items: Sequence[_T]
    parts: Sequence[_Part]  #: its own first

    def done(self) -> Iterator[tuple[int, _Done]]:
        """What was made of the items that this process takes, with their indices."""
        for part in self.parts:
            for index in part.taken():
                yield index, _done(self.work, self.items[index])


def _done(work: Callable[[_T], _R], item: _T) -> _Done:
    with collected() as faults:
        result = work(item)
    return _Done(result, tuple(faults))


class _Process(NamedTuple):
    """A process that works on parts."""

    process: ForkProcess
    receiver: Connection  #: of what it sends


def _started(work: _Work[_T, _R]) -> _Process:
    """A process that does its work. Raises `OSError` where none can be started."""
    from multiprocessing import get_context  # saves start-up time for few files

    context = get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    with sender:
        process = context.Process(target=_send, args=(sender, work), daemon=True)
        process.start()
    return _Process(process, receiver)


def _part(steps: Sequence[range]) -> _Part:
    """A part of which nobody has taken a step. Raises `OSError` where there is no pipe for it."""
    left, numbers = os.pipe()
    os.write(numbers, bytes(range(len(steps))))
    os.close(numbers)
    return _Part(steps, left)


def _parts(sizes: Sequence[int]) -> list[list[range]]:
    """The steps of a part for each process, by the bytes of the items.

    Neighbours stay together: they share the files around them, which a process keeps.
    """
    every = range(len(sizes))
    count = min(_cores(), sum(sizes) // _LEAST_BYTES)
    if count < 2:
        return [[every]]
    return [_cut(part, _STEPS, sizes) for part in _cut(every, count, sizes)]


def _cut(indices: range, count: int, sizes: Sequence[int]) -> list[range]:
    """Up to so many runs of neighbours, of about as many bytes each."""
    total, before = sum(sizes[index] for index in indices), 0
    ends = dict[int, int]()  # of the runs that have an item, by their numbers
    for index in indices:
        middle = before + sizes[index] / 2
        ends[min(int(middle * count / total), count - 1)] = index + 1
        before += sizes[index]
    return [range(start, end) for start, end in pairwise((indices.start, *ends.values()))]


def _cores() -> int:
    """The cores that this process may use; 1 where it can't be forked safely.

    A fork copies no threads, and locks that they hold are never released in the copy. On macOS
    libraries of the system have threads of their own.
    """
    if sys.platform != "linux" or threading.active_count() > 1:
        return 1
    return min(len(os.sched_getaffinity(0)), _MOST)


def _send(sender: Connection, work: _Work[_T, _R]) -> None:
    """Send what this process makes of items; nothing where it fails: then they are done again."""
    with suppress(BaseException):
        sender.send(
            {index: _Done(_pickled(done.result), done.faults) for index, done in work.done()}
        )
    sender.close()


def _pickled(result: object) -> bytes | None:
    """A result as it is sent; None where a part of it, such as a function, can't be."""
    try:
        return pickle.dumps(result, pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError):
        return None


def _received(receiver: Connection) -> dict[int, _Done]:
    """What a process made of items, by their indices; nothing where it ended without sending."""
    try:
        sent: dict[int, _Done] = receiver.recv()
    except EOFError:
        return {}
    with lasting():
        return {
            index: _Done(pickle.loads(done.result), done.faults)
            for index, done in sent.items()
            if done.result is not None
        }
