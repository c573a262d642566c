"""Rendered files against what is on disk."""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path, PurePosixPath

from ..dataclass import dataclass
from ..programs.program import RenderedFile
from ..secrets import mask

_WRITTEN_BY = re.compile(rb"^# Written by dsgen .*\n", re.MULTILINE)


class Action(str, Enum):
    """What writing a file does."""

    CREATE = "create"
    IDENTICAL = "identical"
    CONFLICT = "conflict"  #: the file is there with other bytes or another executable bit


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One file against what is on disk."""

    file: RenderedFile
    path: Path
    action: Action
    before: bytes | None  #: what is on disk; `None` when nothing is
    found: str | None  #: the fingerprint of what is on disk, a symbolic link not followed


class WouldOverwrite(Exception):
    """Files are there with other contents, and `force` was not given; `changes` holds every conflict."""

    def __init__(self, changes: tuple[Change, ...]) -> None:
        self.changes = changes
        super().__init__(", ".join(str(change.path) for change in changes) + " would be overwritten")


class CannotWrite(Exception):
    """The file system or the path refuses. The folder is as it was, unless `unfinished` names the journal."""

    def __init__(self, path: Path, reason: str, *, hint: str | None = None, unfinished: Path | None = None) -> None:
        self.path = path
        self.reason = reason
        self.hint = hint
        self.unfinished = unfinished
        super().__init__(f"cannot write {path}: {reason}")


class ChangedMeanwhile(CannotWrite):
    """Another program wrote a file after it was compared; its file was kept and nothing was written."""


def fingerprint(path: Path) -> str | None:
    """What tells apart two states of a file: contents and mode, or where a link leads; None where nothing is."""
    try:
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISLNK(status.st_mode):
        return f"link {path.readlink()}"
    return fingerprint_of(path.read_bytes(), status.st_mode) if stat.S_ISREG(status.st_mode) else "no file"


def fingerprint_of(contents: bytes, mode: int) -> str:
    """The fingerprint of a regular file."""
    return f"{hashlib.sha256(contents).hexdigest()} {stat.S_IMODE(mode):o}"


def compare(files: Iterable[RenderedFile], folder: Path) -> tuple[Change, ...]:
    """What writing `files` into `folder` would do, in order; raises `CannotWrite` for a path that is no place."""
    for place in (folder, *folder.parents):
        try:
            there, is_folder = os.path.lexists(place), place.is_dir()
        except OSError as error:
            raise CannotWrite(place, error.strerror or str(error)) from error
        if there and not is_folder:
            leads = "it is a symbolic link that leads to no folder" if place.is_symlink() else "it is not a folder"
            raise CannotWrite(place, leads)
    return tuple(_compare(file, folder) for file in files)


def diff(changes: Iterable[Change]) -> str:
    """What would change, as a unified diff; a file that only changes its executable bit has one line."""
    return "".join(line for change in changes for line in _diff(change))


def _compare(file: RenderedFile, folder: Path) -> Change:
    path = _place(file.path, folder)
    after = encoded(file, path)
    try:
        if not path.exists():
            found = fingerprint(path)
            action = Action.CONFLICT if found else Action.CREATE  # a link that leads nowhere is in the way
            return Change(file=file, path=path, action=action, before=None, found=found)
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise CannotWrite(path, "it is not a regular file")
        before = path.read_bytes()
        found = fingerprint(path) if path.is_symlink() else fingerprint_of(before, mode)
    except FileNotFoundError:  # another run is exchanging it: what holds is compared once that run is over
        return Change(file=file, path=path, action=Action.CREATE, before=None, found=None)
    except OSError as error:
        raise CannotWrite(path, error.strerror or str(error)) from error
    same = _body(before) == _body(after) and bool(mode & 0o100) == file.executable
    return Change(
        file=file, path=path, action=Action.IDENTICAL if same else Action.CONFLICT, before=before, found=found
    )


def _body(content: bytes) -> bytes:
    """A file's contents without the line that says which command wrote it: another one may write the same."""
    return _WRITTEN_BY.sub(b"", content, count=1)


def _place(name: str, folder: Path) -> Path:
    """The path of a file in `folder`, which neither `..` nor a symbolic link may lead out of."""
    path = folder / name
    relative = PurePosixPath(name)
    if not relative.parts or relative.is_absolute() or ".." in relative.parts:
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


def _diff(change: Change) -> Iterator[str]:
    if change.action is Action.IDENTICAL:
        return
    before = (change.before or b"").decode("utf-8", errors="replace")
    if change.before is not None and before == change.file.text:
        yield f"{change.path}: executable bit {'on' if change.file.executable else 'off'}\n"
        return
    source = "/dev/null" if change.before is None else str(change.path)
    old, new = (mask(text).splitlines(keepends=True) for text in (before, change.file.text))
    for line in difflib.unified_diff(old, new, source, str(change.path)):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
