"""Token counts and wall times."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsgen.job.quantities import read_batch_tokens, read_time_limit, read_tokens


@pytest.mark.parametrize(
    ("value", "tokens"),
    [
        (1, 1),
        (300e9, 300_000_000_000),
        ("4M", 4_000_000),
        ("1.5k", 1500),
        ("300 B", 300 * 10**9),
        ("15T", 15 * 10**12),
    ],
)
def test_tokens_take_suffixes(value: int | float | str, tokens: int) -> None:
    """K, M, B and T are powers of a thousand."""
    assert read_tokens(value) == tokens


@pytest.mark.parametrize(
    ("value", "length", "tokens"),
    [
        ("4M", 2048, 4_194_304),
        ("4M", 2000, 4_000_000),
        ("4M", 2500, 4_000_000),
        ("4M", 3000, 4_000_000),
        ("512k", 8192, 524_288),
        ("1.5k", 512, 1536),
        ("4.1M", 2048, 4_100_000),
        (4_000_000, 2048, 4_000_000),
        ("4000000", 2048, 4_000_000),
    ],
)
def test_batches_take_powers_of_two(value: int | str, length: int, tokens: int) -> None:
    """The suffix of a batch is a power of 1,024 only where that makes whole sequences and a power
    of 1,000 doesn't.
    """
    assert read_batch_tokens(value, length) == tokens


@pytest.mark.parametrize("value", ["1.5", "0", "0.0001K", 0, 2.5])
def test_tokens_are_whole_and_positive(value: float | str) -> None:
    """A part of a token is refused, and so is none."""
    with pytest.raises(ValueError, match="not an integer"):
        read_tokens(value)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (90, 90 * 60),
        ("90", 90 * 60),
        (1e2, 100 * 60),
        ("90:30", 90 * 60 + 30),
        ("12:30:00", 45_000),
        ("2-00", 2 * 86_400),
        ("2-12:30", 2 * 86_400 + 45_000),
        ("2-00:00:00", 2 * 86_400),
    ],
)
def test_time_limits_are_slurms(value: int | float | str, seconds: int) -> None:
    """Each of sbatch's six forms gives its seconds."""
    assert read_time_limit(value) == seconds


@given(st.integers(0, 99), st.integers(0, 23), st.integers(1, 59), st.integers(0, 59))
def test_time_limits_add_up(days: int, hours: int, minutes: int, seconds: int) -> None:
    """The long form is the sum of its parts."""
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    assert read_time_limit(f"{days}-{hours}:{minutes:02}:{seconds:02}") == total


@pytest.mark.parametrize("value", ["0:30", "0", "1:2:3:4"])
def test_useless_time_limits_are_refused(value: str) -> None:
    """Less than a minute, and what is no time, is refused."""
    with pytest.raises(ValueError):
        read_time_limit(value)
