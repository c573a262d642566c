"""Results to standard output: JSON, or text and tables."""

from __future__ import annotations

import json
import os
import sys

import click

PLAIN_WIDTH = 120  #: columns, when the output is not a terminal


def print_json(document: object) -> None:
    """One JSON document, and nothing else."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def print_parts(*parts: object) -> None:
    """Text and tables, as wide as the terminal; plain and of one width when piped."""
    from rich.console import Console  # here, to save start-up time

    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else PLAIN_WIDTH
    target = Console(highlight=False, width=width)
    with target.capture() as capture:
        for part in parts:
            target.print(part, markup=False)
    for line in capture.get().splitlines():
        click.echo(line.rstrip())
