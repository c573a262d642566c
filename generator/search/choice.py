"""The choice among the layouts that fit: which comes first, which others have a name, and the rule that decided.

docs/search.md has the rules in their order: what the card holds, what is beaten, kinds that were never measured, plans
that are as fast, and the fastest that leaves a fifth of the card. `bold` asks for less memory and for no measured kind.
More memory adds faster and larger layouts, and what is chosen stays within a band of the fastest, so that it gets no
slower by more than that.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..estimate.evidence import likeness, of_measured_kind
from ..estimate.groups import group
from ..estimate.layout import LayoutLike
from ..estimate.step_time import step_time
from ..estimate.uncertainty import ordering_band, time_shares
from ..job.records import Job
from ..units import gib
from .feasible import ROOM, Estimates, Floats, joined_estimates, limit_bytes, roomy_bytes
from .plan import Plan

#: Two estimates closer than this fraction are equal: so far the model can't tell which layout of one job is the faster
#: (`benchmarks.uncertainty`). Much less than the uncertainty of each alone: two layouts share most of what is unknown.
TIME_BAND = ceil(100 * ordering_band()) / 100
#: Share of a layout's memory with which another one is clearly smaller.
LESS = 0.85

#: How many times slower a network is on which times are those of communication.
SLOWER = 1000

Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]


def parts(layout: LayoutLike) -> Any:
    """Kinds of parallelism beside data parallelism (tensor, pipeline, context, expert), full sharding, offload."""
    used = (
        layout.tensor > 1,
        layout.pipeline > 1,
        layout.context > 1,
        layout.expert > 1,
        layout.zero_stage >= 3,
    )
    return sum(np.asarray(each, np.int64) for each in (*used, layout.offload))


def collectives(job: Job, layout: LayoutLike) -> Any:
    """Collectives and sends of a rank between nodes, a step.

    A layer and micro-batch has four of tensor parallelism, four all-to-alls of experts, as many sends as the ring has
    other ranks in both directions, and three of ZeRO 3 (two gathers, one reduction); ZeRO 2 reduces once each. ZeRO 1
    reduces and gathers every layer once a step, and every model chunk sends in both passes. **Assumes** that nothing is
    recomputed.
    """

    def leaves(size: Any, stride: Any) -> Any:
        return (size > 1) & (size > group(job, size, stride).per_node)

    replicas, inner = layout.data * layout.context, layout.tensor * layout.context
    by_layer = 4 * leaves(layout.tensor, 1) + 4 * leaves(layout.expert, layout.expert_tensor)
    by_layer = by_layer + 2 * (layout.context - 1) * leaves(inner, 1)
    sharded = np.where(layout.zero_stage >= 3, 3, 1 * (layout.zero_stage == 2))
    across = leaves(replicas, layout.tensor)
    layers = job.model.layers / layout.pipeline
    passes = layout.gradient_accumulation
    sends = 2 * passes * layout.virtual_pipeline * leaves(layout.pipeline, layout.tensor * replicas)
    return (
        passes * layers * (by_layer + sharded * across)
        + 2 * layers * across * (layout.zero_stage < 2)
        + sends
    )


#: Rows of which the evidence is looked at together, until one is found.
_AT_ONCE = 4096
#: Parts of the range of memory, between which rows are compared before they are sorted.
_PARTS = 1000


def unbeaten(seconds: Floats, required: Floats) -> Rows:
    """Rows that no other one beats in time and memory, by time; of equal rows the first."""
    least, most = required.min(initial=np.inf), required.max(initial=0)
    part = ((required - least) * (_PARTS / max(most - least, 1))).astype(np.int64)
    fastest = np.full(_PARTS + 2, np.inf)
    np.minimum.at(fastest, part + 1, seconds)
    rows = np.flatnonzero(
        seconds <= np.minimum.accumulate(fastest)[part]
    )  # as fast as all that are surely smaller
    order = rows[np.lexsort((required[rows], seconds[rows]))]
    return order[np.diff(np.minimum.accumulate(required[order]), prepend=np.inf) < 0]


def ranking(
    job: Job, found: Estimates, top: int, *, bold: bool = False, band: float = TIME_BAND
) -> list[int]:
    """Row numbers of the `top` best, best first: what is chosen, then what would be if all before it weren't there.

    Left out are rows that the first would give way to, were they within the band of the fastest.
    Where nothing stays under the limit, what the card holds of it decides.
    """
    rows = np.flatnonzero(found.device_bytes <= (np.inf if bold else limit_bytes(job)))
    if not len(rows):
        return [int(row) for row in np.lexsort((found.total_s, found.device_bytes))[:top]]
    roomy = rows[found.device_bytes[rows] <= roomy_bytes(job)]
    surest = roomy[:0] if bold else _surest(job, found, roomy)
    picked: list[int] = []
    left = np.ones(len(found.total_s), np.bool_)
    while len(picked) < top and len(rows):
        front = rows[unbeaten(found.total_s.take(rows), found.required_bytes.take(rows))]
        own = found.take(front)
        # Seconds, bytes, level of evidence and parts of rows: 4 × n.
        facts = np.stack(
            [own.total_s, own.required_bytes, likeness(job, own.layouts), parts(own.layouts)]
        )
        tied = _tied(job, own, facts, band, found.take(surest))
        if not picked:
            first, room = (
                facts[:, tied[:1]],
                np.flatnonzero(own.device_bytes <= roomy_bytes(job))[:1],
            )
            if _gives_way(first, facts[:, room], band).any():
                first, tied = facts[:, room], np.concatenate([room, tied[tied != room]])
        picked += front[tied[~_gives_way(first, facts, band)[tied]]].tolist()
        left[front[tied]] = False
        surest = (
            surest if left[surest].all() else surest[:0]
        )  # nothing gives way to what is picked already
        rows = rows[left[rows]]
    return picked[:top]


def first_measured(job: Job, found: Estimates, rows: Rows) -> Rows:
    """The fastest of some rows that is of a measured kind, of equal ones the smallest, if any is."""
    while len(rows):
        seconds = found.total_s.take(rows)
        last = min(_AT_ONCE, len(rows)) - 1
        most = np.partition(seconds, last)[last]
        piece = rows[seconds <= most]
        piece = piece[np.lexsort((found.required_bytes.take(piece), found.total_s.take(piece)))]
        measured: Rows = piece[of_measured_kind(job, found.layouts.take(piece))]
        if len(measured):
            return measured[:1]
        rows = rows[seconds > most]
    return rows


def _surest(job: Job, found: Estimates, rows: Rows) -> Rows:
    """The fastest of some rows that is of a measured kind, and of those in its band that none beats the best known."""
    fastest, seconds = first_measured(job, found, rows), found.total_s.take(rows)
    near = rows[seconds <= found.total_s.take(fastest).sum() * (1 + TIME_BAND)]
    near = near[of_measured_kind(job, found.layouts.take(near))]
    near = near[unbeaten(found.total_s.take(near), found.required_bytes.take(near))]
    level = likeness(job, found.layouts.take(near))
    return np.union1d(fastest, near[level == level.max(initial=0)])


def _gives_way(one: Floats, other: Floats, band: float) -> Any:
    """Ask whether rows give way to others, of which these are seconds, bytes, evidence and parts."""
    slower = other[0] <= one[0] * (1 + band)
    return slower & (other[1] <= LESS * one[1]) & (other[2] >= one[2]) & (other[3] <= one[3])


def _tied(job: Job, rows: Estimates, facts: Floats, band: float, surest: Estimates) -> Rows:
    """Rows that the model can't tell apart and that give way to none of these, the preferred first.

    Of the `rows`, sorted by time, none beats another.
    """
    kept = ~_gives_way_to_surest(job, rows, facts[2], surest)
    tied = np.flatnonzero(kept & (rows.total_s <= rows.total_s[kept].min() * (1 + band)))
    own = facts[:, tied]
    tied = tied[~_gives_way(own[:, :, None], own[:, None], band).any(axis=1)]
    order = np.lexsort(preference(job, rows.layouts.take(tied), *facts[:3, tied])[::-1])
    best: Rows = tied[order]
    return best


def preference(
    job: Job, layout: LayoutLike, seconds: Any, required_bytes: Any, measured: Any
) -> tuple[Any, ...]:
    """Numbers by which plans that are as fast are compared, one after the other: the least comes first.

    Half the collectives are clearly less; memory is weighed against time, percent for percent.
    """
    halves = np.floor(np.log2(1 + collectives(job, layout)))
    return -measured, parts(layout), halves, required_bytes * seconds


def _gives_way_to_surest(job: Job, rows: Estimates, measured: Any, surest: Estimates) -> Mask:
    """Find rows of kinds that were never measured, whose range meets that of a `surest` one that none of them beats.

    On a slow network they have to meet, too, and none beat it: so a faster one doesn't make the choice slower. A row
    that a detail alone sets apart from measured kinds, and that beats it, takes its place.
    """
    unproven: Mask = measured == 0
    if not (unproven & (rows.total_s < surest.total_s.max(initial=0))).any():
        return np.zeros_like(unproven)
    both, count = joined_estimates([surest, rows]), len(surest.total_s)
    slower = replace(
        job.cluster, network_bytes_per_s_per_node=job.cluster.network_bytes_per_s_per_node / SLOWER
    )
    slow_s = np.broadcast_to(
        step_time(replace(job, cluster=slower), both.layouts).total_s, len(both.total_s)
    )
    high = np.broadcast_to(time_shares(job, both.layouts).high, len(both.total_s))
    ours, theirs = (
        slice(count, None),
        (slice(count), None),
    )  # rows along the second axis, surest ones along the first
    smaller = both.required_bytes[ours] <= both.required_bytes[theirs]
    usual = of_measured_kind(job, rows.layouts, detailed=False)
    gives_way: Any = unproven & ~(usual & smaller & (both.total_s[ours] <= both.total_s[theirs]))
    for seconds in (both.total_s, slow_s):
        gives_way &= seconds[theirs] <= seconds[ours] * high[ours] * high[theirs]
        gives_way &= ~(unproven & ~usual & smaller & (seconds[ours] <= seconds[theirs])).any(
            axis=1, keepdims=True
        )
    found: Mask = gives_way.any(axis=0)
    return found


def named_rows(job: Job, found: Estimates, chosen: int) -> dict[str, int]:
    """Rows that have a name: the chosen one, the fastest of all, and the fastest that leaves a fifth of the card.

    The last is left out where it is another than the chosen one, but shown with the same memory.
    """

    def first(rows: Rows) -> int:
        equal = rows[found.total_s[rows] == found.total_s[rows].min()]
        return int(equal[found.required_bytes[equal].argmin()])

    roomy = np.flatnonzero(found.device_bytes <= roomy_bytes(job))
    named = {"chosen": chosen, "fastest": first(np.arange(len(found.total_s)))}
    room = first(roomy) if len(roomy) else None
    shown = found.required_bytes
    alike = (
        room is not None and room not in named.values() and gib(shown[room]) == gib(shown[chosen])
    )
    return named if room is None or alike else named | {"roomy": room}


def reason(name: str, plans: dict[str, Plan], count: int, *, bold: bool = False) -> str:
    """The rule by which one of `count` layouts that fit has its name, in a sentence."""
    plan, fastest, chosen = plans[name], plans["fastest"], plans["chosen"]
    if count == 1:  # `fastest` may have other details, such as overlap
        alone, same = (
            "the only layout that fits",
            "the same layout, with details that make it the fastest",
        )
        return alone if plan.layout == chosen.layout else same
    if name == "roomy":
        shown = f"{gib(plan.memory.device_bytes)} of {gib(plan.memory.capacity_bytes)} GiB"
        faster = float(plan.step_time.total_s) < float(chosen.step_time.total_s)
        why = f"; the chosen plan: {why_first(chosen, plan, bold=bold)}" if faster else ""
        return f"fastest that leaves {ROOM:.0%} of the card free: nvidia-smi will show {shown}{why}"
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
    rival = "the faster plan" if slower > 0 else "the other plan"
    if high > limit and not bold:
        if (own := float(ours.uncertainty.device.high)) > limit:
            return f"needs least memory, up to {gib(own)} GiB; every other layout more"
        return f"{rival} may run out of memory: up to {gib(high)} GiB, where the limit is {gib(limit)} GiB"
    if slower <= TIME_BAND:
        return f"as fast within {TIME_BAND:.0%}{_preferred(ours, theirs)}"
    if ours.uncertainty.evidence.level > theirs.uncertainty.evidence.level == 0:
        return f"similar runs were measured, but none like {rival}; {slower:.0%} is within the range of the estimates"
    return _less_memory(ours, theirs)


def _preferred(ours: Plan, theirs: Plan) -> str:
    """The first rule of those on plans that are as fast by which one comes before the other, after `and`."""
    mine, other = (
        preference(
            p.job,
            p.layout,
            p.step_time.total_s,
            p.memory.required_bytes,
            p.uncertainty.evidence.level,
        )
        for p in (ours, theirs)
    )
    need, more = float(ours.memory.required_bytes), float(theirs.memory.required_bytes)
    memory = _less_memory(ours, theirs)
    rules = (  # in the order of `_tied`
        (need <= LESS * more and mine[0] <= other[0] and mine[1] <= other[1], memory),
        (mine[0] < other[0], "closer to measured runs"),
        (mine[1] < other[1], "simpler"),
        (mine[2] < other[2], "has fewer collectives between nodes"),
        (need < more, memory),
        (ours.step_time.total_s < theirs.step_time.total_s, "a little faster"),
    )
    return next((f", and {says}" for holds, says in rules if holds), "")


def _less_memory(ours: Plan, theirs: Plan) -> str:
    own, other = gib(ours.memory.required_bytes), gib(theirs.memory.required_bytes)
    return (
        "needs a little less memory" if own == other else f"needs {own} GiB instead of {other} GiB"
    )
