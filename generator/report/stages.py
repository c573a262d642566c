"""Memory of every pipeline stage against the card."""

from __future__ import annotations

from typing import Any

from ..estimate.ledgers import Memory
from ..estimate.memory import every_stage
from ..search.plan import Plan
from .points import PARTS

STATES = PARTS[:3]
#: What a stage's peak is made of, from the bottom up.
STACK = (*PARTS, "other", "context")


def at_peak(ledger: Memory) -> dict[str, float]:
    """What the allocator's peak is made of, and context and NCCL beside it.

    Activations, logits and buffers have peaks of their own, which need not meet: where buffers alone make the peak (the
    reduction at the step's end), they are it; else activations come first, and what of the rest is there then.
    """
    sizes = {name: float(getattr(ledger, f"{name}_bytes")) for name in PARTS}
    left = float(ledger.allocated_bytes) - sum(sizes[name] for name in STATES)
    found = {name: sizes[name] for name in STATES}
    at_end = abs(left - sizes["buffers"]) < 1e-9 * max(left, 1.0)
    for name in ("buffers", "activations", "output") if at_end else ("activations", "output", "buffers"):
        found[name] = max(min(sizes[name], left), 0.0)
        left -= found[name]
    found["other"] = max(left, 0.0)
    found["context"] = float(ledger.required_bytes) - float(ledger.allocated_bytes)
    return {name: found[name] for name in STACK}


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
