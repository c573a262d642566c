"""When nothing fits: the rule that binds, the nearest miss, and the changes that would do."""

from __future__ import annotations

from ..findings import Severity
from ..job.records import Job
from ..rules.run import check_pins
from .enumerate import Enumeration
from .feasible import Feasible, make_plan
from .plan import Infeasible
from .suggestions import suggestions


def explain_infeasible(job: Job, found: Feasible) -> Infeasible:
    """The answer for a job without a plan."""
    nearest = make_plan(job, found.nearest) if found.nearest is not None else None
    if nearest is None:
        binding = _broken_pin(job) or _lone_obstacle(job, found)
    else:  # some layouts are legal: what the nearest of them lacks is what binds
        binding = next(f.rule for f in nearest.findings if f.severity is Severity.ERROR)
    return Infeasible(
        job=job,
        considered=found.considered,
        rejected_by=found.rejected_by,
        binding_rule=binding,
        nearest=nearest,
        suggestions=tuple(suggestions(job)),
    )


def _broken_pin(job: Job) -> str | None:
    """The first rule that the pinned keys break whatever else is chosen."""
    return next((f.rule for f in check_pins(job) if f.severity is Severity.ERROR), None)


def _lone_obstacle(job: Job, found: Feasible) -> str:
    """The rule without which some layout would be legal; where no single one is, that which removes most."""
    freed = (rule for rule in found.rejected_by if any(True for _ in Enumeration(job, without=rule)))
    return next(freed, next(iter(found.rejected_by), "BATCH001"))
