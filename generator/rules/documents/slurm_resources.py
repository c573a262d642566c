"""Slurm's options against one another."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from ...documents.submission import Submission
from ...findings import Severity
from ..sources import slurm, slurm_manual
from . import slurm_values as values
from .rule import Breach, DocumentRule
from .slurm import known_values, slurm_rule
from .slurm_requests import Request, blocks, count, gpus_per_node, nodes_of, requests

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


def gpus_of_job_and_node_agree(submission: Submission) -> Iterator[Breach]:
    """--gpus counts the whole job: it is nodes × GPUs per node, and no less than one a node."""
    for request in blocks(submission):
        option, text = request.options.get("--gpus"), request.options.text("--gpus")
        found = values.gpus(text) if text is not None else None
        if option is None or found is None or found[1] == 0:
            continue
        total, each, nodes = found[1], gpus_per_node(request), nodes_of(request)
        if each is not None and each[1] > 0:
            needed = total / each[1]
            if (nodes is not None and needed != nodes) or needed != int(needed):
                right = nodes * each[1] if nodes is not None else math.ceil(needed) * each[1]
                on = f"{nodes} nodes × {each[1]}" if nodes is not None else f"a multiple of {each[1]}"
                message = f"{request.said(option)} is the whole job's, and {each[0].name} makes {on}"
                message += f" = {right}" if nodes is not None else ""
                hint = f"leave --gpus out, or --gpus={right}"
                yield Breach(where=request.at_value(option), message=message, hint=hint)
        elif nodes is not None and total < nodes:
            message = f"{request.said(option)} is the whole job's: fewer than one for each of {nodes} nodes"
            hint = f"write --gpus-per-node={total}"
            yield Breach(where=request.at_value(option), message=message, hint=hint)


def gpus_are_spread_evenly(submission: Submission) -> Iterator[Breach]:
    """--gpus of a job over several nodes is a whole number for each node."""
    for request in blocks(submission):
        option, text = request.options.get("--gpus"), request.options.text("--gpus")
        found, nodes = (values.gpus(text) if text is not None else None), nodes_of(request)
        if option is None or found is None or not nodes or gpus_per_node(request) is not None:
            continue
        if nodes > 1 and found[1] > nodes and found[1] % nodes:
            message = (
                f"{request.said(option)} is the whole job's: {found[1]} GPUs on {nodes} nodes are not the same on each"
            )
            hint = f"write --gpus-per-node={max(1, found[1] // nodes)}"
            yield Breach(where=request.at_value(option), message=message, hint=hint)


def gpus_of_task_and_node_agree(submission: Submission) -> Iterator[Breach]:
    """GPUs per node are tasks per node × GPUs per task."""
    for request in blocks(submission):
        option, text = request.options.get("--gpus-per-task"), request.options.text("--gpus-per-task")
        found = values.gpus(text) if text is not None else None
        if option is None or found is None or found[1] == 0:
            continue
        each, tasks, node = found[1], count(request, "--ntasks-per-node"), gpus_per_node(request)
        if node is not None and node[1] % each:
            message = f"{request.said(option)} doesn't divide the {node[1]} GPUs of {node[0].name}"
            yield Breach(where=request.at_value(option), message=message, hint="--gpus-per-task=1")
        elif node is not None and tasks is not None and tasks * each != node[1]:
            message = f"{tasks} tasks a node × {each} GPUs a task = {tasks * each}, but {node[0].name} gives {node[1]}"
            yield Breach(where=request.at_value(option), message=message, hint=f"--ntasks-per-node={node[1] // each}")
        elif node is None and not request.has("--gpus", "--ntasks", "--ntasks-per-node", "--nodes"):
            message = f"{request.said(option)} stands without a number of tasks"
            yield Breach(where=request.at_value(option), message=message, hint="add --ntasks-per-node and --nodes")


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
            yield Breach(where=request.at_value(option), message=message, hint=f"--ntasks={right}, or leave it out")
        else:
            all_tasks = f"{nodes} nodes × {each} tasks a node = {right}"
            message = f"{request.said(option)} is less than {all_tasks}: srun starts {tasks}"
            hint = f"leave --ntasks out, or --ntasks={right}"
            yield Breach(where=request.at_value(option), message=message, hint=hint, severity=Severity.WARNING)


def gpus_are_said(submission: Submission) -> Iterator[Breach]:
    """--ntasks-per-gpu comes with a number of GPUs, tasks or nodes."""
    for request in blocks(submission):
        option = request.options.get("--ntasks-per-gpu")
        if option is not None and not request.has("--gpus", "--gpus-per-node", "--gres", "--ntasks", "--nodes"):
            message = f"{request.said(option)} stands without a number of GPUs"
            yield Breach(where=request.at(option), message=message, hint="add --gpus-per-node")


def sockets_are_said(submission: Submission) -> Iterator[Breach]:
    """--gpus-per-socket comes with --sockets-per-node."""
    for request in blocks(submission):
        option = request.options.get("--gpus-per-socket")
        if option is not None and not request.has("--sockets-per-node", "--extra-node-info"):
            message = f"{request.said(option)} needs --sockets-per-node"
            yield Breach(where=request.at(option), message=message, hint="write --gpus-per-node in its place")


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
        if option is not None and limit and least is not None and math.ceil(least / 60) > math.ceil(limit / 60):
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
        "SLM005",
        gpus_of_job_and_node_agree,
        slurm("common/gres.c:5034, gres_job_state_validate"),
        "sbatch: error: Failed to validate job spec. Based on --gpus and --gres=gpu/--gpus-per-node required nodes.",
        "Give --gpus-per-node alone.",
    ),
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
        "SLM044",
        gpus_of_task_and_node_agree,
        slurm("common/gres.c:5137 to 5155, gres_job_state_validate"),
        "Failed to validate job spec: requested number of tasks per node differ from --ntasks-per-node.",
        "Tasks per node × GPUs per task = GPUs per node.",
    ),
    slurm_rule(
        "SLM045",
        every_node_has_a_task,
        slurm("sbatch/opt.c:878, _opt_verify"),
        "sbatch: Warning: can't run 1 processes on 2 nodes, setting nnodes to 1: the job runs on fewer nodes.",
        "At least as many tasks as nodes; best --ntasks-per-node.",
    ),
    slurm_rule(
        "SLM046",
        tasks_are_those_of_the_nodes,
        slurm_manual("sbatch(1), --ntasks-per-node: with --ntasks it is the most tasks of a node"),
        "Requested node configuration is not available; or fewer ranks than one reads at the top of the script.",
        "Leave --ntasks out.",
    ),
    slurm_rule(
        "SLM047",
        sockets_are_said,
        slurm("common/gres.c:5015, gres_job_state_validate"),
        "sbatch: error: --gpus-per-socket option requires --sockets-per-node specification.",
        "Write --gpus-per-node in its place.",
    ),
    slurm_rule(
        "SLM057",
        gpus_are_said,
        slurm("common/gres.c:5863, gres_job_state_validate"),
        "--ntasks-per-tres needs either a GRES GPU specification or a node/ntask specification.",
        "Add --gpus-per-node.",
    ),
    slurm_rule(
        "SLM048",
        least_time_is_below_the_limit,
        slurm_manual("sbatch(1), --time-min"),
        "Invalid time-min specification (exceeds job's time or other limits).",
        "A --time-min below --time.",
    ),
    slurm_rule(
        "SLM053",
        gpus_are_spread_evenly,
        slurm_manual("sbatch(1), --gpus: the job's total; how it is spread over the nodes is Slurm's choice"),
        "Nodes with different numbers of GPUs, where every launcher is told one number for all.",
        "Give --gpus-per-node in place of --gpus.",
        Severity.WARNING,
    ),
)
