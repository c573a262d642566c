"""The arithmetic of regret, on groups small enough to check by hand."""

from __future__ import annotations

import pytest

from benchmarks import regret
from benchmarks.measured import Run, runs
from benchmarks.regret import Group
from tests.benchmarks.measured_runs import run

#: Estimated seconds by micro batch.
ESTIMATES = {1: 10.0, 2: 8.5, 4: 12.0}


def estimate(row: Run) -> float:
    """What the estimate of a made-up row is."""
    return ESTIMATES[row.layout.micro_batch]


def group(*measured: tuple[int, float]) -> Group:
    """Layouts that differ in the micro batch, with what was measured of each."""
    rows = [
        run(f"row-{i}", step_time_s=seconds, micro_batch=micro)
        for i, (micro, seconds) in enumerate(measured)
    ]
    return regret.group(rows, estimate)


def test_regret_is_what_the_pick_loses() -> None:
    """The fastest by estimate is picked, and its measured time is held against the best measured
    time.
    """
    found = group((1, 8.0), (2, 10.0), (4, 16.0))
    assert found.fastest.layout.micro_batch == 2
    assert found.best.layout.micro_batch == 1
    assert found.regret(found.fastest) == pytest.approx(10 / 8 - 1)
    assert found.regret(found.best) == 0


def test_identical_layouts_are_one_choice() -> None:
    """Runs of one layout are merged by the median, so that a tie between them is no regret."""
    found = group((1, 12.0), (2, 9.0), (2, 20.0), (2, 10.0), (4, 16.0))
    assert len(found.choices) == 3
    assert found.best.measured_s == 10
    assert found.regret(found.fastest) == 0


def test_the_chosen_layout_has_the_least_expected_time() -> None:
    """All of them ran, so that the expected time decides also where none fits by the rule: a layout
    that is a little faster loses to a smaller one, and a much faster one doesn't.
    """
    rows = [
        run("plain", step_time_s=8.0),
        run("sharded", step_time_s=10.0, zero_stage=1),
        run("slow", step_time_s=30.0, zero_stage=2),
    ]

    def chosen(plain_s: float) -> int:
        seconds = {0: plain_s, 1: 7.5, 2: 20.0}
        group = regret.group(rows, lambda row: seconds[row.layout.zero_stage])
        stage: int = group.chosen.layout.zero_stage
        return stage

    assert (chosen(7.45), chosen(5.0)) == (1, 0)


def test_groups_are_jobs_with_three_layouts() -> None:
    """Every group of the benchmark agrees in what is not a layout decision, and has three layouts
    at least.
    """
    found = regret.groups(list(runs()))
    assert len(found) >= 20
    for g in found:
        layouts = [choice.layout for choice in g.choices]
        assert len(layouts) == len(set(layouts)) >= regret.FEWEST
        jobs = [row.job for choice in g.choices for row in choice.runs]
        assert len({(job.gpus, job.model.layers, job.training, job.framework) for job in jobs}) == 1


def test_every_group_is_printed() -> None:
    """The table has a line for each group and ends with mean and worst."""
    found = [group((1, 8.0), (2, 10.0), (4, 16.0)), group((1, 12.0), (2, 10.0), (4, 16.0))]
    lines = list(regret.table(found))
    assert sum("micro_batch" in line for line in lines) == 2
    assert "mean 12.5%, worst 25.0%" in lines[-1]
