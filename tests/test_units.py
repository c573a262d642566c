"""Times in words: one figure, one text."""

from __future__ import annotations

import pytest

from dsgen.estimate.uncertainty import Band, time_range
from dsgen.units import same_unit, seconds


@pytest.mark.parametrize(
    ("duration_s", "text"),
    [
        (1.0, "1.00 s"),
        (4.5, "4.50 s"),
        (9.996, "10.0 s"),
        (14.0, "14.0 s"),
        (99.96, "100 s"),
        (620.4, "620 s"),
    ],
)
def test_a_time_is_written_alike(duration_s: float, text: str) -> None:
    """A time has the same digits in a sentence, in a column of a table and at an end of a range."""
    assert seconds(duration_s) == text
    assert same_unit([duration_s, 5.0], steps=True)[0] == text
    band = Band(low=duration_s, high=2 * duration_s)
    assert time_range(duration_s, band).partition("-")[0] == text.removesuffix(" s")
