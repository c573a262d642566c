"""The most probable corrections of a model for few measurements, as far from none as prediction bears out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .posterior import Vector, jacobian, most_probable, solve

#: Standard deviation of the logarithm of one measurement that no correction explains: assumed. Repeated runs of one
#: published table lie within 5 % of each other.
_NOISE = 0.02
#: Multiples of the priors' spreads that are tried, widest first: between one cluster and the next the constants differ
#: more than between the averages of many. 0 is the model as it is.
_SCALES = (2.0, 1.0, 0.5, 0.25, 0.0)
#: With one run nothing can be left out: the priors are halved.
_ALONE = 0.5
#: Rounds in which the weight of outliers settles; their weight falls from so many standard deviations on.
_ROUNDS = 6
_OUTLIER = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Logarithms of factors, and log(estimated / measured) before, after, and of each run by a fit without it."""

    x: Vector
    before: Vector
    after: Vector
    left_out: Vector | None  #: None with a single run


def shrunken(residuals: Callable[[Vector], Vector], spreads: Vector) -> Fit:
    """The fit whose priors are as wide as predicts left-out measurements best; no correction when none helps.

    `residuals(x)`: log(estimated / measured) under the corrections x. `spreads`: their prior standard deviations.
    """
    none = np.zeros(len(spreads))
    before = residuals(none)
    noise = np.full(len(before), _NOISE)
    if not len(spreads):
        return Fit(x=none, before=before, after=before, left_out=before)
    if len(before) == 1:
        x = most_probable(residuals, _ALONE * spreads, noise=noise)
        return Fit(x=x, before=before, after=residuals(x), left_out=None)
    x = most_probable(residuals, spreads, noise=noise)
    at_x = residuals(x)
    slopes = jacobian(residuals, x, at_x)
    tried = {s: _left_out(residuals, slopes, at_x - slopes @ x, s * spreads) if s else before for s in _SCALES}
    scale = min(_SCALES, key=lambda choice: mean_error(tried[choice]))
    if scale == 0:
        return Fit(x=none, before=before, after=before, left_out=before)
    x = most_probable(residuals, scale * spreads, noise=noise, start=x)
    return Fit(x=x, before=before, after=residuals(x), left_out=tried[scale])


def mean_error(logarithms: Vector) -> float:
    """Mean absolute error of estimates, as a fraction of what was measured."""
    return float(np.abs(np.expm1(logarithms)).mean())


def _left_out(
    residuals: Callable[[Vector], Vector], slopes: NDArray[np.float64], at_none: Vector, spreads: Vector
) -> Vector:
    """log(estimated / measured) of each run by a fit without it.

    The fits are made on the linearised model `at_none + slopes @ x`, the errors on the model itself.
    """
    errors = np.empty(len(at_none))
    for i in range(len(at_none)):
        others = np.arange(len(at_none)) != i
        x = np.zeros(len(spreads))
        for _ in range(_ROUNDS):
            scaled = (at_none[others] + slopes[others] @ x) / _NOISE
            x = solve(slopes[others], at_none[others], 1 / (1 + (scaled / _OUTLIER) ** 2) / _NOISE**2, spreads)
        errors[i] = residuals(x)[i]
    return errors
