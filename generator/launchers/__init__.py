"""The files that start the job on a cluster: one module per target, behind one table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..frameworks.program import Program, RenderedFile
from ..search.plan import Plan
from . import azureml, kubernetes, shell, skypilot, slurm
from .call import arguments_file
from .launcher import Launcher

DEFAULT_COMMAND: Final = "dsgen generate"

_MODULES: Final = (slurm, azureml, shell, kubernetes, skypilot)
LAUNCHERS: Final[Mapping[str, Launcher]] = {module.LAUNCHER.name: module.LAUNCHER for module in _MODULES}


def launch_files(plan: Plan, program: Program, command: str = DEFAULT_COMMAND) -> tuple[RenderedFile, ...]:
    """The target's launch files and `arguments.txt`. `command` is named in the headers as what made them."""
    return (*LAUNCHERS[plan.job.launch.target].files(plan, program, command), arguments_file(plan, program, command))
