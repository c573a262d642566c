"""The most probable correction of constants.

It is a robust least-squares fit that is held back by what was known before.

Few measurements leave the constants where they are, or as far from there as prediction bears out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ..dataclass import dataclass

Vector = NDArray[np.float64]
#: Residuals beyond so many standard deviations count less and less (Huber's constant is 1.345;
#: published runs hold whole outliers, so they are let go a little later and faster).
_OUTLIER = 2.0
_STEP = 1e-3
_ROUNDS = 6


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
    """The most probable x of the linear model `at_none + slopes @ x`.

    Weights start as `weights` and settle in some rounds, in which outliers lose theirs.
    """
    x = np.zeros(len(spreads))
    for _ in range(rounds):
        x = solve(slopes, at_none, weights, spreads)
        weights = weights_of(at_none + slopes @ x, noise)
    return x


def weights_of(current: Vector, noise: Vector) -> Vector:
    """Student's weights.

    They are one over the variance near zero, and fall with the square beyond `_OUTLIER`.
    """
    return np.asarray(1 / (1 + (current / noise / _OUTLIER) ** 2) / noise**2)


def cost(current: Vector, x: Vector, noise: Vector, spreads: Vector) -> float:
    """Twice the negative logarithm of the probability of x, `current` being its residuals."""
    misfit = _OUTLIER**2 * np.log1p((current / noise / _OUTLIER) ** 2).sum()
    return float(misfit + ((x / spreads) ** 2).sum())


#: Standard deviation of the logarithm of one measurement that no correction explains: repeated runs
#: of one published table lie within 5 % of each other.
_NOISE = 0.05
#: Multiples of the priors' spreads that are tried, widest first: a cluster may be farther from the
#: average of many than those are uncertain. Steps of two, for ten measurements can't tell finer
#: ones apart.
_SCALES = (2.0, 1.0, 0.5, 0.25)
_TINY = 1e-12
#: Fewest measurements of which one can be called an outlier, and fewest models that tell something
#: of a further one.
_FEW = 3
#: Probability of a gain from which on it counts: less likely ones make two machines of
#: `benchmarks.calibration` worse (B300, ds-azure).
_LIKELY = 0.75
_ANGLES = 10001  #: places of the numeric integral
#: Fewer measurements move nothing: one may be off for reasons of its own, and of two none tells
#: which.
LEAST_RUNS = 3


#: log(estimated / measured) of every measurement under the corrections x, or of the one whose place
#: is given as well.
Residuals = Callable[..., Vector]


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

    Each measurement is left out once. Where the measurements are of three `models` at least, so are
    all those of each model: runs of one model are off together, for reasons that another model
    doesn't share. The fit's corrections count by the share that both bear out: the smaller
    probability of a gain. `residuals(x)`: log(estimated / measured) under the corrections x.
    `spreads`: their prior standard deviations.
    """
    zeros = np.zeros(len(spreads))
    before = residuals(zeros)
    if not len(spreads):
        return Fit(x=zeros, before=before, after=before, left_out=before)
    if len(before) < LEAST_RUNS:
        return Fit(x=zeros, before=before, after=before, left_out=None)
    runs = np.arange(len(before))
    model_of_run = np.unique([str(model) for model in models], return_inverse=True)[1]
    slopes_at_zeros = jacobian(residuals, zeros, before)
    for scale in _SCALES:
        priors = scale * spreads
        # The residuals are linear only nearly: the second fit starts from slopes at the first's.
        x = _fitted(slopes_at_zeros, before, priors)
        at_x = residuals(x)
        slopes = jacobian(residuals, x, at_x)
        at_none = at_x - slopes @ x
        left_out = _left_out(residuals, slopes, at_none, priors, runs)
        share = _belief(before, left_out, runs)
        if not share:
            continue
        if len(set(model_of_run)) >= _FEW:
            without = _left_out(residuals, slopes, at_none, priors, model_of_run)
            share = min(share, _belief(before, without, model_of_run))
        x = share * _fitted(slopes, at_none, priors)
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
    errors = float(means.mean()) / max(float(means.std(ddof=1)) / math.sqrt(len(means)), _TINY)
    angles = np.linspace(-math.pi / 2, math.pi / 2, _ANGLES)
    density = np.cos(angles) ** (freedom - 1)
    is_below = angles <= math.atan(errors / math.sqrt(freedom))
    probability = float(density[is_below].sum() / density.sum())
    return probability if probability >= _LIKELY else 0.0


def _fitted(slopes: NDArray[np.float64], at_none: Vector, spreads: Vector) -> Vector:
    """The most probable x of the linear model.

    With outliers there can be two hills of probability: runs that are off together are a machine's
    constants or a heap of outliers. Both are climbed, from a fit that takes all runs alike and from
    no correction; the higher one counts.
    """
    noise = np.full(len(at_none), _NOISE)
    alike, without_outliers = noise**-2, weights_of(at_none, noise)
    hills = [
        settled(slopes, at_none, noise, spreads, weights=weights)
        for weights in (alike, without_outliers)
    ]
    return min(hills, key=lambda x: cost(at_none + slopes @ x, x, noise, spreads))


def _left_out(
    residuals: Residuals,
    slopes: NDArray[np.float64],
    at_none: Vector,
    spreads: Vector,
    groups: NDArray[np.int64],
) -> Vector:
    """log(estimated / measured) of each measurement by a fit without its group, made on the linear
    model.
    """
    errors = np.empty(len(at_none))
    for group in np.unique(groups):
        others = groups != group
        noise = np.full(int(others.sum()), _NOISE)
        rounds = _ROUNDS if len(noise) >= _FEW else 1
        without = settled(
            slopes[others], at_none[others], noise, spreads, weights=noise**-2, rounds=rounds
        )
        for i in np.flatnonzero(~others):
            errors[i] = residuals(without, int(i))[0]
    return errors
