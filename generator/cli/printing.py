"""Printed text with its colours and escapes, the progress line, and how commands end."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import IntEnum
from threading import Event, Thread
from typing import Final, NoReturn

import click

from ..findings import HIDDEN, printable
from .streams import READER_GONE, redraw

#: Numbers of the 256 fixed colours, of medium brightness; the first 16 are whatever a terminal's
#: theme makes of them.
RED: Final = 160
ORANGE: Final = 130
GREEN: Final = 28
TEAL: Final = 30
BLUE: Final = 32
PURPLE: Final = 133
OLIVE: Final = 100
GREY: Final = 244
PALETTE: Final = frozenset({RED, ORANGE, GREEN, TEAL, BLUE, PURPLE, OLIVE, GREY})
_EVERY_S: Final = 1.0
_MOST_OFFERED = 12  # names in a hint


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print plain text; what acts on a terminal is escaped, but for lines and tabs."""
    click.echo(printable(text, keep="\n\t"), err=err, nl=nl)


def echo_styled(text: str, *, err: bool = False) -> None:
    """Print text that is escaped already; colours reach terminals alone."""
    click.echo(text, err=err)


def echo_diff(text: str, *, err: bool = False) -> None:
    """Print a diff of files; line ends stay as they are."""
    click.echo(
        "\r\n".join(printable(part, keep="\n\t") for part in text.split("\r\n")), err=err, nl=False
    )


def json_text(document: object) -> str:
    """`document` as indented JSON, exact to who reads it, and safe to show."""
    text = json.dumps(document, indent=2, ensure_ascii=False)
    return HIDDEN.sub(
        lambda match: match[0] if match[0] == "\n" else json.dumps(match[0])[1:-1], text
    )


def print_csv(rows: Sequence[Mapping[str, object]]) -> None:
    """A line per row, with the names of all their values in the first."""
    names = dict.fromkeys(name for row in rows for name in row)
    cells = ([row.get(name, "") for name in names] for row in rows)
    echo_styled(csv_text([[*names], *cells]).removesuffix("\n"))


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Rows of cells as CSV, of which no cell is a formula to a spreadsheet."""
    import csv  # here, to save start-up time
    import io

    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(map(_cell, row) for row in rows)
    return text.getvalue()


#: What a spreadsheet takes for a formula, or passes over before one.
#: **Source**: OWASP, CSV Injection.
_FORMULA: Final = re.compile(r"[\s\x00-\x1f]*[=+\-@＝＋－＠|%\t\r\n]")
_PLAIN_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def _cell(value: object) -> object:
    """A value as a cell: numbers stay, and text that may be a formula begins with an apostrophe."""
    if not isinstance(value, str):
        value = value if value is None or isinstance(value, (bool, int, float)) else str(value)
    if not isinstance(value, str):
        return value
    shown = printable(value, keep="\n\t")
    risky = _FORMULA.match(value) and not _PLAIN_NUMBER.fullmatch(value)
    return f"'{shown}" if risky else shown


def print_json(document: object) -> None:
    """Print one JSON document, and nothing else."""
    click.echo(json_text(document))


#: In the context of the whole command: the form of its answer.
FORM: Final = "dsgen.form"


def form_asked() -> str:
    """The form of the answer that the running command gives; empty where it has one alone."""
    context = click.get_current_context(silent=True)
    return str(context.find_root().meta.get(FORM, "")) if context else ""


def style(colour: int | None = None, *, bold: bool = False) -> str:
    """The parameters of the control sequence that sets a style (ECMA-48, SGR)."""
    return ";".join((*(["1"] if bold else []), *([f"38;5;{colour}"] if colour is not None else [])))


#: What explains something else: legends, conventions, counts.
ASIDE: Final = style(GREY)
BAD: Final = style(RED, bold=True)
BOLD: Final = style(bold=True)


def wanted() -> bool:
    """Whether text may be coloured: not with NO_COLOR (https://no-color.org) or TERM=dumb."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


@contextmanager
def working(what: str, form: str = "text") -> Iterator[Callable[[str], None]]:
    """Show that `what` is running, how long, and what its callback says; print nothing inside.

    On standard error, and only where both streams are a terminal and the form is for people.
    """
    if form not in ("text", "table") or not (sys.stdout.isatty() and sys.stderr.isatty()):
        yield lambda _: None
        return
    told, since, done = [""], time.monotonic(), Event()

    def show() -> None:
        """Draw the line again every second, from the first second on, and wipe it at the end."""
        width = 0
        while not done.wait(_EVERY_S):
            parts = (what, told[-1], f"{time.monotonic() - since:.0f} s")
            # Python 3.10 says 0 where the terminal doesn't know
            columns = shutil.get_terminal_size().columns or 80
            text = printable(", ".join(filter(None, parts)))[: columns - 1]
            redraw(f"{text:<{width}}")
            width = len(text)
        if width:
            redraw(" " * width)
            redraw("")

    thread = Thread(target=show, daemon=True)
    thread.start()
    try:
        yield told.append
    finally:
        done.set()
        thread.join()


class ExitStatus(IntEnum):
    """One number per outcome, so that a pipeline can distinguish them."""

    OK = 0
    FINDINGS = 1  #: the job has errors, or its files can't be written
    USAGE = 2  #: the command line is wrong
    INFEASIBLE = 3  #: no layout passes every rule and fits
    WOULD_OVERWRITE = 4  #: files exist with other contents, and --force was not given
    FAULT = 5  #: a rule or reader of dsgen failed, whatever else came of the command
    READER_GONE = READER_GONE  #: what reads the output has ended, as `head` does


def unknown(kind: str, name: str, known: Iterable[str]) -> NoReturn:
    """Refuse `name` as a usage error, with the closest match when there is one."""
    import difflib  # here, to save start-up time

    choices = {choice.lower(): choice for choice in known}
    holding = [choice for low, choice in choices.items() if len(name) > 2 and name.lower() in low]
    matches = difflib.get_close_matches(name.lower(), choices, n=1, cutoff=0.4)
    if matches and len(holding) < 2:
        raise click.UsageError(f"unknown {kind} {name!r}; did you mean {choices[matches[0]]!r}?")
    offered = holding or [*choices.values()]
    more = f" and {len(offered) - _MOST_OFFERED} more" if len(offered) > _MOST_OFFERED else ""
    hint = f"one of {', '.join(offered[:_MOST_OFFERED])}{more}"
    raise click.UsageError(f"unknown {kind} {name!r}; {hint}")
