"""Slurm's options against one another."""

from __future__ import annotations

import math

from ....findings import ERROR, NOTE, WARNING, Violations
from ....rules.sources import slurm, slurm_manual
from ...subjects import blocks, requests
from ..request import Request
from ..values import seconds, signal_of


@requests.rule("SLM042", ERROR, "submit", slurm("common/slurm_opt.c:5751, _validate_memory_options"))
def memory_is_asked_for_once(request: Request) -> Violations:
    """Only one of --mem, --mem-per-cpu and --mem-per-gpu is given.

    Prevents: sbatch: fatal: --mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.
    Fix: keep one of them"""
    hint = "keep one of them, such as --mem=0 for all of the node's memory"
    yield from _exclusive(request, "--mem", ("--mem-per-cpu", "--mem-per-gpu"), hint)
    yield from _exclusive(request, "--mem-per-cpu", ("--mem-per-gpu",), hint)


@requests.rule("SLM015", ERROR, "submit", slurm("common/gres.c:5024, gres_job_state_validate"))
def cores_go_by_task_or_by_gpu(request: Request) -> Violations:
    """Cores are asked for by task or by GPU, not both.

    Prevents: sbatch: error: --cpus-per-gpu is mutually exclusive with --cpus-per-task.
    Fix: keep one of them"""
    yield from _exclusive(request, "--cpus-per-task", ("--cpus-per-gpu",), "keep --cpus-per-task")


@requests.rule("SLM043", ERROR, "submit", slurm("common/slurm_opt.c:5862 to 5877, _validate_ntasks_per_gpu"))
def tasks_go_by_node_or_by_gpu(request: Request) -> Violations:
    """--ntasks-per-gpu is given without --gpus-per-task, --gpus-per-socket and --ntasks-per-node.

    Prevents: sbatch: fatal: --gpus-per-task is mutually exclusive with --ntasks-per-gpu.
    Fix: keep --ntasks-per-node"""
    others = ("--gpus-per-task", "--gpus-per-socket", "--ntasks-per-node")
    yield from _exclusive(request, "--ntasks-per-gpu", others, "keep --ntasks-per-node")


def _exclusive(request: Request, name: str, others: tuple[str, ...], hint: str) -> Violations:
    """Options that sbatch refuses together, at the place of the second."""
    first = request.argument(name)
    for other in map(request.argument, others):
        if first is not None and other is not None:
            pair = sorted((first, other), key=lambda given: given.option.written.offset)
            yield pair[1].bad_option(f"{first} and {other.name} exclude each other", hint)


@blocks.rule("SLM045", ERROR, "silent", slurm("sbatch/opt.c:878, _opt_verify"))
def every_node_has_a_task(request: Request) -> Violations:
    """A job has at least one task for each of its nodes.

    Prevents: sbatch: Warning: can't run 1 processes on 2 nodes, setting nnodes to 1: the job runs on fewer nodes.
    Fix: ask for at least as many tasks as nodes; best by --ntasks-per-node"""
    tasks, nodes = request.count("--ntasks"), request.nodes
    if tasks is not None and nodes and 0 < tasks.value < nodes:
        given = f"{tasks.value} node{'s' * (tasks.value > 1)}"
        message = f"{tasks} is less than --nodes={nodes}: Slurm gives {given}"
        yield tasks.bad_value(message, f"write --ntasks={nodes}, or --ntasks-per-node=1 in its place")


@blocks.rule("SLM046", ERROR, "submit", slurm_manual("sbatch(1), --ntasks-per-node: the most of a node"))
def tasks_are_those_of_the_nodes(request: Request) -> Violations:
    """--ntasks is nodes × tasks per node where all three are given.

    Prevents: Requested node configuration is not available; or fewer ranks than the top of the script suggests.
    Fix: leave --ntasks out"""
    tasks, nodes, each = request.count("--ntasks"), request.nodes, request.count("--ntasks-per-node")
    right = nodes * each.value if nodes and each else 0
    if tasks is None or not nodes or not right or tasks.value == right or tasks.value < nodes:
        return
    more = tasks.value > right
    product = f"{nodes} nodes × {right // nodes} tasks per node = {right}"
    message = f"{tasks} is more than {product}" if more else f"{tasks} is less than {product}: srun starts that many"
    certain = more and not request.has("--cpus-per-gpu")  # sbatch accepts some of these
    severity = ERROR if certain else WARNING
    yield tasks.bad_value(message, f"leave --ntasks out, or write --ntasks={right}", severity=severity)


@blocks.rule("SLM030", ERROR, "silent", slurm_manual("sbatch(1), --signal: sent so many seconds before the time limit"))
def signal_comes_during_the_run(request: Request) -> Violations:
    """The signal before the time limit comes after the job's start.

    Prevents: The job gets the signal to stop as soon as it starts, and again after each requeue.
    Fix: write a signal time well below the time limit"""
    limit = request.seconds("--time") or math.inf
    for found in request.texts("--signal"):
        signal = signal_of(found.value)
        if signal is not None and limit < math.inf and signal.seconds >= limit:
            before = f"{signal.seconds} s before the end is no less than the time limit of {limit:.0f} s"
            message = f"{found}: {before}, so the signal comes at the start"
            text = f"{'B:' * signal.to_batch}{signal.name}@{max(1, int(limit) // 10)}"
            yield found.bad_value(message, f"write --signal={text}, or a longer --time")


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


@blocks.rule("SLM011", NOTE, "submit", slurm_manual("slurm.conf(5), EnforcePartLimits, MaxTime; sbatch(1), --time"))
def time_limit_is_finite(request: Request) -> Violations:
    """A job asks for a time that a partition can give.

    Prevents: Requested time limit is invalid; without EnforcePartLimits the job waits for ever (PartitionTimeLimit).
    Fix: give a time within the partition's limit, which only the site knows"""
    for limit in request.texts("--time"):
        if seconds(limit.value) in (0, math.inf):
            message = f"{limit} asks for no limit at all, which a partition with a limit never grants"
            hint = "give a time, such as --time=1-00:00:00; sinfo -o '%P %l' shows the partitions' limits"
            yield limit.bad_value(message, hint)
