"""The files that start the job on a cluster: one module per target, behind one table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..search.plan import Plan
from .azureml import write as azureml
from .kubernetes import write as kubernetes
from .launcher import Launcher
from .launching.call import arguments_file
from .program import Program, RenderedFile
from .shell import write as shell
from .skypilot import write as skypilot
from .slurm import write as slurm

DEFAULT_COMMAND: Final = "dsgen generate"

_MODULES: Final = (slurm, azureml, shell, kubernetes, skypilot)
LAUNCHERS: Final[Mapping[str, Launcher]] = {module.LAUNCHER.name: module.LAUNCHER for module in _MODULES}


def launch_files(plan: Plan, program: Program, command: str = DEFAULT_COMMAND) -> tuple[RenderedFile, ...]:
    """The target's launch files and `arguments.txt`. `command` is named in the headers as what made them."""
    return (*LAUNCHERS[plan.job.launch.target].files(plan, program, command), arguments_file(plan, program, command))
