"""`Facts`: a run as files describe it. Each value of it is known, with its place, or unknown.

The records are those of a planned job. An unknown field is missing from its record: to read it
raises `AttributeError`, so no rule takes a default for something that a file says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, Final, TypeVar

from ..dataclass import dataclass
from ..findings import Location
from ..job.records import Job, Pins

R = TypeVar("R")

#: The value of a field that is to be missing from a record.
UNKNOWN: Final = MISSING


def partial(kind: type[R], **values: Any) -> R:
    """A record with these values and the defaults of its other fields.

    Fields that are `UNKNOWN`, and fields with neither value nor default, are missing from it.
    """
    record = object.__new__(kind)
    for name, default, factory in _defaults(kind):  # type: ignore[arg-type]  # a class can be hashed
        value = values.get(name, default)
        if name not in values and factory:
            value = factory()
        if value is not UNKNOWN:
            object.__setattr__(record, name, value)
    return record


@cache
def _defaults(kind: type[Any]) -> tuple[tuple[str, Any, Callable[[], Any] | None], ...]:
    """The fields of a record, each with its default, and what makes that."""
    return tuple(
        (
            field.name,
            field.default,
            None if field.default_factory is MISSING else field.default_factory,
        )
        for field in fields(kind)
    )


def completed(record: R, **values: Any) -> R:
    """A copy of a record in which these fields have the given values, known before or not."""
    known = {field.name: getattr(record, field.name, UNKNOWN) for field in fields(record)}  # type: ignore[arg-type]
    return partial(type(record), **{**known, **values})


def knows(job: Job, *names: str) -> bool:
    """Whether all these facts are known: keys of the layout, or fields of the job, of its training,
    its model or its cluster.
    """
    records = (job, *(getattr(job, name, None) for name in ("training", "model", "cluster")))
    return all(
        getattr(job.pins, name) is not None
        if name in Pins.__slots__
        else any(_has(record, name) for record in records)
        for name in names
    )


def _has(record: object, name: str) -> bool:
    """Whether a record has a field, and no layer of its model lacks what it asks of each."""
    try:
        return hasattr(record, name)
    except NotImplementedError:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """A run as files describe it."""

    #: lacks what the files don't say; its origin has the places of what they say
    job: Job

    def knows(self, *names: str) -> bool:
        """Whether all these facts are known."""
        return knows(self.job, *names)

    def locate(self, *pointers: str) -> Location:
        """The place of the first of these values that is written; of the run, if none is."""
        places = self.job.origin.locations
        return next(
            (places[pointer] for pointer in pointers if pointer in places), self.job.locate("")
        )
