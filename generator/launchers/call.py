"""What every launcher needs from a plan and its program: environment, argument lines, header comments."""

from __future__ import annotations

from collections.abc import Mapping

from ..frameworks.program import ArgumentGroup, Program, RenderedFile
from ..search.plan import Plan
from ..version import __version__
from .quoting import Raw, comment, option_lines, shell_word


def environment(plan: Plan, program: Program) -> dict[str, str]:
    """Variables of every process: the launcher's, then the framework's, then the user's, which win."""
    cores = cores_per_node(plan)
    threads = {"OMP_NUM_THREADS": str(max(1, cores // processes_per_node(plan)))} if cores else {}
    return {**threads, **program.environment, **plan.job.launch.environment}


def cores_per_node(plan: Plan) -> int | None:
    """Cores that the job has on each node: those asked for, else its accelerators' share; `None` if not known."""
    asked = launch_options(plan).get("cpus_per_task")
    if isinstance(asked, int):
        return asked
    cores = plan.job.cluster.cpu_cores
    return (
        cores if cores is None else max(1, cores * processes_per_node(plan) // plan.job.cluster.accelerators_per_node)
    )


def shares_cores(plan: Plan, program: Program) -> bool:
    """Whether OMP_NUM_THREADS is the launcher's own: a process's share of the node's cores."""
    named = {*program.environment, *plan.job.launch.environment}
    return cores_per_node(plan) is not None and "OMP_NUM_THREADS" not in named


def processes_per_node(plan: Plan) -> int:
    """One process per accelerator used: all of a node's, or fewer in a job smaller than one node."""
    return min(plan.job.gpus, plan.job.cluster.accelerators_per_node)


def header(plan: Plan, program: Program, command: str, notes: tuple[str, ...] = ()) -> tuple[Raw, ...]:
    """Comment lines for the top of a file: what made it, what it runs, and the choices a reader would question."""
    lines = (f"Written by dsgen {__version__}: {command}", *_summary(plan), *notes, *program.notes)
    return tuple(comment(line) for line in lines)


def _summary(plan: Plan) -> tuple[str, ...]:
    job, layout = plan.job, plan.layout
    return (
        f"Job {job.name}: {job.framework} trains {job.model.name} on {job.nodes} × {job.cluster.name}.",
        f"{job.gpus} GPUs = {layout.data} data × {layout.tensor} tensor × {layout.pipeline} pipeline × "
        f"{layout.context} context; ZeRO {layout.zero_stage}, recompute {layout.recompute.label}, "
        f"offload {layout.offload.label}.",
        f"{layout.global_batch} sequences a step = {layout.micro_batch} micro batch × "
        f"{layout.gradient_accumulation} accumulated × {layout.data} data. plan.json has the estimates and reasons.",
    )


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
