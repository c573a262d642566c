"""`Submission`: the documents that are checked together, and what the user said beside them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeVar

from ..catalog import Model
from ..job.framework import Frameworks
from ..job.records import Cluster, Job
from .accelerate import AccelerateConfig
from .deepspeed_config import FILLERS as FILLERS
from .deepspeed_config import Config
from .document import AzureMLJob, Document, DsConfig, EnvironmentFile, LaunchScript
from .hostfile import Hostfile
from .megatron_arguments import MegatronArguments
from .shell.launch_line import Launch
from .training_arguments import TrainingArguments

if TYPE_CHECKING:
    from .links import Reference
    from .world import World

#: The newest release that the tables of keys describe.
NEWEST_DEEPSPEED: Final = (0, 19, 8)

#: Programs that read a DeepSpeed config; all but DeepSpeed itself read strict JSON.
CONSUMERS: Final = ("deepspeed", "huggingface", "accelerate", "megatron-deepspeed")

_Kind = TypeVar("_Kind", bound=Document)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What the command line says beside the files; None where it says nothing."""

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
    frameworks: Frameworks  #: those that an inferred run may have
    context: Context = field(default_factory=Context)
    jobs: tuple[Job, ...] = ()  #: of the job specs among the documents that could be resolved

    def _of(self, kind: type[_Kind]) -> tuple[_Kind, ...]:
        return tuple(document for document in self.documents if isinstance(document, kind))

    @cached_property
    def configs(self) -> tuple[Config, ...]:
        """DeepSpeed configs, those within scripts included."""
        return tuple(
            Config(json=one.json, target=one.target, consumer=self.consumer, version=self.deepspeed_version)
            for one in self._of(DsConfig)
        )

    @cached_property
    def scripts(self) -> tuple[LaunchScript, ...]:
        """Launch scripts that are files; the commands of AzureML jobs are not among them."""
        return self._of(LaunchScript)

    @cached_property
    def azureml_jobs(self) -> tuple[AzureMLJob, ...]:
        """AzureML command jobs."""
        return self._of(AzureMLJob)

    @cached_property
    def accelerate_configs(self) -> tuple[AccelerateConfig, ...]:
        """accelerate configs."""
        return self._of(AccelerateConfig)

    @cached_property
    def training_arguments(self) -> tuple[TrainingArguments, ...]:
        """TrainingArguments, from files and from launch lines."""
        return self._of(TrainingArguments)

    @cached_property
    def megatron(self) -> tuple[MegatronArguments, ...]:
        """Megatron arguments, from launch lines and files of arguments."""
        return self._of(MegatronArguments)

    @cached_property
    def hostfiles(self) -> tuple[Hostfile, ...]:
        """Hostfiles."""
        return self._of(Hostfile)

    @cached_property
    def environment_files(self) -> tuple[EnvironmentFile, ...]:
        """Files named `.deepspeed_env`."""
        return self._of(EnvironmentFile)

    @cached_property
    def commands(self) -> tuple[LaunchScript, ...]:
        """Every shell text of the submission: scripts, and the commands of AzureML jobs."""
        return (*self.scripts, *(job.script for job in self.azureml_jobs if job.script is not None))

    @cached_property
    def launches(self) -> tuple[Launch, ...]:
        """Every launch line of the submission."""
        return tuple(launch for script in self.commands for launch in script.launches)

    @cached_property
    def job(self) -> Job | None:
        """The job that the submission is for: the one given, else that of its only job spec."""
        return self.context.job or (self.jobs[0] if len(self.jobs) == 1 else None)

    @cached_property
    def cluster(self) -> Cluster | None:
        """The machines: as given, else the job's."""
        return self.context.cluster or (self.job.cluster if self.job else None)

    @cached_property
    def model(self) -> Model | None:
        """The model: as given, else the job's."""
        return self.context.model or (self.job.model if self.job else None)

    @property
    def deepspeed_version(self) -> tuple[int, ...]:
        """The version of DeepSpeed that is to read the configs."""
        return self.context.deepspeed_version

    @cached_property
    def consumer(self) -> str:
        """Who reads the DeepSpeed configs: as given, else as the other documents tell, else DeepSpeed itself."""
        return self.context.consumer or next(self._signs_of_consumer(), "deepspeed")

    def _signs_of_consumer(self) -> Iterator[str]:
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

    # The last uses of these move to the functions that they call.

    @property
    def references(self) -> tuple[Reference, ...]:
        """Files that documents of the submission name."""
        from .links import references

        return references(self)

    @property
    def config(self) -> Config | None:
        """The DeepSpeed config that the job uses."""
        from .links import used_ds_config

        return used_ds_config(self)

    @property
    def world(self) -> World:
        """GPUs, nodes and degrees of parallelism."""
        from .world import world_of

        return world_of(self)
