"""`Facts`: a run of which each value is known, with its place, or unknown.

The records are those of a job. What isn't known is missing from them: reading it raises
`AttributeError`.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, Final, TypeVar

from ..dataclass import dataclass
from ..findings import Location
from ..job.records import Job, Pins

R = TypeVar("R")
UNKNOWN: Final = MISSING


def partial(kind: type[R], **known: Any) -> R:
    """Make a record of these values and of its defaults, without the fields that are `UNKNOWN` or
    left out.
    """
    made = object.__new__(kind)
    for field in fields(kind):  # type: ignore[arg-type]  # a dataclass
        default = field.default if field.default_factory is MISSING else field.default_factory()
        value = known.get(field.name, default)
        if value is not UNKNOWN:
            object.__setattr__(made, field.name, value)
    return made


def completed(record: R, **values: Any) -> R:
    """Make a copy of a record in which these fields have values, also where they were unknown."""
    known = {field.name: getattr(record, field.name, UNKNOWN) for field in fields(record)}  # type: ignore[arg-type]
    return partial(type(record), **{**known, **values})


def knows(job: Job, *names: str) -> bool:
    """Ask whether all these facts of a job are known: keys of its layout, or fields of the job and
    of its records.
    """
    holders = (job, *(getattr(job, name, None) for name in ("training", "model", "cluster")))
    return all(
        getattr(job.pins, name) is not None
        if name in Pins.__slots__
        else any(hasattr(holder, name) for holder in holders)
        for name in names
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """A run as files describe it."""

    #: of which what the files don't say is missing; the places of what they say are in its origin
    job: Job

    def knows(self, *names: str) -> bool:
        """Ask whether all these facts are known."""
        return knows(self.job, *names)

    def locate(self, *pointers: str) -> Location:
        """Return the place of the first of these that is written, else of the run."""
        places = self.job.origin.locations
        return next(
            (places[pointer] for pointer in pointers if pointer in places), self.job.locate("")
        )
