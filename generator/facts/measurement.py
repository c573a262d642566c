"""A measured run as a document has it, and what can be wrong with one.

It isn't known here what job the run belongs to. What readers of logs share is here as well: the
record that they fill, and how they look for numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Final

from ..dataclass import dataclass
from ..findings import WARNING, Finding, Location
from ..numerals import python_float, read_whole
from ..rule import rule_of_reader

_SOURCE: Final = "the documented form of runs that dsgen calibrate reads"
_runs = partial(rule_of_reader, checks="runs", source=_SOURCE)
_warning = partial(_runs, severity=WARNING, when="silent")

RUNS_UNREADABLE: Final = _runs("""RUN001: A file of runs is a readable CSV table or training log.
    Prevents: Nothing can be read from the file.
    Fix: give a CSV table with a step_time_s column, or a log of Megatron-LM, DeepSpeed or the
    Hugging Face Trainer
    """)
RUNS_COLUMN: Final = _runs("""RUN002: Every column of a table of runs is a key of the job spec or a
    measurement, and is present once.
    Prevents: A column that isn't read would silently be left out of the job that was measured.
    Fix: name columns like the keys of the job spec: gpus, global_batch, tensor, recompute
    """)
RUNS_VALUE: Final = _runs("""RUN003: A measurement is a number above zero, of a kind that dsgen has.
    Prevents: A step time of zero, or in another unit, would spoil the fit.
    Fix: write seconds, as in step_time_s: 2.35""")
RUNS_NO_STEPS: Final = _runs("""RUN004: A training log has the duration of its steps.
    Prevents: There is nothing to compare the estimate with.
    Fix: give a log of a few hundred steps, written with --log-interval 1 or steps_per_print 1""")
RUNS_OTHER_MODEL: Final = _runs("""RUN005: The job of --job is the one that wrote the log.
    Prevents: The estimate of another model would be fitted to this run.
    Fix: pass --job with the spec of the run that wrote the log""")
RUNS_ZERO_STAGE: Final = _runs("""RUN007: The ZeRO stage of a run is known, where there are ranks to
    shard over.
    Prevents: Constants of the network would be fitted to communication that the run didn't have.
    Fix: set layout.zero_stage in the spec of --job, with --set, or in a column zero_stage
    """)
RUNS_UNUSED: Final = _warning("""RUN006: A run is of the same machine as the others, and close
    enough to its estimate to be of use.
    Prevents: A run of another machine, or in another unit, would change constants that it has no
    bearing on.
    Fix: make one calibration for each machine and framework
    """)
NUMBER: Final = r"([0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]{1,3})?)"
PEAK_KINDS: Final = ("allocated", "reserved", "device")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One run: its time and memory, and the keys of its job that the document has."""

    name: str  #: how the run is called in answers
    where: Location
    step_time_s: float
    keys: Mapping[str, object]  #: value by dotted path of the job spec, such as `layout.tensor`
    places: Mapping[str, Location] = field(default_factory=dict)  #: of the values, by the same path
    peak_bytes: float | None = None
    peak_kind: str = "allocated"  #: one of `PEAK_KINDS`
    #: of the model, by field of `Model`, to be compared
    shape: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  #: how the step time was read, for people


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """The runs that a document holds, and everything that is wrong with it."""

    runs: tuple[Measurement, ...] = ()
    findings: tuple[Finding, ...] = ()


def short_name(path: str) -> str:
    """Return a file's name to be written down: without folders that only this machine has."""
    return Path(path).name if Path(path).is_absolute() else path


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """Figures of a log, first to last, and the keys of the job that it names."""

    writer: str  #: the program, as people call it
    #: seconds of a step; each may be an average over the steps since the last line
    steps: tuple[float, ...]
    #: value by dotted path of the job spec
    keys: Mapping[str, object] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict)  #: where a key was read, from 1
    peak_bytes: float | None = None
    shape: Mapping[str, int] = field(default_factory=dict)  #: of the model, by field of `Model`
    notes: tuple[str, ...] = ()
    hint: str = "give a log that reaches a few steps"  #: how to get step times, when there are none


def spec_keys(settings: Mapping[str, str], names: Mapping[str, str]) -> dict[str, object]:
    """The keys of the job spec, by the names that the settings of a log have for them."""
    numbers = ((key, positive_whole(settings.get(name, ""))) for name, key in names.items())
    return {key: value for key, value in numbers if value is not None}


def positive(text: str) -> float | None:
    """A number above zero; `None` for anything else."""
    value = python_float(text)
    return value if value is not None and math.isfinite(value) and value > 0 else None


def positive_whole(text: str) -> int | None:
    """A whole number above zero, of at most 9 digits; `None` for anything else."""
    return read_whole(text, 9) or None
