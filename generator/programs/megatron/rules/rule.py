"""Subjects of the rules on Megatron arguments, and relations between options."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ....findings import NOTE, Violations
from ....rule import STATED_IN
from ....rules.violations import divisors, listed, nearest, violation
from ....submission.subjects import Subject
from ..front_ends import in_its_words
from ..run import MegatronRun, megatron_runs

#: Where Megatron-LM checks the model's shape.
CONFIG: Final = "core/transformer/transformer_config.py"
READS: Final = STATED_IN["Megatron arguments"]
_arguments: Final = Subject[MegatronRun](READS, megatron_runs, tells=in_its_words)
lm_arguments: Final = _arguments.where(lambda run: run.is_lm)
mds_arguments: Final = _arguments.where(lambda run: not run.is_lm)
#: What the project's parser checks, whatever the program does then.
lm_checked: Final = lm_arguments.where(lambda run: run.is_checked)
mds_checked: Final = mds_arguments.where(lambda run: run.is_checked)
lm_runs: Final = lm_arguments.where(lambda run: run.trains)
mds_runs: Final = mds_arguments.where(lambda run: run.trains)
#: What the project's own parser reads: of a fork, nobody knows what it refuses.
lm_parsed: Final = lm_arguments.where(lambda run: not run.fork)
mds_parsed: Final = mds_arguments.where(lambda run: not run.fork)
lm_started: Final = lm_checked.where(lambda run: not run.fork)
mds_started: Final = mds_checked.where(lambda run: not run.fork)

#: A violation at an option; at the program, where the option isn't given.
at: Final = violation


def needs(run: MegatronRun, option: str, *others: str, why: str = "") -> Violations:
    """A violation where `option` is given and surely none of `others` is."""
    if run.has(option) and run.lacks_all(*others):
        message = f"{option} is given without {' or '.join(others)}{why}"
        yield at(run, option, message, f"add {others[0]}, or remove {option}")


def excludes(run: MegatronRun, option: str, others: Iterable[str], why: str = "") -> Violations:
    """Return a violation for every one of `others` that is given with `option`.

    It is a note where a parser looks at neither.
    """
    if not run.has(option):
        return
    judged = run.beside.judged
    for other in others:
        if run.has(other):
            names = {name.lstrip("-").replace("-", "_") for name in (option, other)}
            is_looked_at = judged is None or not names.isdisjoint(judged)
            message = f"{other} is given with {option}{why}"
            hint = f"remove {other} or {option}"
            yield at(run, other, message, hint, severity=None if is_looked_at else NOTE)


def divides(
    run: MegatronRun, name: str, number: int | None, shown: str, count: int = 4
) -> Violations:
    """Return a violation where a size doesn't divide `number`.

    `shown` names the number; the hint has the `count` nearest sizes that divide it.
    """
    size = run.size(name)
    if size and number and number % size:
        hint = f"use {name} {listed(nearest(divisors(number), size, count))}"
        yield at(run, name, f"{name} {size} does not divide {shown}", hint)


def undivided(run: MegatronRun, option: str, *sizes: str) -> Violations:
    """A violation for every size of parallelism above 1 that is given with `option`."""
    if not run.has(option):
        return
    shown = option if run.value(option) is True else run.shown(option)
    for name in sizes:
        size = run.degree(name)
        if size is not None and size > 1:
            hint = f"use {name} 1, or remove {option}"
            yield at(run, option, f"{shown} with {name} {size}", hint)
