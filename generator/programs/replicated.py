"""Launchers in commands that run on every node of a job: what the rules of Kubernetes and SkyPilot share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from ..findings import ERROR, WARNING, Violation, Violations
from ..job.wording import counted
from .kubernetes.job import KubernetesJob
from .launching.launch_line import Call, Launch
from .launching.rules.ranks import TRAINING
from .skypilot.job import SkyPilotTask

#: The option by which each launcher learns of the other nodes, and what it could be.
_OPTIONS: Final = {
    "torchrun": ("--nnodes", "--standalone"),
    "deepspeed": ("--hostfile", "--no_ssh"),
    "accelerate": ("--num_machines", "--config_file"),
}


@dataclass(frozen=True, slots=True)
class Replicated:
    """A launcher that is started on each of several nodes."""

    job: KubernetesJob | SkyPilotTask
    nodes: int
    launch: Launch
    call: Call


def replicated(jobs: Iterable[KubernetesJob | SkyPilotTask]) -> Iterator[Replicated]:
    """The launchers of jobs of several nodes whose options can all be known."""
    for job in jobs:
        for launch in job.launches if (job.nodes or 1) > 1 else ():
            for call in launch.calls:
                if call.program in _OPTIONS and not call.options.opaque and not call.command.guarded:
                    yield Replicated(job, job.nodes or 1, launch, call)


def one_process(job: KubernetesJob | SkyPilotTask) -> Violations:
    """A training with DeepSpeed or Megatron that python alone starts, where there are several GPUs."""
    for launch in job.launches if (job.gpus or 1) > 1 else ():
        asked = {word.prefix.partition("=")[0] for word in launch.arguments} & TRAINING
        start = launch.calls[0] if [call.program for call in launch.calls] == ["python"] else None
        if start is not None and asked and start.command.shell is None and not start.command.guarded:
            message = f"python starts one process, and there are {job.gpus} GPUs"
            hint = f"write torchrun --nproc-per-node={job.gpus} in place of python"
            yield Violation(launch.script.locate(start.word), message, hint)


def without_the_other_nodes(started: Replicated, hint: str) -> Violations:
    """A launcher that trains on its own node alone: an error for torchrun; another may read a file of its image's."""
    call, (option, other) = started.call, _OPTIONS[started.call.program]
    alone = call.program == "torchrun" and call.options.has("--standalone")
    by_variable = call.program == "torchrun" and "PET_NNODES" in started.launch.environment
    if not alone and (by_variable or call.options.has(option) or call.options.has(other)):
        return
    lacks = "--standalone" if alone else f"without {option}"
    message = f"{call.program} {lacks} on {counted(started.nodes, 'node')}: each node trains on its own"
    severity = ERROR if call.program == "torchrun" else WARNING
    yield Violation(started.launch.script.locate(call.word), message, hint, severity=severity)
