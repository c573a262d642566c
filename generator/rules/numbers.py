"""Numbers that a message names: divisors, nearest multiples, lists of choices."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from ..job.wording import listed

__all__ = ["divisors", "listed", "nearest", "neighbours"]


def divisors(number: int, limit: int | None = None) -> list[int]:
    """The divisors of a positive `number`, ascending, up to `limit`."""
    found = _divisors(number)
    return [*found] if limit is None else [d for d in found if d <= limit]


@lru_cache(maxsize=4096)
def _divisors(number: int) -> tuple[int, ...]:
    """From the prime factors, which are found by trial division."""
    found, rest, prime = [1], number, 2
    while rest > 1:
        prime = prime if prime * prime <= rest else rest
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
