"""The launchers: one for each `launch.target`, which writes the files that start the job there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..job.schema import launch_targets
from ..search.plan import Plan
from ..submission.record import OnDemand
from .launching.write import arguments_file, overrides_file
from .program import Launcher, Program, RenderedFile
from .records import PROGRAMS

DEFAULT_COMMAND: Final = "dsgen generate"

#: The targets that the schema of job specs lists, each with the folder of its name.
_PLACES: Final = {record.name: record.launcher for record in PROGRAMS}
LAUNCHERS: Final[Mapping[str, Launcher]] = OnDemand(
    {name: _PLACES[name] for name in launch_targets()}
)


def launch_files(
    plan: Plan, program: Program, command: str = DEFAULT_COMMAND
) -> tuple[RenderedFile, ...]:
    """The target's launch files and `arguments.txt`, and `overrides.txt` where they read it.

    `command` is named in the headers as what made them.
    """
    launcher = LAUNCHERS[plan.job.launch.target]
    listed = program.lists and launcher.reads_overrides
    return (
        *launcher.files(plan, program, command),
        *((overrides_file(plan, program, command, launcher.file),) if listed else ()),
        arguments_file(plan, program, command, launcher.file),
    )
