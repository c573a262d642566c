"""What the same job takes with the other way to shard its states, where its framework has two."""

from __future__ import annotations

from dataclasses import replace

from ..estimate.layout import FIELDS
from ..findings import Severity
from ..job.records import Framework, Pins
from ..rules.run import check_job, check_pins
from ..units import GIB
from .feasible import feasible_layouts
from .plan import Plan
from .suggestions import best_plan

#: Pins that mean something with one way alone, or are spelled otherwise.
_OF_ONE = frozenset({"zero_stage", "zero_copies", "zero_hpz", "sync_each_batch", "offload"})
#: Shares of the time, and bytes, below which two plans are as good as each other.
_AS_FAST = 0.005
_AS_LARGE = 0.05 * GIB


def with_other_sharding(plan: Plan, other: Framework) -> Plan | None:
    """The best plan of the job with another way to shard; None where a rule refuses it, or nothing
    fits.

    Pins hold that mean the same with both.
    """
    job = plan.job
    kept = {name: getattr(job.pins, name) for name in FIELDS if name not in _OF_ONE}
    changed = replace(job, framework=other, pins=Pins(**kept), deepspeed_config={})
    findings = (*check_job(changed), *check_pins(changed))
    if any(finding.severity is Severity.ERROR for finding in findings):
        return None
    return best_plan(changed, feasible_layouts(changed))


def sharding_text(plan: Plan, other: Plan) -> str:
    """Say what the other takes: `deepspeed: ZeRO 3, 4.1% faster, 2.1 GiB more`."""
    steps = [float(each.step_time.total_s) for each in (plan, other)]
    share = steps[0] / steps[1] - 1
    time = "as fast"
    if abs(share) >= _AS_FAST:
        time = f"{share:.1%} faster" if share > 0 else f"{steps[1] / steps[0] - 1:.1%} slower"

    more = float(other.memory.required_bytes) - float(plan.memory.required_bytes)
    size = "as much memory"
    if abs(more) >= _AS_LARGE:
        size = f"{abs(more) / GIB:.1f} GiB {'more' if more > 0 else 'less'}"
    name = other.job.framework.sharding
    return f"training.sharding: {name}: ZeRO {other.layout.zero_stage}, {time}, {size}"
