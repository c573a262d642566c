"""Which documents are one submission: a launch line and what it names; what nothing names is judged by itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from posixpath import dirname
from typing import Final

from .accelerate import AccelerateConfig
from .document import AzureMLJob, Document, DsConfig, EnvironmentFile, JobSpec, Kind, LaunchScript
from .hostfile import Hostfile
from .lookup import Files, place_of
from .megatron_arguments import MegatronArguments
from .references import references_of
from .shell.launch_line import Launch
from .slurm_request import LAUNCHERS
from .training_arguments import TrainingArguments

#: What files that name nothing are for each other, where they lie together: the first of these kinds uses the others.
_RANKS: Final[tuple[tuple[Kind, type], ...]] = (
    ("launch script", LaunchScript),
    ("AzureML job", AzureMLJob),
    ("training arguments", TrainingArguments),
    ("Megatron arguments", MegatronArguments),
    ("accelerate config", AccelerateConfig),
    ("job spec", JobSpec),
    ("DeepSpeed config", DsConfig),
    ("hostfile", Hostfile),
    ("environment file", EnvironmentFile),
)
_JOBS: Final = (LaunchScript, AzureMLJob)
#: Launchers that read files of these kinds, by an option or by default.
_READERS: Final[dict[Kind, frozenset[str]]] = {
    "accelerate config": frozenset({"accelerate"}),
    "hostfile": frozenset({"deepspeed", "mpirun", "accelerate"}),
    "environment file": frozenset({"deepspeed", "accelerate"}),
}

Unit = list[Document]  #: the documents of one file, or of one job in it; the first is the file's own


def submissions_of(documents: Sequence[Document], files: Files) -> Iterator[tuple[Document, ...]]:
    """The documents of each submission, in order of the documents that name the rest."""
    units = list(_units(documents))
    graph = _Graph(units, files)
    graph.add_neighbours()
    return graph.submissions()


def _units(documents: Iterable[Document]) -> Iterator[Unit]:
    """Documents with those that were read from their text: arguments of launch lines, configs of here-documents."""
    unit: Unit = []
    for document in documents:
        embedded = isinstance(document, DsConfig) and document.embedded
        if unit and not embedded and getattr(document, "launch", None) is None:
            yield unit
            unit = []
        unit.append(document)
    if unit:
        yield unit


class _Graph:
    """Units, and which of them each names."""

    def __init__(self, units: list[Unit], files: Files) -> None:
        self._units = units
        self._index = {id(document): number for number, unit in enumerate(units) for document in unit}
        self._named = [tuple(references_of(unit, files)) for unit in units]
        self._next = [list(self._targets(number)) for number in range(len(units))]

    def _targets(self, number: int) -> Iterator[int]:
        """The units that one names. A script that starts several others starts a job with each."""
        targets = dict.fromkeys(self._index[id(each)] for link in self._named[number] for each in link.documents)
        scripts = [target for target in targets if isinstance(self._units[target][0], LaunchScript)]
        for target in targets:
            if target != number and (len(scripts) == 1 or target not in scripts):
                yield target

    def add_neighbours(self) -> None:
        """Let the only job of a folder, and the only one of all, use the files there that nothing names."""
        folders = defaultdict[str, list[int]](list)
        for number, unit in enumerate(self._units):
            folders[dirname(place_of(unit[0].path))].append(number)
        for members in (*folders.values(), range(len(self._units))):
            self._join(members)

    def _join(self, members: Iterable[int]) -> None:
        named = {target for targets in self._next for target in targets}
        jobs = [number for number in members if isinstance(self._units[number][0], _JOBS)]
        strong = [number for number in jobs if _trains(self._units[number])]
        weak = [number for number in jobs if _launches(self._units[number][0])]
        centre = strong or weak
        if centre and len(centre) != 1:
            return
        free = [number for number in members if number not in named and number not in jobs]
        by_kind = {kind: [n for n in free if isinstance(self._units[n][0], of)] for kind, of in _RANKS}
        if not centre:
            first = next((found for found in by_kind.values() if found), [])
            centre = first if len(first) == 1 else []
        for kind, found in by_kind.items() if centre else ():
            if len(found) == 1 and found != centre and self._takes(centre[0], kind):
                self._next[centre[0]].append(found[0])

    def _takes(self, number: int, kind: Kind) -> bool:
        """Whether a unit may use a file of a kind that it doesn't name: it names no other."""
        if any(link.kind == kind for link in self._named[number]):
            return False
        launches, programs = _launches(self._units[number][0]), _READERS.get(kind)
        return (
            not launches or programs is None or any(call.program in programs for one in launches for call in one.calls)
        )

    def submissions(self) -> Iterator[tuple[Document, ...]]:
        """Each unit that no other names, with all that it names; of units in a ring, the first."""
        named, seen = {target for targets in self._next for target in targets}, set[int]()
        numbers = range(len(self._units))
        for number in (*(n for n in numbers if n not in named), *(n for n in numbers if n in named)):
            if number not in named or number not in seen:
                reached = self._reached(number)
                seen |= reached
                yield tuple(document for each in sorted(reached) for document in self._units[each])

    def _reached(self, number: int) -> set[int]:
        reached, rest = set[int](), [number]
        while rest:
            each = rest.pop()
            if each not in reached:
                reached.add(each)
                rest += self._next[each]
        return reached


def _launches(document: Document) -> tuple[Launch, ...]:
    return document.launches if isinstance(document, _JOBS) else ()


def _trains(unit: Unit) -> bool:
    """Whether a script starts processes by a launcher, or a program whose arguments are of a training."""
    programs = {call.program for launch in _launches(unit[0]) for call in launch.calls}
    return len(unit) > 1 or bool(programs & (LAUNCHERS | {"srun", "mpirun"}))
