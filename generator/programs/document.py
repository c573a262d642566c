"""The documents that `dsgen validate` reads, each with the places of its values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final, Literal

from ..facts.hjson.text import JsonText
from ..facts.reader import Reader
from ..facts.yaml_document import YamlDocument
from ..findings import Location
from .azureml.parts import Part
from .kubernetes.pods import Role, trainers_of
from .launching.hostfile import EnvironmentFile as EnvironmentFile
from .launching.hostfile import Hostfile
from .launching.launch_line import Launch, Options, launches, sbatch_options
from .megatron.arguments import MegatronArguments
from .shell.script import ShellScript
from .trainer.accelerate import AccelerateConfig
from .trainer.training_arguments import TrainingArguments

Kind = Literal[
    "job spec",
    "DeepSpeed config",
    "launch script",
    "AzureML job",
    "accelerate config",
    "training arguments",
    "Megatron arguments",
    "hostfile",
    "environment file",
    "Kubernetes job",
    "SkyPilot task",
]
_INTEGER: Final = re.compile(r"\s*[+-]?\d{1,11}\s*")  # that Python's int() reads


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A job spec of dsgen's own; the spec's reader and the rules of jobs check it."""

    path: str
    name: str  #: of the file as the user gave it; `path` may have escapes


@dataclass(frozen=True, slots=True, kw_only=True)
class DsConfig(Reader):
    """A DeepSpeed configuration: JSON or HJSON, a file of its own or a here-document of a launch script."""

    json: JsonText
    target: str | None = None  #: the file that a script writes it to; None: it is a file already

    @property
    def embedded(self) -> bool:
        """Whether it is a part of a script: it can be checked, but not fixed by edits."""
        return self.target is not None

    @property
    def name(self) -> str:
        """The name of the file, without folders, as launch lines call it."""
        return PurePath(self.target or self.path).name

    @property
    def path(self) -> str:
        """As the user named it; of an embedded one, the script's."""
        return self.json.text.path

    def value(self, pointer: str, default: object = None) -> object:
        """What is written at a JSON pointer, such as `/zero_optimization/stage`; `default` where nothing is."""
        return self.json.value(pointer, default)

    def has(self, pointer: str) -> bool:
        """Whether anything is written there, null included."""
        return self.json.has(pointer)

    def block(self, pointer: str) -> Mapping[str, object]:
        """The object that is written there; empty where there is none, or something else."""
        value = self.json.value(pointer)
        return value if isinstance(value, dict) else {}

    def locate(self, pointer: str) -> Location:
        """The place of a value, else of the nearest thing around it."""
        return self.json.locate(pointer)

    def locate_key(self, pointer: str) -> Location:
        """The place of the key whose value is at `pointer`."""
        return self.json.locate_key(pointer)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchScript:
    """A shell script that starts a job: its `#SBATCH` block, variables and command lines."""

    shell: ShellScript
    launches: tuple[Launch, ...]
    sbatch: Options  #: of the `#SBATCH` block, as far as sbatch reads it

    @classmethod
    def of(cls, shell: ShellScript) -> LaunchScript:
        """A script with what it launches."""
        return cls(shell=shell, launches=launches(shell), sbatch=sbatch_options(shell))

    @property
    def path(self) -> str:
        """As the user named it."""
        return self.shell.text.path


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandDocument(YamlDocument):
    """YAML with a command that a service or a controller starts on its nodes, read as a shell script."""

    script: LaunchScript | None

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The training programs that the command starts."""
        return self.script.launches if self.script is not None else ()

    def runs(self, *programs: str) -> bool:
        """Whether the command calls one of these programs."""
        return any(call.program in programs for launch in self.launches for call in launch.calls)


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureMLJob(CommandDocument):
    """An AzureML command job as azure-ai-ml loads it."""

    @property
    def is_command(self) -> bool:
        """Whether it is loaded as a command job."""
        return self.readable and self.value("type", "command") == "command"

    @property
    def is_whole(self) -> bool:
        """Whether the file is this job, and not a pipeline or sweep with others."""
        return not isinstance(self.source, Part)

    @property
    def command(self) -> str:
        """The command; empty where it is no text."""
        return self.text("command") or ""

    @property
    def distribution(self) -> str | None:
        """Who starts the processes, in small letters, as azure-ai-ml compares it."""
        kind = self.text("distribution/type")
        return kind.lower() if kind is not None else None

    @property
    def nodes(self) -> int:
        """The nodes, one where nothing else is written."""
        return self.count("resources/instance_count") or 1

    def count(self, name: str) -> int | None:
        """An integer as azure-ai-ml converts it, from text too; None where there is none."""
        text = self.text(name)
        return int(text) if text is not None and _INTEGER.fullmatch(text) else self.integer(name)

    def place_in_command(self, offset: int) -> Location:
        """The place of a character of the command."""
        return self.script.shell.locate(offset) if self.script is not None else self.locate("command")


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesJob(CommandDocument):
    """A PyTorchJob, TrainJob or JobSet; the command is that of its first pod that trains."""

    kind_of_job: str
    roles: tuple[Role, ...]  #: the pods

    @property
    def nodes(self) -> int | None:
        """The pods that train; None where their number can't be known, or may change."""
        elastic = self.block("spec/elasticPolicy")
        if elastic.get("minReplicas") != elastic.get("maxReplicas"):
            return None
        counts = [role.count for role in self.trainers]
        return sum(count for count in counts if count is not None) if counts and None not in counts else None

    @property
    def gpus(self) -> int | None:
        """The accelerators of each pod; None where they differ, or are not written."""
        found = {role.gpus for role in self.trainers}
        return found.pop() if len(found) == 1 else None

    @property
    def trainers(self) -> tuple[Role, ...]:
        """The pods that are one training; of a JobSet, whose jobs may do different things, those with most GPUs."""
        return trainers_of(self.roles, self.kind_of_job)


@dataclass(frozen=True, slots=True, kw_only=True)
class SkyPilotTask(CommandDocument):
    """A task of SkyPilot's; the command is its `run`."""

    @property
    def nodes(self) -> int | None:
        """The nodes, one where nothing is written; None where it is no number."""
        return self.integer("num_nodes") if self.value("num_nodes") is not None else 1

    @property
    def gpus(self) -> int | None:
        """The accelerators of each node; None where there is a choice of them."""
        written = self.value("resources/accelerators")
        if isinstance(written, dict) and len(written) == 1:
            (count,) = written.values()
            return count if isinstance(count, int) else 1 if count is None else None
        name, _, number = written.partition(":") if isinstance(written, str) else ("", "", "")
        if not name or {"{", ","} & set(name):
            return None
        return int(number) if _INTEGER.fullmatch(number) else None if number else 1


Document = (
    JobSpec
    | DsConfig
    | LaunchScript
    | AzureMLJob
    | AccelerateConfig
    | TrainingArguments
    | MegatronArguments
    | Hostfile
    | EnvironmentFile
    | KubernetesJob
    | SkyPilotTask
)
