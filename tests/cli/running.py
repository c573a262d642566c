"""The command line as tests run it."""

from __future__ import annotations

from click.testing import CliRunner, Result

from dsgen.cli import commands


def run(*arguments: str) -> Result:
    """The program's answer; an exception that escapes it fails the test."""
    result = CliRunner().invoke(commands, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result
