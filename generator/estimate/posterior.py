"""The most probable correction of constants.

It is a robust least-squares fit that is held back by what was known before. With few measurements
the constants stay where they are, or move only as far as makes left out measurements predicted
better.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..dataclass import dataclass

Vector = NDArray[np.float64]
#: Residuals beyond so many standard deviations count less and less. Huber's constant is 1.345; here
#: weights begin to fall a little later, and then fall faster: some published runs are wholly off.
_OUTLIER = 2.0
_STEP = 1e-3  #: of the finite differences, in logarithms of factors
_ROUNDS = 6  #: in which weights settle


def jacobian(residuals: Callable[[Vector], Vector], x: Vector, at_x: Vector) -> NDArray[np.float64]:
    """Derivatives of the residuals, which are `at_x` at x: a row for each residual, a column for
    each element of x.
    """
    columns = []
    for i in range(len(x)):
        moved = x.copy()
        moved[i] += _STEP
        columns.append((residuals(moved) - at_x) / _STEP)
    return np.stack(columns, axis=1) if columns else np.zeros((len(at_x), 0))


def solve(slopes: NDArray[np.float64], at_zero: Vector, weights: Vector, spreads: Vector) -> Vector:
    """The x that minimises the weighted squares of the residuals `at_zero + slopes @ x`, and of x
    over its prior spreads.
    """
    precision = slopes.T @ (weights[:, None] * slopes) + np.diag(1 / spreads**2)
    return np.asarray(np.linalg.solve(precision, -slopes.T @ (weights * at_zero)))


def settled(
    slopes: NDArray[np.float64],
    at_zero: Vector,
    noise: Vector,
    spreads: Vector,
    *,
    weights: Vector,
    rounds: int = _ROUNDS,
) -> Vector:
    """The most probable x of the linear model `at_zero + slopes @ x`.

    Weights start as `weights` and settle in some rounds, in which outliers lose theirs.
    """
    x = np.zeros(len(spreads))
    for _ in range(rounds):
        x = solve(slopes, at_zero, weights, spreads)
        weights = weights_of(at_zero + slopes @ x, noise)
    return x


def weights_of(residuals: Vector, noise: Vector) -> Vector:
    """The weights of residuals whose errors have Student's distribution.

    They are one over the variance near zero, and fall with the square beyond `_OUTLIER`.
    """
    trust = 1 / (1 + (residuals / noise / _OUTLIER) ** 2)
    return np.asarray(trust / noise**2)


def cost(at_x: Vector, x: Vector, noise: Vector, spreads: Vector) -> float:
    """Twice the negative logarithm of the probability of x, where the residuals are `at_x`."""
    misfit = _OUTLIER**2 * np.log1p((at_x / noise / _OUTLIER) ** 2).sum()
    return float(misfit + ((x / spreads) ** 2).sum())


#: Standard deviation of the logarithm of one measurement that no correction explains: repeated runs
#: of one published table lie within 5 % of each other.
_NOISE = 0.05
#: Multiples of the priors' spreads that are tried, widest first. The widest is above 1: a spread is
#: the uncertainty of the mean of many clusters, and one cluster may be farther from that mean.
#: Steps of two, for ten measurements can't tell finer ones apart.
_SCALES = (2.0, 1.0, 0.5, 0.25)
_TINY = 1e-12  #: in place of a standard error of 0
_FEWEST_WITH_OUTLIER = 3  #: measurements of which one can be called an outlier
_FEWEST_MODELS = 3  #: that tell something of a further model
#: Probability of a gain from which on it counts: less likely ones make two machines of
#: `benchmarks.calibration` worse (B300, ds-azure).
_LIKELY = 0.75
_ANGLES = 10001  #: places of the numeric integral
#: Fewer measurements move nothing: one may be off for reasons of its own, and of two none tells
#: which.
LEAST_RUNS = 3


class Residuals(Protocol):
    """log(estimated / measured) under the corrections x."""

    def __call__(self, x: Vector, only: int | None = None) -> Vector:
        """Those of all measurements, or of the one at the place `only`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Logarithms of factors, and log(estimated / measured) of each run."""

    x: Vector  #: the logarithms of factors
    before: Vector
    after: Vector
    left_out: Vector | None  #: by a fit without the run; None with fewer than `LEAST_RUNS`


def shrunken(residuals: Residuals, spreads: Vector, models: Sequence[object] = ()) -> Fit:
    """The fit with the widest priors under which left out measurements are likely predicted better.

    Without such a fit nothing is corrected.

    Each measurement is left out once. Where `models` (the model of each) names three or more, all
    measurements of one model are left out together as well: they are off together, for reasons that
    another model doesn't share. The fit's corrections are multiplied with the probability that they
    help, the smaller one of both tests. `spreads` are their prior standard deviations.
    """
    zeros = np.zeros(len(spreads))
    before = residuals(zeros)
    if not len(spreads):
        return Fit(x=zeros, before=before, after=before, left_out=before)
    if len(before) < LEAST_RUNS:
        return Fit(x=zeros, before=before, after=before, left_out=None)
    runs = np.arange(len(before))
    _, model_of_run = np.unique([str(model) for model in models], return_inverse=True)
    slopes_at_zeros = jacobian(residuals, zeros, before)
    for scale in _SCALES:
        priors = scale * spreads
        # The residuals are linear only nearly: the second fit starts from slopes at the first's.
        x = _fitted(slopes_at_zeros, before, priors)
        at_x = residuals(x)
        slopes = jacobian(residuals, x, at_x)
        at_zero = at_x - slopes @ x
        left_out = _left_out(residuals, slopes, at_zero, priors, runs)
        share = _belief(before, left_out, runs)
        if not share:
            continue
        if len(set(model_of_run)) >= _FEWEST_MODELS:
            without_model = _left_out(residuals, slopes, at_zero, priors, model_of_run)
            share = min(share, _belief(before, without_model, model_of_run))
        x = share * _fitted(slopes, at_zero, priors)
        blended = (1 - share) * before + share * left_out
        return Fit(x=x, before=before, after=residuals(x), left_out=blended)
    return Fit(x=zeros, before=before, after=before, left_out=before)


def _belief(before: Vector, left_out: Vector, groups: NDArray[np.int64]) -> float:
    """The probability that corrections help, by how much closer each left out group is predicted.

    It is 0 where it is below `_LIKELY`. The mean of n groups' gains over its standard error is
    distributed as Student's t with f = n - 1 degrees of freedom, whose density is that of
    `cos(a)^(f - 1)` for `t = sqrt(f) tan(a)`.
    """
    gains = np.abs(np.expm1(before)) - np.abs(np.expm1(left_out))
    means = np.bincount(groups, gains) / np.bincount(groups)
    freedom = len(means) - 1
    standard_error = float(means.std(ddof=1)) / math.sqrt(len(means))
    t = float(means.mean()) / max(standard_error, _TINY)
    angles = np.linspace(-math.pi / 2, math.pi / 2, _ANGLES)
    density = np.cos(angles) ** (freedom - 1)
    is_below = angles <= math.atan(t / math.sqrt(freedom))
    probability = float(density[is_below].sum() / density.sum())
    return probability if probability >= _LIKELY else 0.0


def _fitted(slopes: NDArray[np.float64], at_zero: Vector, spreads: Vector) -> Vector:
    """The most probable x of the linear model.

    With outliers the probability can have two maxima: runs that are off together are a machine's
    constants or a heap of outliers. Both are sought, from a fit that takes all runs alike and from
    no correction; the higher one counts.
    """
    noise = np.full(len(at_zero), _NOISE)
    all_alike, of_no_correction = noise**-2, weights_of(at_zero, noise)
    maxima = [
        settled(slopes, at_zero, noise, spreads, weights=weights)
        for weights in (all_alike, of_no_correction)
    ]
    return min(maxima, key=lambda x: cost(at_zero + slopes @ x, x, noise, spreads))


def _left_out(
    residuals: Residuals,
    slopes: NDArray[np.float64],
    at_zero: Vector,
    spreads: Vector,
    groups: NDArray[np.int64],
) -> Vector:
    """log(estimated / measured) of each measurement by a fit without its group, made on the linear
    model.
    """
    left_out = np.empty(len(at_zero))
    for group in np.unique(groups):
        others = groups != group
        noise = np.full(int(others.sum()), _NOISE)
        rounds = _ROUNDS if len(noise) >= _FEWEST_WITH_OUTLIER else 1
        x = settled(
            slopes[others], at_zero[others], noise, spreads, weights=noise**-2, rounds=rounds
        )
        for i in np.flatnonzero(~others):
            [left_out[i]] = residuals(x, int(i))
    return left_out
