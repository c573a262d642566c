"""How well estimates tell layouts of one job apart, on groups made up by hand."""

from __future__ import annotations

import pytest

from benchmarks.ordering import duels, ordering, share_right, spread, table
from benchmarks.regret import Choice, Group
from tests.benchmarks.measured_runs import run


def group(*times: tuple[float, float]) -> Group:
    """One layout for each pair of estimated and measured seconds."""
    choices = [
        Choice(
            runs=(), layout=run(micro_batch=2**i).layout, measured_s=measured, estimated_s=estimated
        )
        for i, (estimated, measured) in enumerate(times)
    ]
    return Group(source="one", job=run().job, choices=tuple(choices))


def test_what_layouts_share_is_no_spread() -> None:
    """An estimate that is off by the same factor for every layout orders them perfectly."""
    assert spread(group((1, 2), (2, 4), (3, 6))) == pytest.approx(0)


def test_pairs_are_judged_by_how_far_apart_they_are() -> None:
    """Close pairs in the wrong order don't count against pairs that are far apart."""
    found = [group((1.00, 2), (1.01, 1), (2, 4))]
    assert share_right(found, 0.02) == 0
    assert share_right(found, 2.0, above=0.5) == 1
    assert share_right(found, 0.001) is None


def test_a_group_counts_once() -> None:
    """A group with many layouts weighs as much as one with few."""
    weights = [
        duel.weight
        for duel in duels([group((1, 1), (2, 2), (3, 3)), group(*((i, i) for i in range(1, 7)))])
    ]
    assert sum(weights) == pytest.approx(2)


def test_the_band_follows_the_spread() -> None:
    """Perfect order needs no band; else the band is where the odds are two to one, less than the
    spread itself.
    """
    assert ordering([group((1, 1), (1.02, 1.02), (1.04, 1.04))]).band == pytest.approx(0)
    found = ordering([group((1.0, 1.05), (1.0, 1.0), (1.0, 0.95))])
    assert found.spread == pytest.approx(0.05, rel=0.01)
    assert found.band == pytest.approx(0.61 * 0.05, rel=0.03)


def test_the_table_has_a_line_for_each_band() -> None:
    """How many pairs inside are in order is printed from none to ten percent."""
    lines = list(table([group((1, 1), (1.02, 2), (1.04, 3))]))
    assert lines[2].startswith("| 0% |")
    assert lines[-1].startswith("| 10% |")
