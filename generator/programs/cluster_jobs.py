"""Common ground of the rules on Kubernetes jobs and SkyPilot tasks: published schemas, launchers on
every node.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from ..dataclass import dataclass
from ..facts.shapes import AS_WRITTEN, Problem, differences
from ..findings import ERROR, WARNING, Location, Violation, Violations
from ..patterns import lazy_pattern
from ..places import is_placeholder
from ..submission.launches import Launch
from ..text.source import Source
from ..text.wording import counted, dotted, show
from .launching.launcher_call import TRAINING, meets_itself

#: What a program fills in before the file is read: `$NODES`, `<image>`, `{{ nodes }}`.
_FILLED_IN: Final = lazy_pattern(r"\$|\{\{|<\w")
#: The option by which each launcher learns of the other nodes, and what it could be.
_OPTIONS: Final = {
    "torchrun": ("--nnodes", "--standalone"),
    "deepspeed": ("--hostfile", "--no_ssh"),
    "accelerate": ("--num_machines", "--config_file"),
}


class ClusterJob(Protocol):
    """A job that is replicated on nodes, with the command that each of them runs."""

    @property
    def source(self) -> Source: ...

    @property
    def launches(self) -> tuple[Launch, ...]: ...

    @property
    def gpus(self) -> int | None: ...

    @property
    def nodes(self) -> int | None: ...

    def value(self, name: str) -> object: ...

    def locate(self, name: str) -> Location: ...

    def locate_key(self, name: str) -> Location: ...


def to_fill(value: object) -> bool:
    """Return whether a value is one that is filled in before the file is read."""
    return isinstance(value, str) and (
        _FILLED_IN.search(value) is not None or is_placeholder(value)
    )


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference of a job from the schema that its project publishes."""

    job: ClusterJob
    problem: Problem
    what: str  #: what has the schema, as in `a PyTorchJob`
    reader: str  #: who refuses it

    @property
    def value(self) -> object:
        return self.job.value(self.problem.pointer[1:])

    @property
    def is_key(self) -> bool:
        return self.problem.kind == "unknown"

    def violation(self) -> Violation:
        """The difference as a person reads it: of a name, an error for a slip, else another release
        may have it.
        """
        problem, at, name = self.problem, self.problem.pointer[1:], dotted(self.problem.pointer)
        if problem.kind == "missing":
            return Violation(
                self.job.locate(at),
                f"{name} is missing",
                f"add {problem.parts[-1]}, {problem.expected}",
            )
        if not problem.choices and not self.is_key:
            message = f"{name} is {show(self.value)}, not {problem.expected}"
            quoted = problem.expected.startswith("text") and isinstance(
                self.value, (bool, int, float)
            )
            hint = "put it in quotes" if quoted else f"write {problem.expected}"
            return Violation(self.job.locate(at), message, hint)
        meant = problem.near(problem.parts[-1] if self.is_key else str(self.value))
        known = problem.choices[:8]
        message = f"{name} is {show(self.value)}, which is not known"
        hint = f"did you mean {meant}?" if meant else f"use one of {', '.join(known)}"
        if self.is_key:
            parent = problem.pointer.rpartition("/")[0]
            place = f" in {dotted(parent)}" if parent else ""
            message = (
                f"unknown key {problem.parts[-1]}{place}: {self.what} has none, and "
                f"{self.reader} refuses it"
            )
            hint = hint if meant else f"remove it, or {hint}"
        where = self.job.locate_key(at) if self.is_key else self.job.locate(at)
        return Violation(where, message, hint, severity=ERROR if meant else WARNING)


def differences_of(
    job: ClusterJob, program: str, kind: str, what: str, reader: str
) -> Iterator[Difference]:
    """The differences of a job from the schema of its kind, but for values that are filled in
    before it is read.
    """
    for problem in differences(job.value(""), program, kind, AS_WRITTEN):
        found = Difference(job, problem, what, reader)
        if not to_fill(found.value):
            yield found


def one_process(job: ClusterJob) -> Violations:
    """A training with DeepSpeed or Megatron that python alone starts, where there are several
    GPUs.
    """
    if (job.gpus or 1) <= 1:
        return
    for launch in job.launches:
        asked = {word.prefix.partition("=")[0] for word in launch.arguments} & TRAINING
        start = launch.calls[0] if [call.program for call in launch.calls] == ["python"] else None
        if (
            start is not None
            and asked
            and start.command.shell is None
            and not start.command.guarded
        ):
            message = f"python starts one process, and there are {job.gpus} GPUs"
            hint = f"write torchrun --nproc-per-node={job.gpus} in place of python"
            yield Violation(start.where, message, hint)


def miscounted(job: ClusterJob, node: str, per_node: str, of_nodes: str) -> Violations:
    """torchrun's processes on each `node` against its GPUs, and its nodes against the job's; with
    words that fit. Where both are written and their product is not the job's GPUs, SUB001 says so.
    """
    for launch in job.launches:
        for call in launch.calls:
            if call.program != "torchrun" or call.command.guarded:
                continue
            each, nodes = call.integer("--nproc-per-node"), call.integer("--nnodes")
            if nodes and (job.nodes or 1) > 1 and meets_itself(call):
                yield nodes.bad_value(
                    f"{nodes} and a local master in {counted(job.nodes or 1, node)}: each trains "
                    "on its own",
                    f"write {of_nodes} for one training, with an address that all reach",
                    severity=WARNING,
                )
                continue
            if (
                each
                and nodes
                and job.gpus
                and job.nodes
                and each.value * nodes.value != job.gpus * job.nodes
            ):
                continue
            if each and job.gpus and each.value != job.gpus:
                few, many = f"{job.gpus - each.value} of them are not used", each.value > job.gpus
                effect = "the rest find no device" if many else few
                message = f"{each} in each {node}, which has {counted(job.gpus, 'GPU')}: {effect}"
                yield each.bad_value(
                    message, f"write {per_node}", severity=ERROR if many else WARNING
                )
            if nodes and job.nodes and nodes.value != job.nodes:
                yield nodes.bad_value(
                    f"{nodes}, and the job has {counted(job.nodes, node)}", f"write {of_nodes}"
                )


def without_the_other_nodes(job: ClusterJob, hint: str) -> Violations:
    """Launchers that train on their own node alone: an error for torchrun; another may read a file
    of its image's.
    """
    calls = (
        (launch, call)
        for launch in job.launches
        for call in launch.calls
        if call.program in _OPTIONS
    )
    if (job.nodes or 1) <= 1:
        return
    for launch, call in calls:
        by_torchrun, (option, other) = call.program == "torchrun", _OPTIONS[call.program]
        alone = by_torchrun and call.has("--standalone")
        by_variable = by_torchrun and "PET_NNODES" in launch.environment
        told = not alone and (by_variable or call.has(option, other))
        if not (told or call.opaque or call.command.guarded):
            lacks = "--standalone" if alone else f"without {option}"
            message = (
                f"{call.program} {lacks} on {counted(job.nodes or 1, 'node')}: each "
                "node trains on its own"
            )
            severity = ERROR if by_torchrun else WARNING
            yield Violation(call.where, message, hint, severity=severity)
