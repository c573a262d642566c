"""`Facts`: a run as files describe it. Each value of it is known, with its place, or unknown.

The records are those of a planned job. An unknown field is missing from its record: to read it
raises `AttributeError`, so no rule takes a default for something that a file says.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
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
    a_class: Any = kind  # which can be hashed, though mypy takes a `type[R]` for none that can
    for field in _fields(a_class):
        value = values.get(field.name, field.default)
        if field.name not in values and field.default_factory is not MISSING:
            value = field.default_factory()
        if value is not UNKNOWN:
            object.__setattr__(record, field.name, value)
    return record


@cache
def _fields(kind: type[Any]) -> tuple[Field[Any], ...]:
    """The fields of a class of records."""
    return fields(kind)


def completed(record: R, **values: Any) -> R:
    """A copy of a record in which these fields have the given values, known before or not."""
    kind: Any = type(record)
    before = {field.name: getattr(record, field.name, UNKNOWN) for field in _fields(kind)}
    return partial(type(record), **{**before, **values})


def knows(job: Job, *names: str) -> bool:
    """Whether all these facts are known.

    They are keys of the layout, or fields of the job, of its training, its model or its cluster.
    """
    records = (job, *(getattr(job, part, None) for part in ("training", "model", "cluster")))
    for name in names:
        if name in Pins.__slots__:
            is_known = getattr(job.pins, name) is not None
        else:
            is_known = any(_has(record, name) for record in records)
        if not is_known:
            return False
    return True


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
        written = (places[pointer] for pointer in pointers if pointer in places)
        return next(written, self.job.locate(""))
