"""Numbers and layouts as text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..units import DAY, HOUR, MINUTE
from ..units import count as count
from ..units import gib as gib
from ..units import seconds as seconds

if TYPE_CHECKING:  # what they import takes time, and the catalogue has no estimates
    from ..estimate.evidence import Evidence
    from ..estimate.uncertainty import Band, Uncertainty

#: How MFU is counted, wherever it is shown.
MFU_NOTE = "MFU: of the dense peak; causal attention counts half, recomputation not"

#: Of bytes, where a count says them otherwise.
_PREFIXES = {"B": "G", "quadrillion": "P"}


def sized(size_bytes: float) -> str:
    """Bytes as of files and rates, decimal: `2.44 TB`, `285 kB`."""
    number, _, letter = count(size_bytes).partition(" ")
    return f"{number} {_PREFIXES.get(letter, letter)}B"


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
    """Which runs keep to the ranges."""
    share = f"{uncertainty.coverage:.0%} of"
    if uncertainty.regime == "calibrated":
        return f"{share} runs should stay within, in time as those of your calibration did"
    return f"{share} published runs, each left out of the fit, fell within"


def evidence_note(known: Evidence) -> str:
    """What speaks for an estimate: how many measured runs are like it, or in what it is beyond all of them."""
    if known.beyond:
        return f"no measured run is like it ({', '.join(known.beyond)})"
    return f"{known.runs:,} measured run{'s are' if known.runs != 1 else ' is'} like it"


def _three_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:#.3g}"


def file_name(text: str) -> str:
    """`text` as one plain part of a path."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")[:80] or "job"


def percent(fraction: Any) -> str:
    """A fraction as a percentage with one decimal."""
    return f"{100 * float(fraction):.1f}%"


def one_of(numbers: Sequence[int]) -> str:
    """Numbers as alternatives; of many, the first and the last few: `1, 2, 4 or 8`."""
    shown = [f"{number:,}" for number in numbers]
    if len(shown) > 8:
        shown = [*shown[:4], "...", *shown[-2:]]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} or {shown[-1]}"
