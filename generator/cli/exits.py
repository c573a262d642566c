"""How commands end: exit statuses, and the errors that several commands report."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NoReturn

import click

_MOST_OFFERED = 12  # names in a hint


class ExitStatus(IntEnum):
    """One number per outcome, so that a pipeline can distinguish them."""

    OK = 0
    FINDINGS = 1  #: the job has errors, or its files can't be written
    USAGE = 2  #: the command line is wrong
    INFEASIBLE = 3  #: no layout passes every rule and fits
    WOULD_OVERWRITE = 4  #: files exist with other contents, and --force was not given


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
