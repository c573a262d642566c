"""Numbers that a message names: divisors, nearest multiples, lists of choices."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from ..job.wording import listed

__all__ = ["divisors", "listed", "nearest", "neighbours"]


#: Prime factors up to here are found: all of a number below 2^32, and no size that a run can have is larger.
_LARGEST_PRIME: Final = 2**16
#: Larger numbers fit no framework's 64-bit integers; a number below has at most 103,680 divisors.
_LARGEST: Final = 2**63


def divisors(number: int, limit: int | None = None) -> list[int]:
    """The divisors of a positive `number`, ascending, up to `limit`.

    Of numbers from 2^32 on some may be missing: two prime factors above 2^16 count as one. Of numbers from 2^63 on,
    only 1 and the number itself are found.
    """
    found = _divisors(number)
    return [*found] if limit is None else [*found[: bisect_right(found, limit)]]


@lru_cache(maxsize=256)
def _divisors(number: int) -> tuple[int, ...]:
    """From the prime factors, which are found by trial division."""
    found, rest, prime = [1], number, 2 if number < _LARGEST else number
    while rest > 1:
        prime = prime if prime * prime <= rest and prime < _LARGEST_PRIME else rest
        powers = [1]
        while rest % prime == 0:
            rest //= prime
            powers.append(powers[-1] * prime)
        found = [d * power for power in powers for d in found]
        prime += 1
    return tuple(sorted(found))


def nearest(values: Iterable[int], target: int, count: int = 6) -> list[int]:
    """The `count` values nearest to `target`, ascending."""
    return sorted(sorted(values, key=lambda v: (abs(v - target), v))[:count])


def neighbours(step: int, target: int) -> list[int]:
    """The multiples of `step` just below and above `target` (above only, where below is 0)."""
    below = target // step * step
    return [m for m in (below, below + step) if m > 0]
