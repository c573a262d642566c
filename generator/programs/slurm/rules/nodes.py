"""What a script asks of Slurm against the machines, and against what else says how large the job is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ....findings import ERROR, NOTE, WARNING, Violation, Violations
from ....job.records import Cluster
from ....rules.sources import slurm_manual
from ....units import MIB
from ...launching.command_line import Argument
from ...launching.launch_line import Call, Launch
from ...rule import subject
from ...subjects import blocks
from ...submission import Submission
from ..request import LAUNCHERS, Request
from ..values import mebibytes

#: Their catalog entries count virtual cores, which are threads; those of others count cores.
_COUNT_THREADS: Final = frozenset({"azure", "aws", "gcp"})
_THREADS: Final = 2  # of a core, where a site's Slurm counts threads as CPUs: the most that GPU nodes' processors have
_GPU_OPTIONS: Final = ("--gpus", "--gpus-per-node", "--gpus-per-task", "--gpus-per-socket", "--gres", "--tres-per-task")
_HOST_RANGE: Final = re.compile(r"[A-Za-z][\w.-]*\[(\d{1,9})-(\d{1,9})\][\w.-]*", re.ASCII)


@subject("launch script")
def _blocks_on_machines(submission: Submission) -> Iterator[tuple[Request, Cluster]]:
    """The blocks with their machines, but for those that ask for no node: of these Slurm checks nothing."""
    found = blocks(submission) if submission.cluster else ()
    return ((request, submission.cluster) for request in found if submission.cluster and request.nodes != 0)


@_blocks_on_machines.rule("SLM006", ERROR, "submit", slurm_manual("sbatch(1), --gpus-per-node"))
def node_has_the_gpus(block: tuple[Request, Cluster]) -> Violations:
    """A job asks for no more GPUs of a node than it has.

    Prevents: Requested node configuration is not available.
    Fix: ask for no more than the node has"""
    (request, cluster), has = block, block[1].accelerators_per_node
    node, task = request.gpus_per_node, request.gpus("--gpus-per-task")
    option, asked = node or task, node.value if node else (request.tasks_per_node or 0) * (task.value if task else 0)
    if option is not None and asked > has:
        message = f"{option}: {asked} GPUs per node, but {cluster.name} has {has}"
        yield option.bad_value(message, f"write --gpus-per-node={has}, and add nodes")


@_blocks_on_machines.rule("SLM054", ERROR, "submit", slurm_manual("sbatch(1), --gpus: the job's total"))
def nodes_have_the_gpus(block: tuple[Request, Cluster]) -> Violations:
    """The job's nodes have as many GPUs as --gpus asks for.

    Prevents: Requested node configuration is not available.
    Fix: ask for enough nodes for the GPUs"""
    (request, cluster), each, job = block, block[1].accelerators_per_node, block[0].gpus()
    one = not request.has("--nodes", "--ntasks") and request.has("--ntasks-per-node")  # what Slurm assumes then
    nodes = 1 if one else request.most_nodes
    if job is not None and nodes and job.value > nodes * each:
        message = f"{job}, but {nodes} nodes of {cluster.name} have {nodes * each}"
        yield job.bad_value(message, f"write --gpus={nodes * each}, or --nodes={-(-job.value // each)}")


@_blocks_on_machines.rule("SLM016", ERROR, "submit", slurm_manual("sbatch(1), --cpus-per-task"))
def node_has_the_cores(block: tuple[Request, Cluster]) -> Violations:
    """The tasks of a node get no more cores than the node has.

    Prevents: Requested node configuration is not available.
    Fix: keep tasks per node × cores per task within the node"""
    (request, cluster), cores = block, block[1].cpu_cores
    threads = (cores or 0) * (1 if cluster.provider in _COUNT_THREADS else _THREADS)
    for option, asked, text in _cores_asked(request) if cores else ():
        if cores and asked > cores:
            certain = asked > threads
            tail = "" if certain else f"; accepted only where the site's Slurm counts threads, {threads}"
            message = f"{text} = {asked} cores per node, more than the {cores} of {cluster.name}{tail}"
            hint = f"write {option.name}={max(1, cores * (option.value or 1) // asked)}"
            yield option.bad_value(message, hint, severity=ERROR if certain else WARNING)
            return


def _cores_asked(request: Request) -> Iterator[tuple[Argument[int], int, str]]:
    """The option to change, cores of a node, and how they come about."""
    tasks, each, per_node = request.tasks_per_node, request.count("--cpus-per-task"), request.count("--ntasks-per-node")
    gpus, by_gpu = request.gpus_per_node, request.count("--cpus-per-gpu")
    if by_gpu is not None:
        times = gpus.value if gpus else 1
        yield by_gpu, times * by_gpu.value, f"{times} GPU{'s' * (times > 1)} × --cpus-per-gpu={by_gpu.value}"
    if each is not None and tasks is not None:
        yield each, tasks * each.value, f"{tasks} task{'s' * (tasks > 1)} × --cpus-per-task={each.value}"
    if request.has("--overcommit"):
        return
    if per_node is not None and each is None:
        yield per_node, per_node.value, f"{per_node.value} tasks with a core each"
    total, nodes = request.count("--ntasks"), request.most_nodes
    if total is not None and total.value and nodes and not request.has("--ntasks-per-node"):
        share, of_task = -(-total.value // nodes), each.value if each and each.value else 1
        yield total, share * of_task, f"--ntasks={total.value} on {nodes} nodes, each of {of_task} cores"


@_blocks_on_machines.rule("SLM049", ERROR, "submit", slurm_manual("sbatch(1), --mem"))
def node_has_the_memory(block: tuple[Request, Cluster]) -> Violations:
    """A job asks for no more memory of a node than it has.

    Prevents: Requested node configuration is not available.
    Fix: write --mem=0 for all of it"""
    request, cluster = block
    has, gpus = cluster.host_memory_bytes, request.gpus_per_node
    for memory in request.texts("--mem", "--mem-per-gpu", last=True) if has is not None else ():
        each, times = mebibytes(memory.value), 1 if memory.name == "--mem" or gpus is None else gpus.value
        if has is not None and each is not None and each * times * MIB > has:
            total = f"{memory.value} × {times} GPUs" if times > 1 else memory.value
            message = f"{memory}: {total} is more than the {has / MIB / 1024:.0f}G of {cluster.name}"
            yield memory.bad_value(message, "write --mem=0 for all of the node's memory")


@blocks.rule("SLM051", NOTE, "init", slurm_manual("sbatch(1), --gpus; gres.conf(5)"))
def gpus_are_asked_for(request: Request) -> Violations:
    """A script that starts training asks for GPUs.

    Prevents: RuntimeError: no CUDA devices are available. A note, as sbatch's command line may ask for them.
    Fix: add #SBATCH --gpus-per-node=8"""
    if request.has(*_GPU_OPTIONS, "--exclusive") or request.options.opaque or request.options.unknown:
        return
    call = next((call for launch in request.launches if (call := _trains_without_gpus(launch))), None)
    if call is not None:
        message = f"the #SBATCH block asks for no GPU, and {call.program} starts training"
        hint = "add #SBATCH --gpus-per-node=8, unless the partition gives GPUs by itself"
        yield Violation(request.shell.locate(request.shell.directives[0]), message, hint)


def _trains_without_gpus(launch: Launch) -> Call | None:
    """The launcher of a line that says nothing of GPUs for its step, and isn't for CPUs."""
    call = next((call for call in launch.calls if call.program in LAUNCHERS), None)
    steps = [outer.options for outer in launch.calls if outer.program == "srun"]
    if call is None or any(step.has(name) for step in steps for name in _GPU_OPTIONS):
        return None
    words = [*(option.written for option in call.options.entries), *launch.arguments]
    return None if any("cpu" in word.raw or "gloo" in word.raw for word in words) else call


@blocks.rule("SLM052", ERROR, "submit", slurm_manual("sbatch(1), --nodelist"))
def listed_nodes_are_as_many(request: Request) -> Violations:
    """--nodelist names no more nodes than --nodes asks for.

    Prevents: sbatch: error: invalid number of nodes (-N 2-1).
    Fix: ask for as many nodes as the list has, or more"""
    for listed in request.texts("--nodelist"):
        named = _named(listed.value)
        if request.nodes and named is not None and named > request.nodes:
            message = f"{listed} names {named} nodes, and --nodes is {request.nodes}"
            yield listed.bad_value(message, f"write --nodes={named}")


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
