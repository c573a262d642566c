"""Files onto the disk, and the errors when that is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import click

from ..programs.program import RenderedFile
from ..write import CannotWrite, Change, WouldOverwrite, compare, diff, leftovers, write
from .exits import ExitStatus
from .printing import echo, echo_diff

#: What became of a file.
ACTIONS = {"create": "written", "identical": "unchanged", "conflict": "overwritten"}
OVERWRITE = "use --force to overwrite, or -o for another folder"


def write_files(files: Sequence[RenderedFile], folder: Path, *, force: bool, hint: str) -> tuple[Change, ...]:
    """Write all or nothing. Files that are in the way are printed, with `hint`, and end the program."""
    try:
        return write(files, folder, force=force, tell=tell)
    except WouldOverwrite as conflict:
        for change in conflict.changes:
            echo(f"{change.path}: error: file exists with other contents", err=True)
        echo(f"hint: {hint}; nothing was written", err=True)
        raise click.exceptions.Exit(ExitStatus.WOULD_OVERWRITE) from None
    except CannotWrite as problem:
        refuse_unwritable(problem)


def print_diff(files: Sequence[RenderedFile], folder: Path) -> None:
    """Show what writing would change."""
    try:
        text = diff(compare(files, folder))
    except CannotWrite as problem:
        refuse_unwritable(problem)
    echo_diff(text)
    for path in leftovers(folder):
        tell(f"{path}: note: an interrupted run left this; the next run that writes there finishes or undoes it")
    echo("nothing was written" if text else f"{folder} is up to date", err=True)


def tell(line: str) -> None:
    """Say what became of files that an interrupted run left."""
    echo(line, err=True)


def refuse_unwritable(problem: CannotWrite, hint: str = "choose a writable folder with -o") -> NoReturn:
    """Report what the file system refuses, with the problem's own hint or `hint`; exit with `ExitStatus.FINDINGS`."""
    outcome = "nothing was written"
    if problem.unfinished:
        outcome = f"old and new files may be mixed, and the old ones are in {problem.unfinished}"
    hint = "run the command again: it puts the old files back first" if problem.unfinished else problem.hint or hint
    echo(f"{problem.path}: error: cannot be written: {problem.reason}; {outcome}", err=True)
    echo(f"hint: {hint}", err=True)
    raise click.exceptions.Exit(ExitStatus.FINDINGS)
