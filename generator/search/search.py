"""The search: enumerate, filter by rules, estimate memory, filter by fit, estimate time, rank."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..estimate.layout import Layout, Layouts, Offload, Recompute
from ..estimate.ledgers import Memory
from ..estimate.memory import memory
from ..estimate.step_time import step_time, throughput
from ..estimate.uncertainty import required_band, uncertainty
from ..job.records import Job
from ..rules.registry import FIT_RULES
from ..rules.run import check_fit, check_layout
from .enumerate import Legal, enumerate_legal, pinned_values
from .plan import Infeasible, Plan, SearchResult
from .rank import complexity, ranking
from .reasons import reasons

#: Rows estimated at once: a few columns of this many float64 stay in a core's cache.
_CHUNK_ROWS = 16384

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Feasible:
    """Layouts that fit, their times, and the nearest of those that don't."""

    layouts: Layouts
    total_s: Floats
    required_bytes: Floats
    considered: int
    rejected_by: Mapping[str, int]
    nearest: Layout | None  #: the legal layout that comes closest to fitting; `None` when no layout is legal


def search(job: Job, *, top: int = 10) -> SearchResult | Infeasible:
    """The `top` best plans of `job`, or why there is none and what would make one possible.

    Exhaustive and deterministic: every layout that satisfies the identities and the pins is enumerated, and every one
    that breaks no rule is estimated.
    """
    started = time.perf_counter()
    found = feasible_layouts(job)
    if not len(found.layouts):
        from .infeasible import explain_infeasible

        return explain_infeasible(job, found)
    rows = ranking(job, found.layouts, found.total_s, found.required_bytes, top)
    elapsed = time.perf_counter() - started
    plans = tuple(_ranked_plan(job, found, row) for row in rows)
    return SearchResult(
        job=job,
        plans=plans,
        alternatives=_alternatives(job, found, plans[0]),
        considered=found.considered,
        feasible=len(found.layouts),
        rejected_by=found.rejected_by,
        search_s=elapsed,
    )


def feasible_layouts(job: Job) -> Feasible:
    """All layouts that break no rule and fit, with step time and memory demand."""
    legal = enumerate_legal(job)
    rejected = dict(legal.rejected_by)
    kept: list[tuple[Layouts, Floats, Floats]] = []
    nearest: tuple[tuple[float, float], Layout] | None = None
    for start in range(0, len(legal.layouts), _CHUNK_ROWS):
        rows = legal.layouts.take(np.arange(start, min(start + _CHUNK_ROWS, len(legal.layouts))))
        ledger = memory(job, rows)
        fits = _fit(job, rows, ledger, rejected)
        tighter, other = _demand(job, ledger)
        least = int(np.lexsort((other, tighter))[0])
        demand = (float(tighter[least]), float(other[least]))
        if nearest is None or demand < nearest[0]:
            nearest = (demand, rows[least])
        if fits.any():
            rows = rows.take(fits)
            kept.append((rows, step_time(job, rows).total_s, ledger.required_bytes[fits]))
    return _feasible(legal, rejected, kept, nearest[1] if nearest else None)


def _feasible(
    legal: Legal,
    rejected: dict[str, int],
    kept: list[tuple[Layouts, Floats, Floats]],
    nearest: Layout | None,
) -> Feasible:
    """The chunks joined."""
    columns = {
        f.name: np.concatenate([getattr(rows, f.name) for rows, _, _ in kept] or [getattr(legal.layouts, f.name)[:0]])
        for f in fields(Layouts)
    }
    return Feasible(
        layouts=Layouts(**columns),
        total_s=np.concatenate([seconds for _, seconds, _ in kept] or [np.zeros(0)]),
        required_bytes=np.concatenate([size for _, _, size in kept] or [np.zeros(0)]),
        considered=legal.considered,
        rejected_by=dict(sorted(rejected.items(), key=lambda item: (-item[1], item[0]))),
        nearest=nearest,
    )


def _fit(job: Job, rows: Layouts, ledger: Memory, rejected: dict[str, int]) -> NDArray[np.bool_]:
    """Which rows fit; counts the others by rule."""
    fits = np.ones(len(rows), np.bool_)
    for rule in FIT_RULES:
        holds = np.broadcast_to(np.asarray(rule.columns.holds(job, rows, ledger), np.bool_), fits.shape)
        removed = int((fits & ~holds).sum())
        if removed:
            rejected[rule.id] = rejected.get(rule.id, 0) + removed
        fits &= holds
    return fits


def _demand(job: Job, ledger: Memory) -> tuple[Floats, Floats]:
    """Device and host memory, as need over what may be used: the tighter first, which decides what comes nearest."""
    device = required_band(ledger).high / (ledger.capacity_bytes * (1 - job.headroom))
    host = ledger.host_bytes_per_node / (job.cluster.host_memory_bytes or np.inf)
    return np.maximum(device, host), np.minimum(device, host)


def make_plan(job: Job, layout: Layout, *, why: tuple[str, ...] = ()) -> Plan:
    """A plan of one layout with its full ledgers and whatever rules it breaks."""
    ledger = _scalar(memory(job, layout))
    seconds = _scalar(step_time(job, layout))
    return Plan(
        job=job,
        layout=layout,
        memory=ledger,
        step_time=seconds,
        throughput=throughput(job, layout, seconds),
        uncertainty=uncertainty(job, layout, ledger, seconds),
        reasons=why,
        findings=(*check_layout(job, layout), *check_fit(job, layout, ledger)),
    )


def _scalar(record: Any) -> Any:
    """A ledger with plain floats: formulae on scalars give 0-d arrays."""
    values = {f.name: float(np.asarray(getattr(record, f.name))) for f in fields(record)}
    if "stage" in values:
        values["stage"] = int(values["stage"])
    return type(record)(**values)


def _ranked_plan(job: Job, found: Feasible, row: int) -> Plan:
    layout = found.layouts[row]
    return make_plan(job, layout, why=reasons(job, layout, found.layouts, found.total_s))


def _alternatives(job: Job, found: Feasible, best: Plan) -> dict[str, Plan]:
    """Plans that trade differently: the fastest, the one with most memory to spare, the simplest."""
    rows = {
        "fastest": int(np.lexsort((found.required_bytes, found.total_s))[0]),
        "least memory": int(np.lexsort((found.total_s, found.required_bytes))[0]),
        "simplest": int(np.lexsort((found.total_s, complexity(job, found.layouts)))[0]),
    }
    layouts = {label: found.layouts[row] for label, row in rows.items()}
    distinct: dict[str, Plan] = {}
    for label, layout in layouts.items():
        if layout != best.layout and all(layout != plan.layout for plan in distinct.values()):
            distinct[label] = make_plan(job, layout, why=reasons(job, layout, found.layouts, found.total_s))
    return distinct


def estimate(job: Job) -> Plan:
    """One layout, unsearched: pinned keys as they are, `data` and what is missing of the batch from the identities, and
    the framework's defaults (1, stage 0, nothing recomputed or offloaded) for the rest. Broken rules are in `findings`.
    """
    pins = pinned_values(job.pins)
    tensor, pipeline, context = (pins.get(name, 1) for name in ("tensor", "pipeline", "context"))
    data = pins.get("data", max(job.gpus // (tensor * pipeline * context), 1))
    batch = job.training.global_batch
    accumulation = pins.get("gradient_accumulation")
    derived = 1 if accumulation is None or batch % (data * accumulation) else batch // (data * accumulation)
    micro = pins.get("micro_batch", derived)
    layout = Layout(
        data=data,
        tensor=tensor,
        pipeline=pipeline,
        virtual_pipeline=pins.get("virtual_pipeline", 1),
        context=context,
        expert=pins.get("expert", 1),
        sequence_parallel=bool(pins.get("sequence_parallel", 0)),
        zero_stage=pins.get("zero_stage", 0),
        micro_batch=micro,
        gradient_accumulation=accumulation or max(batch // (data * micro), 1),
        recompute=Recompute(pins.get("recompute", 0)),
        offload=Offload(pins.get("offload", 0)),
    )
    return make_plan(job, layout)
