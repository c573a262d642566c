"""Runs that no constant was fitted to, and what options changed."""

from __future__ import annotations

from statistics import median

import pytest

from benchmarks.knobs import NOISE, Change, by_knob, changes, unfitted
from benchmarks.measured import runs
from benchmarks.pairs import Pair, timed
from benchmarks.tables import errors


@pytest.fixture(scope="module")
def never_fitted() -> list[Pair]:
    """The runs with their estimates."""
    return unfitted()


def test_the_fit_sees_none_of_them(never_fitted: list[Pair]) -> None:
    """No run that constants are fitted to is among those that are said to be unseen."""
    assert not {pair.run.id for pair in never_fitted} & {run.id for run in timed(runs())}


@pytest.mark.parametrize(("precision", "within"), [("nvfp4", 0.12), ("fp8", 0.05)])
def test_unseen_runs_are_estimated(never_fitted: list[Pair], precision: str, within: float) -> None:
    """Half of the unseen runs are within 12 % in 4 bits, and within 5 % in 8."""
    errors = [
        abs(pair.error) for pair in never_fitted if pair.run.job.training.precision == precision
    ]
    assert len(errors) >= 8 and median(errors) < within


def test_pairs_change_an_option_and_the_time() -> None:
    """Each pair names what changed, and its times differ by more than containers alone do."""
    found: list[Change] = changes()
    assert len(found) >= 12
    assert all(change.options for change in found)
    assert not any(NOISE[0] <= change.measured <= NOISE[1] for change in found)
    assert sum(change.has_sign for change in found) >= 0.85 * len(found)


def test_each_dispatcher_and_kind_of_graphs_is_estimated() -> None:
    """With their cluster left out, runs of each are within 12 % in the mean."""
    found = by_knob()
    assert {name.split()[0] for name in found} == {"dispatcher", "graphs"} and len(found) >= 6
    assert all(errors(pairs).mean < 0.12 for pairs in found.values())
