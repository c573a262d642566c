"""Slurm's options against one another."""

from __future__ import annotations

import math
from typing import Final

from ....documents.submission import Submission
from ....findings import ERROR, WARNING, Severity, Violation, Violations
from ...rule import submissions
from ...sources import slurm, slurm_manual
from . import values
from .options import known_values
from .requests import Request, blocks, count, nodes_of, requests

_EXCLUSIVE: Final = (
    ("--mem", "--mem-per-cpu"),
    ("--mem", "--mem-per-gpu"),
    ("--mem-per-cpu", "--mem-per-gpu"),
)


@submissions.rule(
    "SLM042", ERROR, "submit", slurm("common/slurm_opt.c:5751, _validate_memory_options"), reads=("launch script",)
)
def memory_is_asked_for_once(submission: Submission) -> Violations:
    """Of --mem, --mem-per-cpu and --mem-per-gpu one is given.

    Prevents: sbatch: fatal: --mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.
    Fix: Keep one of them.
    """
    yield from _together(submission, _EXCLUSIVE, "keep one of them, such as --mem=0 for all of the node's memory")


@submissions.rule(
    "SLM015", ERROR, "submit", slurm("common/gres.c:5024, gres_job_state_validate"), reads=("launch script",)
)
def cores_go_by_task_or_by_gpu(submission: Submission) -> Violations:
    """Cores are asked for by task or by GPU, not both.

    Prevents: sbatch: error: --cpus-per-gpu is mutually exclusive with --cpus-per-task.
    Fix: Keep one of them.
    """
    yield from _together(submission, (("--cpus-per-task", "--cpus-per-gpu"),), "keep --cpus-per-task")


@submissions.rule(
    "SLM043",
    ERROR,
    "submit",
    slurm("common/slurm_opt.c:5862 to 5877, _validate_ntasks_per_gpu"),
    reads=("launch script",),
)
def tasks_go_by_node_or_by_gpu(submission: Submission) -> Violations:
    """--ntasks-per-gpu stands without --gpus-per-task, --gpus-per-socket and --ntasks-per-node.

    Prevents: sbatch: fatal: --gpus-per-task is mutually exclusive with --ntasks-per-gpu.
    Fix: Keep --ntasks-per-node.
    """
    pairs = tuple((name, "--ntasks-per-gpu") for name in ("--gpus-per-task", "--gpus-per-socket", "--ntasks-per-node"))
    yield from _together(submission, pairs, "keep --ntasks-per-node")


def _together(submission: Submission, pairs: tuple[tuple[str, str], ...], hint: str) -> Violations:
    for request in requests(submission):
        for first, second in pairs:
            one, other = request.options.get(first), request.options.get(second)
            if one is None or other is None:
                continue
            at = max(one, other, key=lambda option: option.written.offset)
            message = f"{request.said(one)} and {other.name} exclude each other"
            yield Violation(where=request.at(at), message=message, hint=hint)


@blocks.rule("SLM045", ERROR, "silent", slurm("sbatch/opt.c:878, _opt_verify"))
def every_node_has_a_task(request: Request) -> Violations:
    """A job has at least one task for each of its nodes.

    Prevents: sbatch: Warning: can't run 1 processes on 2 nodes, setting nnodes to 1: the job runs on fewer nodes.
    Fix: At least as many tasks as nodes; best --ntasks-per-node.
    """
    option, tasks, nodes = request.options.get("--ntasks"), count(request, "--ntasks"), nodes_of(request)
    if option is not None and tasks and nodes and tasks < nodes:
        message = f"{request.said(option)} is less than --nodes={nodes}: Slurm gives {tasks} node{'s' * (tasks > 1)}"
        hint = f"--ntasks={nodes}, or --ntasks-per-node=1 in its place"
        yield Violation(where=request.at_value(option), message=message, hint=hint)


@blocks.rule(
    "SLM046",
    ERROR,
    "submit",
    slurm_manual("sbatch(1), --ntasks-per-node: with --ntasks it is the most tasks of a node"),
)
def tasks_are_those_of_the_nodes(request: Request) -> Violations:
    """--ntasks is nodes × tasks per node where all three are given.

    Prevents: Requested node configuration is not available; or fewer ranks than one reads at the top of the script.
    Fix: Leave --ntasks out.
    """
    option, tasks, nodes = request.options.get("--ntasks"), count(request, "--ntasks"), nodes_of(request)
    each = count(request, "--ntasks-per-node")
    if option is None or tasks is None or not nodes or not each or tasks in (nodes * each,) or tasks < nodes:
        return
    right = nodes * each
    if tasks > right:
        message = f"{request.said(option)} is more than {nodes} nodes × {each} tasks a node = {right}"
        hint = f"--ntasks={right}, or leave it out"
        severity = Severity.WARNING if request.has("--cpus-per-gpu") else None  # sbatch takes some of these
        yield Violation(where=request.at_value(option), message=message, hint=hint, severity=severity)
    else:
        all_tasks = f"{nodes} nodes × {each} tasks a node = {right}"
        message = f"{request.said(option)} is less than {all_tasks}: srun starts {tasks}"
        hint = f"leave --ntasks out, or --ntasks={right}"
        yield Violation(where=request.at_value(option), message=message, hint=hint, severity=Severity.WARNING)


def _seconds(request: Request, name: str) -> float | None:
    text = request.options.text(name)
    return values.seconds(text) if text is not None else None


@blocks.rule("SLM030", ERROR, "silent", slurm_manual("sbatch(1), --signal: sent so many seconds before the time limit"))
def signal_comes_during_the_run(request: Request) -> Violations:
    """The signal before the time limit comes after the job's start.

    Prevents: The job is told to stop as soon as it starts, and again after each requeue.
    Fix: A signal time well below the time limit.
    """
    limit = _seconds(request, "--time")
    for option, text in known_values(request, "--signal"):
        signal = values.signal_of(text)
        if signal is None or not limit or limit == math.inf or signal.seconds < limit:
            continue
        message = (
            f"{request.said(option)}: {signal.seconds} s before the end is no less than the time limit of "
            f"{limit:.0f} s, so the signal comes at the start"
        )
        hint = f"--signal={'B:' * signal.to_batch}{signal.name}@{max(1, int(limit) // 10)}, or a longer --time"
        yield Violation(where=request.at_value(option), message=message, hint=hint)


@blocks.rule("SLM048", ERROR, "submit", slurm_manual("sbatch(1), --time-min"))
def least_time_is_below_the_limit(request: Request) -> Violations:
    """--time-min is no more than --time.

    Prevents: Invalid time-min specification (exceeds job's time or other limits).
    Fix: A --time-min below --time.
    """
    limit, least, option = _seconds(request, "--time"), _seconds(request, "--time-min"), None
    option = request.options.get("--time-min")
    if option is None or not limit or least is None or math.inf in (limit, least):
        return
    if math.ceil(least / 60) > math.ceil(limit / 60):  # Slurm counts minutes
        message = f"{request.said(option)} is more than the limit, --time={request.options.text('--time')}"
        yield Violation(where=request.at_value(option), message=message, hint="less than --time, or leave it out")


@blocks.rule(
    "SLM011", WARNING, "submit", slurm_manual("slurm.conf(5), EnforcePartLimits and MaxTime; sbatch(1), --time")
)
def time_limit_is_finite(request: Request) -> Violations:
    """A job asks for a time that a partition can give.

    Prevents: Requested time limit is invalid; without EnforcePartLimits the job waits for ever
    (PartitionTimeLimit).
    Fix: Give a time within the partition's limit. What that limit is, only the site knows.
    """
    for option, text in known_values(request, "--time"):
        limit = values.seconds(text)
        if limit is not None and limit in (0, math.inf):
            message = f"{request.said(option)} asks for no limit at all, which a partition with a limit never grants"
            hint = "give a time, such as --time=1-00:00:00; sinfo -o '%P %l' shows the partitions' limits"
            yield Violation(where=request.at_value(option), message=message, hint=hint)
