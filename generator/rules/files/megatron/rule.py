"""What the rules on Megatron arguments share: their subjects, and the relations between options."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ....documents.megatron_options import Flavour
from ....documents.megatron_run import MegatronRun, megatron_runs
from ....documents.submission import Submission
from ....findings import Severity, Violation, Violations
from ...rule import Subject

READS: Final = ("launch script", "AzureML job", "Megatron arguments")


def _of(flavour: Flavour, *, trains: bool) -> Subject[MegatronRun]:
    """The arguments of one project's programs, of training runs alone or of all."""

    def runs(submission: Submission) -> Iterator[MegatronRun]:
        for run in megatron_runs(submission):
            if run.flavour == flavour and (run.trains or not trains):
                yield run

    return Subject(READS, runs)


lm_runs: Final = _of("megatron-lm", trains=True)
lm_arguments: Final = _of("megatron-lm", trains=False)
mds_runs: Final = _of("megatron-deepspeed", trains=True)
mds_arguments: Final = _of("megatron-deepspeed", trains=False)


def at(run: MegatronRun, option: str, message: str, hint: str | None, severity: Severity | None = None) -> Violation:
    """A violation at an option's place; at the program's, where the option isn't given."""
    return Violation(where=run.locate(option), message=message, hint=hint, severity=severity)


def needs(run: MegatronRun, option: str, *others: str, why: str = "") -> Violations:
    """A violation where `option` is given and surely none of `others` is."""
    if run.has(option) and run.lacks_all(*others):
        message = f"{option} is given without {' or '.join(others)}{why}"
        yield at(run, option, message, f"add {others[0]}, or remove {option}")


def excludes(run: MegatronRun, option: str, others: Iterable[str], why: str = "") -> Violations:
    """A violation for every one of `others` that is given with `option`."""
    for other in others:
        if run.has(option) and run.has(other):
            yield at(run, other, f"{other} is given with {option}{why}", f"remove {other} or {option}")


def undivided(run: MegatronRun, option: str, *sizes: str) -> Violations:
    """A violation for every size of parallelism above 1 that is given with `option`."""
    for name in sizes:
        size = run.degree(name)
        if run.has(option) and size is not None and size > 1:
            given = option if run.value(option) is True else run.shown(option)
            yield at(run, option, f"{given} with {name} {size}", f"use {name} 1, or remove {option}")
