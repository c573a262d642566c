"""What the rules of planning judge, and how they are made: a job, a layout of a job, a layout with its ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import wraps
from typing import Any, Final

from ..estimate.layout import FIELDS
from ..findings import Severity, Violation, Violations, When
from ..job.framework import Software
from ..job.records import Job
from ..rule import Arguments, Checks, Columns, Rule
from .rule import Subject

#: From job, layout and with an estimate its ledger: the message and the hint.
Explain = Callable[..., tuple[str, str]]


def _whole(planned: Any) -> Iterable[Any]:
    return (planned,)


jobs: Final[Subject[Job]] = Subject((), _whole, "job")


def jobs_of(*software: Software) -> Subject[Job]:
    """Jobs whose run executes any of these."""

    def running(job: Job) -> Iterator[Job]:
        if job.framework.runs(*software):
            yield job

    return Subject((), running, "job")


def layout_rule(
    id: str,
    severity: Severity,
    when: When,
    source: str,
    reads: tuple[str, ...] = (),
    explain: Explain | None = None,
    *,
    of: tuple[Software, ...] = (),
    applies: Callable[[Job], bool] | None = None,
    arguments: Arguments | None = None,
    checks: Checks = "layout",
) -> Callable[[Callable[..., Any] | Rule], Rule]:
    """Make a rule of the function below: what holds, as a bool of one layout and as an array of bools of columns.

    It is given job and layout, and with `checks="fit"` the layout's ledger. Warnings never remove a layout from the
    search. `reads`: the fields of `Layout` that it reads, of which the first is where a finding points, and facts of
    the job. `explain`: the message with both numbers, and the hint with a value that passes. `of`: the software that
    requires it; empty: any. `applies`: a condition on facts alone. Above another rule, the check is the same.
    """

    def made(holds: Callable[..., Any] | Rule) -> Rule:
        others = (holds, *holds.also) if isinstance(holds, Rule) else ()
        columns = holds.columns if isinstance(holds, Rule) else _columns(reads, holds, explain)
        return Rule(
            id=id,
            severity=severity,
            when=when,
            source=source,
            text=columns.holds.__doc__ or "",
            checks=checks,
            check=_check(columns),
            subjects=_whole,
            also=others,
            columns=replace(columns, binds=_binds(of, applies)),
            arguments=arguments,
        )

    return made


def _binds(of: tuple[Software, ...], applies: Callable[[Job], bool] | None) -> Callable[[Job], bool]:
    return lambda job: (not of or job.framework.runs(*of)) and (applies is None or applies(job))


def _columns(reads: tuple[str, ...], holds: Callable[..., Any], explain: Explain | None) -> Columns:
    fields = tuple(name for name in reads if name in FIELDS)
    facts = tuple(name for name in reads if name not in FIELDS)
    if explain is None:
        raise TypeError(f"{holds.__name__} has no explanation")
    return Columns(reads=fields, facts=facts, holds=holds, explain=explain)


def _check(columns: Columns) -> Callable[..., Violations]:
    """The check of one layout: a tuple of its job, the layout, and with an estimate its ledger."""

    @wraps(columns.holds)
    def check(planned: tuple[Any, ...]) -> Violations:
        if not columns.holds(*planned):
            message, hint = columns.explain(*planned)
            yield Violation(where=_place(planned[0], columns.reads), message=message, hint=hint)

    return check


def _place(job: Job, fields: tuple[str, ...]) -> Any:
    """The first of the fields that the user wrote, else the first, else the layout."""
    written = (name for name in fields if getattr(job.pins, name) is not None)
    name = next(written, fields[0] if fields else None)
    return job.origin.locate(f"/layout/{name}" if name else "/layout")


def violation(job: Job, pointer: str, message: str, hint: str | None = None) -> Violation:
    """A violation at a place of the job's spec."""
    return Violation(where=job.origin.locate(pointer), message=message, hint=hint)
