"""How commands end: exit statuses, and the errors that several commands report."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NoReturn

import click


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
    matches = difflib.get_close_matches(name.lower(), choices, n=1, cutoff=0.4)
    hint = f"did you mean {choices[matches[0]]!r}?" if matches else f"one of {', '.join([*choices.values()][:12])}"
    raise click.UsageError(f"unknown {kind} {name!r}; {hint}")
