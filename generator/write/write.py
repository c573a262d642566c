"""Changes made on the disk: all of them, or none."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from ..programs.program import RenderedFile
from .compare import Action, CannotWrite, Change, ChangedMeanwhile, WouldOverwrite, compare, encoded, fingerprint
from .disk import sync, write_new
from .journal import Entry, Journal
from .work import Tell, leftovers, not_removed, recover, work_folder, working

__all__ = ["leftovers", "recover", "replace", "write"]

_ATTEMPTS: Final = 5  # where other programs write at the same time


def _quiet(line: str) -> None:
    """For those who want to hear nothing."""


def write(
    files: Iterable[RenderedFile], folder: Path, *, force: bool = False, tell: Tell = _quiet
) -> tuple[Change, ...]:
    """Write what differs, all or nothing, and return what was done.

    Raises `WouldOverwrite` for conflicts without `force`, and `CannotWrite` when the file system refuses or another
    program writes there at the same time; the folder is then as it was. `tell` is given a line for what an interrupted
    run left and became of it.
    """
    files = tuple(files)
    recover(folder, tell)
    for attempt in range(1, _ATTEMPTS + 1):
        changes = _allowed(compare(files, folder), force)
        if all(change.action is Action.IDENTICAL for change in changes):
            return changes
        try:
            done = _write(files, folder, force, tell)
        except ChangedMeanwhile:
            if force or attempt == _ATTEMPTS:  # what --force was meant for is not what is there now
                raise
        else:
            if done is not None:
                return done
    raise ChangedMeanwhile(folder, "another program makes and removes it", hint="wait for it to end")


def replace(changes: Sequence[Change], folder: Path, *, tell: Tell = _quiet) -> None:
    """Make changes to files below `folder`, all or none. Raises `CannotWrite`, also where one isn't what was found."""
    try:
        with working(work_folder(folder), tell) as journal:
            _exchange(changes, journal, tell)
    except OSError as error:
        raise CannotWrite(folder, error.strerror or str(error)) from error


def _write(files: Sequence[RenderedFile], folder: Path, force: bool, tell: Tell) -> tuple[Change, ...] | None:
    """Compare and write in turn with other runs; None when the folder came to be, or ceased to, before it was ours."""
    work = work_folder(Path(os.path.realpath(folder)))
    try:
        with working(work, tell) as journal:
            if work_folder(Path(os.path.realpath(folder))) != work:
                return None
            changes = _allowed(compare(files, folder), force)
            _exchange([change for change in changes if change.action is not Action.IDENTICAL], journal, tell)
            return changes
    except OSError as error:
        raise CannotWrite(folder, error.strerror or str(error)) from error


def _allowed(changes: tuple[Change, ...], force: bool) -> tuple[Change, ...]:
    conflicts = tuple(change for change in changes if change.action is Action.CONFLICT)
    if conflicts and not force:
        raise WouldOverwrite(conflicts)
    return changes


def _exchange(changes: Sequence[Change], journal: Journal, tell: Tell) -> None:
    """Stage every change and carry them out, or take all of it back."""
    entries = _staged(changes, journal)
    try:
        journal.begin(entries)
        journal.carry_out(entries)
    except BaseException as error:
        try:
            for note in journal.take_back(entries):
                tell(note)
        except OSError as problem:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise CannotWrite(journal.work.parent, reason, unfinished=journal.work) from problem
        raise
    try:
        notes = journal.finish(entries)
    except OSError as error:  # the new files are in place all the same
        notes = (not_removed(journal.work, error),)
    for note in notes:
        tell(note)


def _staged(changes: Sequence[Change], journal: Journal) -> list[Entry]:
    """Every new file under `new`, on the disk; all that is new in a missing folder is one entry, and comes at once."""
    journal.new.mkdir()
    groups: dict[Path, list[tuple[Path, Change]]] = {}
    for change in changes:
        place = Path(os.path.realpath(change.path.parent)) / change.path.name
        missing = [path for path in (place, *place.parents) if not os.path.lexists(path)]
        groups.setdefault(missing[-1] if missing else place, []).append((place, change))
    return [_entry(top, group, number, journal) for number, (top, group) in enumerate(groups.items())]


def _entry(top: Path, group: Sequence[tuple[Path, Change]], number: int, journal: Journal) -> Entry:
    files: dict[str, str] = {}
    folders = set()
    for place, change in group:
        name = place.relative_to(top).as_posix() if place != top else ""
        if len(group) > 1 and not name:
            raise CannotWrite(change.path, "other files are to be in it, as in a folder")
        staged = journal.new / str(number) / name
        staged.parent.mkdir(parents=True, exist_ok=True)
        like = place if change.before is not None else None
        write_new(staged, encoded(change.file, change.path), like=like, executable=change.file.executable)
        files[name] = str(fingerprint(staged))
        folders |= {folder for folder in staged.parents if folder.is_relative_to(journal.new)}
    sync(folders)
    return Entry(place=top.relative_to(journal.work.parent).as_posix(), found=group[0][1].found, files=files)
