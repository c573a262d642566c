"""Ranking: fastest first, and of plans that the model cannot tell apart, the simplest."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..estimate.evidence import octaves_beyond
from ..estimate.layout import LayoutLike, Layouts, Offload, Recompute
from ..estimate.uncertainty import ordering_band, slow_end
from ..job.records import Job

#: Two estimates closer than this fraction are equal: so far the model can't tell which layout of one job is the faster
#: (`benchmarks.uncertainty`). Much less than the uncertainty of each alone: two layouts share most of what is unknown.
TIME_BAND = ordering_band()

#: What an offloading plan has to win by to count as faster than one that keeps everything on the device. Its time hangs
#: on host bandwidth, NUMA placement and pinned memory, which no datasheet gives: it is the least certain part of the
#: model, and the part that most often fails on a real machine.
OFFLOAD_MARGIN = 0.15

Floats = NDArray[np.float64]
#: Rows that are compared with measured runs at once.
_COMPARED_ROWS = 2048


def complexity(job: Job, layouts: LayoutLike) -> NDArray[np.int64]:
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
        # Nobody keeps all states on every rank where the distributed optimizer costs nothing.
        (layouts.zero_stage == 0) & (layouts.data * layouts.context > 1) & job.framework.runs("Megatron-LM"),
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


def starts(job: Job, layouts: LayoutLike) -> NDArray[np.float64]:
    """Passes of a micro-batch through a layer that a rank makes in a step, each with its collectives.

    What one of them loses to launches, latency and waiting for other ranks differs from cluster to cluster.
    """
    each = 1 + 4 * (layouts.tensor > 1) + 2 * (layouts.expert > 1) + (layouts.context - 1)
    total: NDArray[np.float64] = layouts.gradient_accumulation * (job.model.layers / layouts.pipeline) * each
    return total


def judged_time(job: Job, layouts: Layouts, total_s: Floats) -> Floats:
    """The step time that plans are compared by, in seconds: the estimate, plus the margin where a plan offloads."""
    judged: Floats = total_s * np.where(layouts.offload != Offload.NONE, 1 + OFFLOAD_MARGIN, 1.0)
    return judged


def least_doubt(job: Job, layouts: Layouts) -> Floats:
    """What distance to measured runs multiplies a time with at least, whatever a layout's model chunks and details."""
    octaves = octaves_beyond(job, layouts, len(layouts), whatever=("chunk", "expert_overlap"))
    doubt: Floats = slow_end(job, layouts, octaves) * (1 + TIME_BAND * np.minimum(octaves, 1.0))
    return doubt


def slow_time(job: Job, layouts: Layouts, judged_s: Floats) -> Floats:
    """The judged time at the slow end of what is still likely: the further from measured runs, the later.

    What is beyond them has to be clearly better: by as much as the model can tell.
    """
    octaves = octaves_beyond(job, layouts, len(layouts))
    slow: Floats = judged_s * slow_end(job, layouts, octaves) * (1 + TIME_BAND * np.minimum(octaves, 1.0))
    return slow


def likely_time(job: Job, layouts: Layouts, total_s: Floats, top: int, *, bold: bool = False) -> Floats:
    """The judged time where that is at the slow end of what is still likely: the further from measured runs, the later.

    Only rows that may be among the `top` best are compared with the runs; the others are infinite. `bold`: none is.
    """
    judged = judged_time(job, layouts, total_s)
    if bold:
        return judged
    order = np.argsort(judged, kind="stable")
    likely = np.full(len(judged), np.inf)
    for start in range(0, len(order), _COMPARED_ROWS):
        block = order[start : start + _COMPARED_ROWS]
        if start and judged[block[0]] > np.partition(likely, min(top, start) - 1)[min(top, start) - 1] * (
            1 + TIME_BAND
        ):
            break
        likely[block] = slow_time(job, layouts.take(block), judged[block])
    return likely


def ranking(
    job: Job,
    layouts: Layouts,
    total_s: Floats,
    required_bytes: Floats,
    top: int,
    *,
    band: float = TIME_BAND,
    bold: bool = False,
) -> list[int]:
    """Row numbers of the `top` best, best first.

    Repeatedly: of the rows within `band` of the fastest left, by likely time, the simplest; then the one with the
    fewest starts, then the faster, then the smaller. Deterministic: remaining ties go to the earlier row.
    """
    likely = likely_time(job, layouts, total_s, top, bold=bold)
    near = np.flatnonzero(np.isfinite(likely))
    judged, rows = likely[near], layouts.take(near)
    order = np.lexsort((near, required_bytes[near], judged, starts(job, rows), complexity(job, rows)))
    times = judged[order]
    left = np.ones(len(order), np.bool_)
    picked: list[int] = []
    while len(picked) < min(top, len(order)):
        first = int(np.argmax(left & (times <= times[left].min() * (1 + band))))
        left[first] = False
        picked.append(int(near[order[first]]))
    return picked
