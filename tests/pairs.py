"""Few rows of a product of factors: every pair of values is in one, so that what two factors do
together shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations, product
from typing import Any


def every_pair(
    *factors: Sequence[Any], legal: Callable[..., bool] = lambda *_: True
) -> list[tuple[Any, ...]]:
    """Rows of the factors' product, few of them, with every pair of values that a legal row has.

    Greedy: the next row is the first of those with the most pairs that no row has yet, always the
    same.
    """
    rows = [row for row in product(*factors) if legal(*row)]
    missing = {pair for row in rows for pair in _pairs(row)}
    chosen: list[tuple[Any, ...]] = []
    while missing:
        chosen.append(max(rows, key=lambda row: len(missing & _pairs(row))))
        missing -= _pairs(chosen[-1])
    return sorted(chosen, key=rows.index)


def _pairs(row: tuple[Any, ...]) -> set[tuple[Any, ...]]:
    return set(combinations(enumerate(row), 2))
