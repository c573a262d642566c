"""The logic that rules share; every function accepts numbers and numpy columns alike."""

from __future__ import annotations

from typing import Any

import numpy as np


def implies(condition: Any, consequence: Any) -> Any:
    """Ask whether `consequence` is true wherever `condition` is."""
    return np.logical_or(np.logical_not(condition), consequence)


def divides(divisor: Any, number: Any) -> Any:
    """Ask whether `number` is a multiple of `divisor`."""
    return number % divisor == 0


def divide_either_way(a: Any, b: Any) -> Any:
    """Ask whether one of two positive numbers is a multiple of the other."""
    return (a % b == 0) | (b % a == 0)
