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

_FEW = 2000  #: so few are all shown
#: Points near the front that are all shown, at most, and how far these may be beyond it, as shares
#: of the front's step time: the first share with no more points than that.
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
    order = np.lexsort((total_s, required_bytes))  # by memory, then by time
    fastest_so_far = np.minimum.accumulate(total_s[order])
    front = np.ones(len(order), np.bool_)
    front[order[1:]] = fastest_so_far[1:] < fastest_so_far[:-1]
    return front


def chosen_points(answer: SearchResult, estimated: Estimates) -> Points:
    """The layouts that are drawn: the front and its surroundings, named plans, an even sample."""
    front = pareto_front(estimated.total_s, estimated.required_bytes)
    beyond = _beyond_front(estimated, front)
    near = next(share for share in _NEAR if share == 0 or (beyond <= share).sum() <= _MOST_NEAR)
    names = _names_by_row(answer, estimated)

    is_kept = front | (len(front) <= _FEW)
    if near:
        is_kept |= beyond <= near
    is_kept[_sample(estimated)] = True
    is_kept[[*names]] = True
    rows = np.flatnonzero(is_kept)
    rows = rows[np.lexsort((estimated.total_s[rows], estimated.required_bytes[rows]))]
    number_by_row = {int(row): number for number, row in enumerate(rows)}
    return Points(
        rows=rows,
        front=front[rows],
        names={number_by_row[row]: name for row, name in names.items()},
        near=near,
        of=len(front),
    )


def _beyond_front(estimated: Estimates, front: NDArray[np.bool_]) -> Floats:
    """The share by which each row is slower than the fastest one with as little memory."""
    on_front = np.flatnonzero(front)
    on_front = on_front[np.argsort(estimated.required_bytes[on_front], kind="stable")]
    sizes = estimated.required_bytes[on_front]
    last_below = np.searchsorted(sizes, estimated.required_bytes, side="right") - 1
    beyond: Floats = estimated.total_s / estimated.total_s[on_front[last_below]] - 1
    return beyond


def _names_by_row(answer: SearchResult, estimated: Estimates) -> dict[int, str]:
    """What the table of plans calls rows of the estimates."""
    names: dict[int, str] = {}
    for name, plan in answer.in_rows(len(answer.plans)).items():
        is_plan = np.ones(len(estimated.total_s), np.bool_)
        for field in FIELDS:
            is_plan &= getattr(estimated.layouts, field) == getattr(plan.layout, field)
        if is_plan.any():
            names[int(is_plan.argmax())] = name
    return names


def _sample(estimated: Estimates) -> Rows:
    """The fastest row of each cell."""
    cells = np.zeros(len(estimated.total_s), np.int64)
    for values, count in zip((estimated.required_bytes, estimated.total_s), _CELLS, strict=True):
        logs = np.log(values)
        width = max(float(np.ptp(logs)), 1e-12) / count
        numbers = np.minimum((logs - logs.min()) // width, count - 1)
        cells = cells * count + numbers.astype(np.int64)
    order = np.lexsort((estimated.total_s, cells))
    _, first = np.unique(cells[order], return_index=True)
    rows: Rows = order[first]
    return rows


def drawn_points(job: Job, estimated: Estimates, points: Points) -> dict[str, Any]:
    """The points as plain columns: what each is called, takes, and why. Six digits."""
    rows = estimated.layouts.take(points.rows)
    ledger, time = memory(job, rows), step_time(job, rows)
    times = {name: _six(getattr(time, f"{name}_s"), len(rows)) for name in CAUSES}
    sizes = {name: _six(getattr(ledger, f"{name}_bytes"), len(rows)) for name in PARTS}
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
        "time": {name: column for name, column in times.items() if any(column)},
        "memory": {name: column for name, column in sizes.items() if any(column)},
    }


def _six(column: Any, count: int) -> list[float]:
    """Six digits of each number; whole numbers as such."""
    numbers = np.broadcast_to(np.asarray(column, float), count).tolist()
    rounded = (significant(number, 6) for number in numbers)
    return [int(number) if number.is_integer() else number for number in rounded]


def at_peak(ledger: Memory) -> dict[str, float]:
    """Divide the allocator's peak into its parts; context and NCCL are beside it.

    Activations, logits and buffers have peaks of their own, which need not meet: where buffers
    alone make the peak (the reduction at the step's end), they are it; else activations come first,
    and what of the rest is there then.
    """
    sizes = {name: float(getattr(ledger, f"{name}_bytes")) for name in PARTS}
    parts = {name: sizes[name] for name in ("parameters", "gradients", "optimizer")}
    left = float(ledger.allocated_bytes) - sum(parts.values())
    are_buffers_it = abs(left - sizes["buffers"]) < 1e-9 * max(left, 1.0)
    in_order = ("activations", "output", "buffers")
    if are_buffers_it:
        in_order = ("buffers", "activations", "output")
    for name in in_order:
        parts[name] = max(min(sizes[name], left), 0.0)
        left -= parts[name]
    parts["other"] = max(left, 0.0)
    parts["context"] = float(ledger.required_bytes) - float(ledger.allocated_bytes)
    return {name: parts[name] for name in STACK}


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
