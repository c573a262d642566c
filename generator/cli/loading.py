"""From the command line's request to a checked job: the spec is found, read and checked, and its findings printed."""

from __future__ import annotations

import difflib
import io
import sys
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

import click

from .findings_text import print_findings
from .options import Request
from .status import ExitStatus

if TYPE_CHECKING:
    from ..findings import Finding
    from ..job.records import Job

# Imports within functions save start-up time.

DEFAULT_SPEC = "dsgen.yaml"  #: what is read in the working directory when no SPEC is given
_COMMANDS = ("calibrate", "catalog", "estimate", "generate", "plan", "rules", "schema", "validate")


class _BuiltIn(io.StringIO):
    """The built-in job as a stream, under a name that a reader understands."""

    name = "<built-in job>"


def load(request: Request, *, check_pins: bool = True) -> tuple[Job, tuple[Finding, ...]]:
    """The job asked for, with its warnings, which are printed. Errors are printed too and end the program."""
    from .. import InvalidJob, check_job

    try:
        job, findings = check_job(_source(request), overrides=request.overrides, check_pins=check_pins)
    except InvalidJob as invalid:
        stop(invalid.findings)
    print_findings(findings)
    return job, findings


def stop(findings: Iterable[Finding]) -> NoReturn:
    """Print findings to stderr and exit with `ExitStatus.FINDINGS`."""
    print_findings(findings)
    raise click.exceptions.Exit(ExitStatus.FINDINGS)


def _source(request: Request) -> str | TextIO:
    """The spec as a path or a stream; says on stderr which it is when the command line doesn't."""
    if request.spec == "-":
        return sys.stdin
    if request.spec is not None:
        _suggest_command(request.spec)
        return request.spec
    if Path(DEFAULT_SPEC).exists():
        click.echo(f"job: {DEFAULT_SPEC}", err=True)
        return DEFAULT_SPEC
    click.echo(f"job: the built-in example, as there is no SPEC and no {DEFAULT_SPEC} here", err=True)
    return _BuiltIn(files(__package__).joinpath("default_job.yaml").read_text(encoding="utf-8"))


def _suggest_command(spec: str) -> None:
    """A mistyped command arrives as SPEC: say which command is close, when there is no such file."""
    matches = difflib.get_close_matches(spec, _COMMANDS, n=1)
    if Path(spec).exists():
        return
    if spec in _COMMANDS:
        raise click.UsageError(f"a command comes first: `dsgen {spec} ...`, then options")
    if matches:
        raise click.UsageError(f"there is no command and no file {spec!r}; did you mean `dsgen {matches[0]}`?")
