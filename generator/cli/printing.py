"""What commands print: plain text, colours, JSON, CSV, the progress line; and exit statuses."""

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
from ..patterns import lazy_pattern
from .streams import READER_GONE, redraw

#: Colours of a terminal's palette of 256, of medium brightness so that they are readable on white
#: and on black. None is among the first 16, which a terminal's theme may change.
RED: Final = 160
ORANGE: Final = 130
GREEN: Final = 28
TEAL: Final = 30
BLUE: Final = 32
PURPLE: Final = 133
OLIVE: Final = 100
GREY: Final = 244
PALETTE: Final = frozenset({RED, ORANGE, GREEN, TEAL, BLUE, PURPLE, OLIVE, GREY})

#: How often the progress line is drawn.
_REDRAW_INTERVAL_S: Final = 1.0

#: Names that the message about an unknown name lists, at most.
_MOST_OFFERED = 12


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print plain text; control characters are escaped, but for line ends and tabs."""
    click.echo(printable(text, keep="\n\t"), err=err, nl=nl)


def echo_styled(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print text that is escaped already; colours are removed where the output isn't a terminal."""
    click.echo(text, err=err, nl=nl)


def echo_diff(text: str, *, err: bool = False) -> None:
    """Print a diff of files; line ends stay as they are."""
    # A carriage return elsewhere is escaped.
    lines = (printable(part, keep="\n\t") for part in text.split("\r\n"))
    click.echo("\r\n".join(lines), err=err, nl=False)


def json_text(document: object) -> str:
    """`document` as indented JSON; control characters in it are escaped as JSON escapes them."""

    def escaped(match: re.Match[str]) -> str:
        character = match[0]
        return character if character == "\n" else json.dumps(character)[1:-1]

    return HIDDEN.sub(escaped, json.dumps(document, indent=2, ensure_ascii=False))


def print_csv(rows: Sequence[Mapping[str, object]]) -> None:
    """Print rows as CSV, with a first line of column names; a row may lack columns."""
    names = dict.fromkeys(name for row in rows for name in row)
    cells = ([row.get(name, "") for name in names] for row in rows)
    echo_styled(csv_text([[*names], *cells]).removesuffix("\n"))


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Rows of cells as CSV, in which a spreadsheet takes no cell for a formula."""
    import csv  # here, to save start-up time
    import io

    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(map(_cell, row) for row in rows)
    return text.getvalue()


#: The beginning of what a spreadsheet takes for a formula; blanks may come first.
#: **Source**: OWASP, CSV Injection.
_FORMULA: Final = lazy_pattern(r"[\s\x00-\x1f]*[=+\-@＝＋－＠|%\t\r\n]")
_PLAIN_NUMBER: Final = lazy_pattern(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def _cell(value: object) -> object:
    """A value as a cell; an apostrophe is put in front of text that may be read as a formula."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    text = str(value)
    shown = printable(text, keep="\n\t")
    may_be_formula = _FORMULA.match(text) and not _PLAIN_NUMBER.fullmatch(text)
    return f"'{shown}" if may_be_formula else shown


def print_json(document: object) -> None:
    """Print one JSON document, and nothing else."""
    click.echo(json_text(document))


#: The key under which click's root context holds the output format of the running command.
FORM: Final = "dsgen.form"


def form_asked() -> str:
    """The output format (`--format`) of the running command; empty where it has only one."""
    context = click.get_current_context(silent=True)
    return str(context.find_root().meta.get(FORM, "")) if context else ""


def style(colour: int | None = None, *, bold: bool = False) -> str:
    """The parameters of the control sequence that sets a style (ECMA-48, SGR)."""
    parameters = ["1"] if bold else []
    if colour is not None:
        parameters.append(f"38;5;{colour}")
    return ";".join(parameters)


#: The style of explanations: legends, conventions, counts.
ASIDE: Final = style(GREY)
BAD: Final = style(RED, bold=True)
BOLD: Final = style(bold=True)


def colour_allowed() -> bool:
    """Whether text may be coloured: not with NO_COLOR (https://no-color.org) or TERM=dumb."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


@contextmanager
def working(task: str, form: str = "text") -> Iterator[Callable[[str], None]]:
    """Show a progress line while the body runs: the task, its latest report, the seconds so far.

    The body reports by the callback that it gets, and prints nothing itself. The line is on
    standard error, and only where both streams are terminals and the output format is for people.
    """
    are_terminals = sys.stdout.isatty() and sys.stderr.isatty()
    if form not in ("text", "table") or not are_terminals:
        yield lambda _: None
        return
    reports, start, done = [""], time.monotonic(), Event()

    def show() -> None:
        """Draw the line every second, the first time after one second, and clear it at the end."""
        width = 0
        while not done.wait(_REDRAW_INTERVAL_S):
            parts = (task, reports[-1], f"{time.monotonic() - start:.0f} s")
            # Python 3.10 returns 0 columns where the terminal doesn't report its size.
            columns = shutil.get_terminal_size().columns or 80
            text = printable(", ".join(filter(None, parts)))[: columns - 1]
            # Blanks cover the rest of a longer line.
            redraw(f"{text:<{width}}")
            width = len(text)
        if width:
            redraw(" " * width)
            redraw("")

    thread = Thread(target=show, daemon=True)
    thread.start()
    try:
        yield reports.append
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
    FAULT = 5  #: a rule or reader of dsgen itself failed, whatever else the command found
    READER_GONE = READER_GONE  #: the program that reads the output has ended, as `head` does


def unknown(kind: str, name: str, choices: Iterable[str]) -> NoReturn:
    """Refuse `name` as a usage error, with the closest of the choices, or with several of them."""
    import difflib  # here, to save start-up time

    by_lower_case = {choice.lower(): choice for choice in choices}
    closest = difflib.get_close_matches(name.lower(), by_lower_case, n=1, cutoff=0.4)
    containing_name = [
        choice for lower, choice in by_lower_case.items() if len(name) > 2 and name.lower() in lower
    ]
    if closest and len(containing_name) < 2:
        meant = by_lower_case[closest[0]]
        raise click.UsageError(f"unknown {kind} {name!r}; did you mean {meant!r}?")

    # Where several choices contain the name, it is likely a part of the one that was meant.
    offered = containing_name or [*by_lower_case.values()]
    more = f" and {len(offered) - _MOST_OFFERED} more" if len(offered) > _MOST_OFFERED else ""
    hint = f"one of {', '.join(offered[:_MOST_OFFERED])}{more}"
    raise click.UsageError(f"unknown {kind} {name!r}; {hint}")
