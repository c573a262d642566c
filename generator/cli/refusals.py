"""Errors that are no findings of a rule: as text, and with `--format json` as findings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

import click

from ..findings import Finding, printable
from .printing import form_asked, print_json


def asks_for_json(arguments: Sequence[str]) -> bool:
    """Return whether a command line has `--format json`, also one that can't be read."""
    return "--format=json" in arguments or ("--format", "json") in pairwise(arguments)


@contextmanager
def shown_errors(*, in_json: bool | None = None) -> Iterator[None]:
    """Usage errors raised in here quote the command line with escapes, and without its secrets."""
    try:
        yield
    except click.ClickException as problem:
        from ..secrets import mask  # here, to save start-up time

        problem.message = printable(mask(problem.message), keep="\n")  # type: ignore[misc]  # final to subclasses
        if form_asked() == "json" if in_json is None else in_json:
            tell_in_json(refused("CLI001", [(_said(problem), None)]))
        raise


def _said(problem: click.ClickException) -> str:
    """The message as click prints it: with the option that it is about, on one line."""
    return " ".join(problem.format_message().split()) or type(problem).__name__


def refused(rule: str, said: Iterable[tuple[str, str | None]]) -> list[Finding]:
    """Messages with their hints as findings on the command line, or on the files that it names."""
    from ..check.codes import REFUSALS  # here, to save start-up time
    from ..findings import Location

    where = Location(path="<flags>")
    return [REFUSALS[rule].at(where, printable(message), hint) for message, hint in said]


def tell_in_json(findings: Iterable[Finding]) -> None:
    """Print findings as the one JSON document of a command that has no other answer."""
    from .findings_text import findings_document  # here, to save start-up time

    print_json(findings_document(findings))
