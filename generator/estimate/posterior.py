"""The most probable correction of constants: a robust least-squares fit that is held back by what was known before."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

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
