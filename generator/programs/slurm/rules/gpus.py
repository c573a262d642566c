"""GPUs that a batch script asks for and chooses, against one another."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

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
    yield from _two_forms(request)
    yield from _fewer_than_ranks(request)
    job, each, nodes = request.gpus(), request.gpus_per_node, request.nodes
    if job is None or job.value == 0:
        return
    if each is not None and each.value > 0:
        needed_nodes = job.value / each.value
        if needed_nodes != int(needed_nodes) or nodes not in (None, needed_nodes):
            right = each.value * (math.ceil(needed_nodes) if nodes is None else nodes)
            gives = f"{nodes} nodes × {each.value} = {right}"
            if nodes is None:
                gives = f"a multiple of {each.value}"
            message = f"{job} is the whole job's, and {each.name} gives {gives}"
            yield job.bad_value(message, f"leave --gpus out, or write --gpus={right}")
    elif nodes is not None and job.value < nodes:
        message = f"{job} is the whole job's: fewer than one for each of {nodes} nodes"
        yield job.bad_value(message, f"write --gpus-per-node={job.value}")


def _two_forms(request: Request) -> Violations:
    """--gpus-per-node beside --gres: sbatch accepts both, and goes by --gres."""
    gres, per_node = request.argument("--gres"), request.gpus("--gpus-per-node")
    each = request.gpus_per_node
    if gres is None or per_node is None or each is None or each.option is not gres.option:
        return
    effect, severity = ", in two forms", NOTE
    if per_node.value != each.value:
        effect, severity = f": a node gives {each.value} GPUs, not {per_node.value}", WARNING
    message = f"{per_node} comes with {gres}, which Slurm goes by{effect}"
    yield per_node.bad_value(message, "keep one of them", severity=severity)


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
    if not job or nodes <= 1 or request.gpus_per_node is not None:
        return
    if job.value > nodes and job.value % nodes:
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
    elif not _has_tasks(request, each):
        message = f"{task} has neither --ntasks, --gpus, nor --ntasks-per-node with --nodes"
        hint = "add --ntasks-per-node and --nodes"
    else:
        return
    yield task.bad_value(message, hint)


def _has_tasks(request: Request, gpus_per_task: int) -> bool:
    """Whether sbatch knows the number of tasks, and so of their GPUs.

    Seen with `sbatch --test-only`.
    """
    if request.has("--gpus", "--ntasks") or request.given_when_submitted & _SAY_TASKS:
        return True
    # A range of nodes says no number; SLM031 reports what is no number at all.
    has_range = request.nodes is None and request.node_range is not None
    has_number = request.has("--nodes") and not has_range
    if request.has("--ntasks-per-node"):
        return has_number or not request.has("--nodes")
    # A number of nodes alone stands for one task on each.
    node = request.gpus_per_node
    of_several_tasks = node is not None and node.value != gpus_per_task
    return has_number and not of_several_tasks and not request.has("--cpus-per-task")


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
    tasks = count.value if count else 0
    if not tasks and request.nodes and per_node:
        tasks = request.nodes * per_node.value
    if task is None or job is None or not task.value or not job.value:
        return
    each, total = task.value, job.value
    if total % each == 0 and tasks in (0, total // each):
        return
    if tasks:
        fault = f"not {tasks} tasks × {each} = {tasks * each}"
        hint = f"write --gpus={tasks * each}, or leave it out"
    else:
        fault = f"not a multiple of {each}"
        next_multiple = -(-total // each) * each
        hint = f"write --gpus={next_multiple}"
    yield task.bad_value(f"{task}: --gpus={total} is {fault}", hint)


@blocks.rule(
    "SLM062", ERROR, "submit", slurm_manual("sbatch(1), --gpus: types; seen with --test-only")
)
def types_of_gpus_agree(request: Request) -> Violations:
    """The options that ask for GPUs name one type, or none of them names one.
    Prevents: sbatch: error: Invalid GRES specification (with and without type identification).
    Fix: write the same type in all, or none"""
    names = ("--gpus", "--gpus-per-node", "--gpus-per-task", "--gpus-per-socket")
    gres = request.read("--gres", _type_and_count_of_gres)
    counts = (request.read(name, gpu_type_and_count) for name in names)
    typed = [argument for argument in (gres, *counts) if argument]
    if not typed:
        return
    first, *others = typed
    first_type, _ = first.value
    for other in others:
        other_type, _ = other.value
        if other_type != first_type:
            message = f"{other} and {first.name}={first.text} differ in type"
            yield other.bad_value(message, "write the same type in both, or none")
            return


def _type_and_count_of_gres(text: str) -> tuple[str | None, int] | None:
    """Of the first GPUs of --gres; None where it asks for none, or can't be read."""
    return next(((gpus.type, gpus.count) for gpus in gpu_items(text)), None)


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


#: Slurm's variables with the node's own numbers of a job's GPUs.
_OF_SLURM: Final = lazy_pattern(r"[\"']?\$\{?(SLURM_JOB_GPUS|SLURM_STEP_GPUS)\}?[\"']?")
#: Numbers of GPUs: `0,1,2`.
_NUMBERS: Final = lazy_pattern(r"\d{1,3}(?:,\d{1,3})*", re.ASCII)
#: GPUs of the script's own node, as deepspeed --include has them.
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
    confine jobs to theirs; a note where it has all that are given before the others.
    Fix: leave the choice to Slurm, or count from 0
    """
    granted = request.gpus_per_node
    if granted is None or not granted.value or request.has("--exclusive"):
        return
    gives = f"{granted} gives {granted.value} GPU{'s' * (granted.value > 1)}, numbered from 0"
    for choice in _chosen_gpus(request):
        numbers = list(map(whole, choice.numbers.split(",")))
        beyond = sorted({number for number in numbers if number >= granted.value})
        if beyond:
            message = f"{choice.text} chooses GPU {', '.join(map(str, beyond))}, and {gives}"
            # A number that is beyond them has at most three digits, so these are few.
            hint = f"leave it out, or choose from {','.join(map(str, range(granted.value)))}"
            severity = WARNING if choice.text.startswith("CUDA_VISIBLE_DEVICES") else ERROR
            # CUDA passes over the first number without a device, and all behind it.
            if severity == WARNING and set(numbers[: granted.value]) == set(range(granted.value)):
                severity = NOTE
            yield Violation(choice.where, message, hint, severity=severity)


def _starts_by_steps(request: Request) -> bool:
    """Tell whether srun starts all launches: it sets CUDA_VISIBLE_DEVICES anew for its tasks.

    Source: seen in a real job.
    """
    return bool(request.launches) and all(launch.call("srun") for launch in request.launches)


class _Choice(NamedTuple):
    """GPUs that a script chooses by their numbers."""

    text: str  #: by which it does so
    numbers: str  #: with commas between them
    where: Location


def _chosen_gpus(request: Request) -> Iterator[_Choice]:
    """Each choice of GPUs by number in the batch script's shell."""
    assignments = () if _starts_by_steps(request) else request.shell.assignments
    for assignment in assignments:
        numbers = assignment.value or ""
        if assignment.name == "CUDA_VISIBLE_DEVICES" and _NUMBERS.fullmatch(numbers):
            where = request.shell.locate(assignment.value_offset)
            yield _Choice(f"CUDA_VISIBLE_DEVICES={numbers}", numbers, where)
    for launch in request.launches:
        call = launch.call("deepspeed")
        option = call.options.get("--include") if call is not None else None
        if option is None or not option.values:
            continue
        word = option.values[0]
        match = _LOCAL.fullmatch(word.value or "")
        if match is not None:
            where = launch.script.locate(word)
            yield _Choice(f"deepspeed --include {match[0]}", match[1], where)


@blocks.rule("SLM068", WARNING, "init", _SHOWN)
def slurm_shows_the_gpus(request: Request) -> Violations:
    """CUDA_VISIBLE_DEVICES is left to Slurm, which sets it for a job with GPUs.
    Prevents: CUDA error: invalid device ordinal: SLURM_JOB_GPUS has the node's numbers, and a job's
    own start at 0.
    Fix: remove it
    """
    if _starts_by_steps(request):
        return
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
