"""What a script asks of Slurm against the machines, and against what else says how large the job is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ....documents.submission import Submission
from ....findings import ERROR, WARNING, Severity, Violation, Violations
from ....units import MIB
from ...rule import submissions
from ...sources import slurm_manual
from . import values
from .options import known_values
from .requests import Request, blocks, count, gpus_per_node, most_nodes, nodes_of, tasks_per_node

#: Their catalog entries count virtual cores, which are threads; those of others count cores.
_COUNT_THREADS: Final = frozenset({"azure", "aws", "gcp"})
_THREADS: Final = 2  # of a core, where a site's Slurm counts threads as CPUs: the most that GPU nodes' processors have
_GPU_OPTIONS: Final = ("--gpus", "--gpus-per-node", "--gpus-per-task", "--gpus-per-socket", "--gres", "--tres-per-task")
_TRAINERS: Final = frozenset({"torchrun", "deepspeed", "accelerate"})
_HOST_RANGE: Final = re.compile(r"[A-Za-z][\w.-]*\[(\d{1,9})-(\d{1,9})\][\w.-]*", re.ASCII)


def _sized(submission: Submission) -> Iterator[Request]:
    """The blocks that ask for any node: of none Slurm checks nothing."""
    return (request for request in blocks(submission) if nodes_of(request) != 0)


@submissions.rule("SLM006", ERROR, "submit", slurm_manual("sbatch(1), --gpus-per-node"), reads=("launch script",))
def node_has_the_gpus(submission: Submission) -> Violations:
    """A node is asked for no more GPUs than it has.

    Prevents: Requested node configuration is not available.
    Fix: No more than the node has.
    """
    cluster = submission.cluster
    for request in _sized(submission):
        asked = gpus_per_node(request)
        if asked is None:
            tasks, text = tasks_per_node(request), request.options.text("--gpus-per-task")
            each, option = (values.gpus(text) if text else None), request.options.get("--gpus-per-task")
            asked = (option, tasks * each[1]) if option and each and tasks else None
        if cluster is None or asked is None or asked[1] <= cluster.accelerators_per_node:
            continue
        message = (
            f"{request.said(asked[0])}: {asked[1]} GPUs a node, but {cluster.name} has {cluster.accelerators_per_node}"
        )
        hint = f"--gpus-per-node={cluster.accelerators_per_node}, and more nodes"
        yield Violation(where=request.at_value(asked[0]), message=message, hint=hint)


@submissions.rule(
    "SLM054", ERROR, "submit", slurm_manual("sbatch(1), --gpus: the job's total"), reads=("launch script",)
)
def nodes_have_the_gpus(submission: Submission) -> Violations:
    """The job's nodes have as many GPUs as --gpus asks for.

    Prevents: Requested node configuration is not available.
    Fix: Enough nodes for the GPUs.
    """
    cluster = submission.cluster
    for request in _sized(submission):
        option, text, nodes = request.options.get("--gpus"), request.options.text("--gpus"), most_nodes(request)
        if not request.has("--nodes", "--ntasks") and request.has("--ntasks-per-node"):
            nodes = 1  # what Slurm takes then
        found = values.gpus(text) if text is not None else None
        if cluster is None or option is None or found is None or not nodes:
            continue
        has = nodes * cluster.accelerators_per_node
        if found[1] > has:
            message = f"{request.said(option)}, but {nodes} nodes of {cluster.name} have {has}"
            needed = -(-found[1] // cluster.accelerators_per_node)
            yield Violation(where=request.at_value(option), message=message, hint=f"--gpus={has}, or --nodes={needed}")


@submissions.rule("SLM016", ERROR, "submit", slurm_manual("sbatch(1), --cpus-per-task"), reads=("launch script",))
def node_has_the_cores(submission: Submission) -> Violations:
    """The tasks of a node get no more cores than the node has.

    Prevents: Requested node configuration is not available.
    Fix: Tasks per node × cores per task within the node.
    """
    cluster = submission.cluster
    cores = cluster.cpu_cores if cluster else None
    if cluster is None or not cores:
        return
    threads = cores if cluster.provider in _COUNT_THREADS else cores * _THREADS
    for request in _sized(submission):
        found = next((found for found in _cores_asked(request) if found[1] > cores), None)
        option = request.options.get(found[0]) if found else None
        if found is None or option is None:
            continue
        name, asked, words = found
        certain = asked > threads
        tail = "" if certain else f"; it passes only where the site's Slurm counts threads, {threads}"
        yield Violation(
            where=request.at_value(option),
            message=f"{words} = {asked} cores a node, more than the {cores} of {cluster.name}{tail}",
            hint=f"{name}={max(1, cores * (count(request, name) or 1) // asked)}",
            severity=Severity.ERROR if certain else Severity.WARNING,
        )


def _cores_asked(request: Request) -> Iterator[tuple[str, int, str]]:
    """The option to change, cores of a node, and how they come about."""
    tasks, each = tasks_per_node(request), count(request, "--cpus-per-task")
    gpus, by_gpu = gpus_per_node(request), count(request, "--cpus-per-gpu")
    if by_gpu is not None:
        times = gpus[1] if gpus else 1
        yield "--cpus-per-gpu", times * by_gpu, f"{times} GPU{'s' * (times > 1)} × --cpus-per-gpu={by_gpu}"
    if each is not None and tasks is not None:
        words = f"{tasks} task{'s' * (tasks > 1)} × --cpus-per-task={each}"
        yield "--cpus-per-task", tasks * each, words
    if request.has("--overcommit"):
        return
    if tasks is not None and request.has("--ntasks-per-node") and each is None:
        yield "--ntasks-per-node", tasks, f"{tasks} tasks with a core each"
    total, nodes = count(request, "--ntasks"), most_nodes(request)
    if total and nodes and not request.has("--ntasks-per-node"):
        share = -(-total // nodes)
        yield "--ntasks", share * (each or 1), f"--ntasks={total} on {nodes} nodes, each of {each or 1} cores"


@submissions.rule("SLM049", ERROR, "submit", slurm_manual("sbatch(1), --mem"), reads=("launch script",))
def node_has_the_memory(submission: Submission) -> Violations:
    """A node is asked for no more memory than it has.

    Prevents: Requested node configuration is not available.
    Fix: --mem=0 asks for all of it.
    """
    cluster = submission.cluster
    has = cluster.host_memory_bytes if cluster else None
    for request in _sized(submission):
        for option, text in known_values(request, "--mem", "--mem-per-gpu", last=True):
            each = values.mebibytes(text)
            gpus = gpus_per_node(request)
            times = 1 if option.name == "--mem" or gpus is None else gpus[1]
            if cluster is None or has is None or each is None or each * times * MIB <= has:
                continue
            total = f"{text} × {times} GPUs" if times > 1 else text
            hint = "--mem=0 for all of the node's memory"
            message = f"{request.said(option)}: {total} is more than the {has / MIB / 1024:.0f}G of {cluster.name}"
            yield Violation(where=request.at_value(option), message=message, hint=hint)


@blocks.rule(
    "SLM051",
    WARNING,
    "init",
    slurm_manual("sbatch(1), --gpus: without such an option a job gets no GPU (gres.conf(5))"),
)
def gpus_are_asked_for(request: Request) -> Violations:
    """A script that starts training asks for GPUs.

    Prevents: RuntimeError: no CUDA devices are available, on a node that has some.
    Fix: #SBATCH --gpus-per-node=8
    """
    script = request.block
    if script is None or request.has(*_GPU_OPTIONS, "--exclusive") or request.options.opaque or request.options.unknown:
        return
    for launch in script.launches:
        call = next((call for call in launch.calls if call.program in _TRAINERS), None)
        steps = [outer for outer in launch.calls if outer.program == "srun"]
        if call is None or any(step.options.has(name) for step in steps for name in _GPU_OPTIONS):
            continue
        if _for_cpus(call.options.entries, launch.arguments):
            continue
        message = f"the #SBATCH block asks for no GPU, and {call.program} starts training"
        hint = "add #SBATCH --gpus-per-node=8, unless the partition gives GPUs by itself"
        yield Violation(where=script.shell.locate(script.shell.directives[0]), message=message, hint=hint)
        break


def _for_cpus(entries: tuple[object, ...], arguments: tuple[object, ...]) -> bool:
    words = [getattr(getattr(entry, "written", entry), "raw", "") for entry in (*entries, *arguments)]
    return any("cpu" in word or "gloo" in word for word in words)


@blocks.rule("SLM052", ERROR, "submit", slurm_manual("sbatch(1), --nodelist"))
def listed_nodes_are_as_many(request: Request) -> Violations:
    """--nodelist names no more nodes than --nodes asks for.

    Prevents: sbatch: error: invalid number of nodes (-N 2-1).
    Fix: As many nodes as the list has, or more.
    """
    nodes = nodes_of(request)
    for option, text in known_values(request, "--nodelist"):
        named = _named(text)
        if nodes and named is not None and named > nodes:
            message = f"{request.said(option)} names {named} nodes, and --nodes is {nodes}"
            yield Violation(where=request.at_value(option), message=message, hint=f"--nodes={named}")


def _named(text: str) -> int | None:
    """How many hosts a plain list names; None where it has forms that aren't counted here."""
    total = 0
    for part in re.split(r",(?![^\[]*\])", text):
        match = _HOST_RANGE.fullmatch(part)
        if match:
            total += max(0, int(match[2]) - int(match[1]) + 1)
        elif re.fullmatch(r"[A-Za-z0-9][\w.-]*", part, re.ASCII):
            total += 1
        else:
            return None
    return total
