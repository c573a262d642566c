"""`Launcher`: what starts a job, as the files it reads and what the user has to do."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..frameworks.program import Program, RenderedFile
from ..job.records import Launch
from ..search.plan import Plan


def from_the_scripts_folder(launch: Launch, _: Path) -> str:
    """Where the job is started when its processes run in the current folder."""
    return f"Start the job from the folder that holds {launch.script}:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduler:
    """The program that takes the job, as the words of its commands: `{file}` is the launch file, `{name}` the job's."""

    submit: tuple[str, ...]
    trial: tuple[str, ...] | None  #: asks whether the job would be taken, and starts nothing; None where that can't be
    #: Of what `submit` prints; its group is the job's id. None: the command runs the job itself, until it ends.
    identity: str | None
    watch: tuple[str, ...] = ()  #: commands for the job `{id}` of `{file}`


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """One target of `launch.target`."""

    name: str  #: as in a job spec
    keys: frozenset[str]  #: of the spec's `launch.<name>`
    files: Callable[[Plan, Program, str], tuple[RenderedFile, ...]]  #: of a plan; the text is the command behind it
    start: str  #: the command that starts the job; `{}` is the folder of its files
    file: str  #: that the scheduler is given
    scheduler: Scheduler
    in_folder: bool = True  #: whether the job runs in the folder that it is started from, which holds the script
    before: Callable[[Launch, Path], str] = from_the_scripts_folder  #: what to do first, said above that command

    def command(self, folder: Path) -> str:
        """The command that starts the job whose files are in `folder`."""
        name = str(folder)
        return self.start.format(shlex.quote(f"./{name}" if name.startswith("-") else name))
