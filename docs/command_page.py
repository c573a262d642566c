"""The command line as Markdown: what `--help` says, with a table of the options of each command."""

from __future__ import annotations

from collections.abc import Iterator

import click

from dsgen.cli import commands
from dsgen.cli.printing import ExitStatus

from .markdown import code, prose, table

OUTCOMES = {
    ExitStatus.OK: "done; of `validate`: no findings of the severity of `--fail-on` or worse",
    ExitStatus.FINDINGS: "the job or the files have errors, or files can't be written",
    ExitStatus.USAGE: "the command line is wrong",
    ExitStatus.INFEASIBLE: "no layout passes every rule and fits; what would is printed",
    ExitStatus.WOULD_OVERWRITE: "files exist with other contents, and `--force` was not given",
    ExitStatus.FAULT: "a rule or a reader of dsgen failed, which is a fault to report; all "
    "else is answered. It "
    "comes before every other status",
    ExitStatus.READER_GONE: "nothing reads the pipe any more, as after `| head -1`; files are "
    "written all the same. Every other status but 0 comes before it",
}


def command_sections() -> Iterator[str]:
    """A section for each command, and one for the exit statuses."""
    yield from table(("command", "does"), _overview())
    for name, command in commands.commands.items():
        yield from ("", f"## {name}", "", *_command(name, command))
    yield from ("", "## Exit statuses", "")
    yield from table(
        ("status", "meaning"), ((str(int(status)), OUTCOMES[status]) for status in ExitStatus)
    )


def _overview() -> Iterator[tuple[str, str]]:
    for name, command in commands.commands.items():
        yield f"[`dsgen {name}`](#{name})", prose(command.get_short_help_str(limit=200))


def _command(name: str, command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=name)
    usage = " ".join(("dsgen", name, *command.collect_usage_pieces(context)))
    yield from ("```text", usage, "```", "")
    for paragraph in (command.help or "").split("\f")[0].split("\n\n"):
        yield from (prose(paragraph), "")
    yield from table(("option", "meaning"), _options(command, context))


def _options(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    for parameter in command.params:  # --help isn't among them
        names, text = parameter.get_help_record(context) or ("", "")
        if text:
            yield code(names), prose(text)
