"""A measured run as a document tells it, before it is known what job it belongs to; and what can be wrong with one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ...findings import Finding, Location, Severity

RUNS_UNREADABLE: Final = "RUN001"
RUNS_COLUMN: Final = "RUN002"
RUNS_VALUE: Final = "RUN003"
RUNS_NO_STEPS: Final = "RUN004"
RUNS_OTHER_MODEL: Final = "RUN005"
RUNS_UNUSED: Final = "RUN006"

TITLES: Final[dict[str, str]] = {
    RUNS_UNREADABLE: "A file of runs is a readable CSV table or training log.",
    RUNS_COLUMN: "Every column of a table of runs is a key of the job spec or a measurement, and is there once.",
    RUNS_VALUE: "A measurement is a number above zero, of a kind that dsgen knows.",
    RUNS_NO_STEPS: "A training log says how long its steps took.",
    RUNS_OTHER_MODEL: "The job given with --job is the one that a log was written by.",
    RUNS_UNUSED: "A run is of the same machine as the others, and near enough to its estimate to say something.",
}
PEAK_KINDS: Final = ("allocated", "reserved", "device")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One run: what it took, and the keys of its job that the document says."""

    name: str  #: how the run is called in answers
    where: Location
    step_time_s: float
    keys: Mapping[str, object]  #: value by dotted path of the job spec, such as `layout.tensor`
    places: Mapping[str, Location] = field(default_factory=dict)  #: of the values, by the same path
    peak_bytes: float | None = None
    peak_kind: str = "allocated"  #: one of `PEAK_KINDS`
    shape: Mapping[str, int] = field(default_factory=dict)  #: of the model, by field of `Model`, to be compared
    notes: tuple[str, ...] = ()  #: how the step time was read, for people


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What a document holds: its runs, and everything that is wrong with it."""

    runs: tuple[Measurement, ...] = ()
    findings: tuple[Finding, ...] = ()


def error(rule: str, where: Location, message: str, hint: str | None = None) -> Finding:
    """A finding that keeps the run from being used."""
    return Finding(rule=rule, severity=Severity.ERROR, where=where, message=message, hint=hint)
