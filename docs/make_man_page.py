"""Write man/dsgen.1, the manual page, from the help of the commands.

Run with `python -m docs.make_man_page`. The page is installed with the program, as `man dsgen`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from dsgen.cli import commands

from .command_page import OUTCOMES

PAGE = Path(__file__).parent.parent / "man" / "dsgen.1"
_FILES = (
    ("dsgen.yaml", "The job spec that is read where none is named."),
    ("plan.json", "The plan that is written with the files of a job."),
)


def page() -> str:
    """The page, as groff and mandoc read it."""
    context = click.Context(commands, info_name="dsgen")
    lines = [
        '.\\" Written by `python -m docs.make_man_page`; do not edit.',
        '.TH DSGEN 1 "" "dsgen" "User Commands"',
        ".SH NAME",
        "dsgen \\- " + _text("plan, check and write the files of a large training run"),
        ".SH SYNOPSIS",
        ".B dsgen",
        _text("[COMMAND] [OPTION]... [ARGUMENT]..."),
        ".SH DESCRIPTION",
        *_paragraphs(commands.help or ""),
        ".SH COMMANDS",
    ]
    for name in commands.list_commands(context):
        command = commands.get_command(context, name)
        if command is not None and not command.hidden:
            lines += _command(command, click.Context(command, info_name=name, parent=context))
    lines += [
        ".SH EXIT STATUS",
        *_listed((str(int(status)), meaning) for status, meaning in OUTCOMES.items()),
        ".SH FILES",
        *_listed(_FILES),
    ]
    return "\n".join(lines) + "\n"


def write() -> None:
    """Write the page."""
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")


def _command(command: click.Command, context: click.Context) -> Iterator[str]:
    yield (
        ".SS "
        f"{_text(f'dsgen {context.info_name} ' + ' '.join(command.collect_usage_pieces(context)))}"
    )
    yield from _paragraphs(command.help or "")
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and record[1] and "--help" not in record[0]:
            yield from (".TP", f"\\fB{_text(record[0])}\\fR", _text(record[1]))


def _listed(items: Iterable[tuple[str, str]]) -> Iterator[str]:
    for name, meaning in items:
        yield from (".TP", f"\\fB{_text(name)}\\fR", _text(meaning))


def _paragraphs(text: str) -> Iterator[str]:
    """Paragraphs of a help text; after `\\b` lines stay as they are."""
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        lines = [line.strip() for line in paragraph.splitlines()]
        yield ".PP"
        if lines[0] == "\b":
            yield from (".nf", *map(_text, lines[1:]), ".fi")
        else:
            yield _text(" ".join(lines))


def _text(text: str) -> str:
    """Text as roff has it: no backslash, hyphen or leading dot that means something else."""
    text = re.sub(r"\s+", " ", text).strip().replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text


if __name__ == "__main__":
    write()
