"""What a plan costs against what its job leaves no room for: its pins, and its framework."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..findings import Severity
from ..job.records import Framework, Job, Pins
from ..rules.run import check_job
from ..units import same_unit
from .compare import TIME_BAND
from .plan import Plan
from .suggestions import Searches

#: Factor by which another framework has to be faster to be named: over a tenth.
_MUCH_FASTER = 1 / 0.9


def unpinned(plan: Plan, *, bold: bool = False) -> Plan | None:
    """The plan of the same job without pinned keys of the layout, where it is clearly faster."""
    job = plan.job
    if job.pins == Pins():
        return None
    free = Searches((1 + TIME_BAND) * _speed(plan)).best(replace(job, pins=Pins()), bold=bold)
    is_faster = free is not None and _speed(free) > (1 + TIME_BAND) * _speed(plan)
    return free if is_faster else None


def unpinned_text(plan: Plan, free: Plan) -> str:
    """`your layout: 9.34 s; the chosen one 6.94 s (-26%)`."""
    own, other = _times(plan, free)
    return f"your layout: {own}; the chosen one {other} ({_change(plan, free)})"


def elsewhere(plan: Plan, frameworks: Iterable[Framework]) -> Plan | None:
    """The best plan of the job with another framework, where it is over a tenth faster.

    That is in the expected time, which decides, and in the estimate. Pins are those of a framework,
    and so is what `launch` gives its script: both are left open. A framework that a rule refuses
    for the job isn't named; of those whose estimates were measured on the same runs, the last is.
    """
    job = plan.job
    known = {finding.rule for finding in check_job(job)}
    tried = {job.engine.measured_as}
    best: Plan | None = None

    for framework in reversed(tuple(frameworks)):
        if framework.engine.measured_as in tried or framework.name == job.framework.name:
            continue
        launch = replace(job.launch, script=framework.script, arguments=())
        other = replace(job, framework=framework, launch=launch, pins=Pins(), deepspeed_config={})
        new = {f.rule for f in check_job(other) if f.severity is Severity.ERROR} - known
        if new:
            continue
        tried.add(framework.engine.measured_as)
        found = Searches(_MUCH_FASTER * _speed(plan)).best(other)
        if found is None or _speed(found) <= _MUCH_FASTER * _speed(plan):
            continue
        if found.choice.decides_s >= plan.choice.decides_s / _MUCH_FASTER:
            continue
        if best is None or found.choice.decides_s < best.choice.decides_s:
            best = found
    return best


def elsewhere_text(plan: Plan, other: Plan) -> str:
    """`framework: megatron-lm 16.4 s for 43.2 s (-62%); takes its pretrain_gpt.py, ...`."""
    own, faster = _times(plan, other)
    needs = ", ".join(_takes(plan.job, other.job))
    change = f"{faster} for {own} ({_change(plan, other)})"
    return f"framework: {other.job.framework} {change}; takes {needs}"


def _takes(job: Job, other: Job) -> Iterable[str]:
    """What a change of framework asks of the user."""
    before, after = job.framework, other.framework
    yield f"its {after.script} and model code"
    if after.data_prefix and not before.data_prefix:
        yield "tokenized data (.bin, .idx)"
    if before.goes_on_from_weights and not after.goes_on_from_weights:
        yield "converted weights"
    yield "new checkpoints"


def _times(plan: Plan, other: Plan) -> list[str]:
    steps = [float(each.step_time.total_s) for each in (plan, other)]
    return same_unit(steps, steps=True)


def _change(plan: Plan, other: Plan) -> str:
    return f"{_speed(plan) / _speed(other) - 1:+.0%}"


def _speed(plan: Plan) -> float:
    return float(plan.throughput.tokens_per_s_per_gpu)
