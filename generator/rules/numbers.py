"""Numbers in the words of a message: lists, divisors, nearest multiples."""

from __future__ import annotations

from collections.abc import Iterable
from math import isqrt


def divisors(number: int, limit: int | None = None) -> list[int]:
    """The divisors of a positive `number`, ascending, up to `limit`."""
    small = [d for d in range(1, isqrt(number) + 1) if number % d == 0]
    found = sorted({*small, *(number // d for d in small)})
    return found if limit is None else [d for d in found if d <= limit]


def listed(values: Iterable[object]) -> str:
    """`1`, `1 or 2`, `1, 2 or 4`."""
    words = [str(v) for v in values]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def nearest(values: Iterable[int], target: int, count: int = 6) -> list[int]:
    """The `count` values nearest to `target`, ascending."""
    return sorted(sorted(values, key=lambda v: (abs(v - target), v))[:count])


def neighbours(step: int, target: int) -> list[int]:
    """The multiples of `step` just below and above `target` (above only, where below is 0)."""
    below = target // step * step
    return [m for m in (below, below + step) if m > 0]
