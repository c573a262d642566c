"""Ranking: fastest first, and of plans that the model cannot tell apart, the simplest."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..estimate.layout import Layouts, Offload, Recompute
from ..estimate.uncertainty import ordering_band
from ..job.records import Job

#: Two estimates closer than this fraction are equal: so far the model can't tell which layout of one job is the faster
#: (`benchmarks.uncertainty`). Much less than the uncertainty of each alone: two layouts share most of what is unknown.
TIME_BAND = ordering_band()

#: What an offloading plan has to win by to count as faster than one that keeps everything on the device. Its time hangs
#: on host bandwidth, NUMA placement and pinned memory, which no datasheet gives: it is the least certain part of the
#: model, and the part that most often fails on a real machine.
OFFLOAD_MARGIN = 0.15

Floats = NDArray[np.float64]


def complexity(job: Job, layouts: Layouts) -> NDArray[np.int64]:
    """How much there is to go wrong: moving parts in use, the rarely used ones counting double.

    Tensor parallelism is everyday work in a Megatron; AutoTP also asks for a model it knows and ranks fed alike.
    """
    parts: tuple[Any, ...] = (
        (2 if job.framework.runs("AutoTP") else 1) * (layouts.tensor > 1),
        2 * (layouts.pipeline > 1),
        2 * (layouts.virtual_pipeline > 1),
        2 * (layouts.context > 1),
        layouts.expert > 1,
        np.maximum(layouts.zero_stage - 1, 0),
        layouts.recompute != Recompute.NONE,
        layouts.recompute_layers > 0,
        layouts.recompute_modules > 1,
        2 * (layouts.offload_fraction < 1),
        layouts.tensor_overlap,
        2 * layouts.expert_overlap,
        2 * (layouts.context_heads > 1),
        layouts.zero_copies > 1,
        layouts.zero_hpz > 1,
        4 * (layouts.offload != Offload.NONE),
        1 * layouts.offload,
    )
    total: NDArray[np.int64] = np.sum([np.asarray(part, np.int64) for part in parts], axis=0)
    return total


def judged_time(job: Job, layouts: Layouts, total_s: Floats) -> Floats:
    """The step time that plans are compared by, in seconds: the estimate, plus the margin where a plan offloads."""
    judged: Floats = total_s * np.where(layouts.offload != Offload.NONE, 1 + OFFLOAD_MARGIN, 1.0)
    return judged


def ranking(
    job: Job, layouts: Layouts, total_s: Floats, required_bytes: Floats, top: int, *, band: float = TIME_BAND
) -> list[int]:
    """Row numbers of the `top` best, best first.

    Repeatedly: of the rows within `band` of the fastest left, by judged time, the simplest; then the faster, then the
    smaller.
    Deterministic: remaining ties go to the earlier row.
    """
    judged = judged_time(job, layouts, total_s)
    order = np.lexsort((np.arange(len(judged)), required_bytes, judged, complexity(job, layouts)))
    times = judged[order]
    left = np.ones(len(order), np.bool_)
    picked: list[int] = []
    while len(picked) < min(top, len(order)):
        first = int(np.argmax(left & (times <= times[left].min() * (1 + band))))
        left[first] = False
        picked.append(int(order[first]))
    return picked
