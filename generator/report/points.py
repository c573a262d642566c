"""Data of the page: the layouts to choose from, as columns, and the memory of every stage."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..estimate.evidence import unmeasured
from ..estimate.layout import FIELDS
from ..estimate.layout_words import in_words
from ..estimate.ledgers import Memory
from ..estimate.memory import every_stage, memory
from ..estimate.step_time import step_time
from ..job.records import Job
from ..numerals import significant
from ..search.feasible import Estimates
from ..search.plan import Plan, SearchResult
from ..search.summary import CAUSES

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]

_ALL_OF = 2000  #: so few are all shown
#: Points near the front that are all shown, and how near these may be, as shares of the front's
#: step time.
_MOST_NEAR, _NEAR = 1200, (0.25, 0.1, 0.04, 0.02, 0.01, 0.0)
#: Of the others, the fastest of each cell of such a grid over the logarithms of memory and time.
_CELLS = (48, 36)
PARTS = ("parameters", "gradients", "optimizer", "activations", "output", "buffers")
STACK = (*PARTS, "other", "context")  #: what a stage's peak is made of, from the bottom up


class Points(NamedTuple):
    """Some of the estimated layouts, by memory."""

    rows: Rows
    front: NDArray[np.bool_]  #: which of them nothing is faster than with as little memory
    #: what the table of plans calls some of them: `chosen`, `fastest`, `3`
    names: dict[int, str]
    near: float  #: up to this share beyond the front's step time, all layouts are shown
    of: int  #: how many were estimated


def pareto_front(total_s: Floats, required_bytes: Floats) -> NDArray[np.bool_]:
    """Mark the rows that no other equals or beats in both."""
    order = np.lexsort((total_s, required_bytes))
    least = np.minimum.accumulate(total_s[order])
    front = np.ones(len(order), np.bool_)
    front[order[1:]] = least[1:] < least[:-1]
    return front


def chosen_points(answer: SearchResult, estimated: Estimates) -> Points:
    """The layouts that are drawn: the front and its surroundings, named plans, an even sample."""
    front = pareto_front(estimated.total_s, estimated.required_bytes)
    # The share by which each row is slower than the fastest with as little memory.
    on = np.flatnonzero(front)
    on = on[np.argsort(estimated.required_bytes[on], kind="stable")]
    below = (
        np.searchsorted(estimated.required_bytes[on], estimated.required_bytes, side="right") - 1
    )
    beyond: Floats = estimated.total_s / estimated.total_s[on[below]] - 1
    few = len(front) <= _ALL_OF
    near = next(share for share in _NEAR if share == 0 or (beyond <= share).sum() <= _MOST_NEAR)
    names: dict[int, str] = {}
    for name, plan in answer.in_rows(len(answer.plans)).items():
        same = np.ones(len(front), np.bool_)
        for field in FIELDS:
            same &= getattr(estimated.layouts, field) == getattr(plan.layout, field)
        for row in np.flatnonzero(same)[:1].tolist():
            names[row] = name
    kept = front | few | (beyond <= near) if near else front | few
    kept[_sample(estimated)] = True
    kept[[*names]] = True
    rows = np.flatnonzero(kept)
    rows = rows[np.lexsort((estimated.total_s[rows], estimated.required_bytes[rows]))]
    place = {int(row): number for number, row in enumerate(rows)}
    return Points(
        rows=rows,
        front=front[rows],
        names={place[row]: name for row, name in names.items()},
        near=near,
        of=len(front),
    )


def _sample(estimated: Estimates) -> Rows:
    """The fastest row of each cell."""
    cells = np.zeros(len(estimated.total_s), np.int64)
    for values, count in zip((estimated.required_bytes, estimated.total_s), _CELLS, strict=True):
        logs = np.log(values)
        width = max(float(np.ptp(logs)), 1e-12) / count
        cells = cells * count + np.minimum((logs - logs.min()) // width, count - 1).astype(np.int64)
    order = np.lexsort((estimated.total_s, cells))
    _, first = np.unique(cells[order], return_index=True)
    rows: Rows = order[first]
    return rows


def drawn_points(job: Job, estimated: Estimates, points: Points) -> dict[str, Any]:
    """The points as plain columns: what each is called, takes, and why. Six digits."""
    rows = estimated.layouts.take(points.rows)
    ledger, time = memory(job, rows), step_time(job, rows)
    return {
        "shown": len(points.rows),
        "estimated": points.of,
        "near": points.near,
        "layout": [in_words(layout, job.engine) for layout in rows],
        "front": np.flatnonzero(points.front).tolist(),
        "extrapolated": np.flatnonzero(unmeasured(job, rows)).tolist(),
        "names": {str(number): points.names[number] for number in sorted(points.names)},
        "step_s": _six(time.total_s, len(rows)),
        "required_bytes": _six(ledger.required_bytes, len(rows)),
        "time": {
            name: column
            for name in CAUSES
            if any(column := _six(getattr(time, f"{name}_s"), len(rows)))
        },
        "memory": {
            name: column
            for name in PARTS
            if any(column := _six(getattr(ledger, f"{name}_bytes"), len(rows)))
        },
    }


def _six(column: Any, count: int) -> list[float]:
    """Six digits of each number; whole numbers as such."""
    numbers = np.broadcast_to(np.asarray(column, float), count)
    return [
        int(short) if (short := significant(number, 6)).is_integer() else short
        for number in numbers.tolist()
    ]


def at_peak(ledger: Memory) -> dict[str, float]:
    """Divide the allocator's peak into its parts; context and NCCL are beside it.

    Activations, logits and buffers have peaks of their own, which need not meet: where buffers
    alone make the peak (the reduction at the step's end), they are it; else activations come first,
    and what of the rest is there then.
    """
    sizes = {name: float(getattr(ledger, f"{name}_bytes")) for name in PARTS}
    states = {name: sizes[name] for name in PARTS[:3]}  # of the states
    left = float(ledger.allocated_bytes) - sum(states.values())
    at_end = abs(left - sizes["buffers"]) < 1e-9 * max(left, 1.0)
    for name in (
        ("buffers", "activations", "output") if at_end else ("activations", "output", "buffers")
    ):
        states[name] = max(min(sizes[name], left), 0.0)
        left -= states[name]
    states["other"] = max(left, 0.0)
    states["context"] = float(ledger.required_bytes) - float(ledger.allocated_bytes)
    return {name: states[name] for name in STACK}


def drawn_stages(plan: Plan) -> dict[str, Any]:
    """The stages as plain data, in bytes."""
    ledgers, capacity = every_stage(plan.job, plan.layout), float(plan.memory.capacity_bytes)
    peaks = [at_peak(ledger) for ledger in ledgers]
    used = [name for name in STACK if any(peak[name] for peak in peaks)]
    return {
        "peak": {name: [round(peak[name]) for peak in peaks] for name in used},
        "own": {
            name: [round(float(getattr(ledger, f"{name}_bytes"))) for ledger in ledgers]
            for name in (*PARTS, "allocated", "required", "reserved", "device")
        },
        "fullest": int(plan.memory.stage),
        "capacity_bytes": round(capacity),
        "limit_bytes": round(capacity * (1 - plan.job.headroom)),
        "high_bytes": round(float(plan.uncertainty.required.high)),
        "low_bytes": round(float(plan.uncertainty.required.low)),
        "host_bytes_per_node": round(float(plan.memory.host_bytes_per_node)),
    }
