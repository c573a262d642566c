"""Rules on what a script asks of Slurm: options against one another and against machines."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Final

from ....findings import ERROR, NOTE, WARNING, Violation, Violations
from ....job.records import Cluster
from ....numerals import whole
from ....patterns import lazy_pattern
from ....rules.violations import slurm, slurm_manual
from ....submission.launches import Call, Launch
from ....submission.subjects import subject
from ....submission.submission import Submission
from ....text.options import Argument
from ....units import MIB
from ..request import GPU_OPTIONS, Request
from ..subjects import blocks, requests
from ..values import mebibytes, seconds, signal_of


@requests.rule(
    "SLM042", ERROR, "submit", slurm("common/slurm_opt.c:5751, _validate_memory_options")
)
def memory_is_asked_for_once(request: Request) -> Violations:
    """Only one of --mem, --mem-per-cpu and --mem-per-gpu is given.
    Prevents: sbatch: fatal: --mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.
    Fix: keep one of them"""
    hint = "keep one of them, such as --mem=0 for all of the node's memory"
    yield from _exclusive(request, hint, "--mem", "--mem-per-cpu", "--mem-per-gpu")
    yield from _exclusive(request, hint, "--mem-per-cpu", "--mem-per-gpu")


@requests.rule("SLM015", ERROR, "submit", slurm("common/gres.c:5024, gres_job_state_validate"))
def cores_go_by_task_or_by_gpu(request: Request) -> Violations:
    """Cores are asked for by task or by GPU, not both.
    Prevents: sbatch: error: --cpus-per-gpu is mutually exclusive with --cpus-per-task.
    Fix: keep one of them"""
    yield from _exclusive(request, "keep --cpus-per-task", "--cpus-per-task", "--cpus-per-gpu")


@requests.rule(
    "SLM043", ERROR, "submit", slurm("common/slurm_opt.c:5862 to 5877, _validate_ntasks_per_gpu")
)
def tasks_go_by_node_or_by_gpu(request: Request) -> Violations:
    """--ntasks-per-gpu is given without --gpus-per-task, --gpus-per-socket and --ntasks-per-node.
    Prevents: sbatch: fatal: --gpus-per-task is mutually exclusive with --ntasks-per-gpu.
    Fix: keep --ntasks-per-node"""
    others = ("--gpus-per-task", "--gpus-per-socket", "--ntasks-per-node")
    yield from _exclusive(request, "keep --ntasks-per-node", "--ntasks-per-gpu", *others)


def _exclusive(request: Request, hint: str, name: str, *others: str) -> Violations:
    """Options that sbatch refuses together with one; at the place of the later one of the two."""
    argument = request.argument(name)
    if argument is None:
        return
    for excluded in map(request.argument, others):
        if excluded is not None:
            later = max(excluded, argument, key=lambda each: each.option.written.offset)
            yield later.bad_option(f"{argument} and {excluded.name} exclude each other", hint)


@blocks.rule("SLM045", ERROR, "silent", slurm("sbatch/opt.c:878, _opt_verify"))
def every_node_has_a_task(request: Request) -> Violations:
    """A job has at least one task for each of its nodes.
    Prevents: sbatch: Warning: can't run 1 processes on 2 nodes, setting nnodes to 1: the job runs
    on fewer nodes.
    Fix: ask for at least as many tasks as nodes; best by --ntasks-per-node
    """
    tasks, nodes = request.count("--ntasks"), request.nodes
    if tasks is not None and nodes and 0 < tasks.value < nodes:
        counted_nodes = f"{tasks.value} node{'s' * (tasks.value > 1)}"
        message = f"{tasks} is less than --nodes={nodes}: Slurm gives {counted_nodes}"
        yield tasks.bad_value(
            message, f"write --ntasks={nodes}, or --ntasks-per-node=1 in its place"
        )


@blocks.rule(
    "SLM046", ERROR, "submit", slurm_manual("sbatch(1), --ntasks-per-node: the most of a node")
)
def tasks_are_those_of_the_nodes(request: Request) -> Violations:
    """--ntasks is nodes × tasks per node where all three are given.
    Prevents: Requested node configuration is not available; or fewer ranks than the top of the
    script suggests.
    Fix: leave --ntasks out
    """
    tasks = request.count("--ntasks")
    nodes = request.nodes
    each = request.count("--ntasks-per-node")
    right = nodes * each.value if nodes and each else 0
    # SLM045 reports fewer tasks than nodes.
    if tasks is None or not nodes or not right or tasks.value == right or tasks.value < nodes:
        return
    product = f"{nodes} nodes × {right // nodes} tasks per node = {right}"
    severity = WARNING
    if tasks.value > right:
        message = f"{tasks} is more than {product}"
        if not request.has("--cpus-per-gpu"):  # with which sbatch accepts some of these
            severity = ERROR
    else:
        message = f"{tasks} is less than {product}: srun starts that many"
    hint = f"leave --ntasks out, or write --ntasks={right}"
    yield tasks.bad_value(message, hint, severity=severity)


@blocks.rule(
    "SLM030",
    ERROR,
    "silent",
    slurm_manual("sbatch(1), --signal: sent so many seconds before the time limit"),
)
def signal_comes_during_the_run(request: Request) -> Violations:
    """The signal before the time limit comes after the job's start.
    Prevents: The job gets the signal to stop as soon as it starts, and again after each requeue.
    Fix: write a signal time well below the time limit"""
    limit = request.seconds("--time") or math.inf
    for argument in request.texts("--signal"):
        signal = signal_of(argument.value)
        if signal is not None and limit < math.inf and signal.seconds >= limit:
            before = (
                f"{signal.seconds} s before the end is no less than the time limit of {limit:.0f} s"
            )
            message = f"{argument}: {before}, so the signal comes at the start"
            text = f"{'B:' * signal.to_batch}{signal.name}@{max(1, int(limit) // 10)}"
            yield argument.bad_value(message, f"write --signal={text}, or a longer --time")


@blocks.rule("SLM048", ERROR, "submit", slurm_manual("sbatch(1), --time-min"))
def least_time_is_below_the_limit(request: Request) -> Violations:
    """--time-min is no more than --time.
    Prevents: Invalid time-min specification (exceeds job's time or other limits).
    Fix: write a --time-min below --time"""
    least, limit = request.read("--time-min", seconds), request.seconds("--time") or math.inf
    if least is None or math.inf in (limit, least.value):
        return
    if math.ceil(least.value / 60) > math.ceil(limit / 60):  # Slurm counts minutes
        message = f"{least} is more than the limit, --time={request.options.text('--time')}"
        yield least.bad_value(message, "write less than --time, or leave it out")


@blocks.rule(
    "SLM011",
    NOTE,
    "submit",
    slurm_manual("slurm.conf(5), EnforcePartLimits, MaxTime; sbatch(1), --time"),
)
def time_limit_is_finite(request: Request) -> Violations:
    """A job asks for a time that a partition can give.
    Prevents: Requested time limit is invalid; without EnforcePartLimits the job waits for ever
    (PartitionTimeLimit).
    Fix: give a time within the partition's limit (`sinfo` shows it)
    """
    for limit in request.texts("--time"):
        if seconds(limit.value) in (0, math.inf):
            message = (
                f"{limit} asks for no limit at all, which a partition with a limit never grants"
            )
            hint = (
                "give a time, such as --time=1-00:00:00; sinfo -o '%P %l' shows "
                "the partitions' limits"
            )
            yield limit.bad_value(message, hint)


#: Providers whose catalog entries count virtual cores, which are threads; those of others count
#: cores.
_COUNT_THREADS: Final = frozenset({"azure", "aws", "gcp"})
#: Threads of a core: the most that processors of GPU nodes have. A site's Slurm may count them as
#: CPUs.
_THREADS: Final = 2
#: One host, or several by a range of numbers: `node[01-16]`.
_HOSTS: Final = lazy_pattern(
    r"[A-Za-z][\w.-]*\[(\d{1,9})-(\d{1,9})\][\w.-]*|[A-Za-z0-9][\w.-]*", re.ASCII
)


@subject("launch script")
def _blocks_on_machines(submission: Submission) -> Iterator[tuple[Request, Cluster]]:
    """The blocks with their machines, if they ask for nodes: else Slurm checks nothing."""
    cluster = submission.cluster
    if cluster is not None:
        yield from ((request, cluster) for request in blocks(submission) if request.nodes != 0)


@_blocks_on_machines.rule("SLM006", ERROR, "submit", slurm_manual("sbatch(1), --gpus-per-node"))
def node_has_the_gpus(block: tuple[Request, Cluster]) -> Violations:
    """A job asks for no more GPUs of a node than it has.
    Prevents: Requested node configuration is not available.
    Fix: ask for no more than the node has"""
    request, cluster = block
    has = cluster.accelerators_per_node
    node, task = request.gpus_per_node, request.gpus("--gpus-per-task")
    option = node or task
    if option is None:
        return
    asked = option.value if node else option.value * (request.tasks_per_node or 0)
    if asked > has:
        message = f"{option}: {asked} GPUs per node, but {cluster.name} has {has}"
        yield option.bad_value(message, f"write --gpus-per-node={has}, and add nodes")


@_blocks_on_machines.rule(
    "SLM054", ERROR, "submit", slurm_manual("sbatch(1), --gpus: the job's total")
)
def nodes_have_the_gpus(block: tuple[Request, Cluster]) -> Violations:
    """The job's nodes have as many GPUs as --gpus asks for.
    Prevents: Requested node configuration is not available.
    Fix: ask for enough nodes for the GPUs"""
    request, cluster = block
    each, job = cluster.accelerators_per_node, request.gpus()
    # With --ntasks-per-node alone Slurm assumes one node.
    on_one_node = not request.has("--nodes", "--ntasks") and request.has("--ntasks-per-node")
    nodes = 1 if on_one_node else request.most_nodes
    if job is not None and nodes and job.value > nodes * each:
        message = f"{job}, but {nodes} nodes of {cluster.name} have {nodes * each}"
        needed_nodes = -(-job.value // each)  # rounded up
        yield job.bad_value(message, f"write --gpus={nodes * each}, or --nodes={needed_nodes}")


@_blocks_on_machines.rule("SLM016", ERROR, "submit", slurm_manual("sbatch(1), --cpus-per-task"))
def node_has_the_cores(block: tuple[Request, Cluster]) -> Violations:
    """The tasks of a node get no more cores than the node has.
    Prevents: Requested node configuration is not available.
    Fix: keep tasks per node × cores per task within the node"""
    request, cluster = block
    cores = cluster.cpu_cores
    if not cores:
        return
    threads = cores * (1 if cluster.provider in _COUNT_THREADS else _THREADS)
    for option, asked, text in _cores_asked(request):
        if asked <= cores:
            continue
        message = f"{text} = {asked} cores per node, more than the {cores} of {cluster.name}"
        if asked <= threads:
            message += f"; accepted only where the site's Slurm counts threads, {threads}"
        hint = f"write {option.name}={max(1, cores * (option.value or 1) // asked)}"
        yield option.bad_value(message, hint, severity=ERROR if asked > threads else WARNING)
        return  # one finding says it


def _cores_asked(request: Request) -> Iterator[tuple[Argument[int], int, str]]:
    """The option to change, the cores of a node that are asked for, and their sum in words."""
    tasks = request.tasks_per_node
    each = request.count("--cpus-per-task")
    per_node = request.count("--ntasks-per-node")
    gpus, by_gpu = request.gpus_per_node, request.count("--cpus-per-gpu")
    if by_gpu is not None:
        times = gpus.value if gpus else 1
        yield (
            by_gpu,
            times * by_gpu.value,
            f"{times} GPU{'s' * (times > 1)} × --cpus-per-gpu={by_gpu.value}",
        )
    if each is not None and tasks is not None:
        yield (
            each,
            tasks * each.value,
            f"{tasks} task{'s' * (tasks > 1)} × --cpus-per-task={each.value}",
        )
    if request.has("--overcommit"):
        return
    if per_node is not None and each is None:
        yield per_node, per_node.value, f"{per_node.value} tasks with a core each"
    total, nodes = request.count("--ntasks"), request.most_nodes
    if total is not None and total.value and nodes and not request.has("--ntasks-per-node"):
        tasks_of_a_node = -(-total.value // nodes)  # rounded up
        cores_of_task = each.value if each and each.value else 1
        yield (
            total,
            tasks_of_a_node * cores_of_task,
            f"--ntasks={total.value} on {nodes} nodes, each of {cores_of_task} cores",
        )


@_blocks_on_machines.rule("SLM049", ERROR, "submit", slurm_manual("sbatch(1), --mem"))
def node_has_the_memory(block: tuple[Request, Cluster]) -> Violations:
    """A job asks for no more memory of a node than it has.
    Prevents: Requested node configuration is not available.
    Fix: write --mem=0 for all of it"""
    request, cluster = block
    has, gpus = cluster.host_memory_bytes, request.gpus_per_node
    if has is None:
        return
    for memory in request.texts("--mem", "--mem-per-gpu", last=True):
        each = mebibytes(memory.value)
        times = 1 if memory.name == "--mem" or gpus is None else gpus.value
        if each is not None and each * times * MIB > has:
            total = f"{memory.value} × {times} GPUs" if times > 1 else memory.value
            message = (
                f"{memory}: {total} is more than the {has / MIB / 1024:.0f}G of {cluster.name}"
            )
            yield memory.bad_value(message, "write --mem=0 for all of the node's memory")


@blocks.rule("SLM051", NOTE, "init", slurm_manual("sbatch(1), --gpus; gres.conf(5)"))
def gpus_are_asked_for(request: Request) -> Violations:
    """A script that starts training asks for GPUs.
    Prevents: RuntimeError: no CUDA devices are available. A note, as sbatch's command line may ask
    for them.
    Fix: add #SBATCH --gpus-per-node=8
    """
    call = next(filter(None, map(_training_without_gpus, request.launches)), None)
    if call is not None and not request.asks_for_gpus:
        message = f"the #SBATCH block asks for no GPU, and {call.program} starts training"
        hint = "add #SBATCH --gpus-per-node=8, unless the partition gives GPUs by itself"
        yield Violation(request.shell.locate(request.shell.directives[0]), message, hint)


def _training_without_gpus(launch: Launch) -> Call | None:
    """The launcher of a line that says nothing of GPUs for its step, and isn't for CPUs."""
    call = launch.launcher
    steps = (outer for outer in launch.calls if outer.program == "srun")
    if call is None or any(step.has(*GPU_OPTIONS) for step in steps):
        return None
    words = [*(option.written for option in call.options.entries), *launch.arguments]
    return None if any("cpu" in word.raw or "gloo" in word.raw for word in words) else call


@blocks.rule("SLM052", ERROR, "submit", slurm_manual("sbatch(1), --nodelist"))
def listed_nodes_are_as_many(request: Request) -> Violations:
    """--nodelist names no more nodes than --nodes asks for.
    Prevents: sbatch: error: invalid number of nodes (-N 2-1).
    Fix: ask for as many nodes as the list has, or more"""
    for listed in request.texts("--nodelist"):
        hosts = _hosts_in(listed.value)
        if request.nodes and hosts is not None and hosts > request.nodes:
            message = f"{listed} names {hosts} nodes, and --nodes is {request.nodes}"
            yield listed.bad_value(message, f"write --nodes={hosts}")


def _hosts_in(text: str) -> int | None:
    """The number of hosts in a plain list; None for forms that aren't counted here."""
    hosts = 0
    # At commas, but for those in brackets.
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\]?)+", text):
        match = _HOSTS.fullmatch(part)
        if match is None:
            return None
        first, last = match.groups()
        hosts += max(0, whole(last) - whole(first) + 1) if first else 1
    return hosts
