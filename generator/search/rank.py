"""Ranking: fastest first, and of plans that the model cannot tell apart, the simplest."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..estimate.layout import Layouts, Offload, Recompute

#: Two step times closer than this are equal: identical rows of one published table differ by 5 %, so no model that is
#: not calibrated to the cluster can do better.
TIME_BAND = 0.05

Floats = NDArray[np.float64]


def complexity(layouts: Layouts) -> NDArray[np.int64]:
    """How much there is to go wrong: moving parts in use, the rarely used ones counting double."""
    parts: tuple[Any, ...] = (
        layouts.tensor > 1,
        2 * (layouts.pipeline > 1),
        2 * (layouts.virtual_pipeline > 1),
        2 * (layouts.context > 1),
        layouts.expert > 1,
        np.maximum(layouts.zero_stage - 1, 0),
        layouts.recompute != Recompute.NONE,
        4 * (layouts.offload != Offload.NONE),
        1 * layouts.offload,
    )
    total: NDArray[np.int64] = np.sum([np.asarray(part, np.int64) for part in parts], axis=0)
    return total


def ranking(layouts: Layouts, total_s: Floats, required_bytes: Floats, top: int) -> list[int]:
    """Row numbers of the `top` best, best first.

    Repeatedly: of the rows within `TIME_BAND` of the fastest left, the simplest; then the faster, then the smaller.
    Deterministic: remaining ties go to the earlier row.
    """
    order = np.lexsort((np.arange(len(total_s)), required_bytes, total_s, complexity(layouts)))
    times = total_s[order]
    left = np.ones(len(order), np.bool_)
    picked: list[int] = []
    while len(picked) < min(top, len(order)):
        limit = times[left].min() * (1 + TIME_BAND)
        first = int(np.argmax(left & (times <= limit)))
        left[first] = False
        picked.append(int(order[first]))
    return picked
