"""Rendered files on disk: compared first, then written all or not at all. Nothing here prints."""

from __future__ import annotations

import difflib
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path, PurePosixPath

from .frameworks.program import RenderedFile


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
    try:
        before = path.read_bytes() if path.exists() else None
        same = before == _bytes(file, path) and bool(path.stat().st_mode & 0o100) == file.executable
    except FileNotFoundError:
        return Change(file=file, path=path, action=Action.CREATE, before=None)
    except OSError as error:
        raise CannotWrite(path, error.strerror or str(error)) from error
    if before is None:
        return Change(file=file, path=path, action=Action.CREATE, before=None)
    return Change(file=file, path=path, action=Action.IDENTICAL if same else Action.CONFLICT, before=before)


def _place(name: str, folder: Path) -> Path:
    """The path of a file in `folder`, which neither `..` nor a symbolic link may lead out of."""
    path = folder / name
    parts = PurePosixPath(name).parts
    if not parts or PurePosixPath(name).is_absolute() or ".." in parts:
        raise CannotWrite(path, "the path leads out of the folder")
    if not path.resolve().is_relative_to(folder.resolve()):
        raise CannotWrite(path, "a symbolic link leads out of the folder")
    return path


def _bytes(file: RenderedFile, path: Path) -> bytes:
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
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), change.file.text.splitlines(keepends=True), source, str(change.path)
    )
    yield from (line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


class _Transaction:
    """Files replaced one by one, with what is needed to undo it."""

    def __init__(self) -> None:
        self._folders: list[Path] = []  # made here, outermost first
        self._staged: list[tuple[Path, Change]] = []
        self._done: list[tuple[Change, int | None]] = []  # with the mode of what was there

    def run(self, changes: tuple[Change, ...]) -> None:
        current: Path | None = None
        try:
            for change in changes:
                current = change.path
                self._stage(change)
            for temporary, change in self._staged:
                current = change.path
                self._replace(temporary, change)
        except OSError as error:
            self._undo()
            raise CannotWrite(current or Path(), error.strerror or str(error)) from error
        except BaseException:
            self._undo()
            raise

    def _stage(self, change: Change) -> None:
        self._make_folder(change.path.parent)
        handle, name = tempfile.mkstemp(prefix=".dsgen-", dir=change.path.parent)
        self._staged.append((Path(name), change))
        with os.fdopen(handle, "wb") as stream:
            stream.write(_bytes(change.file, change.path))
        Path(name).chmod((0o777 if change.file.executable else 0o666) & ~_umask())

    def _make_folder(self, folder: Path) -> None:
        missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
        for parent in reversed(missing):
            parent.mkdir()
            self._folders.append(parent)

    def _replace(self, temporary: Path, change: Change) -> None:
        mode = None if change.before is None else change.path.stat().st_mode
        temporary.replace(change.path)
        self._done.append((change, mode))

    def _undo(self) -> None:
        for change, mode in reversed(self._done):
            with suppress(OSError):
                if change.before is None or mode is None:
                    change.path.unlink()
                else:
                    change.path.write_bytes(change.before)
                    change.path.chmod(mode)
        for temporary, _ in self._staged:
            with suppress(OSError):
                temporary.unlink()
        for folder in reversed(self._folders):
            with suppress(OSError):
                folder.rmdir()


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
