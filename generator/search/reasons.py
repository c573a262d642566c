"""Why a plan was chosen: each decision against the best plan that decides otherwise."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..estimate.layout import FIELDS, Layout, Layouts, Offload, Recompute
from ..job.records import Job
from .rank import OFFLOAD_MARGIN, TIME_BAND

#: The data parallel size and the accumulation follow from the others.
_DECISIONS = tuple(name for name in FIELDS if name not in ("data", "gradient_accumulation"))


def reasons(job: Job, feasible: Layouts, row: int, total_s: NDArray[np.float64]) -> tuple[str, ...]:
    """Why `row` was chosen: a sentence on the choice as a whole, and one per decision that had an alternative."""
    chosen, own, fastest = feasible[row], float(total_s[row]), float(total_s.min())
    kept = chosen.offload == Offload.NONE and own > fastest * (1 + TIME_BAND)
    overall = (_without_offload if kept else _overall)(own, fastest, len(total_s))
    decisions = (_decision(job, name, chosen, feasible, total_s, own) for name in _DECISIONS)
    return (overall, *(line for line in decisions if line))


def _overall(own: float, fastest: float, count: int) -> str:
    if own <= fastest:
        return f"fastest of {count:,} layouts that fit"
    return (
        f"simplest of the layouts within {100 * TIME_BAND:g}% of the fastest, which the model cannot tell apart"
        f" ({own:.3g} s against {fastest:.3g} s; {count:,} layouts fit)"
    )


def _without_offload(own: float, fastest: float, count: int) -> str:
    return (
        f"best of the layouts that keep everything on the device: offload would have to save {OFFLOAD_MARGIN:.0%},"
        f" since its time is the least certain ({own:.3g} s against {fastest:.3g} s; {count:,} layouts fit)"
    )


def _decision(
    job: Job, name: str, chosen: Layout, feasible: Layouts, total_s: NDArray[np.float64], own: float
) -> str | None:
    value = getattr(chosen, name)
    if getattr(job.pins, name) is not None:
        return f"{name}: {_label(name, value)} is pinned"
    column = getattr(feasible, name)
    others = [other for other in np.unique(column).tolist() if other != value]
    if not others:
        return None
    best = {other: float(total_s[column == other].min()) for other in others}
    nearest = sorted(best, key=lambda other: (best[other], other))[:2]
    compared = ", ".join(f"{_label(name, other)} {best[other] / own - 1:+.0%}" for other in nearest)
    return f"{name}: {_label(name, value)}; the best with another value: {compared} step time"


def _label(name: str, value: int) -> str:
    if name == "recompute":
        return Recompute(value).label
    if name == "offload":
        return Offload(value).label
    return str(bool(value)).lower() if name == "sequence_parallel" else str(int(value))
