"""What dsgen knows of one program, as one record.

It has the program's kinds of file, its rules, and what it says of a submission.

A record is read with every command that checks files. So it names what is imported only where it is
needed, as `module:name` from the package's root, and says when that is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from functools import cached_property
from importlib import import_module
from typing import Any, Final

from ..dataclass import dataclass

_PACKAGE: Final = __package__.partition(".")[0]

#: Whether a submission has something that a part of a record is for.
When = Callable[[Any], object]


def loaded(name: str) -> Any:
    """What `module:name` names, from the package's root; of `module` alone the module.

    It is imported now.
    """
    module, _, attribute = name.partition(":")
    imported = import_module(f"{_PACKAGE}.{module}")
    return getattr(imported, attribute) if attribute else imported


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """Top-level keys of a kind of file, and how much of them is enough.

    One key of `plain` is enough by itself. Else one key of `own` is enough where the file has at
    least `least` of the kind's keys, and they are at least a `share` of all its keys.
    """

    plain: frozenset[str]
    own: frozenset[str] = frozenset()
    shared: frozenset[str] = frozenset()
    least: int = 1
    share: float = 0.0
    #: the share of the file's keys that are the kind's, at least, where one of `plain` is there
    least_share: float = 0.0

    @property
    def every(self) -> frozenset[str]:
        """The keys that are the kind's."""
        return self.plain | self.own | self.shared

    def hits(self, keys: frozenset[str]) -> int:
        """Count the keys that are the kind's."""
        return len(keys & self.every)

    def weight(self, keys: frozenset[str]) -> int:
        """Return the weight that the keys give to the kind, enough or not."""
        return self.hits(keys) + 2 * len(keys & self.plain)

    def enough(self, keys: frozenset[str], *, plain: bool = True) -> bool:
        """Return whether the keys show the kind.

        Without `plain`, their share counts in any case.
        """
        most = self.hits(keys) >= max(self.share * len(keys), 1)

        if keys & self.plain:
            # With few of the kind's keys it is another program's, which has the name too.
            few = self.hits(keys) < self.least_share * len(keys)
            return (plain and not few) or most

        return bool(keys & self.own) and self.hits(keys) >= self.least and most

    def is_near(self, keys: frozenset[str]) -> bool:
        """Return whether the keys speak for the kind, even if they are too few to show it."""
        return bool(keys & self.plain) or (
            bool(keys & self.own) and self.hits(keys) > max(2, len(keys) / 5)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """How a job uses a file of a kind that lies beside it, and that nothing names."""

    #: among the kinds: where no job lies beside them, the file of the first kind uses the others
    order: int
    options: tuple[str, ...] = ()  #: of launchers, without which these read no such file
    launchers: frozenset[str] = frozenset()  #: that alone read one; empty: all
    #: a launcher and its option, with which it reads another file
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
    templates: str = ""  #: the documents that it reads to make others of
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
    """A function of a submission, and the submissions that have something for it."""

    function: str
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
    divides: Says | None = None  #: whether something that isn't known may divide the model
    consumer: Says | None = None  #: what reads DeepSpeed's configs, as far as its documents tell
    nodes_of_script: str = ""  #: the nodes that a script's own directives ask for
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
