"""The number that decides between layouts: the expected time of a step.

It is the estimated time, over the chance that the run gets through its memory, and a little more
for each thing that speaks against a layout without changing its estimate. It falls or stays where
a device has more memory, a network is faster or more layouts may be chosen, since nothing in it
depends on other layouts or on the job's headroom.
"""

from __future__ import annotations

from functools import cache
from math import erf, sqrt
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..job.records import Job
from .evidence import unmeasured
from .layout import LayoutLike
from .uncertainty import out_of_memory, unmeasured_factor

# The next two are policy. Over the measured layouts of `benchmarks.regret`, with clusters left out,
# the chosen plan's regret is the same for factors from 1 to 1.01 and from 0 to 0.05.

#: Factor on the time for each kind of parallelism: each is something more that can go wrong.
PART: Final = 1.005
#: What the whole card costs, as a share of the time: memory that is left serves a longer batch, a
#: checkpoint, a profiler.
WHOLE_CARD: Final = 0.05
#: Share of the allocator's cache that counts as needed. Near the end of the card the cache is given
#: back, at the cost of time and not always in one piece, so that a run needs something in between.
CACHE_SHARE: Final = 0.5

_DEVIATIONS: Final = 8.0  #: beyond which the normal distribution is 0 or 1 to 15 digits
_STEPS: Final = 4096


def parts(layout: LayoutLike) -> Any:
    """Kinds of parallelism beside data parallelism: tensor, pipeline, context, expert, full
    sharding, offload.
    """
    used = (
        layout.tensor > 1,
        layout.pipeline > 1,
        layout.context > 1,
        layout.expert > 1,
        layout.zero_stage >= 3,
    )
    return sum(np.asarray(each, np.int64) for each in (*used, layout.offload))


def card_share(job: Job, required_bytes: Any, device_bytes: Any) -> Any:
    """Share of the card's usable memory that a run needs.

    It has the part of the allocator's cache in it that counts.
    """
    need = required_bytes + CACHE_SHARE * (device_bytes - required_bytes)
    return need / job.cluster.accelerator.memory_bytes


def out_of_memory_chance(job: Job, required_bytes: Any, device_bytes: Any) -> Any:
    """The chance, 0 to 1, that a run dies of its memory.

    It is a probit through published runs that ran and that died.
    """
    probit = out_of_memory()
    share = card_share(job, required_bytes, device_bytes)
    points, chances = _normal_distribution()
    return np.interp((np.log(share) - probit.middle) / probit.deviation, points, chances)


def expected_s(
    job: Job, layout: LayoutLike, total_s: Any, required_bytes: Any, device_bytes: Any
) -> Any:
    """Seconds that are to be expected of a step of `total_s`, in a layout with this memory.

    Columns give columns.
    """
    chance = out_of_memory_chance(job, required_bytes, device_bytes)
    share = card_share(job, required_bytes, device_bytes)

    # The best of many estimates is one that is too good, the more so the less is known.
    doubt = unmeasured_factor() ** unmeasured(job, layout)
    policy = PART ** parts(layout) * (1 + WHOLE_CARD * share)

    # A chance of 1 would be no number of seconds.
    return total_s * doubt * policy / np.maximum(1 - chance, 1e-9)


@cache
def _normal_distribution() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Points and values of the cumulative normal distribution, which numpy doesn't have."""
    points = np.linspace(-_DEVIATIONS, _DEVIATIONS, _STEPS)
    values = [(1 + erf(point / sqrt(2))) / 2 for point in points]
    return points, np.array(values)
