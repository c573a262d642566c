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
        weights = _weights(current / noise) / noise**2
        slopes = jacobian(residuals, x, current)
        step = solve(slopes, current - slopes @ x, weights, spreads) - x
        step = np.clip(step, -2 * spreads, 2 * spreads)
        candidate = residuals(x + step)
        if _cost(candidate, x + step, noise, spreads) >= _cost(current, x, noise, spreads):
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


def _weights(scaled: Vector) -> Vector:
    """Student's weights: 1 near zero, falling with the square beyond `_OUTLIER`."""
    return 1 / (1 + (scaled / _OUTLIER) ** 2)


def _cost(current: Vector, x: Vector, noise: Vector, spreads: Vector) -> float:
    scaled = current / noise
    misfit = _OUTLIER**2 * np.log1p((scaled / _OUTLIER) ** 2).sum()
    return float(misfit + ((x / spreads) ** 2).sum())
