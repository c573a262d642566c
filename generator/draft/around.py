"""Name what the plan's launch files have around the training program, and the original has not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..programs.frameworks import program_for
from ..programs.launchers import DEFAULT_COMMAND, launch_files
from ..programs.slurm.request import Request
from ..search import Plan
from .draft import Draft

#: Variables by which accelerate's own launcher says the same to its processes.
_OF_ACCELERATE: Final = ("ACCELERATE_", "FSDP_")


def added_around(draft: Draft, plan: Plan) -> Iterator[str]:
    """Variables, the launcher, and options of sbatch that are new."""
    found, program = draft.found, program_for(plan)
    if found.launch is not None and found.launch.front_end:
        return  # its own launch stays
    set_before = {*plan.job.launch.environment}
    for script in found.submission.scripts:
        set_before |= {assignment.name for assignment in script.shell.assignments}
    by_accelerate = found.launch is not None and found.launch.call("accelerate") is not None
    for name, value in program.environment.items():
        if name not in set_before and not (by_accelerate and name.startswith(_OF_ACCELERATE)):
            yield f"{name}={value}"
    if by_accelerate:
        yield "torchrun, in place of accelerate launch"
    yield from _added_to_sbatch(draft, plan)


def _added_to_sbatch(draft: Draft, plan: Plan) -> Iterator[str]:
    """The options of sbatch that the launch file has, and the script that was read has not."""
    scripts = (each for each in draft.found.submission.scripts if each.directives.entries)
    script = next(scripts, None)
    if script is None:
        return
    before = Request(shell=script.shell, options=script.directives, program="sbatch", block=script)
    for file in launch_files(plan, program_for(plan), DEFAULT_COMMAND):
        for line in file.text.splitlines():
            if line.startswith("#SBATCH --"):
                name = line.split()[1].partition("=")[0]
                if not before.has(name):
                    yield line
