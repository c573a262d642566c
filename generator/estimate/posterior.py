"""The most probable correction of constants: a robust least-squares fit that is held back by what was known before.

Few measurements leave the constants where they are, or as far from there as prediction bears out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..dataclass import dataclass

Vector = NDArray[np.float64]
#: Residuals beyond so many standard deviations count less and less (Huber's constant is 1.345; published runs hold
#: whole outliers, so they are let go a little later and faster).
_OUTLIER = 2.0
_STEP = 1e-3
_ROUNDS = 6


def most_probable(
    residuals: Callable[[Vector], Vector], spreads: Vector, *, noise: Vector, start: Vector | None = None
) -> Vector:
    """The vector x that minimises `sum (residual / noise)^2 + sum (x / spread)^2`, outliers counted less.

    `residuals(x)`: n numbers, logarithms of estimated over measured under the corrections x (logarithms of factors).
    `spreads`: prior standard deviation of each x. `noise`: standard deviation of each residual that no correction
    explains. Gauss-Newton with differences for derivatives; a round that doesn't improve ends it.
    """
    x = np.zeros(len(spreads)) if start is None else start.copy()
    current = residuals(x)
    for _ in range(_ROUNDS):
        weights = weights_of(current, noise)
        slopes = jacobian(residuals, x, current)
        step = solve(slopes, current - slopes @ x, weights, spreads) - x
        step = np.clip(step, -2 * spreads, 2 * spreads)
        candidate = residuals(x + step)
        if cost(candidate, x + step, noise, spreads) >= cost(current, x, noise, spreads):
            break
        x, current = x + step, candidate
    return x


def jacobian(residuals: Callable[[Vector], Vector], x: Vector, at_x: Vector) -> NDArray[np.float64]:
    """Derivatives of the residuals, n by len(x)."""
    columns = []
    for i in range(len(x)):
        moved = x.copy()
        moved[i] += _STEP
        columns.append((residuals(moved) - at_x) / _STEP)
    return np.stack(columns, axis=1) if columns else np.zeros((len(at_x), 0))


def solve(slopes: NDArray[np.float64], offset: Vector, weights: Vector, spreads: Vector) -> Vector:
    """The minimum of the linear problem `offset + slopes @ x` with weights and prior spreads."""
    precision = slopes.T @ (weights[:, None] * slopes) + np.diag(1 / spreads**2)
    return np.asarray(np.linalg.solve(precision, -slopes.T @ (weights * offset)))


def settled(
    slopes: NDArray[np.float64],
    at_none: Vector,
    noise: Vector,
    spreads: Vector,
    *,
    weights: Vector,
    rounds: int = _ROUNDS,
) -> Vector:
    """The most probable x of the linear model `at_none + slopes @ x`, outliers' weights settling from `weights`."""
    x = np.zeros(len(spreads))
    for _ in range(rounds):
        x = solve(slopes, at_none, weights, spreads)
        weights = weights_of(at_none + slopes @ x, noise)
    return x


def weights_of(current: Vector, noise: Vector) -> Vector:
    """Student's weights: one over the variance near zero, falling with the square beyond `_OUTLIER`."""
    return np.asarray(1 / (1 + (current / noise / _OUTLIER) ** 2) / noise**2)


def cost(current: Vector, x: Vector, noise: Vector, spreads: Vector) -> float:
    """Twice the negative logarithm of the probability of x, `current` being its residuals."""
    misfit = _OUTLIER**2 * np.log1p((current / noise / _OUTLIER) ** 2).sum()
    return float(misfit + ((x / spreads) ** 2).sum())


#: Standard deviation of the logarithm of one measurement that no correction explains: repeated runs of one published
#: table lie within 5 % of each other.
_NOISE = 0.05
#: Multiples of the priors' spreads that are tried, widest first: a cluster may be farther from the average of many than
#: those are uncertain. Steps of two, for ten measurements can't tell finer ones apart.
_SCALES = (2.0, 1.0, 0.5, 0.25)
_TINY = 1e-12
#: Fewest measurements of which one can be called an outlier.
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

    Of the fit's corrections counts the share that leaving out bears out. `residuals(x)`: log(estimated / measured)
    under the corrections x. `spreads`: their prior standard deviations.
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
        left_out = _left_out(residuals, x, residuals(x), scale * spreads)
        share = _belief(before, left_out)
        if share:
            blend = (1 - share) * before + share * left_out
            return Fit(x=share * x, before=before, after=residuals(share * x), left_out=blend)
    return neutral


def _belief(before: Vector, left_out: Vector) -> float:
    """Probability that corrections help, of how much closer each measurement left out is predicted; 0 if they don't.

    The mean of n gains is about normal, with a standard deviation of theirs over the root of n.
    """
    gains = np.abs(np.expm1(before)) - np.abs(np.expm1(left_out))
    mean, deviation = float(gains.mean()), float(gains.std(ddof=1)) / math.sqrt(len(gains))
    return 0.0 if mean <= 0 else (1 + math.erf(mean / max(deviation, _TINY) / math.sqrt(2))) / 2


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
