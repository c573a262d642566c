"""GPUs that a batch script asks for and chooses, against one another."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Final

from ....findings import ERROR, NOTE, WARNING, Location, Violation, Violations
from ....numerals import whole
from ....patterns import lazy_pattern
from ....rules.violations import deepspeed_0_19_8, slurm, slurm_manual
from ...launching.launcher_call import PER_NODE
from ..request import GPU_OPTIONS, Request
from ..subjects import blocks
from ..values import gpu_items, gpu_type_and_count

#: Options from which sbatch knows the number of tasks.
_SAY_TASKS: Final = frozenset({"--gpus", "--ntasks", "--ntasks-per-node"})


@blocks.rule("SLM005", ERROR, "submit", slurm("common/gres.c:5034, gres_job_state_validate"))
def gpus_of_job_and_node_agree(request: Request) -> Violations:
    """--gpus counts the whole job: nodes × GPUs per node; and GPUs per node are given in one form.
    Prevents: sbatch: error: Failed to validate job spec. Based on --gpus and
    --gres=gpu/--gpus-per-node required nodes.
    Fix: give --gpus-per-node alone
    """
    job, each, nodes = request.gpus(), request.gpus_per_node, request.nodes
    gres, per_node = request.argument("--gres"), request.gpus("--gpus-per-node")
    if (
        gres is not None
        and per_node is not None
        and each is not None
        and each.option is gres.option
    ):
        differ = per_node.value != each.value  # sbatch accepts both forms, and goes by --gres
        effect = (
            f": a node gives {each.value} GPUs, not {per_node.value}"
            if differ
            else ", in two forms"
        )
        message = f"{per_node} comes with {gres}, which Slurm goes by{effect}"
        yield per_node.bad_value(message, "keep one of them", severity=WARNING if differ else NOTE)
    yield from _fewer_than_ranks(request)
    if job is None or job.value == 0:
        return
    if each is not None and each.value > 0:
        needed = job.value / each.value
        if needed != int(needed) or nodes not in (None, needed):
            right = each.value * (math.ceil(needed) if nodes is None else nodes)
            gives = (
                f"a multiple of {each.value}"
                if nodes is None
                else f"{nodes} nodes × {each.value} = {right}"
            )
            message = f"{job} is the whole job's, and {each.name} gives {gives}"
            yield job.bad_value(message, f"leave --gpus out, or write --gpus={right}")
    elif nodes is not None and job.value < nodes:
        message = f"{job} is the whole job's: fewer than one for each of {nodes} nodes"
        yield job.bad_value(message, f"write --gpus-per-node={job.value}")


def _fewer_than_ranks(request: Request) -> Violations:
    """--gpus alone, against the ranks that torchrun or deepspeed starts on the nodes."""
    job, nodes = request.gpus(), request.nodes
    if job is None or not job.value or not nodes or request.gpus_per_node is not None:
        return
    for launch in request.launches:
        step = launch.call("srun")
        for program, name in PER_NODE.items():
            call = launch.call(program)
            each = call.options.integer(name) if call is not None else None
            on_all_nodes = nodes == 1 if step is None else not step.has("--nodes")
            if each is not None and each > 1 and on_all_nodes and job.value < nodes * each:
                ranks = f"{nodes} nodes × {program} {name} {each} = {nodes * each} ranks"
                yield job.bad_value(
                    f"{job} is the whole job's: fewer than {ranks}", f"write --gpus-per-node={each}"
                )
                return


@blocks.rule(
    "SLM053", WARNING, "silent", slurm_manual("sbatch(1), --gpus: the total, which Slurm spreads")
)
def gpus_are_spread_evenly(request: Request) -> Violations:
    """--gpus of a job over several nodes is a multiple of the nodes.
    Prevents: Nodes with different numbers of GPUs, while every launcher has one number for all.
    Fix: give --gpus-per-node in place of --gpus"""
    job, nodes = request.gpus(), request.nodes or 0
    if (
        job
        and nodes > 1
        and request.gpus_per_node is None
        and job.value > nodes
        and job.value % nodes
    ):
        message = (
            f"{job} is the whole job's: {job.value} GPUs on {nodes} nodes are not the same on each"
        )
        yield job.bad_value(message, f"write --gpus-per-node={job.value // nodes}")


@blocks.rule(
    "SLM044", ERROR, "submit", slurm("common/gres.c:5137 to 5155, gres_job_state_validate")
)
def gpus_of_task_and_node_agree(request: Request) -> Violations:
    """GPUs per node are tasks per node × GPUs per task.
    Prevents: Failed to validate job spec: requested number of tasks per node differ from
    --ntasks-per-node.
    Fix: give a node tasks per node × GPUs per task
    """
    task = request.gpus("--gpus-per-task")
    node = request.gpus_per_node
    tasks = request.count("--ntasks-per-node")
    if task is None or task.value == 0:
        return
    each = task.value
    if node is not None and node.value % each:
        message = f"{task} doesn't divide the {node.value} GPUs of {node.name}"
        hint = "write --gpus-per-task=1"
    elif node is not None and tasks is not None and tasks.value * each != node.value:
        product = (
            f"{tasks.value} tasks per node × {each} GPU{'s' * (each > 1)} per task = "
            f"{tasks.value * each}"
        )
        message = f"{product}, but {node.name} gives {node.value}"
        hint = f"write --ntasks-per-node={node.value // each}"
    elif not (
        _has_tasks(request, node is not None and node.value != each)
        or request.given_when_submitted & _SAY_TASKS
    ):
        message = f"{task} has neither --ntasks, --gpus, nor --ntasks-per-node with --nodes"
        hint = "add --ntasks-per-node and --nodes"
    else:
        return
    yield task.bad_value(message, hint)


def _has_tasks(request: Request, by_node: bool) -> bool:
    """Whether sbatch knows the number of tasks, and so of their GPUs.

    Seen with `sbatch --test-only`.
    """
    # A range of nodes says no number; SLM031 reports what is no number at all.
    exact = request.nodes is not None or (request.has("--nodes") and request.node_range is None)
    by_task = request.has("--ntasks-per-node") and (exact or not request.has("--nodes"))
    others = by_node or request.has("--cpus-per-task", "--ntasks-per-node")
    return request.has("--gpus", "--ntasks") or by_task or (exact and not others)


@blocks.rule(
    "SLM063", ERROR, "submit", slurm("common/gres.c:5098 to 5117, gres_job_state_validate")
)
def gpus_of_task_and_job_agree(request: Request) -> Violations:
    """GPUs of the job are its tasks × GPUs per task.
    Prevents: Failed to validate job spec. Based on --gpus and --gpus-per-task number of requested
    tasks differ.
    Fix: write tasks × GPUs per task as --gpus
    """
    task, job = request.gpus("--gpus-per-task"), request.gpus()
    count, per_node = request.count("--ntasks"), request.count("--ntasks-per-node")
    tasks = (count.value if count else 0) or (
        request.nodes * per_node.value if request.nodes and per_node else 0
    )
    if task is None or job is None or not task.value or not job.value:
        return
    each, total = task.value, job.value
    if total % each == 0 and tasks in (0, total // each):
        return
    of = f"not {tasks} tasks × {each} = {tasks * each}" if tasks else f"not a multiple of {each}"
    hint = (
        f"write --gpus={tasks * each}, or leave it out"
        if tasks
        else f"write --gpus={-(-total // each) * each}"
    )
    yield task.bad_value(f"{task}: --gpus={total} is {of}", hint)


@blocks.rule(
    "SLM062", ERROR, "submit", slurm_manual("sbatch(1), --gpus: types; seen with --test-only")
)
def types_of_gpus_agree(request: Request) -> Violations:
    """The options that ask for GPUs name one type, or none of them names one.
    Prevents: sbatch: error: Invalid GRES specification (with and without type identification).
    Fix: write the same type in all, or none"""
    names = ("--gpus", "--gpus-per-node", "--gpus-per-task", "--gpus-per-socket")
    # None where --gres asks for none, or can't be read.
    gres = request.read(
        "--gres", lambda text: next(((gpus.type, gpus.count) for gpus in gpu_items(text)), None)
    )
    counts = (request.read(name, gpu_type_and_count) for name in names)
    typed = [argument for argument in (gres, *counts) if argument]
    odd = next((argument for argument in typed[1:] if argument.value[0] != typed[0].value[0]), None)
    if odd is not None:
        message = f"{odd} and {typed[0].name}={typed[0].text} differ in type"
        yield odd.bad_value(message, "write the same type in both, or none")


@blocks.rule(
    "SLM061",
    ERROR,
    "submit",
    slurm_manual("sbatch(1), --mem-per-gpu; seen with sbatch --test-only"),
)
def memory_by_gpu_has_gpus(request: Request) -> Violations:
    """--mem-per-gpu comes with a number of GPUs.
    Prevents: sbatch: error: Requested mem_per_tres=gres:gpu but did not request any GPU.
    Fix: add --gpus-per-node"""
    memory = request.argument("--mem-per-gpu")
    texts = {request.options.text(name) for name in GPU_OPTIONS if request.has(name)}
    if memory is not None and texts <= {"0", "gpu:0"} and not request.options.unknown:
        yield memory.bad_option(
            f"{memory}, and no GPU is asked for", "add --gpus-per-node, or write --mem"
        )


@blocks.rule("SLM057", ERROR, "submit", slurm("common/gres.c:5863, gres_job_state_validate"))
def gpus_are_said(request: Request) -> Violations:
    """--ntasks-per-gpu comes with a number of GPUs, tasks or nodes.
    Prevents: --ntasks-per-tres needs either a GRES GPU specification or a node/ntask specification.
    Fix: add --gpus-per-node"""
    tasks = request.argument("--ntasks-per-gpu")
    if tasks is not None and not request.has(
        "--gpus", "--gpus-per-node", "--gres", "--ntasks", "--nodes"
    ):
        yield tasks.bad_option(f"{tasks} comes without a number of GPUs", "add --gpus-per-node")


@blocks.rule("SLM047", ERROR, "submit", slurm("common/gres.c:5015, gres_job_state_validate"))
def sockets_are_said(request: Request) -> Violations:
    """--gpus-per-socket comes with --sockets-per-node.
    Prevents: sbatch: error: --gpus-per-socket option requires --sockets-per-node specification.
    Fix: write --gpus-per-node in its place"""
    per_socket = request.argument("--gpus-per-socket")
    if per_socket is not None and not request.has("--sockets-per-node", "--extra-node-info"):
        yield per_socket.bad_option(
            f"{per_socket} requires --sockets-per-node", "write --gpus-per-node in its place"
        )


_OF_SLURM: Final = lazy_pattern(r"[\"']?\$\{?(SLURM_JOB_GPUS|SLURM_STEP_GPUS)\}?[\"']?")
_NUMBERS: Final = lazy_pattern(r"\d{1,3}(?:,\d{1,3})*", re.ASCII)
_LOCAL: Final = lazy_pattern(rf"(?:localhost|127\.0\.0\.1):({_NUMBERS.pattern})", re.ASCII)
_SHOWN: Final = slurm_manual(
    "gres.conf(5), and cgroup.conf(5), ConstrainDevices: a job sees its GPUs as 0, 1, ..."
)
_SLOTS: Final = deepspeed_0_19_8("launcher/runner.py:307, parse_resource_filter")


@blocks.rule("SLM067", ERROR, "init", f"{_SHOWN}; {_SLOTS}")
def chosen_gpus_are_granted(request: Request) -> Violations:
    """The numbers of the GPUs that a script chooses are below the number that its node gives.
    Prevents: ValueError: No slot '4' specified on host 'localhost'. A warning for
    CUDA_VISIBLE_DEVICES, which finds no device, or the GPUs of another job where the site doesn't
    confine jobs to theirs.
    Fix: leave the choice to Slurm, or count from 0
    """
    granted = request.gpus_per_node
    if granted is None or not granted.value or request.has("--exclusive"):
        return
    for what, numbers, where in _chosen(request):
        beyond = sorted(
            {number for number in map(whole, numbers.split(",")) if number >= granted.value}
        )
        if beyond:
            granted_gpus = (
                f"{granted} gives {granted.value} GPU{'s' * (granted.value > 1)}, numbered from 0"
            )
            hint = f"leave it out, or choose from {','.join(map(str, range(granted.value)))}"
            message = f"{what} chooses GPU {', '.join(map(str, beyond))}, and {granted_gpus}"
            severity = WARNING if what.startswith("CUDA_VISIBLE_DEVICES") else ERROR
            yield Violation(where, message, hint, severity=severity)


def _chosen(request: Request) -> Iterator[tuple[str, str, Location]]:
    """What chooses GPUs by number in the batch script's shell: the numbers, and the place."""
    for assignment in request.shell.assignments:
        value = assignment.value or ""
        if assignment.name == "CUDA_VISIBLE_DEVICES" and _NUMBERS.fullmatch(value):
            yield (
                f"CUDA_VISIBLE_DEVICES={value}",
                value,
                request.shell.locate(assignment.value_offset),
            )
    for launch in request.launches:
        call = launch.call("deepspeed")
        option = call.options.get("--include") if call is not None else None
        match = (
            _LOCAL.fullmatch(option.values[0].value or "")
            if option is not None and option.values
            else None
        )
        if option is not None and match is not None:
            yield (
                f"deepspeed --include {match[0]}",
                match[1],
                launch.script.locate(option.values[0]),
            )


@blocks.rule("SLM068", WARNING, "init", _SHOWN)
def slurm_shows_the_gpus(request: Request) -> Violations:
    """CUDA_VISIBLE_DEVICES is left to Slurm, which sets it for a job with GPUs.
    Prevents: CUDA error: invalid device ordinal: SLURM_JOB_GPUS has the node's numbers, and a job's
    own start at 0.
    Fix: remove it
    """
    for assignment in request.shell.assignments:
        match = _OF_SLURM.fullmatch(assignment.raw)
        if assignment.name == "CUDA_VISIBLE_DEVICES" and match:
            message = (
                f"CUDA_VISIBLE_DEVICES={assignment.raw}: {match[1]} has the "
                "numbers of the node's GPUs"
            )
            tail = "where the site confines jobs to their GPUs, these are numbered from 0"
            yield Violation(
                request.shell.locate(assignment), f"{message}; {tail}", "remove it: Slurm sets it"
            )
