"""Runs that no constant was fitted to, and what options changed."""

from __future__ import annotations

from statistics import median

import pytest

from benchmarks.knobs import NOISE, Change, changes, unfitted
from benchmarks.measured import runs
from benchmarks.pairs import Pair, timed


@pytest.fixture(scope="module")
def never_fitted() -> list[Pair]:
    """The runs with their estimates."""
    return unfitted()


def test_the_fit_sees_none_of_them(never_fitted: list[Pair]) -> None:
    """No run that constants are fitted to is among those that are said to be unseen."""
    assert not {pair.run.id for pair in never_fitted} & {run.id for run in timed(runs())}


@pytest.mark.parametrize("precision", ["nvfp4", "fp8"])
def test_unseen_runs_are_estimated(never_fitted: list[Pair], precision: str) -> None:
    """Half of the unseen runs, in 4 bits and in 8, are within 17 %."""
    errors = [
        abs(pair.error) for pair in never_fitted if pair.run.job.training.precision == precision
    ]
    assert len(errors) >= 8 and median(errors) < 0.17


def test_pairs_change_an_option_and_the_time() -> None:
    """Each pair names what changed, and its times differ by more than containers alone do."""
    found: list[Change] = changes()
    assert len(found) >= 12
    assert all(change.options for change in found)
    assert not any(NOISE[0] <= change.measured <= NOISE[1] for change in found)
    assert sum(change.has_sign for change in found) >= 0.85 * len(found)
