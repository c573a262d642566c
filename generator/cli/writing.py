"""Files onto the disk, with the refusals that every command words alike."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from .status import ExitStatus

if TYPE_CHECKING:
    from ..frameworks.program import RenderedFile
    from ..write import CannotWrite, Change, WouldOverwrite

# Imports within functions save start-up time.


def write_files(files: tuple[RenderedFile, ...], folder: Path, *, force: bool, hint: str) -> tuple[Change, ...]:
    """Write all or nothing. What is in the way is printed, with `hint` for what to do, and ends the program."""
    from ..write import CannotWrite, WouldOverwrite, write

    try:
        return write(files, folder, force=force)
    except WouldOverwrite as conflict:
        _refuse(conflict, hint)
    except CannotWrite as problem:
        refuse_unwritable(problem)


def _refuse(conflict: WouldOverwrite, hint: str) -> NoReturn:
    for change in conflict.changes:
        click.echo(f"{change.path}: error: the file is there with other contents", err=True)
    click.echo(f"hint: {hint}; nothing was written", err=True)
    raise click.exceptions.Exit(ExitStatus.WOULD_OVERWRITE)


def refuse_unwritable(problem: CannotWrite, hint: str = "name a folder that you may write to with -o") -> NoReturn:
    """Say what the file system refuses, with `hint` for what to do, and exit with `ExitStatus.FINDINGS`."""
    click.echo(f"{problem.path}: error: cannot be written: {problem.reason}; nothing was written", err=True)
    click.echo(f"hint: {hint}", err=True)
    raise click.exceptions.Exit(ExitStatus.FINDINGS)
