"""Numbers that a message names: divisors, nearest multiples, lists of choices."""

from __future__ import annotations

from collections.abc import Iterable
from math import isqrt

from ..job.wording import listed

__all__ = ["divisors", "listed", "nearest", "neighbours"]


def divisors(number: int, limit: int | None = None) -> list[int]:
    """The divisors of a positive `number`, ascending, up to `limit`."""
    small = [d for d in range(1, isqrt(number) + 1) if number % d == 0]
    found = sorted({*small, *(number // d for d in small)})
    return found if limit is None else [d for d in found if d <= limit]


def nearest(values: Iterable[int], target: int, count: int = 6) -> list[int]:
    """The `count` values nearest to `target`, ascending."""
    return sorted(sorted(values, key=lambda v: (abs(v - target), v))[:count])


def neighbours(step: int, target: int) -> list[int]:
    """The multiples of `step` just below and above `target` (above only, where below is 0)."""
    below = target // step * step
    return [m for m in (below, below + step) if m > 0]
