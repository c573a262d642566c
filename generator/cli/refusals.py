"""Errors of a command itself: as text, and with `--format json` as findings too."""

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
    """Escape what usage errors raised in here quote of the command line, and mask its secrets.

    They are printed as JSON too where `in_json` says so, or the running command's `--format` does.
    """
    try:
        yield
    except click.ClickException as problem:
        from ..secrets import mask  # here, to save start-up time

        # click marks the message as final for subclasses.
        problem.message = printable(mask(problem.message), keep="\n")  # type: ignore[misc]
        if in_json is None:
            in_json = form_asked() == "json"
        if in_json:
            tell_in_json(refused("CLI001", [(_in_words(problem), None)]))
        raise


def _in_words(problem: click.ClickException) -> str:
    """The message as click prints it: with the option that it is about, on one line."""
    return " ".join(problem.format_message().split()) or type(problem).__name__


def refused(rule: str, messages: Iterable[tuple[str, str | None]]) -> list[Finding]:
    """Messages with their hints as findings of a rule on the command line."""
    from ..check.codes import REFUSALS  # here, to save start-up time
    from ..findings import Location

    where = Location(path="<flags>")
    return [REFUSALS[rule].at(where, printable(message), hint) for message, hint in messages]


def tell_in_json(findings: Iterable[Finding]) -> None:
    """Print findings as the one JSON document of a command that has no other answer."""
    from .findings_text import findings_document  # here, to save start-up time

    print_json(findings_document(findings))
