"""When nothing fits: the rule that binds, the nearest miss, and the changes that would do."""

from __future__ import annotations

from ..findings import Severity
from ..job.records import Job
from ..rules.run import check_pins
from .enumerate import Enumeration
from .feasible import Feasible, make_plan
from .plan import Infeasible, Plan
from .suggestions import suggestions


def explain_infeasible(job: Job, found: Feasible) -> Infeasible:
    """The answer for a job without a plan."""
    binding, nearest = binding_rule(job, found)
    return Infeasible(
        job=job,
        considered=found.considered,
        rejected_by=found.rejected_by,
        binding_rule=binding,
        nearest=nearest,
        suggestions=tuple(suggestions(job)),
    )


def binding_rule(job: Job, found: Feasible) -> tuple[str, Plan | None]:
    """The rule that leaves no layout, and the layout that comes nearest to fitting, when memory is what binds."""
    if found.nearest is None:
        return _broken_pin(job) or _lone_obstacle(job, found), None
    nearest = make_plan(job, found.nearest)  # some layouts are legal: what the nearest of them lacks is what binds
    return next(f.rule for f in nearest.findings if f.severity is Severity.ERROR), nearest


def _broken_pin(job: Job) -> str | None:
    """The first rule that the pinned keys break whatever else is chosen."""
    return next((f.rule for f in check_pins(job) if f.severity is Severity.ERROR), None)


def _lone_obstacle(job: Job, found: Feasible) -> str:
    """The rule without which some layout would be legal; where no single one is, that which removes most."""
    freed = (rule for rule in found.rejected_by if any(True for _ in Enumeration(job, without=(rule,))))
    return next(freed, next(iter(found.rejected_by), "BATCH001"))
