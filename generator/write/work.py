"""The working folder of a run: where it is, whose turn it is, and what an interrupted run left in it."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from .compare import CannotWrite
from .journal import LOCK, Journal
from .signals import held

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

Tell = Callable[[str], object]  #: takes a line for the user

NAME: Final = ".dsgen-writing"
PATIENCE_S: Final = 10.0  # a run holds the lock for a fraction of a second
_PAUSE_S: Final = 0.02


def work_folder(folder: Path) -> Path:
    """Where a run that writes to `folder` works: in it, or beside the topmost folder that is missing."""
    missing = [place for place in (folder, *folder.parents) if not os.path.lexists(place)]
    return _beside(missing[-1]) if missing else folder / NAME


def leftovers(folder: Path) -> list[Path]:
    """The working folders that are there of runs that wrote to `folder`, or around it."""
    place = Path(os.path.realpath(folder))
    paths = (path for each in (place, *place.parents) for path in (each / NAME, _beside(each)))
    return [path for path in paths if os.path.lexists(path) and path.is_dir() and not path.is_symlink()]


def _beside(folder: Path) -> Path:
    return folder.parent / f".{folder.name[:50]}{NAME}"  # a name has at most 255 bytes


def recover(folder: Path, tell: Tell) -> bool:
    """Finish or take back what interrupted runs left, telling it in a line each; whether files were moved for it."""
    moved = False
    for work in leftovers(folder):
        with held():
            try:
                lock = _take(work, tell)
                if lock is not None:
                    try:
                        moved |= _settle(Journal(work), tell)
                        Journal(work).clear()
                    finally:
                        os.close(lock)
            except CannotWrite as problem:  # another user's, or damaged
                tell(f"{problem.path}: warning: {problem.reason}; {problem.hint}")
            except OSError as error:
                tell(
                    f"{work}: warning: an interrupted run left this, and it cannot be undone: {error.strerror or error}"
                )
    return moved


@contextmanager
def working(work: Path, tell: Tell) -> Iterator[Journal]:
    """The journal of a working folder that is nobody else's until the block is over; signals wait for that too."""
    last = time.monotonic() + PATIENCE_S
    while time.monotonic() < last:
        with ExitStack() as stack:
            stack.enter_context(held())
            with suppress(FileExistsError):
                work.mkdir(mode=0o700)
            lock = _take(work, tell)
            if lock is not None:
                stack.callback(os.close, lock)
                journal = Journal(work)
                stack.callback(_clear, journal, tell)
                _settle(journal, tell)
                yield journal
                return
        time.sleep(_PAUSE_S)
    raise CannotWrite(work, f"another dsgen has been writing there for {PATIENCE_S:.0f} s", hint="wait for it to end")


def _take(work: Path, tell: Tell) -> int | None:
    """The locked file of a working folder, to be closed; None while another run has it, or when it just left."""
    try:
        status = work.lstat()
        if not stat.S_ISDIR(status.st_mode):
            raise CannotWrite(work, "dsgen works in a folder of this name, and it is none", hint="move it away")
        if hasattr(os, "geteuid") and status.st_uid != os.geteuid():
            hint = "let that user run dsgen again, which finishes or undoes it"
            raise CannotWrite(work, "another user's run was interrupted or is writing here", hint=hint)
        lock = os.open(work / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except FileNotFoundError:
        return None
    with ExitStack() as stack:
        stack.callback(os.close, lock)
        try:
            if fcntl is None:
                raise OSError("no such thing on this system")
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        except OSError as error:
            reason = error.strerror or error
            tell(f"{work.parent}: warning: files can't be locked here ({reason}): let no two runs write here at once")
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock), (work / LOCK).lstat()):
                stack.pop_all()
                return lock
    return None


def _settle(journal: Journal, tell: Tell) -> bool:
    settled = journal.settle()
    if settled is None:
        return False
    if not settled.touched:
        what = "had changed nothing yet"
    elif settled.forward:
        what = "had written all of its files, and they stay"
    else:
        what = "had written a part of its files; all is as it was before that run"
    tell(f"{journal.work}: note: an interrupted run left this. It {what}")
    for note in settled.notes:
        tell(note)
    journal.empty()
    return settled.touched


def _clear(journal: Journal, tell: Tell) -> None:
    try:
        journal.clear()
    except OSError as error:
        tell(not_removed(journal.work, error))


def not_removed(work: Path, error: OSError) -> str:
    """The line on a working folder that stays, though its exchange is over."""
    reason = error.strerror or error
    return f"{work}: warning: cannot be removed: {reason}; the next run that writes there removes it"
