"""The words of messages."""

from __future__ import annotations

import pytest

from dsgen.rules.violations import divisors, listed, nearest, neighbours


@pytest.mark.parametrize(
    ("values", "words"),
    [((1,), "1"), ((1, 2), "1 or 2"), ((1, 2, 4), "1, 2 or 4"), (("a", "b"), "a or b")],
)
def test_values_are_listed_as_in_a_sentence(values: tuple[object, ...], words: str) -> None:
    """The last two values are joined by `or`, the others by commas."""
    assert listed(values) == words


def test_divisors_ascend_to_the_limit() -> None:
    """Divisors come in order, none above the limit."""
    assert divisors(12) == [1, 2, 3, 4, 6, 12]
    assert divisors(96, 8) == [1, 2, 3, 4, 6, 8]


def test_nearest_values_ascend() -> None:
    """The values nearest to the target come in order; of two equally near, the smaller is
    nearer.
    """
    assert nearest([1, 2, 4, 8, 16], 5, 3) == [2, 4, 8]
    assert nearest([4, 6], 5, 1) == [4]


def test_neighbours_are_positive_multiples() -> None:
    """The multiples around a target leave zero out."""
    assert neighbours(8, 1001) == [1000, 1008]
    assert neighbours(8, 5) == [8]
