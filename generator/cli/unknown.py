"""A name that isn't known, answered with the closest one that is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

import click

# Imports within functions save start-up time.


def unknown(kind: str, name: str, known: Iterable[str]) -> NoReturn:
    """Refuse `name` as a usage error, with the closest match when there is one."""
    import difflib

    choices = list(known)
    lower = {choice.lower(): choice for choice in choices}
    matches = difflib.get_close_matches(name.lower(), list(lower), n=1, cutoff=0.4)
    hint = f"did you mean {lower[matches[0]]!r}?" if matches else f"one of {', '.join(choices[:12])}"
    raise click.UsageError(f"unknown {kind} {name!r}; {hint}")
