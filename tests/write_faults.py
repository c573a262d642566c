"""Faults at a numbered call that changes the disk: signals, errors, and other programs that write
at that moment.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

SEAMS: tuple[tuple[Any, str], ...] = (
    *((Path, name) for name in ("mkdir", "rename", "unlink", "rmdir")),
    *((os, name) for name in ("open", "write", "link", "fsync")),
)
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
MARK = "written by another program\n"

Call = Callable[[], Any]
#: number and name of the call, the call, its arguments
Act = Callable[[int, str, Call, tuple[Any, ...]], Any]


def install(act: Act) -> None:
    """Let `act` decide on every call of `SEAMS` in this process."""
    numbers = iter(range(1, 1_000_000))
    for owner, name in SEAMS:
        setattr(owner, name, _wrapped(getattr(owner, name), name, act, numbers))


def _wrapped(
    original: Callable[..., Any], name: str, act: Act, numbers: Iterator[int]
) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        return act(next(numbers), name, lambda: original(*args, **options), args)

    return call


def fail(at: int, code: int, *, after: bool = False) -> Act:
    """The call number `at` fails, before or after it had its effect."""

    def act(number: int, name: str, call: Call, args: tuple[Any, ...]) -> Any:
        if number == at:
            if after:
                call()
            raise OSError(code, os.strerror(code))
        return call()

    return act


def fail_for_good(at: int, code: int, names: tuple[str, ...]) -> Act:
    """From the call number `at` on, calls of these names that write fail."""

    def act(number: int, name: str, call: Call, args: tuple[Any, ...]) -> Any:
        new = name != "open" or (
            args[1] & os.O_CREAT and (code == errno.EROFS or not os.path.lexists(args[0]))
        )
        if number >= at and name in names and new:
            raise OSError(code, os.strerror(code))
        return call()

    return act


def send(at: int, which: int, *, after: bool) -> Act:
    """A signal before or after the call number `at`."""

    def act(number: int, name: str, call: Call, args: tuple[Any, ...]) -> Any:
        if number == at and not after:
            os.kill(os.getpid(), which)
        result = call()
        if number == at and after:
            os.kill(os.getpid(), which)
        return result

    return act


def meanwhile(at: int, other: Act, *, armed: bool) -> Act:
    """Another program does something right before the call number `at`; if not `armed`, only once
    files are staged.
    """
    staging = [armed]

    def act(number: int, name: str, call: Call, args: tuple[Any, ...]) -> Any:
        if name == "mkdir" and args[0].name == "new":
            staging[0] = True
        if number == at and staging[0]:
            with patch.multiple(os, **ORIGINAL):  # its calls are not ours
                other(number, name, call, args)
        return call()

    return act


ORIGINAL = {"open": os.open, "write": os.write}


DISK_FULL, READ_ONLY = (
    ("open", "write", "mkdir", "link"),
    ("open", "write", "mkdir", "link", "rename", "unlink", "rmdir"),
)


def faults(at: int) -> Iterator[tuple[str, Act]]:
    """What is injected at a call: SIGKILL before it, which is after the one before; of the rest,
    each in turn.
    """
    yield "SIGKILL", send(at, signal.SIGKILL, after=False)
    which = SIGNALS[at % len(SIGNALS)]
    for after in (False, True):
        yield which.name, send(at, which, after=after)
    code = (errno.ENOSPC, errno.EIO, errno.EROFS)[at % 3]
    yield f"{errno.errorcode[code]}, once", fail(at, code)
    if at % 2:
        yield "EIO, though the call had its effect", fail(at, errno.EIO, after=True)
    elif at % 4:
        yield "ENOSPC, for good", fail_for_good(at, errno.ENOSPC, DISK_FULL)
    else:
        yield "EROFS, for good", fail_for_good(at, errno.EROFS, READ_ONLY)


def saves(path: Path) -> Act:
    """An editor that writes a new file and renames it over the old one."""

    def save(*call: Any) -> bool:
        if not path.parent.is_dir():
            return False
        new = path.with_name("editor.tmp")
        with new.open("w") as stream:
            stream.write(MARK)
        new.replace(path)
        return True

    return save


def writes(path: Path) -> Act:
    """An editor that writes to the file itself, where there is one."""

    def write(*call: Any) -> bool:
        if not path.is_file():
            return False
        with path.open("a") as stream:
            stream.write(MARK)
        return True

    return write


def holds(path: Path) -> Act | None:
    """An editor that has the file open since before the run, and writes unless its file is just
    being removed.
    """
    if not path.is_file():
        return None
    stream = path.open("a")

    def write(number: int, name: str, call: Call, args: tuple[Any, ...]) -> bool:
        status = os.fstat(stream.fileno())
        with suppress(OSError):
            if status.st_nlink == 0 or (
                name == "unlink" and os.path.samestat(status, args[0].lstat())
            ):
                return False
        stream.write(MARK)
        stream.flush()
        return True

    return write


OTHERS: tuple[tuple[str, Callable[[Path], Act | None]], ...] = (
    ("an editor renames its file over one of the set", saves),
    ("an editor writes to a file of the set", writes),
    ("an editor writes to a file that it had open", holds),
)
