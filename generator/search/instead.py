"""A plan against what its job excludes: the same job without its pins, with another framework, or
with another way to shard the states.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import inf
from typing import NamedTuple

from ..estimate.layout import FIELDS
from ..estimate.layout_words import stage_in_words
from ..findings import Severity
from ..job.records import Framework, Job, Pins
from ..rules.job.model import missing_parts
from ..rules.run import check_job, check_pins, pinned_layout
from ..units import GIB, count, same_unit
from .compare import TIME_BAND
from .feasible import Feasible, feasible_layouts
from .plan import Plan
from .refine import lowest_s
from .suggestions import Searches, best_plan

#: Factor by which another framework has to be faster to be named: over a tenth.
_MUCH_FASTER = 1 / 0.9
#: The same for one whose code lacks a part of the model: what somebody writes has to pay.
_WORTH_CODE = 2.0
#: Pins that mean something with one way to shard alone, or are spelled otherwise.
_OF_ONE_SHARDING = frozenset(
    {"zero_stage", "zero_copies", "zero_hpz", "sync_each_batch", "offload"}
)
#: Share of the time, and bytes, below which two plans are as good as each other.
_AS_FAST = 0.005
_AS_LARGE = 0.05 * GIB


def unpinned(plan: Plan, *, bold: bool = False) -> Plan | None:
    """The plan of the same job without pinned keys of the layout, where it is clearly faster."""
    job = plan.job
    if job.pins == Pins():
        return None
    free = Searches((1 + TIME_BAND) * _speed(plan)).best(replace(job, pins=Pins()), bold=bold)
    is_faster = free is not None and _speed(free) > (1 + TIME_BAND) * _speed(plan)
    return free if is_faster else None


def unpinned_text(plan: Plan, free: Plan, *, searched: bool = True) -> str:
    """`your layout: 9.34 s; without pins: 6.94 s (-26%)`.

    Steps of different batches aren't compared, but tokens a second. What isn't pinned has defaults
    where it wasn't `searched`.
    """
    if plan.layout.global_batch == free.layout.global_batch:
        ours, without = _times(plan, free)
        change = _change(plan, free)
    else:
        ours, without = (f"{count(each.throughput.tokens_per_s)} tokens/s" for each in (plan, free))
        change = f"{_speed(free) / _speed(plan) - 1:+.0%}"
    is_yours = searched or pinned_layout(plan.job) is not None
    whose = "your layout" if is_yours else "this layout, with defaults for keys left out"
    return f"{whose}: {ours}; without pins: {without} ({change})"


def other_framework(plan: Plan, frameworks: Iterable[Framework]) -> Plan | None:
    """The best plan of the job with another framework where it is over a tenth faster.

    It is so by the expected time, which decides, and by the estimate. Pins belong to a framework,
    and so do the arguments that `launch` gives its script: both are left open. A framework that a
    rule refuses for the job isn't named; of those whose estimates were measured on the same runs,
    the last is.

    One that has no option for a part of the model would train another model. It is named where no
    complete one is, and only for half the time or less, as its code has to be changed first.
    """
    job = plan.job
    complete: list[Job] = []
    incomplete: list[Job] = []
    for framework in reversed(tuple(frameworks)):
        if framework.name == job.framework.name:
            continue
        launch = replace(job.launch, script=framework.script, arguments=())
        other = replace(job, framework=framework, launch=launch, pins=Pins())
        (incomplete if _lacks(job, other) else complete).append(other)
    return _fastest(plan, complete, _MUCH_FASTER) or _fastest(plan, incomplete, _WORTH_CODE)


def _lacks(job: Job, other_job: Job) -> list[str]:
    """The parts of the model that the other framework has no option for, and the job's has."""
    ours = missing_parts(job)
    return [part for part in missing_parts(other_job) if part not in ours]


def _fastest(plan: Plan, jobs: Iterable[Job], factor: float) -> Plan | None:
    """The best plan among jobs of other frameworks that is faster than `plan` by over a factor.

    Of frameworks whose estimates were measured on the same runs, the first that no rule refuses is
    searched.
    """
    tried = {plan.job.engine.measured_as}
    searched: list[_Searched] = []
    for job in jobs:
        if job.engine.measured_as in tried:
            continue
        result = _searched(plan.job, job)
        if result is not None:
            tried.add(job.engine.measured_as)
            searched.append(result)

    best: Plan | None = None
    limit_s = plan.choice.decides_s / factor
    fastest_s = _step_s(plan) / factor
    # Who has the best layouts before details are turned comes first: most others can't win then.
    searched.sort(key=lambda each: float(each.feasible.expected_s.min(initial=inf)))
    for candidate, feasible in searched:
        if not len(feasible.layouts):
            continue
        if lowest_s(candidate, feasible) >= min(limit_s, fastest_s):
            continue
        candidate_plan = best_plan(candidate, feasible)
        if candidate_plan is None or _step_s(candidate_plan) >= fastest_s:
            continue
        if candidate_plan.choice.decides_s < limit_s:
            best, limit_s = candidate_plan, candidate_plan.choice.decides_s
    return best


def framework_text(plan: Plan, other: Plan) -> str:
    """`framework: megatron-lm 16.4 s for 43.2 s (-62%); takes its pretrain_gpt.py, ...`."""
    time, faster = _times(plan, other)
    needs = ", ".join(_takes(plan.job, other.job))
    change = f"{faster} for {time} ({_change(plan, other)})"
    return f"framework: {other.job.framework} {change}; takes {needs}"


def other_sharding(plan: Plan, framework: Framework) -> Plan | None:
    """The best plan of the job with another way to shard; None where a rule refuses it, or nothing
    fits.

    All pins hold, as they would if the spec set the other way. Where that leaves no plan, pins are
    left out: those that rules refuse with the other way; else one of those whose meaning depends
    on the way; else all of these.
    """
    job = plan.job
    other = replace(job, framework=framework)
    pinned = [name for name in sorted(_OF_ONE_SHARDING) if getattr(job.pins, name) is not None]
    refused = [
        name
        for name in pinned
        if _is_refused(job, replace(other, pins=Pins(**{name: getattr(job.pins, name)})))
    ]
    left_out = ((), refused, *((name,) for name in pinned), pinned)
    for pins in dict.fromkeys(replace(job.pins, **dict.fromkeys(names)) for names in left_out):
        result = _searched(job, replace(other, pins=pins))
        best = None if result is None else best_plan(result.job, result.feasible)
        if best is not None:
            return best
    return None


def sharding_text(plan: Plan, other: Plan) -> str:
    """Say what the other takes: `deepspeed: ZeRO 3, 4.1% less time, 2.1 GiB more`.

    Pins that it leaves out come with it: `(without layout.zero_copies)`.
    """
    more_time = _step_s(other) / _step_s(plan) - 1
    time = "as fast"
    if abs(more_time) >= _AS_FAST:
        time = f"{abs(more_time):.1%} {'slower' if more_time > 0 else 'less time'}"

    more = float(other.memory.required_bytes) - float(plan.memory.required_bytes)
    size = "as much memory"
    if abs(more) >= _AS_LARGE:
        size = f"{abs(more) / GIB:.1f} GiB {'more' if more > 0 else 'less'}"
    name = other.job.framework.sharding
    stage = stage_in_words(other.layout, other.job.engine)
    before, after = plan.job.pins, other.job.pins
    dropped = [f"layout.{key}" for key in FIELDS if getattr(before, key) != getattr(after, key)]
    without = f" (without {', '.join(dropped)})" if dropped else ""
    return f"training.sharding: {name}{without}: {stage}, {time}, {size}"


class _Searched(NamedTuple):
    """A changed job, and its layouts that fit."""

    job: Job
    feasible: Feasible


def _searched(job: Job, other_job: Job) -> _Searched | None:
    """A changed job and its layouts that fit; None where a rule refuses what changed."""
    other_job = replace(other_job, deepspeed_config={})
    if _is_refused(job, other_job):
        return None
    return _Searched(other_job, feasible_layouts(other_job))


def _is_refused(job: Job, other_job: Job) -> bool:
    """Whether a rule that the job itself keeps refuses a changed one."""
    findings = (*check_job(other_job), *check_pins(other_job))
    broken = {finding.rule for finding in findings if finding.severity is Severity.ERROR}
    return bool(broken and broken - {finding.rule for finding in check_job(job)})


def _takes(job: Job, other_job: Job) -> Iterable[str]:
    """What a change of framework asks of the user."""
    before, after = job.framework, other_job.framework
    yield f"its {after.script} and model code"
    if lacks := _lacks(job, other_job):
        yield f"code for {' and '.join(lacks)}, which it has no option for"
    if after.data_prefix and not before.data_prefix:
        yield "tokenized data (.bin, .idx)"
    if before.goes_on_from_weights and not after.goes_on_from_weights:
        yield "converted weights"
    yield "new checkpoints"


def _times(plan: Plan, other: Plan) -> list[str]:
    return same_unit([_step_s(each) for each in (plan, other)], steps=True)


def _change(plan: Plan, other: Plan) -> str:
    return f"{_speed(plan) / _speed(other) - 1:+.0%}"


def _speed(plan: Plan) -> float:
    return float(plan.throughput.tokens_per_s_per_gpu)


def _step_s(plan: Plan) -> float:
    return float(plan.step_time.total_s)
