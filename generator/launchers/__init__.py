"""The files that start the job on a cluster: one module per target, behind one table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..frameworks.program import Program, RenderedFile
from ..search.plan import Plan
from . import azureml, shell, slurm
from .call import arguments_file
from .launcher import Launcher

DEFAULT_COMMAND: Final = "dsgen generate"

_ALL: Final[tuple[Launcher, ...]] = (slurm.LAUNCHER, azureml.LAUNCHER, shell.LAUNCHER)
LAUNCHERS: Final[Mapping[str, Launcher]] = {launcher.name: launcher for launcher in _ALL}


def launch_files(plan: Plan, program: Program, command: str = DEFAULT_COMMAND) -> tuple[RenderedFile, ...]:
    """The target's launch files and `arguments.txt`. `command` is named in the headers as what made them."""
    launcher = LAUNCHERS[plan.job.launch.target]
    return (*launcher.files(plan, program, command), arguments_file(plan, program, command))
