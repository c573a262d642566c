"""Group documents into submissions: a launch line and all that it names.

Other documents are judged by themselves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from posixpath import dirname
from typing import Final

from ..text.document import Document, Kind
from ..text.lookup import Files, is_written, place_of
from .launches import Launch
from .record import Programs
from .references import references_of, templates_of
from .repository import has_programs, is_named_in_project
from .script import CommandDocument, LaunchScript

_JOBS: Final = (LaunchScript, CommandDocument)
#: the documents of one file, or of one job in it; the first is the file's own
Unit = list[Document]


def submissions_of(
    documents: Sequence[Document], files: Files, programs: Programs
) -> Iterator[tuple[Document, ...]]:
    """The documents of each submission, in order of the documents that name the rest."""
    return _Graph(list(_units(documents)), files, programs).submissions()


def _units(documents: Iterable[Document]) -> Iterator[Unit]:
    """Return the documents of one text, in units.

    A unit is a script with its arguments and configs, or a job of AzureML's, of which a file may
    have several.
    """
    unit: Unit = []
    for document in documents:
        if unit and _begins_unit(document, unit):
            yield unit
            unit = []
        unit.append(document)
    if unit:
        yield unit


def _begins_unit(document: Document, unit: Unit) -> bool:
    """Return whether a document is not of the unit before it."""
    if isinstance(document, CommandDocument):
        return True
    return document.path != unit[0].path and not is_written(document)


class _Graph:
    """Units, and which of them each names."""

    def __init__(self, units: list[Unit], files: Files, programs: Programs) -> None:
        self._units = units
        self._index = {
            id(document): number for number, unit in enumerate(units) for document in unit
        }
        self._files = files
        self._programs = programs
        beside = {name: kind.beside for name, kind in programs.kinds.items() if kind.beside}
        #: How jobs use files that nothing names, by their kinds in the order of their roles.
        self._beside = {
            name: beside[name] for name in sorted(beside, key=lambda name: beside[name].role)
        }
        self._links = [tuple(references_of(unit, files, programs)) for unit in units]
        self._next = [list(self._targets(number)) for number in range(len(units))]
        self._named = {target for targets in self._next for target in targets}
        self._add_neighbours()

    def _targets(self, number: int) -> Iterator[int]:
        """The units that one names. A script that starts several others starts a job with each."""
        named = [document for link in self._links[number] for document in link.documents]
        named += templates_of(self._units[number][0], self._files, self._programs)
        targets = dict.fromkeys(self._index[id(document)] for document in named)
        scripts = [target for target in targets if isinstance(self._units[target][0], LaunchScript)]
        for target in targets:
            if target != number and (len(scripts) == 1 or target not in scripts):
                yield target

    def _add_neighbours(self) -> None:
        """Let the only job of a folder use what nothing names there.

        The only job of a path may use what code has the name of.
        """
        folders, roots = defaultdict[str, list[int]](list), defaultdict[str, list[int]](list)
        for number, unit in enumerate(self._units):
            folder = dirname(place_of(unit[0].path))
            folders[folder].append(number)
            for root in self._files.roots_of(folder):
                roots[root].append(number)
        for members in folders.values():
            self._join(members, anywhere=False)
        for members in roots.values():
            self._join(members, anywhere=True)

    def _join(self, members: Iterable[int], *, anywhere: bool) -> None:
        """Let the only job of these units use the only unit of a kind that nothing names.

        With `anywhere` they are in several folders: beside programs, only what these name is used.
        """
        free = defaultdict[Kind, list[int]](list)
        for number in members:
            free[self._units[number][0].document_kind].append(number)
        scripts = free.pop("launch script", [])
        training = [number for number in scripts if _trains(self._units[number])]
        launching = [number for number in scripts if _launches(self._units[number][0])]
        unnamed = {kind: [n for n in free[kind] if n not in self._named] for kind in self._beside}
        of_first_kind = next(filter(None, unnamed.values()), [])
        jobs = training or launching or of_first_kind
        if len(jobs) != 1:
            return
        [job] = jobs
        for kind, numbers in unnamed.items():
            if len(numbers) != 1 or numbers == jobs or not self._takes(job, kind):
                continue
            path = self._units[numbers[0]][0].path
            if anywhere and has_programs(path) and not is_named_in_project(path):
                continue
            self._next[job] += numbers
            self._named |= set(numbers)

    def _takes(self, number: int, kind: Kind) -> bool:
        """Return whether a unit may use a file of a kind that it doesn't name.

        It may where it names no other of that kind.
        """
        if any(link.kind == kind for link in self._links[number]):
            return False
        calls = [call for launch in _launches(self._units[number][0]) for call in launch.calls]
        beside = self._beside[kind]
        if not calls:
            return True

        if beside.unless is not None:
            program, option = beside.unless
            if any(call.program == program and call.has(option) for call in calls):
                return False  # another file has the settings, or names the one that has them
        is_asked = not beside.options or any(call.has(*beside.options) for call in calls)
        is_read = not beside.launchers or any(call.program in beside.launchers for call in calls)
        return is_asked and is_read

    def submissions(self) -> Iterator[tuple[Document, ...]]:
        """Each unit that no other names, with all that it names; of units in a ring, the first."""
        seen = set[int]()
        for number in sorted(range(len(self._units)), key=self._named.__contains__):
            if number in seen and number in self._named:
                continue
            reached = self._reached_from(number)
            seen |= reached
            units = (self._units[member] for member in sorted(reached))
            yield tuple(chain.from_iterable(units))

    def _reached_from(self, number: int) -> set[int]:
        """The unit, those that it names, those that these name, and so on."""
        reached, rest = set[int](), [number]
        while rest:
            member = rest.pop()
            if member not in reached:
                reached.add(member)
                rest += self._next[member]
        return reached


def _launches(document: Document) -> tuple[Launch, ...]:
    return document.launches if isinstance(document, _JOBS) else ()


def _trains(unit: Unit) -> bool:
    """Return whether a script starts a training.

    It starts processes by a launcher, or a program whose arguments are of a training.
    """
    calls = (call for launch in _launches(unit[0]) for call in launch.calls)
    return len(unit) > 1 or any(call.starts_ranks or call.starts_tasks for call in calls)
