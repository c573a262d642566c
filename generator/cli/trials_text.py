"""Trials of plans: their measurements as a table on the screen, as a table of runs, and as a calibration."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import replace

from ..check.runs import Outcome
from ..dataclass import dataclass
from ..estimate.calibration import MeasuredRun, NoUsableRuns, fit_calibration
from ..estimate.uncertainty import percent, seconds_with_band
from ..job.records import Calibration
from ..programs.program import RenderedFile
from ..search.plan import Plan
from ..search.summary import Line, unlike
from ..units import GIB, gib, long_time, same_unit
from .measured_jobs import rendered
from .printing import echo
from .tables import Part, asides, numbers, plan_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A plan, and what its trial came to; None where there is no log of it."""

    number: int
    plan: Plan
    outcome: Outcome | None

    @property
    def step_time_s(self) -> float | None:
        """Seconds of a step, as measured."""
        return self.outcome.run.step_time_s if self.outcome and self.outcome.run else None

    @property
    def peak_bytes(self) -> float | None:
        """The memory that the framework's allocator reports, if it does."""
        return self.outcome.run.peak_bytes if self.outcome and self.outcome.run else None

    @property
    def state(self) -> str:
        """In words: measured, or why not."""
        if self.outcome is None:
            return "no log"
        return "measured" if self.outcome.run else self.outcome.problem

    def to_dict(self) -> dict[str, object]:
        """The form of `dsgen tune --format json`."""
        return {
            "trial": self.number,
            "layout": self.plan.layout.to_dict(),
            "estimated_step_time_s": float(self.plan.step_time.total_s),
            "measured_step_time_s": self.step_time_s,
            "peak_memory_bytes": self.peak_bytes,
            "out_of_memory": bool(self.outcome and self.outcome.out_of_memory),
            "state": self.state,
            "log": str(self.outcome.log) if self.outcome else None,
        }


def rows_of(measured: Sequence[Trial]) -> str:
    """A table of runs that `dsgen calibrate` reads, with the job's spec for the rest."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    keys = [key for key, value in measured[0].plan.layout.to_dict().items() if not isinstance(value, list)]
    writer.writerow(("name", "gpus", "step_time_s", "peak_memory_gib", *keys))
    for one in measured:
        layout, peak = one.plan.layout.to_dict(), one.peak_bytes
        cells = [str(layout[key]).lower() if isinstance(layout[key], bool) else layout[key] for key in keys]
        peak_gib = "" if peak is None else round(peak / GIB, 3)
        writer.writerow((f"trial-{one.number}", one.plan.job.gpus, one.step_time_s, peak_gib, *cells))
    return text.getvalue()


def calibration_of(measured: Sequence[Trial]) -> RenderedFile | None:
    """The fit to what was measured; None, and why, where nothing is near enough to its estimate."""
    runs = [
        MeasuredRun(
            name=f"trial-{one.number}",
            job=replace(one.plan.job, calibration=Calibration()),
            layout=one.plan.layout,
            step_time_s=one.step_time_s,
            peak_bytes=one.peak_bytes,
        )
        for one in measured
        if one.step_time_s is not None
    ]
    try:
        return rendered(fit_calibration(runs), "calibration.json") if runs else None
    except NoUsableRuns as problem:
        echo(f"no calibration: {problem}", err=True)
        return None


def announced(plans: Sequence[Plan], steps: int, command: str) -> tuple[tuple[Line, ...], str, Part]:
    """Return lines on the trials, their time and the command, then a row for each plan."""
    job, times = plans[0].job, [float(plan.step_time.total_s) for plan in plans]
    taken = f"{steps} steps each: {long_time(steps * sum(times))} without the time to start"
    lines = (
        ("Trials", f"{len(plans)} plans of {job.name}, {taken}"),
        ("Runs on", f"{job.gpus:,} GPUs on {job.nodes:,} × {job.cluster.name}, {job.launch.target}"),
        ("Command", command),
    )
    rows = []
    for number, (plan, step) in enumerate(zip(plans, same_unit(times, steps=True), strict=True), start=1):
        figures_of = (gib(plan.memory.required_bytes), step, percent(plan.throughput.mfu), unlike(plan, plans[0]))
        rows.append(((str(number),), plan, figures_of))
    figures = (numbers("GiB"), numbers("step"), numbers("MFU"), asides(drop=1))
    return lines, "", plan_table((numbers("trial"),), figures, rows)


def table_of(trials: Sequence[Trial]) -> tuple[Part, ...]:
    """One row a trial: what was estimated and measured, how far off that is, and what ran out of memory."""
    known = [one.step_time_s for one in trials if one.step_time_s is not None]
    times = dict(zip(known, same_unit(known, steps=True), strict=True))
    figures = (numbers("estimated"), numbers("measured"), numbers("off"), numbers("memory", drop=1))
    rows = []
    for one in trials:
        estimated_s, time_s, peak = float(one.plan.step_time.total_s), one.step_time_s, one.peak_bytes
        band = seconds_with_band(estimated_s, one.plan.uncertainty.step_time)
        time, off = (one.state, "") if time_s is None else (times[time_s], f"{time_s / estimated_s - 1:+.0%}")
        rows.append(((str(one.number),), one.plan, (band, time, off, "" if peak is None else f"{gib(peak)} GiB")))
    return (plan_table((numbers("trial"),), figures, rows),)
