"""Estimated against measured: the pairs that every table of the benchmark is made of."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import log
from pathlib import Path

from benchmarks.measured import Run
from dsgen.estimate.memory import memory
from dsgen.estimate.step_time import step_time

#: Seconds a step of every run, estimated with constants that were fitted without the run's cluster;
#: `benchmarks.fit` writes it.
LEFT_OUT = Path(__file__).parent / "data" / "left_out.json"

Seconds = Callable[[Run], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One run with an estimate, in seconds or bytes."""

    run: Run
    estimated: float
    measured: float

    @property
    def error(self) -> float:
        """Estimated over measured, less one."""
        return self.estimated / self.measured - 1

    @property
    def log_ratio(self) -> float:
        """Logarithm of measured over estimated: what a band has to hold."""
        return log(self.measured / self.estimated)


def shipped_seconds(run: Run) -> float:
    """The step time as the package estimates it."""
    return float(step_time(run.job, run.layout).total_s)


def left_out_seconds() -> Seconds | None:
    """Step times with constants that never saw the run's cluster; `None` before `benchmarks.fit`
    has written them.
    """
    if not LEFT_OUT.exists():
        return None
    by_run: dict[str, float] = json.loads(LEFT_OUT.read_text())
    return lambda run: float(by_run[run.id])


def timed(rows: Iterable[Run]) -> list[Run]:
    """Runs of quality A and B with a step time."""
    return [run for run in rows if run.step_time_s is not None and run.quality in ("A", "B")]


def graded(rows: Iterable[Run]) -> list[Run]:
    """Runs of memory quality A and B whose recomputation is known, those that ran out of memory
    included.
    """
    return [run for run in rows if run.memory_quality in ("A", "B") and run.recompute_known]


def time_pairs(rows: Iterable[Run], seconds: Seconds = shipped_seconds) -> list[Pair]:
    """Step times, in seconds."""
    return [
        Pair(run=run, estimated=seconds(run), measured=float(run.step_time_s or 0))
        for run in timed(rows)
    ]


def memory_pairs(rows: Iterable[Run]) -> list[Pair]:
    """Peaks, in bytes, of the kind that was measured."""
    return [
        Pair(run=run, estimated=_peak_bytes(run), measured=run.peak_memory_bytes)
        for run in graded(rows)
        if run.peak_memory_bytes is not None
    ]


def _peak_bytes(run: Run) -> float:
    """The estimate of what was measured: where it is more than the card has, the allocator gave its
    cache back.
    """
    ledger = memory(run.job, run.layout)
    estimated = float(getattr(ledger, f"{run.peak_memory_kind}_bytes"))
    over = max(float(ledger.device_bytes) - float(ledger.capacity_bytes), 0.0)
    return (
        estimated
        if run.peak_memory_kind == "allocated"
        else max(estimated - over, float(ledger.allocated_bytes))
    )


def by_source(pairs: Iterable[Pair]) -> dict[str, list[Pair]]:
    """Pairs of each source, by its name."""
    groups: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        groups[pair.run.source].append(pair)
    return dict(sorted(groups.items()))
