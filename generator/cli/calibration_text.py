"""A calibration as text: the errors of the estimates before and after, and the factors."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from ..estimate.calibration import CalibrationReport, Errors, RunResult
from ..estimate.posterior import LEAST_RUNS
from .colours import BOLD
from .tables import Table, numbers, whole
from .text import percent, seconds

_RUNS_SHOWN = 20
_FACTORS_SHOWN = 8
_NEGLIGIBLE = 0.02  #: factors this close to 1 are not listed


def report_parts(report: CalibrationReport) -> Iterator[RenderableType]:
    """What is printed of a calibration."""
    machine, count = report.machine, len(report.runs)
    fitted = f"{count} run{'s' if count > 1 else ''} on {machine.cluster}"
    yield Text(f"Calibration from {fitted} ({', '.join(machine.parts)})", style=BOLD)
    yield ""
    yield _errors_table(report)
    yield ""
    yield from _factors(report)
    yield ""
    yield _runs_table(report.runs)
    if count > _RUNS_SHOWN:
        yield f"and {count - _RUNS_SHOWN} more, in the file"


def _errors_table(report: CalibrationReport) -> Table:
    table = Table(whole("error of estimates"), *map(numbers, ("shipped", "calibrated", "a run left out")))
    for name, errors in (("step time", report.time), ("peak memory", report.memory)):
        if errors is not None:
            table.add_row(f"{name}, mean", *_cells(errors, "mean"))
            table.add_row(f"{name}, median", *_cells(errors, "median"))
    return table


def _cells(errors: Errors, kind: str) -> list[str]:
    values = [getattr(errors, f"{column}_{kind}") for column in ("before", "after", "left_out")]
    return ["-" if value is None else percent(value) for value in values]


def _factors(report: CalibrationReport) -> Iterator[str]:
    if len(report.runs) < LEAST_RUNS:
        yield f"A fit needs at least {LEAST_RUNS} runs, of different layouts or sizes: the shipped constants are kept."
    elif not report.helps:
        yield "No factors predict a run left out better than the shipped constants do, so these are kept."
    moved = [item for item in report.factors if abs(item.factor - 1) >= _NEGLIGIBLE]
    for item in moved[:_FACTORS_SHOWN]:
        yield f"{item.name}: {item.text}"
    rest = len(report.factors) - len(moved[:_FACTORS_SHOWN])
    if report.helps and rest:
        yield f"{rest} others changed less, or not at all."
    if report.memory is not None:
        yield f"memory other than model states: {report.memory_factor:.2f} of the estimate"
    yield f"Two of three further runs should be within {percent(report.spread)} of their estimate."


def _runs_table(runs: tuple[RunResult, ...]) -> Table:
    table = Table(whole("run"), *map(numbers, ("measured", "shipped", "calibrated", "left out")))
    for run in runs[:_RUNS_SHOWN]:
        estimates = (run.before_s, run.after_s, run.left_out_s)
        offs = ["-" if value is None else f"{100 * (value / run.measured_s - 1):+.1f}%" for value in estimates]
        table.add_row(Text(run.name), seconds(run.measured_s), *offs)
    return table
