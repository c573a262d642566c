"""Faults of dsgen itself at a command's end: they are findings, and the status is `FAULT`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

from ..faults import Faults, collected
from .printing import FORM, ExitStatus, echo, print_json

if TYPE_CHECKING:
    from ..faults import Fault
    from ..findings import Finding

#: In the context of the whole command: whether tracebacks are shown.
DEBUG: Final = "dsgen.debug"

# Imports within functions save start-up time.


def debug_option() -> click.Option:
    """`--debug`, which every command has."""

    def keep(context: click.Context, _: click.Parameter, value: bool) -> None:
        root = context.find_root()
        root.meta[DEBUG] = root.meta.get(DEBUG, False) or value

    return click.Option(
        ["--debug"],
        is_flag=True,
        expose_value=False,
        is_eager=True,  # also for what other options raise
        callback=keep,
        help="Show the traceback of a fault of dsgen itself.",
    )


@contextmanager
def told_of(context: click.Context) -> Iterator[None]:
    """Run a command, and report dsgen's own faults at its end.

    With a fault the status is `FAULT`, whatever else came of the command. An exception that nothing
    has caught is a fault of the whole command, which then has no other answer.
    """
    with collected() as faults:
        try:
            yield
        except click.exceptions.Exit:
            if not faults:
                raise
        except click.ClickException as problem:
            if faults:
                problem.exit_code = ExitStatus.FAULT  # type: ignore[misc]  # a class's variable
                _tell(faults, context)
            raise
        except (click.Abort, OSError):
            raise
        except MemoryError:
            echo("dsgen: error: there is not enough memory", err=True)
            raise click.exceptions.Exit(ExitStatus.FINDINGS) from None
        except Exception as error:
            faults.add(error, f"`dsgen {context.invoked_subcommand or ''}`", "", is_rule=False)
            if context.meta.get(FORM) == "json":
                from .findings_text import findings_document

                print_json(findings_document(findings_of(faults)))
        if faults:
            _tell(faults, context)
            raise click.exceptions.Exit(ExitStatus.FAULT)


def findings_of(faults: Iterable[Fault]) -> tuple[Finding, ...]:
    """The faults as findings."""
    from ..check.codes import of_fault

    return tuple(map(of_fault, faults))


def _tell(faults: Faults, context: click.Context) -> None:
    from .findings_text import print_findings

    print_findings(findings_of(faults))
    show_traces(faults, context)


def show_traces(faults: Iterable[Fault], context: click.Context) -> None:
    """Print the tracebacks of faults to standard error, where they are asked for."""
    from ..secrets import mask

    if context.find_root().meta.get(DEBUG):
        for fault in faults:
            echo(mask(fault.trace), err=True, nl=False)
    sys.stderr.flush()
