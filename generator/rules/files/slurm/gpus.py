"""Options of Slurm that ask for GPUs, against one another."""

from __future__ import annotations

import math

from ....documents.submission import Submission
from ....findings import ERROR, WARNING, Severity, Violation, Violations
from ...rule import submissions
from ...sources import slurm, slurm_manual
from . import values
from .requests import Request, blocks, count, gpus_per_node, nodes_of


@submissions.rule(
    "SLM005", ERROR, "submit", slurm("common/gres.c:5034, gres_job_state_validate"), reads=("launch script",)
)
def gpus_of_job_and_node_agree(submission: Submission) -> Violations:
    """--gpus counts the whole job: nodes × GPUs per node; and GPUs per node are said in one form.

    Prevents: sbatch: error: Failed to validate job spec. Based on --gpus and --gres=gpu/--gpus-per-node required
    nodes.
    Fix: Give --gpus-per-node alone.
    """
    for request in blocks(submission):
        yield from _two_forms(request)
        yield from _fewer_than_ranks(request)
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
                yield Violation(where=request.at_value(option), message=message, hint=hint)
        elif nodes is not None and total < nodes:
            message = f"{request.said(option)} is the whole job's: fewer than one for each of {nodes} nodes"
            hint = f"write --gpus-per-node={total}"
            yield Violation(where=request.at_value(option), message=message, hint=hint)


def _two_forms(request: Request) -> Violations:
    """--gres and --gpus-per-node together: sbatch takes both, and goes by --gres."""
    first, second = request.options.get("--gres"), request.options.get("--gpus-per-node")
    text, found = request.options.text("--gpus-per-node"), gpus_per_node(request)
    other = values.gpus(text) if text is not None else None
    if first is None or second is None or other is None or found is None or found[0] is not first:
        return
    differ = f": a node gives {found[1]} GPUs, not {other[1]}" if other[1] != found[1] else ", in two forms"
    message = f"{request.said(second)} stands beside {request.said(first)}, which Slurm goes by{differ}"
    yield Violation(where=request.at_value(second), message=message, hint="keep one of them", severity=Severity.WARNING)


def _fewer_than_ranks(request: Request) -> Violations:
    """--gpus alone, against the ranks that torchrun or deepspeed starts on the nodes."""
    option, total, nodes = request.options.get("--gpus"), _gpus(request, "--gpus"), nodes_of(request)
    if option is None or not total or not nodes or gpus_per_node(request) is not None:
        return
    for launch in request.block.launches if request.block else ():
        for program, name in (("torchrun", "--nproc-per-node"), ("deepspeed", "--num_gpus")):
            call = launch.call(program)
            each = call.options.integer(name) if call is not None else None
            step = launch.call("srun")
            if each is None or (step is not None and step.options.has("--nodes")) or each <= 1:
                continue
            if total < nodes * each and (step is not None or nodes == 1):
                ranks = f"{nodes} nodes × {program} {name} {each} = {nodes * each} ranks"
                message = f"{request.said(option)} is the whole job's: fewer than {ranks}"
                hint = f"write --gpus-per-node={each}"
                yield Violation(where=request.at_value(option), message=message, hint=hint)
                return


@blocks.rule(
    "SLM053",
    WARNING,
    "silent",
    slurm_manual("sbatch(1), --gpus: the job's total; how it is spread over the nodes is Slurm's choice"),
)
def gpus_are_spread_evenly(request: Request) -> Violations:
    """--gpus of a job over several nodes is a whole number for each node.

    Prevents: Nodes with different numbers of GPUs, where every launcher is told one number for all.
    Fix: Give --gpus-per-node in place of --gpus.
    """
    option, text = request.options.get("--gpus"), request.options.text("--gpus")
    found, nodes = (values.gpus(text) if text is not None else None), nodes_of(request)
    if option is None or found is None or not nodes or gpus_per_node(request) is not None:
        return
    if nodes > 1 and found[1] > nodes and found[1] % nodes:
        message = (
            f"{request.said(option)} is the whole job's: {found[1]} GPUs on {nodes} nodes are not the same on each"
        )
        hint = f"write --gpus-per-node={max(1, found[1] // nodes)}"
        yield Violation(where=request.at_value(option), message=message, hint=hint)


@blocks.rule("SLM044", ERROR, "submit", slurm("common/gres.c:5137 to 5155, gres_job_state_validate"))
def gpus_of_task_and_node_agree(request: Request) -> Violations:
    """GPUs per node are tasks per node × GPUs per task.

    Prevents: Failed to validate job spec: requested number of tasks per node differ from --ntasks-per-node.
    Fix: Tasks per node × GPUs per task = GPUs per node.
    """
    option, text = request.options.get("--gpus-per-task"), request.options.text("--gpus-per-task")
    found = values.gpus(text) if text is not None else None
    if option is None or found is None or found[1] == 0:
        return
    each, tasks, node = found[1], count(request, "--ntasks-per-node"), gpus_per_node(request)
    if node is not None and node[1] % each:
        message = f"{request.said(option)} doesn't divide the {node[1]} GPUs of {node[0].name}"
        yield Violation(where=request.at_value(option), message=message, hint="--gpus-per-task=1")
    elif node is not None and tasks is not None and tasks * each != node[1]:
        message = f"{tasks} tasks a node × {each} GPUs a task = {tasks * each}, but {node[0].name} gives {node[1]}"
        yield Violation(where=request.at_value(option), message=message, hint=f"--ntasks-per-node={node[1] // each}")
    elif not _has_tasks(request, node is not None and node[1] != each):
        message = f"{request.said(option)} stands without --ntasks, --gpus, or --ntasks-per-node with --nodes"
        yield Violation(where=request.at_value(option), message=message, hint="add --ntasks-per-node and --nodes")


def _has_tasks(request: Request, by_node: bool) -> bool:
    """Whether sbatch knows the tasks, so that it can count their GPUs; seen with sbatch --test-only."""
    if request.has("--gpus", "--ntasks"):
        return True
    exact = nodes_of(request) is not None
    if request.has("--ntasks-per-node"):
        return exact or not request.has("--nodes")
    return exact and not by_node and not request.has("--cpus-per-task")


@blocks.rule("SLM063", ERROR, "submit", slurm("common/gres.c:5098 to 5117, gres_job_state_validate"))
def gpus_of_task_and_job_agree(request: Request) -> Violations:
    """GPUs of the job are its tasks × GPUs per task.

    Prevents: Failed to validate job spec. Based on --gpus and --gpus-per-task number of requested tasks differ.
    Fix: Tasks × GPUs per task = --gpus.
    """
    option, texts = request.options.get("--gpus-per-task"), ("--gpus-per-task", "--gpus")
    each, total = (_gpus(request, name) for name in texts)
    nodes, per_node = nodes_of(request), count(request, "--ntasks-per-node")
    tasks = count(request, "--ntasks") or (nodes * per_node if nodes and per_node else None)
    if option is None or not each or not total or (total % each == 0 and tasks in (None, total // each)):
        return
    of = f"{tasks} tasks × {each} = {tasks * each}" if tasks else f"no multiple of {each}"
    message = f"{request.said(option)}: --gpus={total} is {'not ' if tasks else ''}{of}"
    hint = f"--gpus={tasks * each}, or leave --gpus out" if tasks else f"--gpus={-(-total // each) * each}"
    yield Violation(where=request.at_value(option), message=message, hint=hint)


def _gpus(request: Request, name: str) -> int | None:
    text = request.options.text(name)
    found = values.gpus(text) if text is not None else None
    return found[1] if found else None


def _type_of(name: str, text: str) -> tuple[str | None, int] | None:
    """The type and number of GPUs in an option's value; None where it asks for none, or can't be read."""
    if name != "--gres":
        return values.gpus(text)
    items = [item for item in values.gres_list(text) or () if item.name == "gpu"]
    return (items[0].type, items[0].count) if items else None


@blocks.rule(
    "SLM062",
    ERROR,
    "submit",
    slurm_manual("sbatch(1), --gpus: invalid with and without type identification; seen with sbatch --test-only"),
)
def types_of_gpus_agree(request: Request) -> Violations:
    """The options that ask for GPUs name one type, or none of them names one.

    Prevents: sbatch: error: Invalid GRES specification (with and without type identification).
    Fix: The same type in all, or none.
    """
    named = []
    for name in ("--gres", "--gpus", "--gpus-per-node", "--gpus-per-task", "--gpus-per-socket"):
        option, text = request.options.get(name), request.options.text(name)
        found = _type_of(name, text) if text is not None else None
        if option is not None and found is not None:
            named.append((option, found[0]))
    odd = next((option for option, kind in named[1:] if kind != named[0][1]), None)
    if odd is not None:
        first = named[0][0].name
        message = f"{request.said(odd)} and {first}={request.options.text(first)} differ in type"
        yield Violation(where=request.at_value(odd), message=message, hint="the same type in both, or none")


@submissions.rule(
    "SLM061",
    ERROR,
    "submit",
    slurm_manual("sbatch(1), --mem-per-gpu; seen with sbatch --test-only"),
    reads=("launch script",),
)
def memory_by_gpu_has_gpus(submission: Submission) -> Violations:
    """--mem-per-gpu comes with a number of GPUs.

    Prevents: sbatch: error: Requested mem_per_tres=gres:gpu but did not request any GPU.
    Fix: Add --gpus-per-node.
    """
    asking = ("--gpus", "--gpus-per-node", "--gpus-per-task", "--gpus-per-socket", "--gres", "--tres-per-task")
    for request in blocks(submission):
        option = request.options.get("--mem-per-gpu")
        texts = [request.options.text(name) for name in asking if request.has(name)]
        if option is not None and set(texts) <= {"0", "gpu:0"} and not request.options.unknown:
            message = f"{request.said(option)}, and no GPU is asked for"
            yield Violation(where=request.at(option), message=message, hint="add --gpus-per-node, or write --mem")


@blocks.rule("SLM057", ERROR, "submit", slurm("common/gres.c:5863, gres_job_state_validate"))
def gpus_are_said(request: Request) -> Violations:
    """--ntasks-per-gpu comes with a number of GPUs, tasks or nodes.

    Prevents: --ntasks-per-tres needs either a GRES GPU specification or a node/ntask specification.
    Fix: Add --gpus-per-node.
    """
    option = request.options.get("--ntasks-per-gpu")
    if option is not None and not request.has("--gpus", "--gpus-per-node", "--gres", "--ntasks", "--nodes"):
        message = f"{request.said(option)} stands without a number of GPUs"
        yield Violation(where=request.at(option), message=message, hint="add --gpus-per-node")


@blocks.rule("SLM047", ERROR, "submit", slurm("common/gres.c:5015, gres_job_state_validate"))
def sockets_are_said(request: Request) -> Violations:
    """--gpus-per-socket comes with --sockets-per-node.

    Prevents: sbatch: error: --gpus-per-socket option requires --sockets-per-node specification.
    Fix: Write --gpus-per-node in its place.
    """
    option = request.options.get("--gpus-per-socket")
    if option is not None and not request.has("--sockets-per-node", "--extra-node-info"):
        message = f"{request.said(option)} needs --sockets-per-node"
        yield Violation(where=request.at(option), message=message, hint="write --gpus-per-node in its place")
