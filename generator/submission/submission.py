"""Submissions: the documents that are checked together, their context, and the configs that they use."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property, lru_cache
from itertools import groupby
from pathlib import PurePath
from posixpath import dirname
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

from ..catalog import Model
from ..dataclass import dataclass
from ..job.records import Cluster, Job
from ..programs.launching.launch_line import Launch
from ..programs.launching.script import CommandDocument, LaunchScript
from ..text.document import Document, Kind
from ..text.lookup import Files, is_written, place_of
from ..text.text import Text
from .references import Reference, configures_lightning, references_of
from .releases import Release
from .repository import hands_to_trainer, has_programs, release_for, tells

if TYPE_CHECKING:
    from ..programs.azureml.job import AzureMLJob
    from ..programs.deepspeed.config import Config, DsConfig
    from ..programs.kubernetes.job import KubernetesJob
    from ..programs.megatron.arguments import MegatronArguments
    from ..programs.skypilot.read import SkyPilotTask
    from ..programs.trainer.accelerate import AccelerateConfig
    from ..programs.trainer.training_arguments import TrainingArguments
    from ..text.hostfile import EnvironmentFile, Hostfile

# Imports in functions save start-up time: a submission seldom has files of every program.

#: Programs that read a DeepSpeed config; all but DeepSpeed itself read strict JSON.
CONSUMERS: Final = ("deepspeed", "huggingface", "accelerate", "lightning", "megatron-deepspeed")

_OF_FILLERS: Final = (
    3  # values that are "auto": 334 of 343 public configs that have any have as many
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Facts that flags add to the files; None where one is left out."""

    gpus: int | None = None
    gpus_per_node: int | None = None
    cluster: Cluster | None = None
    model: Model | None = None
    job: Job | None = None
    consumer: str | None = None  #: one of `CONSUMERS`
    deepspeed_version: tuple[int, ...] | None = None


D = TypeVar("D")


class _Of(Generic[D]):
    """The documents of a kind, in order, as an attribute of a submission."""

    def __init__(self, kind: Kind) -> None:
        self.kind: Kind = kind

    def __get__(self, submission: Submission, _: type[Submission]) -> tuple[D, ...]:
        return submission._by_kind.get(self.kind, ())


@dataclass(frozen=True, kw_only=True, eq=False)
class Submission:
    """One job as its files describe it. Rules are functions of it; what is derived from it is cached by identity."""

    documents: tuple[Document, ...]
    context: Context = field(default_factory=Context)
    texts: Mapping[str, Text] = field(default_factory=dict)  #: of the files, by path
    jobs: tuple[Job, ...] = ()  #: of the job specs among the documents that could be resolved
    around: Files | None = None  #: all files that were read, of other submissions too

    @cached_property
    def _by_kind(self) -> dict[Kind, tuple[Any, ...]]:
        every = sorted(self.documents, key=lambda one: one.document_kind)
        return {
            kind: tuple(documents)
            for kind, documents in groupby(every, key=lambda one: one.document_kind)
        }

    scripts: ClassVar[_Of[LaunchScript]] = _Of(
        "launch script"
    )  #: files, not the commands of others
    azureml_jobs: ClassVar[_Of[AzureMLJob]] = _Of("AzureML job")
    kubernetes_jobs: ClassVar[_Of[KubernetesJob]] = _Of("Kubernetes job")
    skypilot_tasks: ClassVar[_Of[SkyPilotTask]] = _Of("SkyPilot task")
    accelerate_configs: ClassVar[_Of[AccelerateConfig]] = _Of("accelerate config")
    training_arguments: ClassVar[_Of[TrainingArguments]] = _Of(
        "training arguments"
    )  #: of files and of launch lines
    megatron: ClassVar[_Of[MegatronArguments]] = _Of(
        "Megatron arguments"
    )  #: of launch lines and of files
    hostfiles: ClassVar[_Of[Hostfile]] = _Of("hostfile")
    environment_files: ClassVar[_Of[EnvironmentFile]] = _Of(
        "environment file"
    )  #: files named `.deepspeed_env`

    @cached_property
    def files(self) -> Files:
        """The files among which those that documents name are looked for."""
        return self.around or Files(self.documents)

    @cached_property
    def references(self) -> tuple[Reference, ...]:
        """Every file that a launch line or config names, where its name can be known."""
        return tuple(references_of(self.documents, self.files))

    @cached_property
    def configs(self) -> tuple[Config, ...]:
        """DeepSpeed configs, those within scripts included, each as the program that it is for reads it."""
        return tuple(self._config(one) for one in self._by_kind.get("DeepSpeed config", ()))

    @cached_property
    def unclaimed(self) -> frozenset[str]:
        """The paths of configs of DeepSpeed and accelerate, and of arguments, that no document names."""
        arguments = (one for one in self.training_arguments if one.launch is None)
        files: tuple[Document, ...] = (*self.accelerate_configs, *arguments)
        alone = (one.path for one in files if self._is_alone(one))
        return frozenset((*(one.path for one in self.configs if one.unclaimed), *alone))

    def _is_alone(self, document: Document) -> bool:
        """Return whether a document of a folder with programs is named by no other."""
        roots = self.files.roots_of(dirname(place_of(document.path)))
        return (
            next(roots, None) is not None
            and not self._readers.get(id(document))
            and has_programs(document.path)
        )

    @cached_property
    def _readers(self) -> dict[int, list[str | None]]:
        """The programs that read each document, by those that name it; None for one that isn't known."""
        readers = defaultdict[int, list[str | None]](list)
        for link in self.references:
            for document in link.documents:
                readers[id(document)].append(link.reader)
        return readers

    def _config(self, config: DsConfig) -> Config:
        from ..programs.deepspeed.config import Config

        consumer, guessed = self._consumer(config)
        return Config(
            json=config.json,
            target=config.target,
            consumer=consumer,
            guessed=guessed,
            unclaimed=guessed and not is_written(config) and self._is_alone(config),
            release=self.release("deepspeed", config.path),
        )

    @cached_property
    def commands(self) -> tuple[LaunchScript, ...]:
        """Every shell text of the submission: scripts, and the commands of AzureML jobs, pods and tasks."""
        jobs = (one.script for one in self.documents if isinstance(one, CommandDocument))
        return (*self.scripts, *(script for script in jobs if script is not None))

    def calls(self, program: str) -> bool:
        """Return whether a launch line starts its processes by a program."""
        return any(call.program == program for launch in self.launches for call in launch.calls)

    @cached_property
    def on_clusters(self) -> tuple[KubernetesJob | SkyPilotTask, ...]:
        """The jobs that are replicated on nodes, and that a launcher in them has to know of."""
        return (*self.kubernetes_jobs, *self.skypilot_tasks)

    @cached_property
    def launches(self) -> tuple[Launch, ...]:
        return tuple(launch for script in self.commands for launch in script.launches)

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
    def used_config(self) -> Config | None:
        """The DeepSpeed config that the job uses: the one that a launch line names, else the only one there is."""
        named = _named(link for link in self.references if link.kind == "DeepSpeed config")
        used = _read(self, named) or self.configs
        return used[0] if len(used) == 1 else None

    @property
    def used_accelerate_config(self) -> AccelerateConfig | None:
        """The accelerate config that the job uses: the one that a launch line names, else the only one there is."""
        named = _named(link for link in self.references if link.kind == "accelerate config")
        used = [
            config for config in self.accelerate_configs if id(config) in named
        ] or self.accelerate_configs
        return used[0] if len(used) == 1 else None

    def release(self, program: str, path: str) -> Release:
        """The release of a program that the file at `path` is judged by: of the context, else the nearest one named."""
        given = self.context.deepspeed_version if program == "deepspeed" else None
        if given is not None:
            return Release(program=program, version=given)
        key, known = (program, dirname(path)), self.files.releases
        if key not in known:
            known[key] = release_for(program, path, self.launches)
        release: Release = known[key]
        return release

    def _consumer(self, config: DsConfig) -> tuple[str, bool]:
        """The program that reads a config, and whether it is a guess: an "auto" is for Transformers or accelerate. That
        of the context, else of the launch line or file that names it, else of the documents around it."""
        from ..programs.deepspeed.config import has_auto

        named = self._readers.get(id(config), [])
        known = self.context.consumer or next(filter(None, named), None)
        if known is None and not named:
            known = next(self._signs_of_consumer(), None)
        guessed = (known is None and not named) or (
            known == "deepspeed" and self.context.consumer is None
        )
        if guessed and hands_to_trainer(config.path):  # which fills in what is "auto" for others
            known = "huggingface"
        # one or two among numbers are no sign of the Trainer where the programs have the engine alone
        automatic = known is None and has_auto(config)
        if automatic and not has_auto(config, _OF_FILLERS) and tells("the engine", config.path):
            automatic = tells("a filler", config.path)
        return known or ("huggingface" if automatic else "deepspeed"), known is None

    def _signs_of_consumer(self) -> Iterator[str]:
        if any(map(configures_lightning, self.launches)):
            yield "lightning"
        if any(arguments.flavour == "megatron-deepspeed" for arguments in self.megatron):
            yield "megatron-deepspeed"
        # A script of the user's own may hand the config to whatever it likes.
        if self.job is not None and self.job.framework.planned and not self.job.engine.scripted:
            yield self.job.framework.name
        if any(arguments.has("deepspeed") for arguments in self.training_arguments):
            yield "huggingface"
        if self.accelerate_configs or self.calls("accelerate"):
            yield "accelerate"


@lru_cache(maxsize=4)
def named_in(submission: Submission, path: str) -> frozenset[int] | None:
    """The DeepSpeed configs that the document at `path` names, by identity of their text; None where it names none."""
    links = [
        link
        for link in submission.references
        if link.where.path == path and link.kind == "DeepSpeed config"
    ]
    return _named(links) if links else None


def _named(links: Iterable[Reference]) -> frozenset[int]:
    """The documents that are named, by identity, of DeepSpeed configs of their text."""
    return frozenset(id(getattr(one, "json", one)) for link in links for one in link.documents)


def _read(submission: Submission, named: frozenset[int]) -> Sequence[Config]:
    """Of the configs that are named those that the job reads: that it holds itself, not copies of them beside it."""
    every = [config for config in submission.configs if id(config.json) in named]
    return [config for config in every if config.embedded] or every


def ds_config_of(submission: Submission, arguments: TrainingArguments) -> Config | None:
    """The DeepSpeed config that arguments name by their `deepspeed`; the job's, where the name can't be known. None
    where the arguments don't use DeepSpeed, or it can't be known which config they mean."""
    named = arguments.value("deepspeed")
    if not arguments.has("deepspeed") or isinstance(named, dict) or named in (False, ""):
        return None
    if named is None:
        return submission.used_config
    paths = (
        named,
        PurePath(str(named)).name,
    )  # of what is in an image or volume, the name alone is known
    links = [
        link
        for link in submission.references
        if link.path in paths and link.where.path == arguments.path
    ]
    return next(iter(_read(submission, _named(links))), None)
