"""Rendered files on disk: compared first, then written all or not at all. Nothing here prints.

`dsgen generate`, `calibrate` and `validate --fix` write by this module.

- Every file is compared with what is there first. With a conflict and without `--force` nothing is
  written.
- New files are written in a working folder and renamed one after another, by hard links, so that
  none takes the place of another. What they replace is compared with what was read, and moved to
  the working folder first; so is what the former `plan.json` lists and the new set lacks, if its
  hash is the listed one. `plan.json` goes first and comes last.
- Signals wait until the set is complete. When a call fails, everything is put back. After SIGKILL
  the next run there puts back what is missing, and says so. Runs that write to the same folder take
  turns, by a lock.
- Limits: a file that is replaced is absent for some milliseconds. Without locks or hard links in a
  file system two runs may meet. A program that has a file open while it is replaced writes to a
  file without a name.

`tests/write_drill.md` counts what was seen with a fault at every call.
"""

from __future__ import annotations

import difflib
import errno
import hashlib
import json
import os
import re
import shutil
import signal
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager, suppress
from enum import Enum
from itertools import count
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from .patterns import lazy_pattern
from .programs.program import RenderedFile, content_hash, less_its_command
from .secrets import Hider, find, mask

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_LINE = lazy_pattern(r"[^\n]*\n|[^\n]+")
Tell = Callable[[str], object]  #: takes a line for the user
NAME: Final = ".dsgen-writing"  #: the working folder, in the folder that is written to
#: the last file of a set to come to its place: where it is, the set is whole
PLAN: Final = "plan.json"
KEPT: Final = "kept: a file of the former set, changed since dsgen wrote it"
_LARGEST_PLAN: Final = 16_000_000  # bytes; of 1,024 plans the largest has 60,000
#: What a file that dsgen writes may be called, in the folder of its `plan.json`.
_NAME: Final = lazy_pattern(r"[A-Za-z0-9][\w.-]*", re.ASCII)
PATIENCE_S: Final = 10.0  # a run holds the lock for a fraction of a second
_RETRY_S: Final = 0.02  # between two looks at the lock
_LOCK, _RENAMING, _NEW, _OLD = "lock", "renaming", "new", "old"
_LOOK: Final = "look at the file, then run the command again"
#: Errors of calls that a file system doesn't have.
_UNSUPPORTED: Final = {errno.EACCES, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP}
#: Errors of `link` on file systems without hard links, for files that may not have one more, and on
#: a full disk.
_NO_LINK: Final = _UNSUPPORTED | {errno.EPERM, errno.EMLINK, errno.ENOSPC, errno.EDQUOT}
#: What helps against errors that have nothing to do with the rights to a folder.
_REMEDIES: Final[Mapping[int, str]] = {
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ENOSPC: "free space there, then run the command again",
    errno.EDQUOT: "free space of your quota there, then run the command again",
    errno.EMFILE: "raise the limit of open files: ulimit -n",
    errno.EFBIG: "raise the limit of a file's size: ulimit -f",
}
_NO_SYNC: Final = _UNSUPPORTED | {errno.EINVAL, errno.EBADF}  #: errors of `fsync` on folders


class Action(str, Enum):
    """The effect of writing a file."""

    CREATE = "create"
    IDENTICAL = "identical"
    CONFLICT = "conflict"  #: the file is there with other bytes or another executable bit
    REMOVE = "remove"  #: a file of the former set, as dsgen wrote it, that the new set lacks
    KEEP = "keep"  #: a file of the former set that the new set lacks, changed since


class Change(NamedTuple):
    """One file against what is on disk."""

    file: RenderedFile
    path: Path
    action: Action
    before: bytes | None  #: what is on disk; `None` when nothing is
    fingerprint: str | None  #: of what is on disk, a symbolic link not followed


class WouldOverwrite(Exception):
    """Files with other contents are there, and `force` was not given.

    `changes` holds every conflict.
    """

    def __init__(self, changes: tuple[Change, ...]) -> None:
        self.changes = changes
        super().__init__(
            ", ".join(str(change.path) for change in changes) + " would be overwritten"
        )


class CannotWrite(Exception):
    """The file system or the path refuses.

    The folder is as it was, unless `unfinished` has the old files.
    """

    def __init__(
        self, path: Path, reason: str, *, hint: str | None = None, unfinished: Path | None = None
    ) -> None:
        self.path = path
        self.reason = reason
        self.hint = hint
        self.unfinished = unfinished
        super().__init__(f"cannot write {path}: {reason}")

    @classmethod
    def because(cls, path: Path, error: OSError) -> CannotWrite:
        """What the system refuses, with what helps against that, where another folder doesn't."""
        reason = error.strerror or str(error)
        return cls(path, reason, hint=_REMEDIES.get(error.errno or 0))


def fingerprint(path: Path) -> str | None:
    """A text that changes with the contents or mode of a file, or the target of a link.

    None where nothing is there.
    """
    try:
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISLNK(status.st_mode):
        return f"link {path.readlink()}"
    if stat.S_ISREG(status.st_mode):
        return fingerprint_of(path.read_bytes(), status.st_mode)
    return "no file"


def fingerprint_of(contents: bytes, mode: int) -> str:
    """The fingerprint of a regular file: the hash of its bytes, and its mode."""
    return f"{hashlib.sha256(contents).hexdigest()} {stat.S_IMODE(mode):o}"


def compare(files: Iterable[RenderedFile], folder: Path) -> tuple[Change, ...]:
    """What writing `files` into `folder` would do, in order.

    Raises `CannotWrite` for a path that can't be written.
    """
    for place in (folder, *folder.parents):
        try:
            there, is_folder = os.path.lexists(place), place.is_dir()
        except OSError as error:
            raise CannotWrite.because(place, error) from error
        if there and not is_folder:
            is_link = place.is_symlink()
            link = "it is a symbolic link that leads to no folder"
            raise CannotWrite(place, link if is_link else "it is not a folder")
    return tuple(_compare(file, folder) for file in files)


def compare_sets(files: Sequence[RenderedFile], folder: Path) -> tuple[Change, ...]:
    """What writing a set does: `compare`, and what becomes of files that the former set alone has.

    The former set is what `plan.json` lists. It may be anybody's text, so only a regular file of
    the folder itself counts, and one that is not as dsgen wrote it is kept.
    """
    changes = compare(files, folder)
    new = {file.path for file in files}
    plans = {file.path for file in files if PurePosixPath(file.path).name == PLAN}
    left_over = [change for plan in sorted(plans) for change in _left_over(plan, new, folder)]
    return (*changes, *left_over)


def _left_over(plan: str, new: Set[str], folder: Path) -> Iterator[Change]:
    """The files that the `plan.json` at a path lists and the new set lacks."""
    for name, written in sorted(_listed(folder / plan).items()):
        relative = str(PurePosixPath(plan).with_name(name))
        path = folder / relative
        if relative in new or not _is_plain(path, folder):
            continue
        content, mode = path.read_bytes(), path.lstat().st_mode
        action = Action.REMOVE if content_hash(content) == written else Action.KEEP
        yield Change(
            file=RenderedFile(path=relative, text=""),
            path=path,
            action=action,
            before=content,
            fingerprint=fingerprint_of(content, mode),
        )


def _listed(plan: Path) -> dict[str, str]:
    """The names beside a `plan.json` that it lists, with their hashes; none if it can't be read."""
    try:
        if plan.is_symlink() or plan.stat().st_size > _LARGEST_PLAN:
            return {}
        hashes = json.loads(plan.read_bytes())["file_hashes"]
        pairs = [(str(name), str(hash)) for name, hash in hashes.items()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
    return {name: hash for name, hash in pairs if _NAME.fullmatch(name) and name != PLAN}


def _is_plain(path: Path, folder: Path) -> bool:
    """Return whether a path is a regular file with one name, and no link leads to it."""
    try:
        status = path.lstat()
        is_inside = path.parent.resolve() == folder.resolve() / path.parent.relative_to(folder)
    except (OSError, RuntimeError):
        return False
    return is_inside and stat.S_ISREG(status.st_mode) and status.st_nlink == 1


def diff(changes: Iterable[Change]) -> str:
    """What would change, as a unified diff; a change of the executable bit alone is one line."""
    lines = (line for change in changes for line in _diff_of(change))
    return "".join(lines)


def _diff_of(change: Change) -> Iterator[str]:
    """The lines of the diff of one file."""
    before, path = (change.before or b"").decode("utf-8", errors="replace"), str(change.path)
    if change.action is Action.IDENTICAL:
        return
    if change.action is Action.KEEP:
        yield f"{path}: {KEPT}\n"
    elif change.action is Action.REMOVE:
        yield from unified_diff(before, "", path, "/dev/null")
    elif change.before is None:
        yield from unified_diff(before, change.file.text, "/dev/null", path)
    elif before == change.file.text:
        yield f"{path}: executable bit {'on' if change.file.executable else 'off'}\n"
    else:
        yield from unified_diff(before, change.file.text, path, path)


def _compare(file: RenderedFile, folder: Path) -> Change:
    """What writing one file would do."""
    path = _place(file.path, folder)
    after = encoded(file, path)
    try:
        if path == folder or path.is_dir():
            raise CannotWrite(path, "it is a folder", hint="choose another name with -o")
        if not path.exists():
            fingerprint_there = fingerprint(path)
            # a link that leads nowhere is in the way
            action = Action.CONFLICT if fingerprint_there else Action.CREATE
            return Change(
                file=file, path=path, action=action, before=None, fingerprint=fingerprint_there
            )
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise CannotWrite(path, "it is not a regular file", hint="choose another name with -o")
        before = path.read_bytes()
        fingerprint_there = fingerprint(path) if path.is_symlink() else fingerprint_of(before, mode)
    except FileNotFoundError:
        # Another run is exchanging it. `write` compares again once that run is over.
        return Change(file=file, path=path, action=Action.CREATE, before=None, fingerprint=None)
    except OSError as error:
        raise CannotWrite.because(path, error) from error
    # The line that says which command wrote a file is left out: another one may write the same.
    is_same_text = less_its_command(before) == less_its_command(after)
    is_same_mode = bool(mode & 0o100) == file.executable
    action = Action.IDENTICAL if is_same_text and is_same_mode else Action.CONFLICT
    return Change(file=file, path=path, action=action, before=before, fingerprint=fingerprint_there)


def _place(name: str, folder: Path) -> Path:
    """The path of a file in `folder`, which neither `..` nor a symbolic link may lead out of."""
    path = folder / name
    relative = PurePosixPath(name)
    if relative.is_absolute() or ".." in relative.parts:
        raise CannotWrite(path, "the path leads out of the folder")
    try:
        inside = path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle, before Python 3.13
        raise CannotWrite(path, "its symbolic links lead nowhere") from error
    if not inside:
        raise CannotWrite(path, "a symbolic link leads out of the folder")
    return path


def encoded(file: RenderedFile, path: Path) -> bytes:
    """The bytes of a rendered file; raises `CannotWrite` for text that has none."""
    try:
        return file.text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise CannotWrite(path, f"the text is not valid Unicode: {error.reason}") from error


def unified_diff(before: str, after: str, source: str, target: str) -> Iterator[str]:
    """Yield the lines of a unified diff, without the secrets of either text.

    Line feeds alone end lines.
    """
    hide = Hider(secret.value_in(text) for text in (before, after) for secret in find(text))
    old, new = (_LINE.findall(mask(text)) for text in (before, after))
    for line in difflib.unified_diff(old, new, source, target):
        shown = hide(line)
        if not line.endswith("\n"):
            shown += "\n\\ No newline at end of file\n"
        yield shown


def write(
    files: Iterable[RenderedFile],
    folder: Path,
    *,
    force: bool = False,
    tell: Tell = lambda line: None,
) -> tuple[Change, ...]:
    """Write what differs, all or nothing, and return what was done.

    `tell` hears what an interrupted run left.

    Raises `WouldOverwrite` for conflicts without `force`, and `CannotWrite` when the file system
    refuses or another program writes there at the same time; the folder is then as it was.
    """
    files = tuple(files)
    recover(folder, tell)
    changes = _allowed(compare_sets(files, folder), force)
    if not _to_do(changes):
        return changes
    with _working(folder, tell) as work:
        # another run may have written meanwhile
        changes = _allowed(compare_sets(files, folder), force)
        _exchange(_to_do(changes), work, tell)
    return changes


def _to_do(changes: Iterable[Change]) -> list[Change]:
    """The changes that change something."""
    without_effect = (Action.IDENTICAL, Action.KEEP)
    return [change for change in changes if change.action not in without_effect]


def replace(changes: Sequence[Change], folder: Path, *, tell: Tell = lambda line: None) -> None:
    """Make changes to files below `folder`, all or none.

    Raises `CannotWrite`, also where one isn't what was found.
    """
    with _working(folder, tell) as work:
        _exchange(changes, work, tell)


def leftovers(folder: Path) -> list[Path]:
    """The working folder of a run that writes to `folder`, or was cut off while it did."""
    work = Path(os.path.realpath(folder)) / NAME
    is_folder = os.path.isdir(work)  # noqa: PTH112 - a name may be too long
    return [work] if is_folder and not work.is_symlink() else []


def recover(folder: Path, tell: Tell) -> bool:
    """Put back what an interrupted run moved aside, where nothing has come since.

    Returns whether anything was moved.
    """
    moved = False
    for work in leftovers(folder):
        with held(), ExitStack() as stack:
            try:
                if _take(work, stack, tell):
                    moved |= _put_back(work, tell)
                    _clear(work)
            except OSError as error:
                tell(f"{work}: warning: an interrupted run left this: {error.strerror or error}")
    return moved


def _allowed(changes: tuple[Change, ...], force: bool) -> tuple[Change, ...]:
    """The changes; raises `WouldOverwrite` where one needs `force`, which is not given."""
    not_new = (Action.CONFLICT, Action.REMOVE, Action.KEEP)
    conflicts = tuple(change for change in changes if change.action in not_new)
    if not force and any(change.action is not Action.KEEP for change in conflicts):
        raise WouldOverwrite(conflicts)
    return changes


@contextmanager
def _working(folder: Path, tell: Tell) -> Iterator[Path]:
    """The working folder, nobody else's until the block is over; signals wait too.

    `OSError` becomes `CannotWrite`.
    """
    work = Path(os.path.realpath(folder)) / NAME
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            with ExitStack() as stack:
                stack.enter_context(held())
                stack.callback(_remove_empty, _make(work.parent))
                with suppress(FileExistsError):
                    work.mkdir(mode=0o700)
                if _take(work, stack, tell):
                    stack.callback(_clear_or_tell, work, tell)
                    _put_back(work, tell)
                    yield work
                    return
        except OSError as error:
            raise CannotWrite.because(folder, error) from error
        time.sleep(_RETRY_S)
    raise CannotWrite(
        work,
        f"another dsgen has been writing there for {PATIENCE_S:.0f} s",
        hint="wait for it to end",
    )


def _make(folder: Path) -> list[Path]:
    """The folders that had to be made for `folder`, the innermost first."""
    missing = [path for path in (folder, *folder.parents) if not os.path.lexists(path)]
    folder.mkdir(parents=True, exist_ok=True)
    return missing


def _remove_empty(folders: Iterable[Path]) -> None:
    for folder in folders:
        with suppress(OSError):  # it has files now
            folder.rmdir()


def _take(work: Path, stack: ExitStack, tell: Tell) -> bool:
    """Lock a working folder until the stack is closed.

    False while another run has it, or when that run has just left.
    """
    try:
        if not stat.S_ISDIR(work.lstat().st_mode):
            raise CannotWrite(
                work, "dsgen works in a folder of this name, and it is none", hint="move it away"
            )
        lock = os.open(work / _LOCK, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        link = "its lock is a symbolic link, which dsgen makes none of"
        raise CannotWrite(work, link, hint="move it away") from error
    stack.callback(os.close, lock)
    try:
        if fcntl is None:
            raise OSError("no such thing on this system")
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        reason = error.strerror or error
        tell(
            f"{work.parent}: warning: files can't be locked here ({reason}): let no two "
            "runs write here at once"
        )
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(lock), (work / _LOCK).lstat())
    return False


def _exchange(changes: Sequence[Change], work: Path, tell: Tell) -> None:
    """Write every new file beside its place, then rename them one by one.

    After an error everything is put back.
    """
    root, old = work.parent, work / _OLD
    files = _by_place(changes, root)
    staged = _stage(files, work)
    made: list[Path] = []
    try:
        _rename(files, work, made)
    except BaseException as error:
        try:
            _take_back(staged, work)
            _remove_empty(made)
            (work / _RENAMING).unlink(missing_ok=True)
        except OSError as problem:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise CannotWrite(root, reason, unfinished=work) from problem
        raise
    for name, change in files.items():
        if fingerprint(old / name) == change.fingerprint:
            (old / name).unlink(missing_ok=True)
            continue
        # Written to since the last look: it gets the first name that is free.
        names = (root / f"{name}.before{number or ''}" for number in count())
        kept = next(path for path in names if not os.path.lexists(path))
        put(old / name, kept)
        tell(
            f"{root / name}: warning: another program wrote to it while it was replaced: "
            f"that is kept in {kept}"
        )


def _by_place(changes: Iterable[Change], root: Path) -> dict[Path, Change]:
    """The changes by their path below the folder, the mark of a whole set last."""
    files: dict[Path, Change] = {}
    for change in sorted(changes, key=lambda change: change.file.path == PLAN):
        name = (Path(os.path.realpath(change.path.parent)) / change.path.name).relative_to(root)
        for other in files:
            if name in other.parents or other in name.parents:
                outer = change if name in other.parents else files[other]
                raise CannotWrite(outer.path, "other files are to be in it, as in a folder")
        files[name] = change
    return files


def _stage(files: Mapping[Path, Change], work: Path) -> dict[Path, str | None]:
    """Write every new file in the working folder; their fingerprints."""
    root = work.parent
    staged: dict[Path, str | None] = {}
    for folder in (work / _NEW, work / _OLD):
        folder.mkdir()
        for name in files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
    for name, change in files.items():
        if change.action is Action.REMOVE:
            staged[name] = None
            continue
        new, contents = work / _NEW / name, encoded(change.file, change.path)
        replaced = root / name if change.before is not None else None
        write_new(new, contents, like=replaced, executable=change.file.executable)
        staged[name] = fingerprint(new)
    sync({*((work / _NEW / name).parent for name in files), work})
    return staged


def _rename(files: Mapping[Path, Change], work: Path, made: list[Path]) -> None:
    """Move old files aside and new ones to their places; `made` collects the folders made."""
    root, new, old = work.parent, work / _NEW, work / _OLD
    removals = ((name, change) for name, change in files.items() if _is_removal(change))
    to_remove = [f"{change.fingerprint} {name}" for name, change in removals]
    write_new(work / _RENAMING, "\n".join(to_remove).encode())
    for name, change in reversed([*files.items()]):  # the mark of a whole set goes first
        if change.fingerprint is not None:
            with suppress(FileNotFoundError):  # somebody removed it: it is not what was found
                (root / name).rename(old / name)
        _refuse_changed(old / name, change)
    for name, change in files.items():
        if _is_removal(change):
            continue
        made[:0] = _make((root / name).parent)
        try:
            put(new / name, root / name)
        except FileExistsError:
            raise CannotWrite(
                change.path, "another program created it meanwhile", hint=_LOOK
            ) from None
    sync((root / name).parent for name in files)
    for name, change in files.items():
        _refuse_changed(old / name, change)  # a program that had it open may have written to it
    (work / _RENAMING).unlink()


def _is_removal(change: Change) -> bool:
    return change.action is Action.REMOVE


def _take_back(staged: Mapping[Path, str | None], work: Path) -> None:
    """Remove new files that nobody has written to since, and put the old ones back."""
    for name, staged_fingerprint in staged.items():
        place, aside = work.parent / name, work / _OLD / name
        if staged_fingerprint is not None and fingerprint(place) == staged_fingerprint:
            place.unlink()
        if os.path.lexists(aside) and not os.path.lexists(place):
            put(aside, place)


def _refuse_changed(aside: Path, change: Change) -> None:
    if fingerprint(aside) != change.fingerprint:
        raise CannotWrite(change.path, "another program changed it meanwhile", hint=_LOOK)


def _put_back(work: Path, tell: Tell) -> bool:
    """Put back what an interrupted run moved aside, where nothing is now.

    The mark of a whole set only comes back with all the rest.
    """
    if not any(os.path.lexists(work / name) for name in (_RENAMING, _NEW, _OLD)):
        return False
    root, old = work.parent, work / _OLD
    was_renaming = os.path.lexists(work / _RENAMING)
    aside = []
    if was_renaming:
        aside = [path for path in sorted(old.rglob("*")) if path.is_symlink() or not path.is_dir()]
    moved = False
    # Where a part of the new set is there, what the new set lacks stays away, as the interrupted
    # run wanted, and the mark of the old set does too.
    is_mixed = any(os.path.lexists(root / path.relative_to(old)) for path in aside)
    to_remove = _to_remove(work / _RENAMING) if is_mixed else frozenset[str]()
    for path in sorted(aside, key=lambda path: path.name == PLAN):
        if f"{fingerprint(path)} {path.relative_to(old)}" in to_remove:
            continue
        place = root / path.relative_to(old)
        is_inside = Path(os.path.realpath(place.parent)).is_relative_to(root)
        if os.path.lexists(place) or not is_inside or old.is_symlink():
            is_mixed = True
        elif not (is_mixed and path.name == PLAN):
            place.parent.mkdir(parents=True, exist_ok=True)
            put(path, place)
            moved = True
    state = "The files are whole"
    if was_renaming:
        state = "A part of its files may be in place: run that command again"
    tell(f"{work}: note: an interrupted run left this. {state}")
    for name in (_RENAMING, _NEW, _OLD):
        remove(work / name)
    return moved


def _to_remove(renaming: Path) -> frozenset[str]:
    """The files that an interrupted run was to remove, each its fingerprint and its name."""
    try:
        return frozenset(renaming.read_text(encoding="utf-8").splitlines())
    except (OSError, ValueError):
        return frozenset()


def _clear(work: Path) -> None:
    """Remove a working folder, but for what isn't dsgen's, and what could not be put back."""
    if not os.path.lexists(work / _RENAMING):
        for name in (_NEW, _OLD, _LOCK):
            remove(work / name)
        if not any(work.iterdir()):
            work.rmdir()


def _clear_or_tell(work: Path, tell: Tell) -> None:
    try:
        _clear(work)
        others = sorted(path.name for path in work.iterdir()) if work.is_dir() else []
    except OSError as error:
        reason = error.strerror or error
        tell(
            f"{work}: warning: cannot be removed: {reason}; the next run that "
            "writes there removes it"
        )
        return
    if others and not os.path.lexists(work / _RENAMING):
        tell(f"{work}: warning: cannot be removed: {others[0]} is not dsgen's; move it away")


def write_new(
    path: Path, contents: bytes, *, like: Path | None = None, executable: bool = False
) -> None:
    """Write a new file, on the disk when this returns.

    Owner, mode and attributes are those of the file `like`, if any.
    """
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        unwritten = memoryview(contents)
        while unwritten:
            unwritten = unwritten[os.write(file, unwritten) :]
        if like is not None:
            _copy_attributes(like, path)
        mode = path.stat().st_mode & 0o7777
        if bool(mode & 0o100) != executable:
            may_read = mode & 0o444
            path.chmod(mode | may_read >> 2 if executable else mode & ~0o111)
        os.fsync(file)
    finally:
        os.close(file)


def _copy_attributes(like: Path, path: Path) -> None:
    """Give a file the group, owner, mode and extended attributes of another, where that may be."""
    wanted, status = like.stat(), path.stat()
    if wanted.st_gid != status.st_gid:
        with suppress(PermissionError):
            os.chown(path, -1, wanted.st_gid)
    if wanted.st_uid != status.st_uid:
        with suppress(PermissionError):
            os.chown(path, wanted.st_uid, -1)
    shutil.copystat(like, path)
    os.utime(path)  # `copystat` copies the times too; those of the new file are now


def put(source: Path, place: Path) -> None:
    """Move to a place where nothing is.

    `FileExistsError` where something is, whenever it came to be there.
    """
    if source.is_file() and not source.is_symlink():
        try:
            os.link(source, place)
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
        else:
            source.unlink()
            return
    # Folders and symbolic links have no hard link: something may come between this and the next.
    if os.path.lexists(place):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(place))
    source.rename(place)


def sync(folders: Iterable[Path]) -> None:
    """Bring the names in folders to the disk."""
    for folder in sorted(set(folders)):
        try:
            file = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(file)
            finally:
                os.close(file)
        except OSError as error:
            if error.errno not in _NO_SYNC:
                raise


def remove(path: Path) -> None:
    """Remove a file, or a folder with all that is in it; links are not followed."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    for child in list(path.iterdir()):
        remove(child)
    path.rmdir()


@contextmanager
def held() -> Iterator[None]:
    """Signals that end the program wait until the block is over, and are then delivered.

    A mask would not do: it holds for one thread, and numpy starts others, which the system may
    choose. Outside of the main thread Python lets nobody handle signals, and nothing is held.
    """
    waiting: list[int] = []
    former = {}
    ending = (getattr(signal, name, None) for name in ("SIGINT", "SIGTERM", "SIGHUP"))
    # ValueError: not the main thread. SIGINT is first: once it waits, nothing interrupts the rest.
    with suppress(ValueError):
        for number in filter(None, ending):
            former[number] = signal.signal(number, lambda received, _: waiting.append(received))
    try:
        yield
    finally:
        for number, handler in reversed(former.items()):
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for number in waiting:
            signal.raise_signal(number)
