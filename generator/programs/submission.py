"""`Submission`: the documents that are checked together, and their context."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from posixpath import dirname
from typing import Final, TypeVar

from ..catalog import Model
from ..job.framework import Frameworks
from ..job.records import Cluster, Job
from ..job.text import Text
from .deepspeed.config import FILLERS as FILLERS
from .deepspeed.config import Config, has_auto
from .document import (
    AzureMLJob,
    CommandDocument,
    Document,
    DsConfig,
    EnvironmentFile,
    KubernetesJob,
    LaunchScript,
    SkyPilotTask,
)
from .launching.hostfile import Hostfile
from .launching.launch_line import Launch
from .lookup import Files, place_of
from .megatron.arguments import MegatronArguments
from .references import Reference, configures_lightning, references_of
from .trainer.accelerate import AccelerateConfig
from .trainer.training_arguments import TrainingArguments

#: The newest release that the tables of keys describe.
NEWEST_DEEPSPEED: Final = (0, 19, 8)

#: Programs that read a DeepSpeed config; all but DeepSpeed itself read strict JSON.
CONSUMERS: Final = ("deepspeed", "huggingface", "accelerate", "lightning", "megatron-deepspeed")
_Kind = TypeVar("_Kind", bound=Document)


def _documents_of(kind: type[_Kind]) -> cached_property[tuple[_Kind, ...]]:
    """The documents of a kind, in order."""
    return cached_property(lambda submission: tuple(one for one in submission.documents if isinstance(one, kind)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What flags add to the files; None where one is left out."""

    gpus: int | None = None
    gpus_per_node: int | None = None
    cluster: Cluster | None = None
    model: Model | None = None
    job: Job | None = None
    consumer: str | None = None  #: one of `CONSUMERS`
    deepspeed_version: tuple[int, ...] = NEWEST_DEEPSPEED


@dataclass(frozen=True, kw_only=True, eq=False)
class Submission:
    """One job as its files describe it. Rules are functions of it; what is derived from it is cached by identity."""

    documents: tuple[Document, ...]
    frameworks: Callable[[], Frameworks]  #: those of inferred runs, loaded when one is inferred
    context: Context = field(default_factory=Context)
    texts: Mapping[str, Text] = field(default_factory=dict)  #: of the files, by path
    jobs: tuple[Job, ...] = ()  #: of the job specs among the documents that could be resolved
    around: Files | None = None  #: all files that were read, of other submissions too

    scripts = _documents_of(LaunchScript)  #: those that are files, not the commands of other documents
    azureml_jobs = _documents_of(AzureMLJob)
    kubernetes_jobs = _documents_of(KubernetesJob)
    skypilot_tasks = _documents_of(SkyPilotTask)
    accelerate_configs = _documents_of(AccelerateConfig)
    training_arguments = _documents_of(TrainingArguments)  #: from files and from launch lines
    megatron = _documents_of(MegatronArguments)  #: from launch lines and files of arguments
    hostfiles = _documents_of(Hostfile)
    environment_files = _documents_of(EnvironmentFile)
    _ds_configs = _documents_of(DsConfig)

    @cached_property
    def files(self) -> Files:
        """Where files that the documents name are looked for."""
        return self.around or Files(self.documents)

    @cached_property
    def references(self) -> tuple[Reference, ...]:
        """Every file that a launch line or config names, where its name can be known."""
        return tuple(references_of(self.documents, self.files))

    @cached_property
    def configs(self) -> tuple[Config, ...]:
        """DeepSpeed configs, those within scripts included, each as the program that it is for reads it."""
        return tuple(self._config(one) for one in self._ds_configs)

    @cached_property
    def _readers(self) -> dict[int, list[str | None]]:
        """The programs that read each document, by those that name it; None for one that isn't known."""
        readers = defaultdict[int, list[str | None]](list)
        for link in self.references:
            for document in link.documents:
                readers[id(document)].append(link.reader)
        return readers

    def _config(self, config: DsConfig) -> Config:
        consumer, guessed = self._consumer(config)
        found = not config.embedded and any(self.files.roots_of(dirname(place_of(config.path))))
        return Config(
            json=config.json,
            target=config.target,
            consumer=consumer,
            guessed=guessed,
            unclaimed=guessed and found,
            version=self.deepspeed_version,
        )

    @cached_property
    def commands(self) -> tuple[LaunchScript, ...]:
        """Every shell text of the submission: scripts, and the commands of AzureML jobs, pods and tasks."""
        jobs = (one.script for one in self.documents if isinstance(one, CommandDocument))
        return (*self.scripts, *(script for script in jobs if script is not None))

    @cached_property
    def on_clusters(self) -> tuple[KubernetesJob | SkyPilotTask, ...]:
        """The jobs that are replicated on nodes, and that a launcher in them has to know of."""
        return (*self.kubernetes_jobs, *self.skypilot_tasks)

    @cached_property
    def launches(self) -> tuple[Launch, ...]:
        """Every launch line of the submission."""
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

    @property
    def deepspeed_version(self) -> tuple[int, ...]:
        """The version of DeepSpeed that is to read the configs."""
        return self.context.deepspeed_version

    def _consumer(self, config: DsConfig) -> tuple[str, bool]:
        """The program that reads a config, and whether it is a guess: an "auto" is for Transformers or accelerate.

        That of the context, else of the launch line or file that names it, else of the documents around it.
        """
        named = self._readers.get(id(config), [])
        known = self.context.consumer or next(filter(None, named), None)
        if known is None and not named:
            known = next(self._signs_of_consumer(), None)
        return known or ("huggingface" if has_auto(config) else "deepspeed"), known is None

    def _signs_of_consumer(self) -> Iterator[str]:
        if any(map(configures_lightning, self.launches)):
            yield "lightning"
        if any(arguments.flavour == "megatron-deepspeed" for arguments in self.megatron):
            yield "megatron-deepspeed"
        if self.job is not None and self.job.framework.runs("Trainer", "Megatron-DeepSpeed"):
            yield self.job.framework.name
        if any(arguments.has("deepspeed") for arguments in self.training_arguments):
            yield "huggingface"
        if self.accelerate_configs or any(
            call.program == "accelerate" for launch in self.launches for call in launch.calls
        ):
            yield "accelerate"
