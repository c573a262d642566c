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
from ..submission.launches import Call, Launch
from ..text.source import Source
from ..text.wording import counted, dotted, show
from .launching.launcher_call import TRAINING, meets_itself

#: What a program fills in before the file is read: `$NODES`, `<image>`, `{{ nodes }}`.
_FILLED_IN: Final = lazy_pattern(r"\$|\{\{|<\w")
_MOST_SHOWN: Final = 8  # choices that a hint lists
#: The option by which each launcher learns of the other nodes, and one that may stand for it.
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
    called: str  #: the job in messages: `a PyTorchJob`
    reader: str  #: who refuses it

    @property
    def value(self) -> object:
        return self.job.value(self.problem.pointer[1:])

    @property
    def is_key(self) -> bool:
        return self.problem.kind == "unknown"

    def violation(self) -> Violation:
        """The difference as a person reads it."""
        problem = self.problem
        if self.is_key:
            return self._of_unknown_key()
        where, name = self.job.locate(problem.pointer[1:]), dotted(problem.pointer)
        if problem.kind == "missing":
            hint = f"add {problem.parts[-1]}, {problem.expected}"
            return Violation(where, f"{name} is missing", hint)
        if problem.choices:
            return self._of_unknown_name(where, name)
        lacks_quotes = problem.expected.startswith("text") and isinstance(
            self.value, (bool, int, float)
        )
        message = f"{name} is {show(self.value)}, not {problem.expected}"
        hint = "put it in quotes" if lacks_quotes else f"write {problem.expected}"
        return Violation(where, message, hint)

    def _of_unknown_name(self, where: Location, name: str) -> Violation:
        """An error for a slip; else a warning, as another release may have the name."""
        meant = self.problem.near(str(self.value))
        message = f"{name} is {show(self.value)}, which is not known"
        hint = f"did you mean {meant}?" if meant else self._use_one
        return Violation(where, message, hint, severity=ERROR if meant else WARNING)

    def _of_unknown_key(self) -> Violation:
        """An error for a slip; else a warning, as another release may have the key."""
        problem = self.problem
        meant = problem.near(problem.parts[-1])
        parent = problem.pointer.rpartition("/")[0]
        place = f" in {dotted(parent)}" if parent else ""
        message = (
            f"unknown key {problem.parts[-1]}{place}: {self.called} has none, and "
            f"{self.reader} refuses it"
        )
        hint = f"did you mean {meant}?" if meant else f"remove it, or {self._use_one}"
        where = self.job.locate_key(problem.pointer[1:])
        return Violation(where, message, hint, severity=ERROR if meant else WARNING)

    @property
    def _use_one(self) -> str:
        return f"use one of {', '.join(self.problem.choices[:_MOST_SHOWN])}"


def differences_of(
    job: ClusterJob, program: str, kind: str, called: str, reader: str
) -> Iterator[Difference]:
    """The differences of a job from the schema of its kind, but for values that are filled in
    before it is read.
    """
    for problem in differences(job.value(""), program, kind, AS_WRITTEN):
        difference = Difference(job, problem, called, reader)
        if not to_fill(difference.value):
            yield difference


def one_process(job: ClusterJob) -> Violations:
    """A training with DeepSpeed or Megatron that python alone starts, where there are several
    GPUs.
    """
    if (job.gpus or 1) <= 1:
        return
    for launch in job.launches:
        options = {word.prefix.partition("=")[0] for word in launch.arguments}
        if options.isdisjoint(TRAINING) or [call.program for call in launch.calls] != ["python"]:
            continue
        (start,) = launch.calls
        if start.command.shell is None and not start.command.guarded:
            message = f"python starts one process, and there are {job.gpus} GPUs"
            hint = f"write torchrun --nproc-per-node={job.gpus} in place of python"
            yield Violation(start.where, message, hint)


def miscounted(job: ClusterJob, node: str, per_node: str, of_nodes: str) -> Violations:
    """torchrun's processes on each node against its GPUs, and its nodes against the job's.

    `node` is what the job calls one; `per_node` and `of_nodes` are the words that would be right.
    """
    for launch in job.launches:
        for call in launch.calls:
            if call.program == "torchrun" and not call.command.guarded:
                yield from _miscounted_by(call, job, node, per_node, of_nodes)


def _miscounted_by(
    call: Call, job: ClusterJob, node: str, per_node: str, of_nodes: str
) -> Violations:
    each, nodes = call.integer("--nproc-per-node"), call.integer("--nnodes")
    if nodes and (job.nodes or 1) > 1 and meets_itself(call):
        yield nodes.bad_value(
            f"{nodes} and a local master in {counted(job.nodes or 1, node)}: each trains "
            "on its own",
            f"write {of_nodes} for one training, with an address that all reach",
            severity=WARNING,
        )
        return

    # SUB001 reports a product that isn't the job's GPUs.
    processes = each.value * nodes.value if each and nodes else None
    gpus = job.gpus * job.nodes if job.gpus and job.nodes else None
    if processes is not None and gpus is not None and processes != gpus:
        return
    if each and job.gpus and each.value != job.gpus:
        too_many = each.value > job.gpus
        unused = f"{job.gpus - each.value} of them are not used"
        effect = "the rest find no device" if too_many else unused
        message = f"{each} in each {node}, which has {counted(job.gpus, 'GPU')}: {effect}"
        yield each.bad_value(message, f"write {per_node}", severity=ERROR if too_many else WARNING)
    if nodes and job.nodes and nodes.value != job.nodes:
        message = f"{nodes}, and the job has {counted(job.nodes, node)}"
        yield nodes.bad_value(message, f"write {of_nodes}")


def without_the_other_nodes(job: ClusterJob, hint: str) -> Violations:
    """Launchers that train on their own node alone: an error for torchrun, a warning for others,
    which may read a file of the image.
    """
    nodes = job.nodes or 1
    if nodes <= 1:
        return
    calls = (
        (launch, call)
        for launch in job.launches
        for call in launch.calls
        if call.program in _OPTIONS
    )
    for launch, call in calls:
        by_torchrun = call.program == "torchrun"
        option, other_option = _OPTIONS[call.program]
        is_alone = by_torchrun and call.has("--standalone")
        by_variable = by_torchrun and "PET_NNODES" in launch.environment
        knows_nodes = not is_alone and (by_variable or call.has(option, other_option))
        if knows_nodes or call.opaque or call.command.guarded:
            continue
        lacks = "--standalone" if is_alone else f"without {option}"
        message = f"{call.program} {lacks} on {counted(nodes, 'node')}: each node trains on its own"
        yield Violation(call.where, message, hint, severity=ERROR if by_torchrun else WARNING)
