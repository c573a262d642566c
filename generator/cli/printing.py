"""Results to standard output: JSON, text and tables. Loads rich, so commands import it when they run."""

from __future__ import annotations

import json
import os
import sys

import click
from rich.console import Console, RenderableType
from rich.table import Column, Table

PLAIN_WIDTH = 120  #: columns, when the output is not a terminal


def print_json(document: object) -> None:
    """One JSON document, and nothing else."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def print_parts(*parts: RenderableType) -> None:
    """Text and tables, as wide as the terminal; plain and of one width when piped."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else PLAIN_WIDTH
    target = Console(highlight=False, width=width)
    with target.capture() as capture:
        for part in parts:
            target.print(part, markup=False)
    for line in capture.get().splitlines():
        click.echo(line.rstrip())


def headed(*columns: Column | str) -> Table:
    """A table without lines, its header in bold."""
    return Table(*columns, box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))


def grid(*columns: Column | str) -> Table:
    """A table without lines and header."""
    return Table.grid(*columns, padding=(0, 2))


def whole(heading: str = "") -> Column:
    """A column of names, which are not broken into lines."""
    return Column(heading, no_wrap=True)


def numbers(heading: str = "") -> Column:
    """A column that is aligned to the right."""
    return Column(heading, justify="right", no_wrap=True)


def labels() -> Column:
    """The first column of a plan's summary."""
    return Column(style="bold", no_wrap=True, min_width=6)
