"""Numbers and layouts as text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ..estimate.evidence import Evidence
from ..estimate.layout import Layout
from ..estimate.uncertainty import Band, Uncertainty
from ..units import DAY, GIB, HOUR, MINUTE, long_time

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


#: Of bytes, where a count says them otherwise.
_PREFIXES = {"B": "G", "quadrillion": "P"}


def sized(size_bytes: float) -> str:
    """Bytes as of files and rates, decimal: `2.44 TB`, `285 kB`."""
    number, _, letter = count(size_bytes).partition(" ")
    return f"{number} {_PREFIXES.get(letter, letter)}B"


def seconds(duration_s: float) -> str:
    """A short time: `18.2 s`, `350 ms`."""
    if duration_s >= 1000:
        return long_time(duration_s)
    return f"{duration_s:.3g} s" if duration_s >= 1 else f"{duration_s * 1e3:.3g} ms"


def seconds_with_band(duration_s: float, band_s: Band) -> str:
    """A short time with the band around it, in one unit: `18.2 s (16.9-20.1)`."""
    text = seconds(duration_s)
    unit_s = {"ms": 1e-3, "s": 1.0, "minutes": MINUTE, "hours": HOUR, "days": DAY}[text.split()[-1]]
    return f"{text} ({_three_digits(band_s.low / unit_s)}-{_three_digits(band_s.high / unit_s)})"


def gib_with_band(size_bytes: float, band_bytes: Band) -> str:
    """Bytes in GiB with the band around them: `52.1 GiB (49.9-54.0)`."""
    return f"{gib(size_bytes)} GiB ({gib(band_bytes.low)}-{gib(band_bytes.high)})"


def band_note(uncertainty: Uncertainty) -> str:
    """What the numbers in brackets are."""
    share = f"{uncertainty.coverage:.0%}"
    if uncertainty.regime == "calibrated":
        return f"in brackets: the range that {share} of runs should keep to, in time as those of your calibration did"
    return f"in brackets: the range that {share} of published runs kept to, of sources the model never saw"


def evidence_note(known: Evidence) -> str:
    """What speaks for an estimate: `like 41 measured runs`, or in what it is beyond all of them."""
    if known.beyond:
        return f"extrapolated: {', '.join(known.beyond)}"
    return f"like {known.runs:,} measured run{'s' if known.runs != 1 else ''}"


def _three_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:#.3g}"


def file_name(text: str) -> str:
    """`text` as one plain part of a path."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")[:80] or "job"


def degrees(layout: Layout) -> str:
    """The factors of the world size: `data 8 × tensor 8 × pipeline 16`."""
    factors = {"data": layout.data, "tensor": layout.tensor, "pipeline": layout.pipeline, "context": layout.context}
    return " × ".join(f"{name} {value}" for name, value in factors.items() if value > 1 or name == "data")


def choices(layout: Layout) -> list[str]:
    """The other decisions, those that change anything."""
    optional = (
        (layout.virtual_pipeline > 1, f"{layout.virtual_pipeline} chunks a stage"),
        (layout.expert > 1, f"expert {layout.expert}"),
        (layout.expert_tensor > 1, f"experts cut by {layout.expert_tensor}"),
        (layout.context_heads > 1, f"heads over {layout.context_heads} context ranks"),
        (layout.sequence_parallel, "sequence parallel"),
        (layout.tensor_overlap, "tensor overlap"),
        (layout.expert_overlap, "expert overlap"),
        (layout.zero_stage > 0, f"ZeRO {layout.zero_stage}"),
        (layout.zero_copies > 1, f"{layout.zero_copies} sharded copies"),
        (layout.zero_hpz > 1, f"hpZ {layout.zero_hpz}"),
        (True, f"micro batch {layout.micro_batch}"),
        (True, f"recompute {_recomputed(layout)}"),
        (layout.offload.label != "none", f"offload {_offloaded(layout)}"),
    )
    return [text for shown, text in optional if shown]


def _recomputed(layout: Layout) -> str:
    """What is recomputed: `none`, `full`, `full in 4 layers of a chunk`, `core_attn + mlp`."""
    if layout.recompute.label == "selective" and layout.recompute_modules.labels != ["core_attn"]:
        return " + ".join(layout.recompute_modules.labels)
    partial = layout.recompute.label == "full" and layout.recompute_layers
    return f"full in {layout.recompute_layers} layers of a chunk" if partial else layout.recompute.label


def _offloaded(layout: Layout) -> str:
    share = f" ({layout.offload_fraction:.0%})" if layout.offload_fraction < 1 else ""
    return f"{layout.offload.label}{share}"


def percent(fraction: Any) -> str:
    """A fraction as a percentage with one decimal."""
    return f"{100 * float(fraction):.1f} %"


def one_of(numbers: Sequence[int]) -> str:
    """Numbers as alternatives; of many, the first and the last few: `1, 2, 4 or 8`."""
    shown = [f"{number:,}" for number in numbers]
    if len(shown) > 8:
        shown = [*shown[:4], "...", *shown[-2:]]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} or {shown[-1]}"
