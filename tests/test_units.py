"""Times in words: one figure, one text."""

from __future__ import annotations

import pytest

from dsgen.estimate.uncertainty import Band, time_range
from dsgen.units import GIB, gib_apart, long_time, same_unit, seconds


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
    assert time_range(text, band).partition("-")[0] == text.removesuffix(" s")


@pytest.mark.parametrize(
    ("duration_s", "text"),
    [
        (119.0, "119 s (59.5-238)"),
        (540.0, "9 minutes (4.50-18.0)"),
        (8000.0, "2.2 hours (1.11-4.44)"),
    ],
)
def test_a_range_has_the_unit_of_its_time(duration_s: float, text: str) -> None:
    """The ends of a run's range are in the unit in which its length is said."""
    shown, band = long_time(duration_s), Band(low=duration_s / 2, high=2 * duration_s)
    assert f"{shown} ({time_range(shown, band)})" == text


@pytest.mark.parametrize(
    ("size", "limit", "texts"),
    [
        (49.2, 38.0, ("49.2", "38.0")),
        (38.03, 38.0, ("38.03", "38.00")),
        (38.0004, 38.0003, ("38.000", "38.000")),
    ],
)
def test_a_size_over_its_limit_is_written_as_larger(
    size: float, limit: float, texts: tuple[str, str]
) -> None:
    """A size and its limit have more decimals where one would make them look equal."""
    assert gib_apart(size * GIB, limit * GIB) == texts
