"""Options of Slurm that ask for GPUs, against one another."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from ....documents.submission import Submission
from ....findings import Severity
from ...sources import slurm, slurm_manual
from ..rule import Breach, DocumentRule
from . import values
from .options import slurm_rule
from .requests import Request, blocks, count, gpus_per_node, nodes_of


def gpus_of_job_and_node_agree(submission: Submission) -> Iterator[Breach]:
    """--gpus counts the whole job: nodes × GPUs per node; and GPUs per node are said in one form."""
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
                yield Breach(where=request.at_value(option), message=message, hint=hint)
        elif nodes is not None and total < nodes:
            message = f"{request.said(option)} is the whole job's: fewer than one for each of {nodes} nodes"
            hint = f"write --gpus-per-node={total}"
            yield Breach(where=request.at_value(option), message=message, hint=hint)


def _two_forms(request: Request) -> Iterator[Breach]:
    """--gres and --gpus-per-node together: sbatch takes both, and goes by --gres."""
    first, second = request.options.get("--gres"), request.options.get("--gpus-per-node")
    text, found = request.options.text("--gpus-per-node"), gpus_per_node(request)
    other = values.gpus(text) if text is not None else None
    if first is None or second is None or other is None or found is None or found[0] is not first:
        return
    differ = f": a node gives {found[1]} GPUs, not {other[1]}" if other[1] != found[1] else ", in two forms"
    message = f"{request.said(second)} stands beside {request.said(first)}, which Slurm goes by{differ}"
    yield Breach(where=request.at_value(second), message=message, hint="keep one of them", severity=Severity.WARNING)


def _fewer_than_ranks(request: Request) -> Iterator[Breach]:
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
                yield Breach(where=request.at_value(option), message=message, hint=hint)
                return


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
        elif not _has_tasks(request, node is not None and node[1] != each):
            message = f"{request.said(option)} stands without --ntasks, --gpus, or --ntasks-per-node with --nodes"
            yield Breach(where=request.at_value(option), message=message, hint="add --ntasks-per-node and --nodes")


def _has_tasks(request: Request, by_node: bool) -> bool:
    """Whether sbatch knows the tasks, so that it can count their GPUs; seen with sbatch --test-only."""
    if request.has("--gpus", "--ntasks"):
        return True
    exact = nodes_of(request) is not None
    if request.has("--ntasks-per-node"):
        return exact or not request.has("--nodes")
    return exact and not by_node and not request.has("--cpus-per-task")


def gpus_of_task_and_job_agree(submission: Submission) -> Iterator[Breach]:
    """GPUs of the job are its tasks × GPUs per task."""
    for request in blocks(submission):
        option, texts = request.options.get("--gpus-per-task"), ("--gpus-per-task", "--gpus")
        each, total = (_gpus(request, name) for name in texts)
        nodes, per_node = nodes_of(request), count(request, "--ntasks-per-node")
        tasks = count(request, "--ntasks") or (nodes * per_node if nodes and per_node else None)
        if option is None or not each or not total or (total % each == 0 and tasks in (None, total // each)):
            continue
        of = f"{tasks} tasks × {each} = {tasks * each}" if tasks else f"no multiple of {each}"
        message = f"{request.said(option)}: --gpus={total} is {'not ' if tasks else ''}{of}"
        hint = f"--gpus={tasks * each}, or leave --gpus out" if tasks else f"--gpus={-(-total // each) * each}"
        yield Breach(where=request.at_value(option), message=message, hint=hint)


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


def types_of_gpus_agree(submission: Submission) -> Iterator[Breach]:
    """The options that ask for GPUs name one type, or none of them names one."""
    for request in blocks(submission):
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
            yield Breach(where=request.at_value(odd), message=message, hint="the same type in both, or none")


def memory_by_gpu_has_gpus(submission: Submission) -> Iterator[Breach]:
    """--mem-per-gpu comes with a number of GPUs."""
    asking = ("--gpus", "--gpus-per-node", "--gpus-per-task", "--gpus-per-socket", "--gres", "--tres-per-task")
    for request in blocks(submission):
        option = request.options.get("--mem-per-gpu")
        texts = [request.options.text(name) for name in asking if request.has(name)]
        if option is not None and set(texts) <= {"0", "gpu:0"} and not request.options.unknown:
            message = f"{request.said(option)}, and no GPU is asked for"
            yield Breach(where=request.at(option), message=message, hint="add --gpus-per-node, or write --mem")


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


RULES: Final[tuple[DocumentRule, ...]] = (
    slurm_rule(
        "SLM005",
        gpus_of_job_and_node_agree,
        slurm("common/gres.c:5034, gres_job_state_validate"),
        "sbatch: error: Failed to validate job spec. Based on --gpus and --gres=gpu/--gpus-per-node required nodes.",
        "Give --gpus-per-node alone.",
    ),
    slurm_rule(
        "SLM044",
        gpus_of_task_and_node_agree,
        slurm("common/gres.c:5137 to 5155, gres_job_state_validate"),
        "Failed to validate job spec: requested number of tasks per node differ from --ntasks-per-node.",
        "Tasks per node × GPUs per task = GPUs per node.",
    ),
    slurm_rule(
        "SLM061",
        memory_by_gpu_has_gpus,
        slurm_manual("sbatch(1), --mem-per-gpu; seen with sbatch --test-only"),
        "sbatch: error: Requested mem_per_tres=gres:gpu but did not request any GPU.",
        "Add --gpus-per-node.",
    ),
    slurm_rule(
        "SLM062",
        types_of_gpus_agree,
        slurm_manual("sbatch(1), --gpus: invalid with and without type identification; seen with sbatch --test-only"),
        "sbatch: error: Invalid GRES specification (with and without type identification).",
        "The same type in all, or none.",
    ),
    slurm_rule(
        "SLM063",
        gpus_of_task_and_job_agree,
        slurm("common/gres.c:5098 to 5117, gres_job_state_validate"),
        "Failed to validate job spec. Based on --gpus and --gpus-per-task number of requested tasks differ.",
        "Tasks × GPUs per task = --gpus.",
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
        "SLM053",
        gpus_are_spread_evenly,
        slurm_manual("sbatch(1), --gpus: the job's total; how it is spread over the nodes is Slurm's choice"),
        "Nodes with different numbers of GPUs, where every launcher is told one number for all.",
        "Give --gpus-per-node in place of --gpus.",
        Severity.WARNING,
        when="silent",
    ),
)
