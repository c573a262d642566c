"""All that is printed: JSON, text and tables. Here alone, characters that act on a terminal become escapes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from ..findings import HIDDEN, printable
from ..secrets import mask

PLAIN_WIDTH = 120  #: columns, when the output is not a terminal


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print text that has no colours: lines and tabs as they are, escapes for what else acts on a terminal."""
    click.echo(printable(text, keep="\n\t"), err=err, nl=nl)


def echo_diff(text: str, *, err: bool = False) -> None:
    """Print a diff of files; line ends stay as they are."""
    click.echo("\r\n".join(printable(part, keep="\n\t") for part in text.split("\r\n")), err=err, nl=False)


def json_text(document: object) -> str:
    """`document` as indented JSON, exact to who reads it, and safe to show."""
    text = json.dumps(document, indent=2, ensure_ascii=False)
    return HIDDEN.sub(lambda match: match[0] if match[0] == "\n" else json.dumps(match[0])[1:-1], text)


def print_json(document: object) -> None:
    """One JSON document, and nothing else."""
    click.echo(json_text(document))


def print_parts(*parts: object) -> None:
    """Text and tables, as wide as the terminal; plain and of one width when piped."""
    from rich.console import Console  # here, to save start-up time
    from rich.segment import Segment, Segments
    from rich.text import Text

    from .tables import Prose

    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else PLAIN_WIDTH
    target = Console(highlight=False, width=width)

    def safe(part: Any) -> Segments:
        shown = Prose(part) if isinstance(part, str | Text) else part
        return Segments([Segment(printable(text, keep="\n"), style) for text, style, _ in target.render(shown)])

    with target.capture() as capture:
        for part in parts:
            target.print(safe(part), crop=False, end="")
    for line in capture.get().splitlines():
        click.echo(line.rstrip())


@contextmanager
def shown_errors() -> Iterator[None]:
    """Usage errors raised in here quote the command line with escapes, and without its secrets."""
    try:
        yield
    except click.ClickException as problem:
        problem.message = printable(mask(problem.message), keep="\n")  # type: ignore[misc]  # final to subclasses
        raise
