"""Runs for tests: a real row of the benchmark with the numbers that a test is about."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from benchmarks.measured import Run, runs
from benchmarks.pairs import timed
from dsgen.estimate.layout import Layout


@cache
def _row() -> Run:
    return timed(runs())[0]


def run(name: str = "row", *, source: str = "one", step_time_s: float = 1.0, **layout: int) -> Run:
    """The first row of the benchmark under another name, with another layout and step time, in
    seconds.
    """
    return replace(
        _row(), id=name, source=source, step_time_s=step_time_s, layout=Layout(data=8, **layout)
    )
