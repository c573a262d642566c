"""Submissions: the documents that are checked together, and their context."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import field, replace
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from posixpath import dirname
from typing import Any, Final, TypeVar

from ..catalog import Model
from ..dataclass import dataclass
from ..faults import guarded
from ..findings import Version
from ..job.records import Cluster, Job
from ..text.around import text_around
from ..text.document import Document, Kind
from ..text.lookup import Files, place_of
from ..text.shell.records import ShellScript
from ..text.text import Text
from .launches import Launch
from .record import Programs, loaded
from .references import Reference, references_of
from .repository import has_programs
from .script import CommandDocument, LaunchScript


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Facts that flags add to the files; None where one is left out."""

    gpus: int | None = None
    gpus_per_node: int | None = None
    cluster: Cluster | None = None
    model: Model | None = None
    job: Job | None = None
    consumer: str | None = None  #: the program that reads the configs
    deepspeed_version: Version | None = None


D = TypeVar("D", bound=Document)

#: What dsgen writes last into a folder: the plan, and the hashes of its files.
PLAN: Final = "plan.json"
#: A key of every plan, of whatever release.
_OF_PLAN: Final = '"dsgen_version"'


@dataclass(frozen=True, kw_only=True, eq=False)
class Submission:
    """One job as its files describe it.

    Rules are functions of it; what is derived from it is cached by identity.
    """

    documents: tuple[Document, ...]
    programs: Programs
    context: Context = field(default_factory=Context)
    texts: Mapping[str, Text] = field(default_factory=dict)  #: of the files, by path
    jobs: tuple[Job, ...] = ()  #: of the job specs among the documents that could be resolved
    around: Files | None = None  #: all files that were read, of other submissions too

    def judged_by(self, deepspeed_version: Version) -> Submission:
        """The same files, as another release judges them.

        What was derived from them is kept: it is the same.
        """
        other = replace(self, context=replace(self.context, deepspeed_version=deepspeed_version))
        vars(other).update({name: vars(self)[name] for name in vars(self).keys() - vars(other)})
        return other

    @cached_property
    def configs_read(self) -> dict[int, Any]:
        """A cache of what programs read documents as, by the documents' identity.

        The programs fill it; a copy by `judged_by` shares it.
        """
        return {}

    @cached_property
    def _by_kind(self) -> dict[Kind, tuple[Any, ...]]:
        kind_of = attrgetter("document_kind")
        return {
            kind: tuple(documents)
            for kind, documents in groupby(sorted(self.documents, key=kind_of), kind_of)
        }

    def of(self, kind: type[D]) -> tuple[D, ...]:
        """The documents of a kind, in order."""
        return self._by_kind.get(kind.document_kind, ())

    def of_kind(self, kind: Kind) -> tuple[Any, ...]:
        """The documents of a kind by its name, for those who don't import what reads it."""
        return self._by_kind.get(kind, ())

    def has(self, *kinds: Kind) -> bool:
        """Return whether there is a document of one of these kinds."""
        return any(kind in self._by_kind for kind in kinds)

    @cached_property
    def files(self) -> Files:
        """The files among which those that documents name are looked for."""
        return self.around or Files(self.documents)

    @cached_property
    def references(self) -> tuple[Reference, ...]:
        """Every file that a launch line or config names, where its name can be known."""
        return tuple(references_of(self.documents, self.files, self.programs))

    def is_alone(self, document: Document) -> bool:
        """Return whether a document of a folder with programs is named by no other."""
        roots_above = self.files.roots_of(dirname(place_of(document.path)))
        return (
            next(roots_above, None) is not None
            and not self.readers_of(document)
            and has_programs(document.path)
        )

    def readers_of(self, document: Document) -> list[str | None]:
        """Return the programs that read a document, by the documents that name it.

        None stands for a program that isn't known.
        """
        return self._readers.get(id(document), [])

    @cached_property
    def _readers(self) -> dict[int, list[str | None]]:
        readers = defaultdict[int, list[str | None]](list)
        for link in self.references:
            for document in link.documents:
                readers[id(document)].append(link.reader)
        return readers

    @property
    def scripts(self) -> tuple[LaunchScript, ...]:
        """Shell scripts that are files, not the commands of others."""
        return self.of(LaunchScript)

    @cached_property
    def services(self) -> tuple[CommandDocument, ...]:
        """The jobs whose command a service or a controller starts, by kind."""
        return tuple(
            document
            for documents in self._by_kind.values()
            for document in documents
            if isinstance(document, CommandDocument)
        )

    @property
    def on_clusters(self) -> tuple[CommandDocument, ...]:
        """The jobs that are replicated on nodes, and that a launcher in them has to know of."""
        return tuple(document for document in self.services if document.is_replicated)

    @cached_property
    def shell_texts(self) -> tuple[LaunchScript, ...]:
        """Every shell text of the submission: scripts, and the commands of jobs."""
        jobs = (
            document.script for document in self.documents if isinstance(document, CommandDocument)
        )
        return (*self.scripts, *(script for script in jobs if script is not None))

    @cached_property
    def launches(self) -> tuple[Launch, ...]:
        """Every launch line."""
        return tuple(launch for script in self.shell_texts for launch in script.launches)

    def calls(self, program: str) -> bool:
        """Return whether a launch line starts its processes by a program."""
        return any(call.program == program for launch in self.launches for call in launch.calls)

    @cached_property
    def job(self) -> Job | None:
        """The job that the submission is for: that of the context, else of its only job spec."""
        return self.context.job or (self.jobs[0] if len(self.jobs) == 1 else None)

    @cached_property
    def cluster(self) -> Cluster | None:
        """The machines: those of the context, else the job's."""
        return self.context.cluster or (self.job.cluster if self.job else None)

    @cached_property
    def model(self) -> Model | None:
        """The model: that of the context, else the job's."""
        return self.context.model or (self.job.model if self.job else None)

    @cached_property
    def plan_files(self) -> tuple[Path, ...]:
        """The `plan.json` beside documents, where dsgen wrote one."""
        folders = dict.fromkeys(Path(document.path).parent for document in self.documents)
        plans = (folder / PLAN for folder in folders)
        return tuple(plan for plan in plans if _OF_PLAN in text_around(plan, plan.parent))

    @cached_property
    def planned(self) -> Job | None:
        """The job of the plan that dsgen wrote beside the files, with its layout pinned.

        It may lack its model. None where there are several plans, and where a spec is there, which
        says what job the files are of.
        """
        if self.job is not None or len(self.plan_files) != 1:
            return None
        from .planned import planned_job  # saves start-up time where dsgen wrote nothing

        plan = self.plan_files[0]
        with guarded("the reader of plans", str(plan)):
            return planned_job(text_around(plan, plan.parent), self.programs.frameworks)
        return None

    def nodes_of_script(self, shell: ShellScript) -> int | None:
        """Return the nodes that a script's own directives ask for.

        Returns None where they ask for none, or for a range.
        """
        return self._nodes_by_script.get(id(shell))

    @cached_property
    def _nodes_by_script(self) -> dict[int, int | None]:
        """The nodes that directives ask for, by the identity of their script's text."""
        if not any(script.shell.directives for script in self.scripts):
            return {}

        readers = [
            loaded(record.nodes_of_script) for record in self.programs if record.nodes_of_script
        ]
        return {text_id: nodes for reader in readers for text_id, nodes in reader(self)}
