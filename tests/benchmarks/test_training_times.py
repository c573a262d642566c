"""Whole runs whose length was published, beside what is estimated of them."""

from __future__ import annotations

import pytest

from benchmarks.training_times import read


def test_blooms_steps_are_counted_through_its_ramp_up() -> None:
    """BLOOM's 158,692,272 samples are as many iterations as its log says: 85,376."""
    (bloom,) = read(["bloom-176b"])
    assert sum(run.steps for run in bloom.runs) == bloom.row["published"]["steps"] == 85_376


def test_most_published_lengths_are_within_the_band() -> None:
    """Of six published lengths, at least three are within the band of the step time; none is off by
    a third.
    """
    found = read()
    inside = [
        each for each in found if each.band[0] <= each.row["published"]["days"] <= each.band[1]
    ]
    assert len(inside) >= 3
    assert [each.error for each in found] == pytest.approx([0] * len(found), abs=1 / 3)
