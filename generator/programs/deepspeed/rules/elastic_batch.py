"""The batch that elastic training chooses, as deepspeed/elasticity/elasticity.py does."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

#: deepspeed/elasticity/elasticity.py `HCN_LIST`: numbers that have more divisors than every smaller one.
_HIGHLY_COMPOSITE: Final = (
    *(1, 2, 4, 6, 12, 24, 36, 48, 60, 120, 180, 240, 360, 720, 840, 1260, 1680, 2520, 5040, 7560, 10080, 15120, 20160),
    *(25200, 27720, 45360, 50400, 55440, 83160, 110880, 166320, 221760, 277200, 332640, 498960, 554400, 665280, 720720),
)


@lru_cache(maxsize=32)
def chosen(sizes: tuple[int, ...], most: int, low: int, high: int, larger: bool) -> tuple[int, tuple[int, ...]]:
    """The batch that suits most GPU counts, and the counts: each micro batch, and their common multiple, scaled up."""
    low, high = low or 1, high or most // min(sizes)
    bases = [*sizes, math.lcm(*sizes)]
    batches = {base if base >= most else base * _scale(most // base) for base in bases}
    best, best_counts = min(sizes), list[int]()
    for batch in batches:
        counts = _counts(batch, sizes, low, high)
        nearer = batch > best if larger else batch < best
        if len(counts) > len(best_counts) or (len(counts) == len(best_counts) and nearer):
            best, best_counts = batch, counts
    return best, tuple(best_counts)


def _scale(limit: int) -> int:
    """The largest highly composite number up to the limit; past the list's end, its last as in DeepSpeed's search."""
    return max(number for number in _HIGHLY_COMPOSITE if number <= limit)


def _counts(batch: int, sizes: tuple[int, ...], low: int, high: int) -> list[int]:
    """GPU counts between the bounds that one of the micro batches divides the batch over."""
    found: set[int] = set()
    for most in {batch // size for size in sizes if batch % size == 0}:
        for divisor in range(1, math.isqrt(most) + 1):
            if most % divisor == 0:
                found |= {count for count in (divisor, most // divisor) if low <= count <= high}
    return sorted(found)
