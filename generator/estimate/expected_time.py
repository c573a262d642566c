"""The number that decides between layouts: the expected time of a step.

It is the estimated time, divided by the chance that the run doesn't die of its memory, and raised a
little for what speaks against a layout without changing its estimate. Nothing in it depends on
other layouts or on the job's headroom, so that more memory, a faster network or a wider choice
never makes the chosen time longer.
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
KIND_FACTOR: Final = 1.005
#: Share of the time that it costs to use the whole card: memory that is left serves a longer batch,
#: a checkpoint, a profiler.
WHOLE_CARD: Final = 0.05
#: Share of the allocator's cache that counts as needed. Near the end of the card the cache is given
#: back, at the cost of time and not always in one piece, so that a run needs something in between.
CACHE_SHARE: Final = 0.5

#: Standard deviations beyond which the normal distribution is 0 or 1 to 15 digits.
_DEVIATIONS: Final = 8.0
_POINTS: Final = 4096  #: of the table that is interpolated


def parallel_kinds(layout: LayoutLike) -> Any:
    """Count the kinds of parallelism that a layout has beside data parallelism.

    They are tensor, pipeline, context, expert, full sharding and offload, where offload of
    parameters counts twice.
    """
    used = (
        layout.tensor > 1,
        layout.pipeline > 1,
        layout.context > 1,
        layout.expert > 1,
        layout.zero_stage >= 3,
    )
    return sum(np.asarray(kind, np.int64) for kind in (*used, layout.offload))


def card_share(job: Job, required_bytes: Any, device_bytes: Any) -> Any:
    """Share of the card's usable memory that a run needs, with part of the allocator's cache."""
    need = required_bytes + CACHE_SHARE * (device_bytes - required_bytes)
    return need / job.cluster.accelerator.memory_bytes


def out_of_memory_chance(job: Job, required_bytes: Any, device_bytes: Any) -> Any:
    """The chance, 0 to 1, that a run dies of its memory.

    It is a probit, fitted to published runs that ran and that died.
    """
    probit = out_of_memory()
    share = card_share(job, required_bytes, device_bytes)
    points, chances = _normal_distribution()
    return np.interp((np.log(share) - probit.middle) / probit.deviation, points, chances)


def expected_s(
    job: Job, layout: LayoutLike, total_s: Any, required_bytes: Any, device_bytes: Any
) -> Any:
    """Expected seconds of a step that is estimated at `total_s`, in a layout with this memory."""
    chance = out_of_memory_chance(job, required_bytes, device_bytes)
    share = card_share(job, required_bytes, device_bytes)

    # The best of many estimates is likely one that errs on the good side, the more so the further
    # its layout is from measured runs.
    doubt = unmeasured_factor() ** unmeasured(job, layout)
    policy = KIND_FACTOR ** parallel_kinds(layout) * (1 + WHOLE_CARD * share)

    # Where the chance is 1, the time is long, but still a number.
    return total_s * doubt * policy / np.maximum(1 - chance, 1e-9)


@cache
def _normal_distribution() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Points and values of the cumulative normal distribution, which numpy doesn't have."""
    points = np.linspace(-_DEVIATIONS, _DEVIATIONS, _POINTS)
    values = [(1 + erf(point / sqrt(2))) / 2 for point in points]
    return points, np.array(values)
