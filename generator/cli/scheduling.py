"""A job's files and its scheduler: what is asked, called and read back. The only place that starts other programs."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import click

from ..dataclass import dataclass
from .exits import ExitStatus

if TYPE_CHECKING:
    from ..programs.launcher import Launcher

_POLL_S: Final = 5
_TRIES: Final = 3  #: a busy scheduler may not answer; one that has forgotten the job never does


@dataclass(frozen=True, slots=True, kw_only=True)
class Handed:
    """What a scheduler made of a job."""

    said: str  #: as it printed it
    identity: str | None  #: None where it only was asked, or has run the job

    def watch(self, launcher: Launcher, file: Path) -> list[str]:
        """Commands that show how the job goes on."""
        import shlex  # here, to save start-up time

        if self.identity is None:
            return []
        names = {"id": shlex.quote(self.identity), "file": shlex.quote(str(file))}
        return [line.format(**names) for line in launcher.scheduler.watch]


def command_of(launcher: Launcher, file: Path, name: str, *, dry_run: bool) -> list[str]:
    """The words that submit a file, or ask about it. A relative path begins with a dot, and so is no option.

    Where nothing can be asked, the program ends.
    """
    check_dry_run(launcher, file.parent, dry_run=dry_run)
    command = (launcher.scheduler.trial if dry_run else launcher.scheduler.submit) or ()
    path = str(file) if file.is_absolute() else f"./{file}"
    return [*(word.format(file=path, name=name) for word in command), *launcher.more(file)]


def check_dry_run(launcher: Launcher, folder: Path | str, *, dry_run: bool) -> None:
    """End the program where nothing can be asked."""
    if dry_run and launcher.scheduler.trial is None:
        refuse(f"{launcher.name} has no dry run", f"write the files and check them: dsgen validate {folder}")


def ask_first() -> None:
    """Go on where the user says yes."""
    if not sys.stdin.isatty():
        raise click.UsageError("there is no terminal to ask: give --yes to submit, or --dry-run")
    if not click.confirm("Submit?", err=True):
        raise click.exceptions.Exit(ExitStatus.FINDINGS)


def hand_over(launcher: Launcher, words: Sequence[str], *, dry_run: bool) -> Handed:
    """Call the scheduler. One that runs the job itself prints by itself, until the job ends."""
    pattern = None if dry_run else launcher.scheduler.identity
    said = run(words, prints=pattern is None and not dry_run)
    found = re.search(pattern, said, re.MULTILINE) if pattern else None
    if pattern and found is None:
        refuse(f"{words[0]} named no job: {said.strip()!r}", "look whether the job was submitted")
    return Handed(said=said, identity=found[1] if found else None)


def run(words: Sequence[str], *, prints: bool = False) -> str:
    """What a program prints; nothing where it `prints` by itself. A failure is reported and ends the program."""
    import subprocess  # here, to save start-up time

    from .printing import echo

    try:
        done = subprocess.run(
            words, stdout=None if prints else subprocess.PIPE, text=True, errors="replace", check=False
        )
    except OSError as problem:
        reason = problem.strerror or str(problem)
        refuse(f"{words[0]} cannot be run: {reason}", "use a machine that has the scheduler's commands")
    if done.returncode:
        if done.stdout:
            echo(done.stdout.rstrip(), err=True)
        refuse(f"{words[0]} ended with status {done.returncode}", None)
    return done.stdout or ""


def wait_for(launcher: Launcher, identity: str) -> None:
    """Return when a job has ended, or when its scheduler has not known it several times in a row."""
    import subprocess  # here, to save start-up time

    words = [word.format(id=identity) for word in launcher.scheduler.state]
    unknown = 0
    while unknown < _TRIES:
        try:
            done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
        except OSError as problem:
            refuse(f"{words[0]} cannot be run: {problem.strerror}", "read the logs with --read when the job has ended")
        if done.returncode == 0 and not re.search(launcher.scheduler.unfinished, done.stdout):
            return
        unknown = 0 if done.returncode == 0 else unknown + 1
        time.sleep(_POLL_S)


def refuse(message: str, hint: str | None) -> NoReturn:
    """Report an error of the job's files or its scheduler, and end the program."""
    from .printing import echo  # here, to save start-up time

    echo(f"dsgen: error: {message}", err=True)
    if hint:
        echo(f"hint: {hint}", err=True)
    raise click.exceptions.Exit(ExitStatus.FINDINGS)
