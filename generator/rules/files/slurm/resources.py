"""Slurm's options against one another."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from ....documents.submission import Submission
from ....findings import Severity
from ...sources import slurm, slurm_manual
from ..rule import Breach, DocumentRule
from . import values
from .options import known_values, slurm_rule
from .requests import Request, blocks, count, nodes_of, requests

_EXCLUSIVE: Final = (
    ("--mem", "--mem-per-cpu"),
    ("--mem", "--mem-per-gpu"),
    ("--mem-per-cpu", "--mem-per-gpu"),
)


def memory_is_asked_for_once(submission: Submission) -> Iterator[Breach]:
    """Of --mem, --mem-per-cpu and --mem-per-gpu one is given."""
    yield from _together(submission, _EXCLUSIVE, "keep one of them, such as --mem=0 for all of the node's memory")


def cores_go_by_task_or_by_gpu(submission: Submission) -> Iterator[Breach]:
    """Cores are asked for by task or by GPU, not both."""
    yield from _together(submission, (("--cpus-per-task", "--cpus-per-gpu"),), "keep --cpus-per-task")


def tasks_go_by_node_or_by_gpu(submission: Submission) -> Iterator[Breach]:
    """--ntasks-per-gpu stands without --gpus-per-task, --gpus-per-socket and --ntasks-per-node."""
    pairs = tuple((name, "--ntasks-per-gpu") for name in ("--gpus-per-task", "--gpus-per-socket", "--ntasks-per-node"))
    yield from _together(submission, pairs, "keep --ntasks-per-node")


def _together(submission: Submission, pairs: tuple[tuple[str, str], ...], hint: str) -> Iterator[Breach]:
    for request in requests(submission):
        for first, second in pairs:
            one, other = request.options.get(first), request.options.get(second)
            if one is None or other is None:
                continue
            at = max(one, other, key=lambda option: option.written.offset)
            message = f"{request.said(one)} and {other.name} exclude each other"
            yield Breach(where=request.at(at), message=message, hint=hint)


def every_node_has_a_task(submission: Submission) -> Iterator[Breach]:
    """A job has at least one task for each of its nodes."""
    for request in blocks(submission):
        option, tasks, nodes = request.options.get("--ntasks"), count(request, "--ntasks"), nodes_of(request)
        if option is not None and tasks and nodes and tasks < nodes:
            message = (
                f"{request.said(option)} is less than --nodes={nodes}: Slurm gives {tasks} node{'s' * (tasks > 1)}"
            )
            hint = f"--ntasks={nodes}, or --ntasks-per-node=1 in its place"
            yield Breach(where=request.at_value(option), message=message, hint=hint)


def tasks_are_those_of_the_nodes(submission: Submission) -> Iterator[Breach]:
    """--ntasks is nodes × tasks per node where all three are given."""
    for request in blocks(submission):
        option, tasks, nodes = request.options.get("--ntasks"), count(request, "--ntasks"), nodes_of(request)
        each = count(request, "--ntasks-per-node")
        if option is None or tasks is None or not nodes or not each or tasks in (nodes * each,) or tasks < nodes:
            continue
        right = nodes * each
        if tasks > right:
            message = f"{request.said(option)} is more than {nodes} nodes × {each} tasks a node = {right}"
            hint = f"--ntasks={right}, or leave it out"
            severity = Severity.WARNING if request.has("--cpus-per-gpu") else None  # sbatch takes some of these
            yield Breach(where=request.at_value(option), message=message, hint=hint, severity=severity)
        else:
            all_tasks = f"{nodes} nodes × {each} tasks a node = {right}"
            message = f"{request.said(option)} is less than {all_tasks}: srun starts {tasks}"
            hint = f"leave --ntasks out, or --ntasks={right}"
            yield Breach(where=request.at_value(option), message=message, hint=hint, severity=Severity.WARNING)


def _seconds(request: Request, name: str) -> float | None:
    text = request.options.text(name)
    return values.seconds(text) if text is not None else None


def signal_comes_during_the_run(submission: Submission) -> Iterator[Breach]:
    """The signal before the time limit comes after the job's start."""
    for request in blocks(submission):
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
            yield Breach(where=request.at_value(option), message=message, hint=hint)


def least_time_is_below_the_limit(submission: Submission) -> Iterator[Breach]:
    """--time-min is no more than --time."""
    for request in blocks(submission):
        limit, least, option = _seconds(request, "--time"), _seconds(request, "--time-min"), None
        option = request.options.get("--time-min")
        if option is None or not limit or least is None or math.inf in (limit, least):
            continue
        if math.ceil(least / 60) > math.ceil(limit / 60):  # Slurm counts minutes
            message = f"{request.said(option)} is more than the limit, --time={request.options.text('--time')}"
            yield Breach(where=request.at_value(option), message=message, hint="less than --time, or leave it out")


def time_limit_is_finite(submission: Submission) -> Iterator[Breach]:
    """A job asks for a time that a partition can give."""
    for request in blocks(submission):
        for option, text in known_values(request, "--time"):
            limit = values.seconds(text)
            if limit is not None and limit in (0, math.inf):
                message = (
                    f"{request.said(option)} asks for no limit at all, which a partition with a limit never grants"
                )
                hint = "give a time, such as --time=1-00:00:00; sinfo -o '%P %l' shows the partitions' limits"
                yield Breach(where=request.at_value(option), message=message, hint=hint)


RULES: Final[tuple[DocumentRule, ...]] = (
    slurm_rule(
        "SLM011",
        time_limit_is_finite,
        slurm_manual("slurm.conf(5), EnforcePartLimits and MaxTime; sbatch(1), --time"),
        "Requested time limit is invalid; without EnforcePartLimits the job waits for ever (PartitionTimeLimit).",
        "Give a time within the partition's limit. What that limit is, only the site knows.",
        Severity.WARNING,
    ),
    slurm_rule(
        "SLM015",
        cores_go_by_task_or_by_gpu,
        slurm("common/gres.c:5024, gres_job_state_validate"),
        "sbatch: error: --cpus-per-gpu is mutually exclusive with --cpus-per-task.",
        "Keep one of them.",
    ),
    slurm_rule(
        "SLM030",
        signal_comes_during_the_run,
        slurm_manual("sbatch(1), --signal: sent so many seconds before the time limit"),
        "The job is told to stop as soon as it starts, and again after each requeue.",
        "A signal time well below the time limit.",
        when="silent",
    ),
    slurm_rule(
        "SLM042",
        memory_is_asked_for_once,
        slurm("common/slurm_opt.c:5751, _validate_memory_options"),
        "sbatch: fatal: --mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.",
        "Keep one of them.",
    ),
    slurm_rule(
        "SLM043",
        tasks_go_by_node_or_by_gpu,
        slurm("common/slurm_opt.c:5862 to 5877, _validate_ntasks_per_gpu"),
        "sbatch: fatal: --gpus-per-task is mutually exclusive with --ntasks-per-gpu.",
        "Keep --ntasks-per-node.",
    ),
    slurm_rule(
        "SLM045",
        every_node_has_a_task,
        slurm("sbatch/opt.c:878, _opt_verify"),
        "sbatch: Warning: can't run 1 processes on 2 nodes, setting nnodes to 1: the job runs on fewer nodes.",
        "At least as many tasks as nodes; best --ntasks-per-node.",
        when="silent",
    ),
    slurm_rule(
        "SLM046",
        tasks_are_those_of_the_nodes,
        slurm_manual("sbatch(1), --ntasks-per-node: with --ntasks it is the most tasks of a node"),
        "Requested node configuration is not available; or fewer ranks than one reads at the top of the script.",
        "Leave --ntasks out.",
    ),
    slurm_rule(
        "SLM048",
        least_time_is_below_the_limit,
        slurm_manual("sbatch(1), --time-min"),
        "Invalid time-min specification (exceeds job's time or other limits).",
        "A --time-min below --time.",
    ),
)
