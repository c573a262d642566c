"""Numbers as text."""

from __future__ import annotations

from ..estimate.uncertainty import Band
from ..units import GIB, long_time

_SCALES = ((1e15, "quadrillion"), (1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))


def gib(size_bytes: float) -> str:
    """Bytes in GiB with one decimal; small sizes have two."""
    value = float(size_bytes) / GIB
    return f"{value:.2f}" if 0 < value < 0.95 else f"{value:,.1f}"


def count(number: float) -> str:
    """A large count with three digits and a scale: `175 B`, `3.15 M`."""
    for factor, letter in _SCALES:
        if number >= factor:
            value = number / factor
            return f"{value:.{max(0, 3 - len(str(int(value))))}f} {letter}"
    return f"{number:,.0f}"


def seconds(duration_s: float) -> str:
    """A short time: `18.2 s`, `350 ms`."""
    if duration_s >= 1000:
        return long_time(duration_s)
    return f"{duration_s:.3g} s" if duration_s >= 1 else f"{duration_s * 1e3:.3g} ms"


def band(duration_s: Band) -> str:
    """Both ends of a band of times: `18.3 s to 26.8 s`."""
    return f"{seconds(float(duration_s.low))} to {seconds(float(duration_s.high))}"


def percent(fraction: float) -> str:
    """A fraction as a percentage with one decimal."""
    return f"{100 * float(fraction):.1f} %"
