"""Estimates as text: bands, bytes, shares, and how sure an estimate is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..units import DAY, HOUR, MINUTE, count, gib, seconds
from .evidence import Evidence
from .uncertainty import Band, Uncertainty

#: How MFU is counted, wherever it is shown.
MFU_NOTE: Final = "MFU: of the dense peak; causal attention counts half, recomputation not"

#: Of bytes, where a count says them otherwise.
_PREFIXES: Final[Mapping[str, str]] = {"B": "G", "quadrillion": "P"}
_NUMBERS: Final = ("none", "one", "two", "three", "four", "five")


def sized(size_bytes: float) -> str:
    """Bytes as of files and rates, decimal: `2.44 TB`, `285 kB`."""
    number, _, letter = count(size_bytes).partition(" ")
    return f"{number} {_PREFIXES.get(letter, letter)}B"


def percent(fraction: Any) -> str:
    """A fraction as a percentage with one decimal."""
    return f"{100 * float(fraction):.1f}%"


def seconds_with_band(duration_s: float, band_s: Band) -> str:
    """A short time with the band around it, in one unit: `18.2 s (16.9-20.1)`."""
    return f"{seconds(duration_s)} ({time_range(duration_s, band_s)})"


def time_range(duration_s: float, band_s: Band) -> str:
    """The band around a time, in the unit that the time is shown in: `16.9-20.1`."""
    unit_s = {"ms": 1e-3, "s": 1.0, "minutes": MINUTE, "hours": HOUR, "days": DAY}[seconds(duration_s).split()[-1]]
    return f"{_three_digits(band_s.low / unit_s)}-{_three_digits(band_s.high / unit_s)}"


def gib_with_band(size_bytes: float, band_bytes: Band) -> str:
    """Bytes in GiB with the band around them: `52.1 GiB (49.9-54.0)`."""
    return f"{gib(size_bytes)} GiB ({gib(band_bytes.low)}-{gib(band_bytes.high)})"


def band_note(uncertainty: Uncertainty) -> str:
    """Say which runs keep to the ranges."""
    if uncertainty.regime == "calibrated":
        return f"{_share(uncertainty)} runs should stay inside, as those of your calibration did"
    return f"{_share(uncertainty)} published runs stayed inside"


def _share(uncertainty: Uncertainty) -> str:
    """`four of five`, where that is the share."""
    fifths = round(5 * uncertainty.coverage)
    exact = abs(fifths / 5 - uncertainty.coverage) < 0.005
    return f"{_NUMBERS[fifths]} of five" if exact else f"{uncertainty.coverage:.0%} of the"


def evidence_note(known: Evidence) -> str:
    """Say how many measured runs are like an estimate."""
    if known.beyond:
        return "no measured run is like it"
    return f"{known.runs:,} measured run{'s are' if known.runs != 1 else ' is'} like it"


def _three_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:#.3g}"
