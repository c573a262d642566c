"""The exchange of files under a journal, from which whoever comes next finishes it or takes it back.

A working folder has `new/N`, what is to be put at a place; `old/N`, what was there; and a file that says how far it is:

- none: nothing outside of the working folder has changed,
- `doing`: places are changing; when everything was put, the new files count, else the old ones,
- `undoing`: the old files count,
- `done`: the new files count.

Every step can be repeated: what was done is seen on the disk, by what lies in `new`, in `old` and at the place.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import Final

from ..dataclass import dataclass
from .compare import CannotWrite, ChangedMeanwhile, fingerprint
from .disk import is_put, put, remove, same, sync, write_new

DOING, UNDOING, DONE = "doing", "undoing", "done"
LOCK: Final = "lock"
_LOOK: Final = "look at the file, then run the command again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A file, or a folder with all that is new in it, that comes to a place."""

    place: str  #: relative to the folder that the working folder is in
    found: str | None  #: the fingerprint of what was there; None: nothing
    files: Mapping[str, str]  #: fingerprints of the new files, by path below the place; a file's own is the empty one


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What became of what an interrupted run left."""

    forward: bool  #: whether the new files are in place, not the old ones
    touched: bool  #: whether files had been moved
    notes: tuple[str, ...] = ()  #: on files that somebody changed since


class Journal:
    """The working folder of one exchange."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.new, self.old = work / "new", work / "old"

    def begin(self, entries: list[Entry]) -> None:
        """Write down what is to happen, once `new` is complete; the next one to come sees it from here on."""
        self.old.mkdir()
        text = json.dumps([asdict(entry) for entry in entries])
        write_new(self.work / "plan", text.encode())
        sync([self.new, self.work])
        (self.work / "plan").rename(self.work / DOING)
        sync([self.work])

    def carry_out(self, entries: list[Entry]) -> None:
        """Put everything at its place. Raises `ChangedMeanwhile` or `OSError`; then `take_back` is due."""
        for number, entry in enumerate(entries):
            place = self.place(entry)
            if entry.found is not None:
                with suppress(FileNotFoundError):  # somebody removed it: it is not what was found
                    place.rename(self.old / str(number))
                self._check(number, entry)
            try:
                put(self.new / str(number), place)
            except FileExistsError:
                raise ChangedMeanwhile(place, "another program created it meanwhile", hint=_LOOK) from None
        sync(self._folders(entries))
        for number, entry in enumerate(entries):
            self._check(number, entry)  # a program that had it open may have written to it
        (self.work / DOING).rename(self.work / DONE)
        sync([self.work])

    def finish(self, entries: list[Entry]) -> tuple[str, ...]:
        """Remove what was replaced, once more compared; notes on what somebody wrote to since, which is kept."""
        notes = []
        for number, entry in enumerate(entries):
            old = self.old / str(number)
            found = fingerprint(old)
            if found == entry.found and found is not None:
                old.unlink()
            elif found is not None:
                notes.append(_keep_beside(old, self.place(entry)))
        return tuple(notes)

    def take_back(self, entries: list[Entry]) -> tuple[str, ...]:
        """Put everything back as it was; notes on files that somebody changed since, which are kept."""
        for state in (DOING, DONE):
            with suppress(FileNotFoundError):
                (self.work / state).rename(self.work / UNDOING)
        sync([self.work])
        notes = [note for number in reversed(range(len(entries))) for note in self._take_back(number, entries[number])]
        sync(self._folders(entries))
        (self.work / UNDOING).unlink(missing_ok=True)
        return tuple(notes)

    def settle(self) -> Settled | None:
        """Finish or take back what an interrupted run left, up to the working folder; None when it left nothing."""
        if not any(child.name != LOCK for child in self.work.iterdir()):
            return None
        state = next((path for path in map(self.work.joinpath, (DOING, UNDOING, DONE)) if path.exists()), None)
        if state is None:
            return Settled(forward=False, touched=False)
        entries = _read(state)
        put_all = all(is_put(self.new / str(n), self.place(entry)) for n, entry in enumerate(entries))
        if state.name == DOING and put_all:
            sync(self._folders(entries))
            state = state.rename(self.work / DONE)
        if state.name == DONE:
            return Settled(forward=True, touched=True, notes=self.finish(entries))
        return Settled(forward=False, touched=True, notes=self.take_back(entries))

    def empty(self) -> None:
        """Remove what is in the working folder, but for the lock."""
        for child in [child for child in self.work.iterdir() if child.name != LOCK]:
            remove(child)

    def clear(self) -> None:
        """Remove the working folder, unless files wait in it to be put back or looked at; the lock last."""
        waiting = (self.work / DONE).exists() and self.old.is_dir() and any(self.old.iterdir())
        if not waiting and not any((self.work / state).exists() for state in (DOING, UNDOING)):
            self.empty()
            remove(self.work / LOCK)
            with suppress(OSError):  # the next run may have begun in it
                self.work.rmdir()

    def place(self, entry: Entry) -> Path:
        """Where an entry belongs."""
        return self.work.parent / entry.place

    def _check(self, number: int, entry: Entry) -> None:
        if fingerprint(self.old / str(number)) != entry.found:
            raise ChangedMeanwhile(self.place(entry), "another program changed it meanwhile", hint=_LOOK)

    def _folders(self, entries: list[Entry]) -> list[Path]:
        return [folder for folder in {self.place(entry).parent for entry in entries} if folder.is_dir()]

    def _take_back(self, number: int, entry: Entry) -> Iterator[str]:
        place, old = self.place(entry), self.old / str(number)
        if same(place, old):  # put back, but for the name that it had meanwhile
            old.unlink()
            return
        waiting = os.path.lexists(old)
        if is_put(self.new / str(number), place) and (waiting or entry.found is None):
            yield from _take_out(place, entry)
        if waiting and os.path.lexists(place):
            yield _keep_beside(old, place)
        elif waiting:
            put(old, place)


def _read(path: Path) -> list[Entry]:
    """The entries of a journal, which may have come with somebody else's folder: none leads out of that."""
    try:
        entries = [Entry(**entry) for entry in json.loads(path.read_bytes())]
        folder = path.parent.parent
        names = [name for entry in entries for name in (entry.place, *(f"{entry.place}/{n}" for n in entry.files if n))]
        if not all(_is_below(folder, PurePosixPath(name)) for name in names):
            raise ValueError("a path leads out of the folder")
    except (AttributeError, RecursionError, TypeError, ValueError) as error:
        hint = f"look for your files in {path.parent}, then remove it"
        raise CannotWrite(path, "the journal of an interrupted run is damaged", hint=hint) from error
    return entries


def _is_below(folder: Path, name: PurePosixPath) -> bool:
    """Whether a path stays below a folder, without links on its way."""
    real = Path(os.path.realpath(folder))
    plain = bool(name.parts) and not name.is_absolute() and ".." not in name.parts
    return plain and Path(os.path.realpath(real / name.parent)) == real / name.parent


def _take_out(place: Path, entry: Entry) -> Iterator[str]:
    """Remove what was put at a place, less what somebody changed since."""
    for name, expected in entry.files.items():
        path = place / name
        if fingerprint(path) == expected:
            path.unlink()
        elif entry.found is None and os.path.lexists(path):
            yield f"{path}: warning: another program wrote to it meanwhile; it is kept"
    if "" not in entry.files:
        folders = {place, *(folder for name in entry.files for folder in (place / name).parents)}
        for folder in sorted((f for f in folders if f.is_relative_to(place)), reverse=True):
            with suppress(OSError):  # something else is in it
                folder.rmdir()


def _keep_beside(old: Path, place: Path) -> str:
    """Keep a second version of a file beside it, under a name that nothing has."""
    names = (place.with_name(f"{place.name}.before{number or ''}") for number in range(1_000_000))
    beside = next(name for name in names if not os.path.lexists(name))
    put(old, beside)
    return (
        f"{place}: warning: another program wrote to it meanwhile; it is kept, and {beside.name} has the other version"
    )
