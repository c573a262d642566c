"""What dsgen knows of one program, as one record.

It has the program's kinds of file, its rules, and what it says of a submission.

A record is read with every command that checks files. So it names what is imported only where it is
needed, as `module:name` from the package's root, and says when that is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from enum import IntEnum, auto
from functools import cache, cached_property
from importlib import import_module
from typing import Any, Final

from ..dataclass import dataclass

_PACKAGE: Final = __package__.partition(".")[0]

#: Tells whether a submission has something that a part of a record is for.
When = Callable[[Any], object]


@cache  # the names are those of the records
def loaded(name: str) -> Any:
    """Import what `module:name` names, from the package's root; `module` alone is the module."""
    module, _, attribute = name.partition(":")
    imported = import_module(f"{_PACKAGE}.{module}")
    return getattr(imported, attribute) if attribute else imported


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """The top-level keys by which a kind of file is known, and how many of them are enough.

    One key of `plain` is enough by itself. Else one key of `rare` is enough where the file has at
    least `least` of the kind's keys, and they are at least a `share` of all its keys.
    """

    plain: frozenset[str]  #: that show the kind by themselves
    rare: frozenset[str] = frozenset()  #: that hardly any other kind has
    shared: frozenset[str] = frozenset()  #: that other kinds have too
    least: int = 1
    share: float = 0.0
    #: the least share of the file's keys that are the kind's, where one of `plain` is there: with
    #: fewer it is another program's file, which has that name too
    least_share: float = 0.0
    #: of which a file without a key of `plain` has one: the kind's reader requires it
    needed: frozenset[str] = frozenset()

    @property
    def every(self) -> frozenset[str]:
        """All keys of the kind."""
        return self.plain | self.rare | self.shared

    def hits(self, keys: frozenset[str]) -> int:
        """Count the keys that are the kind's, of those of a file."""
        return len(keys & self.every)

    def weight(self, keys: frozenset[str]) -> int:
        """How much the keys speak for the kind, enough or not."""
        return self.hits(keys) + 2 * len(keys & self.plain)

    def enough(self, keys: frozenset[str], *, plain_suffices: bool = True) -> bool:
        """Tell whether the keys show the kind.

        Unless `plain_suffices`, no key is enough by itself: their share counts in any case.
        """
        hits = self.hits(keys)
        has_share = hits >= max(self.share * len(keys), 1)
        if keys & self.plain:
            return has_share or (plain_suffices and hits >= self.least_share * len(keys))
        is_rare = has_share and bool(keys & self.rare) and hits >= self.least
        return is_rare and (not self.needed or self._has_needed(keys))

    def _has_needed(self, keys: frozenset[str]) -> bool:
        """Whether one of the needed keys is there, right or with letters of another case."""
        return not self.needed.isdisjoint(key.lower() for key in keys)

    def is_near(self, keys: frozenset[str]) -> bool:
        """Tell whether the keys speak for the kind, even if they are too few to show it."""
        has_several = self.hits(keys) > max(2, len(keys) / 5)
        return bool(keys & self.plain) or (bool(keys & self.rare) and has_several)


class Role(IntEnum):
    """What a file is to the run that uses it.

    Where files lie in a folder without a job, the one whose role comes first here uses the others.
    """

    TRAINING_ARGUMENTS = auto()
    MEGATRON_ARGUMENTS = auto()
    LAUNCHER_CONFIG = auto()
    JOB_SPEC = auto()
    ENGINE_CONFIG = auto()
    HOSTS = auto()
    SHARDING_CONFIG = auto()
    ENVIRONMENT = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """How a job uses a file of a kind that lies beside it, and that nothing names."""

    role: Role
    options: tuple[str, ...] = ()  #: options of launchers, without which they read no such file
    launchers: frozenset[str] = frozenset()  #: the launchers that read one; empty: all
    #: a launcher and the option with which it reads another file
    unless: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentKind:
    """A kind of file."""

    name: str  #: as findings and rules call it
    #: makes the documents of a file, and findings on its text: `FileText` to an iterator
    reader: str = ""
    signs: Signs | None = None  #: None where its name or its lines tell the kind
    #: the files that a document names: document, files and readers to `Reference`s
    references: str = ""
    #: finds the files of which a document's commands make others: document and files to documents
    templates: str = ""
    beside: Beside | None = None  #: None where a job uses only those that it names


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Modules with rules, and the submissions that have something for them."""

    folder: str  #: from the package's root
    modules: tuple[str, ...]  #: of that folder
    when: When

    @property
    def names(self) -> tuple[str, ...]:
        """The modules from the package's root."""
        return tuple(f"{self.folder}.{module}" for module in self.modules)


@dataclass(frozen=True, slots=True, kw_only=True)
class Says:
    """A function that says something of a submission, and when there is something to say."""

    function: str  #: as `module:name`
    when: When


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramRecord:
    """All that the rest of dsgen has to know of a program."""

    name: str  #: of its folder
    kinds: tuple[DocumentKind, ...] = ()
    rules: tuple[Rules, ...] = ()
    job_rules: tuple[str, ...] = ()  #: modules with its rules on jobs
    #: the numbers of GPUs, nodes and processes that its documents have
    claims: tuple[Says, ...] = ()
    degrees: tuple[Says, ...] = ()  #: the degrees of parallelism that they have
    #: whether a program may divide the model by degrees that its documents don't tell
    divides: Says | None = None
    consumer: Says | None = None  #: what reads DeepSpeed's configs, as far as its documents tell
    nodes_of_script: str = ""  #: the nodes that a script's own directives ask for
    #: whether rules of the program judge the words of a launch line
    judges: Callable[[Any], bool] = lambda _: False
    frameworks: Mapping[str, str] = field(default_factory=dict)  #: by name in a job spec
    launcher: str = ""  #: of the launch target that has the record's name
    log: str = ""  #: the reader of its logs


@dataclass(frozen=True, kw_only=True)
class Programs:
    """The programs, in the order in which their rules are applied."""

    records: tuple[ProgramRecord, ...]

    def __iter__(self) -> Iterator[ProgramRecord]:
        return iter(self.records)

    @cached_property
    def kinds(self) -> Mapping[str, DocumentKind]:
        """Every kind of file, by its name."""
        return {kind.name: kind for record in self.records for kind in record.kinds}

    @cached_property
    def frameworks(self) -> Mapping[str, Any]:
        """The frameworks by their names in job specs, each imported when it is asked for."""
        places = {name: at for record in self.records for name, at in record.frameworks.items()}
        return OnDemand({name: places[name] for name in sorted(places)})


class OnDemand(Mapping[str, Any]):
    """Records by name, each imported when it is asked for."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places

    def __getitem__(self, name: str) -> Any:
        return loaded(self._places[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
