"""The command line as tests run it."""

from __future__ import annotations

from click.testing import CliRunner, Result

from dsgen.cli import commands
from dsgen.cli.printing import ExitStatus


def run(*arguments: str, faulty: bool = False) -> Result:
    """The program's answer; an exception that escapes it, or is a fault that isn't meant, fails the
    test.
    """
    result = CliRunner().invoke(commands, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert faulty or result.exit_code != ExitStatus.FAULT, result.stderr
    return result
