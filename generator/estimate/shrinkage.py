"""The most probable corrections of a model for few measurements, as far from none as prediction bears out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from .posterior import Vector, cost, jacobian, most_probable, settled, solve

#: Standard deviation of the logarithm of one measurement that no correction explains: assumed. Repeated runs of one
#: published table lie within 5 % of each other.
_NOISE = 0.03
#: Multiples of the priors' spreads that are tried, widest first: a cluster may be farther from the average of many than
#: those are uncertain. Three steps, for ten measurements can't tell finer ones apart.
_SCALES = (2.0, 1.0, 0.5)
#: Of fewer measurements none can be called an outlier.
_FEW = 3
#: Fewer measurements move nothing: one may be off for reasons of its own, and of two none tells which.
LEAST_RUNS = 3


class Residuals(Protocol):
    """log(estimated / measured) of every measurement under the corrections x, or of one `only`."""

    def __call__(self, x: Vector, only: int | None = None) -> Vector: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Logarithms of factors, and log(estimated / measured) before, after, and of each run by a fit without it."""

    x: Vector
    before: Vector
    after: Vector
    left_out: Vector | None  #: None with fewer than `LEAST_RUNS`


def shrunken(residuals: Residuals, spreads: Vector) -> Fit:
    """The fit with the widest priors under which a measurement left out is predicted better; else no correction.

    `residuals(x)`: log(estimated / measured) under the corrections x. `spreads`: their prior standard deviations.
    """
    none = np.zeros(len(spreads))
    before = residuals(none)
    neutral = Fit(x=none, before=before, after=before, left_out=before)
    if not len(spreads):
        return neutral
    if len(before) < LEAST_RUNS:
        return Fit(x=none, before=before, after=before, left_out=None)
    for scale in _SCALES:
        x = _fitted(residuals, scale * spreads)
        after = residuals(x)
        left_out = _left_out(residuals, x, after, scale * spreads)
        if mean_error(left_out) < mean_error(before):
            return Fit(x=x, before=before, after=after, left_out=left_out)
    return neutral


def _fitted(residuals: Residuals, spreads: Vector) -> Vector:
    """The most probable x.

    With outliers there can be two hills of probability: runs that are off together are a machine's constants or a heap
    of outliers. Both are climbed, from no correction and from a fit that takes all runs alike; the higher one counts.
    """
    none = np.zeros(len(spreads))
    at_none = residuals(none)
    alike = np.full(len(at_none), _NOISE**-2)
    start = solve(jacobian(residuals, none, at_none), at_none, alike, spreads)
    if len(at_none) < _FEW:
        return start
    noise = np.full(len(at_none), _NOISE)
    hills = [most_probable(residuals, spreads, noise=noise, start=first) for first in (start, none)]
    return min(hills, key=lambda x: cost(residuals(x), x, noise, spreads))


def mean_error(logarithms: Vector) -> float:
    """Mean absolute error of estimates, as a fraction of what was measured."""
    return float(np.abs(np.expm1(logarithms)).mean())


def _left_out(residuals: Residuals, x: Vector, at_x: Vector, spreads: Vector) -> Vector:
    """log(estimated / measured) of each run by a fit without it. The fit is made on the model linearised at `x`."""
    slopes = jacobian(residuals, x, at_x)
    at_none = at_x - slopes @ x
    errors, noise = np.empty(len(at_x)), np.full(len(at_x) - 1, _NOISE)
    settling = {} if len(noise) >= _FEW else {"rounds": 1}
    for i in range(len(at_x)):
        others = np.arange(len(at_x)) != i
        without = settled(slopes[others], at_none[others], noise, spreads, weights=noise**-2, **settling)
        errors[i] = residuals(without, only=i)[0]
    return errors
