"""Numbers as text, as the page has them."""

from __future__ import annotations

from ..estimate.uncertainty import Band
from ..units import seconds


def band(duration_s: Band) -> str:
    """Both ends of a band of times: `18.3 s to 26.8 s`."""
    return f"{seconds(float(duration_s.low))} to {seconds(float(duration_s.high))}"


def percent(fraction: float) -> str:
    """A fraction as a percentage with one decimal."""
    return f"{100 * float(fraction):.1f} %"
