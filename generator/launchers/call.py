"""What every launcher needs from a plan and its program: environment, argument lines, header comments."""

from __future__ import annotations

from collections.abc import Mapping

from ..frameworks.program import ArgumentGroup, Program, RenderedFile
from ..search.plan import Plan
from ..version import __version__
from .quoting import Raw, comment, option_lines, shell_word


def environment(plan: Plan, program: Program) -> dict[str, str]:
    """Variables of every process: the launcher's, then the framework's, then the user's, which win."""
    cores = plan.job.cluster.cpu_cores
    threads = {"OMP_NUM_THREADS": str(max(1, cores // processes_per_node(plan)))} if cores else {}
    return {**threads, **program.environment, **plan.job.launch.environment}


def processes_per_node(plan: Plan) -> int:
    """One process per accelerator used: all of a node's, or fewer in a job smaller than one node."""
    return min(plan.job.gpus, plan.job.cluster.accelerators_per_node)


def header(plan: Plan, program: Program, command: str, notes: tuple[str, ...] = ()) -> tuple[Raw, ...]:
    """Comment lines for the top of a file: what made it, what it runs, and the choices a reader would question."""
    job, layout = plan.job, plan.layout
    what = (
        f"{job.name}: {job.model.name} on {job.gpus} GPUs ({job.nodes} nodes of {job.cluster.name}), {job.framework}. "
        f"Data {layout.data} x tensor {layout.tensor} x pipeline {layout.pipeline} x context {layout.context}; "
        f"global batch {layout.global_batch} = {layout.micro_batch} x {layout.gradient_accumulation} x {layout.data}."
    )
    lines = (f"Written by dsgen {__version__}: {command}", what, *notes, *program.notes)
    return tuple(comment(line) for line in lines)


def argument_lines(program: Program, indent: str = "") -> tuple[Raw, ...]:
    """Shell text of the program's arguments: a comment a group, then one option with its values a line."""
    return tuple(line for group in program.groups for line in _group_lines(group, indent))


def _group_lines(group: ArgumentGroup, indent: str) -> tuple[Raw, ...]:
    options = tuple(Raw(indent + " ".join(map(shell_word, words))) for words in option_lines(group.arguments))
    return (comment(group.comment, indent=indent), *options) if options else ()


def file_names(program: Program) -> tuple[str, ...]:
    """Names of the configuration files that the processes read at run time."""
    return tuple(file.path for file in program.files)


def launch_options(plan: Plan) -> Mapping[str, object]:
    """The spec's `launch.<target>`, without keys set to null."""
    return {key: value for key, value in plan.job.launch.options.items() if value is not None}


def arguments_file(plan: Plan, program: Program, command: str) -> RenderedFile:
    """`arguments.txt`: what the script is called with, for launchers that dsgen doesn't write."""
    notes = (
        f"Arguments of {program.script}, quoted for a POSIX shell; CONFIG_DIR is the folder of this file.",
        "One process per GPU; the launcher sets RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.",
    )
    lines = (*header(plan, program, command, notes), Raw(""), *argument_lines(program))
    return RenderedFile(path="arguments.txt", text="".join(f"{line.text}\n" for line in lines))
