"""Rendered files on disk: compared first, then written all or not at all. Nothing here prints."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path, PurePosixPath
from uuid import uuid4

from .frameworks.program import RenderedFile
from .secrecy import mask


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


class WouldOverwrite(Exception):
    """Files are there with other contents, and `force` was not given; `changes` holds every conflict."""

    def __init__(self, changes: tuple[Change, ...]) -> None:
        self.changes = changes
        super().__init__(", ".join(str(change.path) for change in changes) + " would be overwritten")


class CannotWrite(Exception):
    """The file system or the path refuses; the folder is as it was."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"cannot write {path}: {reason}")


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


def write(files: Iterable[RenderedFile], folder: Path, *, force: bool = False) -> tuple[Change, ...]:
    """Write what differs, all or nothing, and return what was done.

    Raises `WouldOverwrite` for conflicts without `force`, and `CannotWrite` when the file system refuses; in both
    cases the folder is left as it was.
    """
    changes = compare(files, folder)
    conflicts = tuple(change for change in changes if change.action is Action.CONFLICT)
    if conflicts and not force:
        raise WouldOverwrite(conflicts)
    _Transaction().run(tuple(change for change in changes if change.action is not Action.IDENTICAL))
    return changes


def diff(changes: Iterable[Change]) -> str:
    """What would change, as a unified diff; a file that only changes its executable bit has one line."""
    return "".join(line for change in changes for line in _diff(change))


def _compare(file: RenderedFile, folder: Path) -> Change:
    path = _place(file.path, folder)
    after = _encoded(file, path)
    try:
        if not path.exists():
            return Change(file=file, path=path, action=Action.CREATE, before=None)
        before, executable = path.read_bytes(), bool(path.stat().st_mode & 0o100)
    except OSError as error:
        raise CannotWrite(path, error.strerror or str(error)) from error
    same = before == after and executable == file.executable
    return Change(file=file, path=path, action=Action.IDENTICAL if same else Action.CONFLICT, before=before)


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


def _encoded(file: RenderedFile, path: Path) -> bytes:
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


class _Transaction:
    """Files written beside their places, then moved in one by one; what was there is kept until all are in."""

    def __init__(self) -> None:
        self._folders: list[Path] = []  # made here, outermost first
        self._staged: dict[Path, Path] = {}  # place to the temporary file that belongs there
        self._kept: dict[Path, Path] = {}  # place to where its former file waits
        self._moved: list[Path] = []

    def run(self, changes: tuple[Change, ...]) -> None:
        """Make every change, or none; raises `CannotWrite` for the one that failed."""
        path = Path()
        try:
            for change in changes:
                path = change.path
                self._stage(change)
            for path in self._staged:
                self._move_in(path)
        except BaseException as error:
            self._undo()
            if isinstance(error, OSError):
                raise CannotWrite(path, error.strerror or str(error)) from error
            raise
        for former in self._kept.values():
            with suppress(OSError):
                former.unlink()

    def _stage(self, change: Change) -> None:
        self._make_folder(change.path.parent)
        temporary = _unused_name(change.path.parent)
        self._staged[change.path] = temporary
        temporary.write_bytes(_encoded(change.file, change.path))
        existing = change.path if change.before is not None else temporary
        mode = existing.stat().st_mode & 0o777  # a file that is there keeps who may read and write it
        if bool(mode & 0o100) != change.file.executable:
            mode = mode | (mode & 0o444) >> 2 if change.file.executable else mode & ~0o111  # who may read may execute
        temporary.chmod(mode)

    def _make_folder(self, folder: Path) -> None:
        missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
        for parent in reversed(missing):
            parent.mkdir()
            self._folders.append(parent)

    def _move_in(self, path: Path) -> None:
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            former = _unused_name(path.parent)
            path.rename(former)
            self._kept[path] = former
        self._staged[path].rename(path)
        self._moved.append(path)

    def _undo(self) -> None:
        """Take out what was moved in, put back what was there, remove what was made; never stops half way."""
        for path in (*self._moved, *self._staged.values()):
            with suppress(OSError):
                path.unlink()
        for path, former in self._kept.items():
            with suppress(OSError):
                former.rename(path)
        for folder in reversed(self._folders):
            with suppress(OSError):
                folder.rmdir()


def _unused_name(folder: Path) -> Path:
    """A name in `folder` that nothing has."""
    return folder / f".dsgen-{uuid4().hex}"
