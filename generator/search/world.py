"""The ways to divide a job's GPUs: how many there are of each kind, and their factors one after the other.

What a factor decides for the other variables (how many micro-batches a number of replicas allows, how many chunks a
number of stages) is its weight: how many layouts grow from a division is the product of its factors' weights. The sums
over all divisions come from convolutions over the divisors, so nothing has to be enumerated to be counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.int64]
#: The factors of the world in the order in which they are chosen; the last is what is left.
FACTORS = ("tensor", "context", "pipeline", "data")


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Every data × tensor × pipeline × context = gpus, weighted."""

    sizes: Column  #: the divisors of the GPUs: the values of every factor, and of what is left for the others
    quotient: Column  #: which size is `sizes[row] / sizes[column]`; past the end where it isn't whole
    weights: Mapping[str, Column]  #: by factor and size
    left: Mapping[str, Column]  #: by factor and what is left for it and the factors after it: their weighted divisions

    @classmethod
    def of(cls, sizes: Column, weights: Mapping[str, Column]) -> World:
        """The divisions of the GPUs, of which `sizes` are the divisors; `weights` by factor, one for each of them."""
        whole = sizes[:, None] % sizes == 0
        quotient = np.where(whole, np.searchsorted(sizes, sizes[:, None] // sizes), len(sizes))
        left = {FACTORS[-1]: weights[FACTORS[-1]]}
        for later, name in zip(FACTORS[::-1], FACTORS[-2::-1], strict=False):
            left[name] = (weights[name] * np.append(left[later], 0)[quotient]).sum(axis=1)
        return cls(sizes=sizes, quotient=quotient, weights=weights, left=left)

    @property
    def total(self) -> int:
        """All weighted divisions."""
        return int(self.left[FACTORS[0]][-1])

    def values(self, name: str, rest: Column) -> tuple[Column, Column, Column]:
        """The values of one factor for rows that have `rest` (as numbers of sizes) left: rows, values and new rests."""
        if name == FACTORS[-1]:  # all that is left, which leaves 1
            rows = np.flatnonzero(self.weights[name][rest])
            return rows, rest[rows], np.zeros(len(rows), np.int64)
        later = FACTORS[FACTORS.index(name) + 1]
        following = self.quotient[rest]
        possible = (self.weights[name] > 0) & (np.append(self.left[later], 0)[following] > 0)
        rows, chosen = np.nonzero(possible)
        return rows, chosen, following[rows, chosen]

    def divisions(self, name: str, rest: Column) -> Column:
        """The weighted divisions of what is left once `name` is chosen."""
        if name == FACTORS[-1]:
            return np.ones(len(rest), np.int64)
        return self.left[FACTORS[FACTORS.index(name) + 1]][rest]
