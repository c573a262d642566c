"""Ranking: fastest first, and of plans that the model cannot tell apart, the simplest; and the reasons for a choice.

A reason holds a decision against the best plan that decides otherwise.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..estimate.evidence import evidence, octaves_beyond
from ..estimate.layout import DEFAULTS, FIELDS, Layout, LayoutLike, Layouts, Offload, Recompute
from ..estimate.ledgers import StepTime
from ..estimate.step_time import step_time
from ..estimate.uncertainty import ordering_band, slow_end
from ..job.records import Job
from ..job.wording import in_spec
from .feasible import Feasible, Floats

#: Two estimates closer than this fraction are equal: so far the model can't tell which layout of one job is the faster
#: (`benchmarks.uncertainty`). Much less than the uncertainty of each alone: two layouts share most of what is unknown.
TIME_BAND = ordering_band()

#: Share by which an offloading plan has to win to count as faster than one that keeps everything on the device. Its
#: time hangs on host bandwidth, NUMA placement and pinned memory, which no datasheet gives: it is the least certain
#: part of the model, and the part that most often fails on a real machine.
OFFLOAD_MARGIN = 0.15

#: Rows that are compared with measured runs at once.
_COMPARED_ROWS = 2048


def complexity(job: Job, layouts: LayoutLike) -> NDArray[np.int64]:
    """Count moving parts in use, which may go wrong, the rarely used ones double.

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

    The time that one of them loses to launches, latency and waiting for other ranks differs from cluster to cluster.
    """
    each = 1 + 4 * (layouts.tensor > 1) + 2 * (layouts.expert > 1) + (layouts.context - 1)
    total: NDArray[np.float64] = layouts.gradient_accumulation * (job.model.layers / layouts.pipeline) * each
    return total


def judged_time(job: Job, layouts: Layouts, total_s: Floats) -> Floats:
    """The step time that plans are compared by, in seconds: the estimate, plus the margin where a plan offloads."""
    judged: Floats = total_s * np.where(layouts.offload != Offload.NONE, 1 + OFFLOAD_MARGIN, 1.0)
    return judged


def least_doubt(job: Job, layouts: Layouts) -> Floats:
    """Least factor on a time for the distance to measured runs, whatever a layout's model chunks and details."""
    return slow_time(job, layouts, np.ones(len(layouts)), whatever=("chunk", "expert_overlap"))


def slow_time(job: Job, layouts: Layouts, judged_s: Floats, *, whatever: Collection[str] = ()) -> Floats:
    """The judged time at the slow end of what is still likely: the further from measured runs, the later.

    What is beyond them has to be clearly better: by as much as the model can tell. `whatever`: traits not compared.
    """
    octaves = octaves_beyond(job, layouts, len(layouts), whatever=whatever)
    slow: Floats = judged_s * slow_end(job, layouts, octaves) * (1 + TIME_BAND * np.minimum(octaves, 1.0))
    return slow


def ranking_time(job: Job, layouts: Layouts, total_s: Floats, top: int, *, bold: bool = False) -> Floats:
    """The time that rows are ranked by: judged, at the slow end of what is still likely.

    Only rows that may be among the `top` best are compared with the runs; the others are infinite. `bold`: none is.
    """
    judged = judged_time(job, layouts, total_s)
    if bold:
        return judged
    order = np.argsort(judged, kind="stable")
    likely = np.full(len(judged), np.inf)
    for start in range(0, len(order), _COMPARED_ROWS):
        block = order[start : start + _COMPARED_ROWS]
        last = min(top, start) - 1  # of the best so far
        if start and judged[block[0]] > np.partition(likely, last)[last] * (1 + TIME_BAND):
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
    likely = ranking_time(job, layouts, total_s, top, bold=bold)
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


#: The data parallel size and the accumulation follow from the others.
_DECISIONS = tuple(name for name in FIELDS if name not in ("data", "gradient_accumulation"))
#: A layout in which nothing is decided.
_PLAIN = Layout(data=1)
#: Alternatives that a reason compares, best first.
_MOST_COMPARED = 2
#: Fastest rows of each value whose details are turned before they are compared.
_RIVALS = 4
#: Fastest rows of each value that may be the best once what is extrapolated counts as slower.
_MOST_LIKELY = 64


def rivals(job: Job, found: Feasible) -> NDArray[np.int64]:
    """The fastest rows of each value that was decided against, for a plan is compared with others at their best."""
    order = np.argsort(judged_time(job, found.layouts, found.total_s), kind="stable")
    firsts = (rows[:_RIVALS] for name in _DECISIONS for _, rows in _firsts(getattr(found.layouts, name), order))
    rows: NDArray[np.int64] = np.unique(np.concatenate([*firsts]))
    return rows


class Reasons:
    """Reasons why rows of what was found are chosen, all of them compared with the same others."""

    def __init__(self, job: Job, found: Feasible, *, bold: bool = False) -> None:
        feasible, total_s = found.layouts, found.total_s
        self._job, self._feasible, self._total_s, self._bold = job, feasible, total_s, bold
        self._count = max(found.fitting, min(len(total_s), 2))
        self._judged = judged = judged_time(job, feasible, total_s)
        order = np.argsort(judged, kind="stable")
        firsts = {name: dict(_firsts(getattr(feasible, name), order)) for name in _DECISIONS}
        rows = np.unique(np.concatenate([at for values in firsts.values() for at in values.values()]))
        likely = judged[rows] if bold else slow_time(job, feasible.take(rows), judged[rows])
        #: Times that rows are ranked by, of those that may be the best of a value.
        self._likely = dict(zip(rows.tolist(), likely.tolist(), strict=True))
        #: By key and value, the best layout that has it.
        self._best = {
            name: {value: min(at.tolist(), key=self._likely.__getitem__) for value, at in values.items()}
            for name, values in firsts.items()
        }
        self._rows = sorted({row for best in self._best.values() for row in best.values()})
        self._ledger = step_time(job, feasible.take(np.array(self._rows)))

    def of(self, row: int, own: StepTime) -> tuple[str, ...]:
        """Reasons for `row`, whose ledger is `own`: for the whole, and for each decision that had an alternative."""
        chosen, pins, ledger = self._feasible[row], self._job.pins, self._ledger
        pinned = [name for name in FIELDS if getattr(pins, name) is not None]
        parts = [f.name for f in fields(ledger) if f.name != "total_s"]
        longer = ledger.total_s / own.total_s - 1
        more = [np.broadcast_to(getattr(ledger, part) - getattr(own, part), len(longer)) for part in parts]
        causes = np.argmax(np.stack(more) * np.where(longer >= 0, 1, -1), axis=0)
        speeds = {}  # by row, the best layouts of each value against `row`
        for other, share, cause in zip(self._rows, longer.tolist(), causes, strict=True):
            named = f"{parts[cause].removesuffix('_s')}{self._doubt(row, other)}"
            speeds[other] = f"{share:+.0%} ({named})" if abs(share) >= 0.005 else "the same"
        decisions = (self._decision(name, chosen, speeds) for name in _DECISIONS if name not in pinned)
        values = chosen.to_dict()
        as_pinned = ", ".join(self._job.says(name, values[name]) for name in pinned)
        return (self._overall(row), *filter(None, decisions), *([f"pinned: {as_pinned}"] if pinned else []))

    def _overall(self, row: int) -> str:
        """The reason for this one of all."""
        count, total_s = self._count, self._total_s
        on_device = self._feasible.offload == Offload.NONE
        own, first = float(total_s[row]), int(np.argmin(total_s))
        if count == 1:
            return "the only layout that fits"
        if own <= float(total_s[first]):
            return f"fastest of {count:,} layouts that fit"
        both = f"({own:.3g} s against {float(total_s[first]):.3g} s; {count:,} layouts fit)"
        if own <= float(total_s[first]) * (1 + TIME_BAND):
            within = f"simplest of the layouts within {100 * TIME_BAND:g}% of the fastest"
            return f"{within}, which the model cannot tell apart {both}"
        if on_device[row] and own <= float(total_s[on_device].min()) * (1 + TIME_BAND):
            margin = f"offload would have to save {OFFLOAD_MARGIN:.0%}, since its time is the least certain"
            return f"best of the layouts that keep everything on the device: {margin} {both}"
        first = int(np.argmin(np.where(on_device >= on_device[row], total_s, np.inf)))
        beyond = ", ".join(evidence(self._job, self._feasible[first]).beyond) or "its time is less certain"
        faster = f"the fastest is extrapolated ({beyond})"
        both = f"({own:.3g} s against {float(total_s[first]):.3g} s; {count:,} layouts fit)"
        return f"best at the slow end of what is likely: {faster} {both}"

    def _doubt(self, row: int, other: int) -> str:
        """The reason why a layout that is estimated to be faster isn't chosen, if it is."""
        if self._total_s[other] >= self._total_s[row] or self._bold:
            return ""
        likely = self._likely.get(other, 0.0)
        offloads = self._feasible.offload
        if likely > 1.001 * self._judged[other]:
            return ", extrapolated"
        return ", offload" if offloads[other] and not offloads[row] else ""

    def _decision(self, name: str, chosen: Layout, speeds: Mapping[int, str]) -> str | None:
        """`tensor: 8; step time with 4 +12% (bubble), with 2 +30% (bubble)`; nothing where there was no choice."""
        value, said = getattr(chosen, name), self._job.says(name, chosen.to_dict()[name])
        best = self._best[name]
        others = sorted((other for other in best if other != value), key=lambda other: self._likely[best[other]])
        if not others or (name in DEFAULTS and value == DEFAULTS[name]):  # details that nothing turned
            return None if value == getattr(_PLAIN, name) else f"{said}; nothing else is legal and fits"
        texts = (
            f"with {in_spec(self._feasible[best[other]].to_dict()[name])} {speeds[best[other]]}"
            for other in others[:_MOST_COMPARED]
        )
        return f"{said}; step time {', '.join(texts)}"


def _firsts(column: NDArray[Any], order: NDArray[np.int64]) -> Iterator[tuple[Any, NDArray[np.int64]]]:
    """Each value of a column, and the first rows in `order` that have it."""
    if (column == column[0]).all():
        yield column[0].item(), order[:_MOST_LIKELY]
        return
    ordered = column[order]
    for value in np.unique(ordered):
        yield value.item(), order[np.flatnonzero(ordered == value)[:_MOST_LIKELY]]
