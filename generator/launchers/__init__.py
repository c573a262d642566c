"""The files that start the job on a cluster: one module per target, behind one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..frameworks.program import Program, RenderedFile
from ..search.plan import Plan
from . import azureml, shell, slurm
from .call import arguments_file

DEFAULT_COMMAND = "dsgen generate"

LAUNCHERS: Mapping[str, Callable[[Plan, Program, str], tuple[RenderedFile, ...]]] = {
    "slurm": slurm.launch_files,
    "azureml": azureml.launch_files,
    "shell": shell.launch_files,
}


def launch_files(plan: Plan, program: Program, command: str = DEFAULT_COMMAND) -> tuple[RenderedFile, ...]:
    """The target's launch files and `arguments.txt`. `command` is named in the headers as what made them."""
    return (*LAUNCHERS[plan.job.launch.target](plan, program, command), arguments_file(plan, program, command))
