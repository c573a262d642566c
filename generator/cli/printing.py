"""Results to standard output, in the form asked for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NoReturn

import click

from .status import ExitStatus

if TYPE_CHECKING:
    from ..search.plan import Infeasible

# Imports within functions save start-up time.


def print_json(document: object) -> None:
    """One JSON document, and nothing else."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def print_parts(*parts: object) -> None:
    """Text and tables, as wide as the terminal."""
    from .summary import console

    target = console()
    with target.capture() as capture:
        for part in parts:
            target.print(part, markup=False)
    for line in capture.get().splitlines():
        click.echo(line.rstrip())


def print_obstacle(answer: Infeasible, form: str) -> NoReturn:
    """Say why nothing fits and what would, and exit with `ExitStatus.INFEASIBLE`."""
    if form == "json":
        print_json(answer.to_dict())
    else:
        from .answers import obstacle

        print_parts(obstacle(answer))
    raise click.exceptions.Exit(ExitStatus.INFEASIBLE)
