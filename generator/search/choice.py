"""The choice among the layouts that fit: which comes first, which others have a name, and the rule that decided.

1. What the card will hold has to stay under its limit at the upper end of its range; `bold` asks for what is allocated,
   and for no measured kind.
2. A layout gives way to one that is faster and smaller. One of a kind that was never measured also gives way to
   one of a measured kind that is smaller, or leaves a fifth of the card, and slower by less than the range of published
   runs.
3. Of the rest, those within the band of the fastest can't be told apart. First comes what measured runs are like, or at
   least of one kind with; then fewer parts; then one of which none within the band, as well measured and with no more
   parts, needs 15 % less memory; then half the collectives between nodes; then the least product of time and memory.

More memory adds larger layouts, to which none of the old ones gives way, so that what is chosen gets no slower by more
than the band.
"""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..estimate.evidence import likeness
from ..estimate.groups import group
from ..estimate.layout import LayoutLike
from ..estimate.uncertainty import ordering_band, time_shares
from ..job.records import Job
from ..units import GIB
from .feasible import ROOM, Estimates, Floats, limit_bytes, roomy_bytes
from .plan import Plan

#: Two estimates closer than this fraction are equal: so far the model can't tell which layout of one job is the faster
#: (`benchmarks.uncertainty`). Much less than the uncertainty of each alone: two layouts share most of what is unknown.
TIME_BAND = ceil(100 * ordering_band()) / 100
#: Share of a layout's memory with which another one is clearly smaller.
LESS = 0.85

Rows = NDArray[np.int64]


def parts(layout: LayoutLike) -> Any:
    """Kinds of parallelism beside data parallelism (tensor, pipeline, context, expert), full sharding, offload."""
    used = (layout.tensor > 1, layout.pipeline > 1, layout.context > 1, layout.expert > 1, layout.zero_stage >= 3)
    return sum(np.asarray(each, np.int64) for each in (*used, layout.offload))


def collectives(job: Job, layout: LayoutLike) -> Any:
    """Collectives and sends of a rank between nodes, a step.

    A layer and micro-batch has four of tensor parallelism, four all-to-alls of experts, as many sends as the ring has
    other ranks in both directions, and three of ZeRO 3 (two gathers, one reduction); ZeRO 2 reduces once each. ZeRO 1
    reduces and gathers every layer once a step. **Assumes** that nothing is recomputed.
    """

    def leaves(size: Any, stride: Any) -> Any:
        return (size > 1) & (size > group(job, size, stride).per_node)

    replicas, inner = layout.data * layout.context, layout.tensor * layout.context
    by_layer = 4 * leaves(layout.tensor, 1)
    by_layer = by_layer + 4 * leaves(layout.expert, layout.expert_tensor)
    by_layer = by_layer + 2 * (layout.context - 1) * leaves(inner, 1)
    sharded = np.where(layout.zero_stage >= 3, 3, 1 * (layout.zero_stage == 2))
    across = leaves(replicas, layout.tensor)
    layers = job.model.layers / layout.pipeline
    passes = layout.gradient_accumulation
    sends = 2 * passes * layout.virtual_pipeline * leaves(layout.pipeline, layout.tensor * replicas)
    return passes * layers * (by_layer + sharded * across) + 2 * layers * across * (layout.zero_stage < 2) + sends


def ranking(job: Job, found: Estimates, top: int, *, bold: bool = False, band: float = TIME_BAND) -> list[int]:
    """Row numbers of the `top` best, best first: what is chosen, then what would be if all before it weren't there.

    Where nothing stays under the limit, what the card holds of it decides.
    """
    limit = np.inf if bold else limit_bytes(job)
    rows = np.argsort(found.total_s, kind="stable")
    rows = rows[found.device_bytes[rows] <= limit]
    if not len(rows):
        return [int(row) for row in np.lexsort((found.total_s, found.device_bytes))[:top]]
    picked: list[int] = []
    while len(picked) < top and len(rows):
        tied = _tied(job, found, rows, band, bold)
        picked += tied.tolist()
        rows = rows[~np.isin(rows, tied)]
    return picked[:top]


def _tied(job: Job, found: Estimates, rows: Rows, band: float, bold: bool) -> Rows:
    """Rows that the model can't tell apart and that give way to none, the preferred first; `rows` are by time."""
    times = found.total_s[rows]
    farthest = float(np.max(time_shares(job, found.layouts).high)) * (1 + band)
    reach = times[0] * (1 + band) * farthest
    while True:
        near = rows[: np.searchsorted(times, reach, side="right")]
        layouts, roomy = found.layouts.take(near), found.device_bytes[near] <= roomy_bytes(job)
        measured, used = likeness(job, layouts), parts(layouts)
        seconds, required = found.total_s[near], found.required_bytes[near]
        span = np.broadcast_to(time_shares(job, layouts).high, len(near))
        kept = ~_is_beaten(seconds, required)
        if not bold:
            kept &= ~_is_unproven(seconds, required, np.where(kept, measured, 0), roomy, span) | (measured > 0)
        until = seconds[kept].min() * (1 + band)
        if until * farthest <= reach or len(near) == len(rows):
            break
        reach = until * farthest
    large = _is_large(seconds, required, measured, used, band)
    tied = np.flatnonzero(kept & (seconds <= until))
    own = layouts.take(tied)
    like, count, *others = preference(job, own, seconds[tied], required[tied], measured[tied])
    order = np.lexsort((*reversed(others), large[tied], count, like))
    best: Rows = near[tied[order]]
    return best


def preference(job: Job, layout: LayoutLike, seconds: Any, required_bytes: Any, measured: Any) -> tuple[Any, ...]:
    """Numbers by which plans that are as fast are compared, one after the other: the least comes first.

    Half the collectives are clearly less; memory is weighed against time, percent for percent.
    """
    halves = np.floor(np.log2(1 + collectives(job, layout)))
    return -measured, parts(layout), halves, required_bytes * seconds


def _is_beaten(seconds: Floats, required: Floats) -> NDArray[np.bool_]:
    """Find rows, sorted by time, that another one beats in time and memory."""
    least = np.concatenate([[np.inf], np.minimum.accumulate(required)])
    beaten: NDArray[np.bool_] = least[np.searchsorted(seconds, seconds)] < required
    return beaten


def _is_large(seconds: Floats, required: Floats, measured: Rows, used: Rows, band: float) -> NDArray[np.bool_]:
    """Find rows, sorted by time, where one within the band needs much less, is as well measured, has no more parts."""
    until = np.searchsorted(seconds, seconds * (1 + band), side="right") - 1
    large = np.zeros(len(seconds), np.bool_)
    for known in np.unique(measured):
        for most in np.unique(used):
            like = (measured >= known) & (used <= most)
            least = np.minimum.accumulate(np.where(like, required, np.inf))
            large |= (measured == known) & (used == most) & (least[until] <= LESS * required)
    return large


def _is_unproven(
    seconds: Floats, required: Floats, measured: Rows, roomy: NDArray[np.bool_], span: Floats
) -> NDArray[np.bool_]:
    """Find rows, sorted by time, in whose range is one that is `measured`, and smaller or so small as to be roomy.

    With more room on the card there are then no others of these, so that what is chosen stays.
    """
    until = np.searchsorted(seconds, seconds * span, side="right") - 1
    least = np.minimum.accumulate(np.where(measured > 0, np.where(roomy, 0.0, required), np.inf))
    unproven: NDArray[np.bool_] = least[until] < required
    return unproven


def named_rows(job: Job, found: Estimates, chosen: int) -> dict[str, int]:
    """Rows that have a name: the chosen one, the fastest of all, and the fastest that leaves a fifth of the card."""
    order = np.lexsort((found.required_bytes, found.total_s))
    roomy = order[found.device_bytes[order] <= roomy_bytes(job)]
    return {"chosen": chosen, "fastest": int(order[0]), **({"roomy": int(roomy[0])} if len(roomy) else {})}


def reason(name: str, plans: dict[str, Plan], count: int, *, bold: bool = False) -> str:
    """The rule by which one of `count` layouts that fit has its name, in a sentence."""
    plan, fastest = plans[name], plans["fastest"]
    capacity, device = _gib(plan.memory.capacity_bytes), _gib(plan.memory.device_bytes)
    if count == 1:
        return "the only layout that fits"
    if name == "roomy":
        return f"fastest of the layouts that leave {ROOM:.0%} of the card: nvidia-smi will show {device} of {capacity}"
    if plan.layout == fastest.layout:
        return f"fastest of {count:,} layouts that fit"
    own, first = float(plan.step_time.total_s), float(fastest.step_time.total_s)
    why = why_first(plan, fastest, bold=bold)
    return f"{why} ({own:.3g} s against {first:.3g} s of the fastest; {count:,} layouts fit)"


def why_first(ours: Plan, theirs: Plan, *, bold: bool = False) -> str:
    """The first rule by which a plan comes before another one, which isn't slower by more than the band."""
    limit = ours.job.cluster.accelerator.memory_bytes * (1 - ours.job.headroom)
    high = float(theirs.uncertainty.device.high)
    slower = float(ours.step_time.total_s) / float(theirs.step_time.total_s) - 1
    rival = "the faster" if slower > 0 else "the other"
    if high > limit and not bold:
        if float(ours.uncertainty.device.high) > limit:
            return "holds least on the card, and nothing stays under its limit at the upper end of its range"
        return f"{rival} may hold up to {_gib(high)} on the card, over the limit of {_gib(limit)}"
    if slower <= TIME_BAND:
        return f"as fast, within {TIME_BAND:.0%}{_preferred(ours, theirs)}"
    if ours.uncertainty.evidence.level > theirs.uncertainty.evidence.level == 0:
        return f"its kind was measured, that of {rival} was not; {slower:.0%} is within the range of published runs"
    return _less_memory(ours, theirs)


def _preferred(ours: Plan, theirs: Plan) -> str:
    """The first rule of those on plans that are as fast by which one comes before the other, after `and`."""
    mine, other = (
        preference(
            plan.job,
            plan.layout,
            plan.step_time.total_s,
            plan.memory.required_bytes,
            plan.uncertainty.evidence.level,
        )
        for plan in (ours, theirs)
    )
    need, more = float(ours.memory.required_bytes), float(theirs.memory.required_bytes)
    memory = f"it {_less_memory(ours, theirs)}"
    rules = (  # in the order of `ranking`
        (mine[0] < other[0], "measured runs are more like it"),
        (mine[1] < other[1], "it has fewer parts"),
        (need <= LESS * more, memory),
        (mine[2] < other[2], "it has fewer collectives between nodes"),
        (need < more, memory),
        (ours.step_time.total_s < theirs.step_time.total_s, "it is the faster"),
    )
    return next((f", and {says}" for holds, says in rules if holds), "")


def _less_memory(ours: Plan, theirs: Plan) -> str:
    return f"needs {_gib(ours.memory.required_bytes)} instead of {_gib(theirs.memory.required_bytes)}"


def _gib(count: Any) -> str:
    return f"{float(count) / GIB:.1f} GiB"
