"""When nothing fits: the rule that binds, the nearest miss, and the smallest changes that would do.

Every suggestion is found by searching the changed job, so it is true.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import combinations

from ..estimate.layout import FIELDS
from ..estimate.uncertainty import required_band
from ..findings import Severity
from ..job.records import Job
from ..rules.numbers import divisors
from ..rules.run import check_pins
from .enumerate import Enumeration
from .feasible import Feasible, feasible_layouts, make_plan
from .plan import Infeasible, Plan, Suggestion
from .rank import ranking
from .refine import refined

#: How far up the GPU count is tried, in times the job's own, before single nodes in between are.
_GROWTH = (1.125, 1.25, 1.5, 2, 3, 4, 6, 8, 12, 16, 32, 64)
#: Neighbouring node counts, and batch sizes, tried one by one.
_NEIGHBOURS = 8
#: Pairs of pinned keys that are offered, where no single one is enough.
_MOST_PAIRS = 3


def explain_infeasible(job: Job, found: Feasible) -> Infeasible:
    """The answer for a job without a plan."""
    binding, nearest = binding_rule(job, found)
    return Infeasible(
        job=job,
        considered=found.considered,
        rejected_by=found.rejected_by,
        binding_rule=binding,
        nearest=nearest,
        suggestions=tuple(_suggestions(job)),
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


def best_plan(job: Job, found: Feasible) -> Plan | None:
    """The best plan of what was found, without reasons; `None` when nothing fits."""
    if not len(found.layouts):
        return None
    every = refined(job, found)
    (row,) = ranking(job, every.layouts, every.total_s, every.required_bytes, 1)
    return make_plan(job, every.layouts[row])


def _best(job: Job) -> Plan | None:
    """The best plan of a changed job, without explanations."""
    return best_plan(job, feasible_layouts(job))


def _suggestions(job: Job) -> Iterator[Suggestion]:
    yield from _without_pins(job)
    yield from _other_gpu_counts(job)
    yield from _other_batches(job)
    yield from _less_headroom(job)


def _without_pins(job: Job) -> Iterator[Suggestion]:
    """Each pinned key changed by itself; where that isn't enough, pairs of them, and last all of them."""
    pinned = [name for name in FIELDS if getattr(job.pins, name) is not None]
    for size in (1, 2):
        found = [s for names in combinations(pinned, size) if (s := _with_others(job, names)) is not None]
        if found:
            yield from found[:_MOST_PAIRS] if size > 1 else found
            return
    if len(pinned) > 2:
        plan = _best(replace(job, pins=type(job.pins)()))
        if plan is not None:
            yield Suggestion(path="layout", value="", text="no pinned layout keys", plan=plan)


def _with_others(job: Job, names: tuple[str, ...]) -> Suggestion | None:
    """The best plan that keeps every pin but `names`, if there is one."""
    plan = _best(replace(job, pins=replace(job.pins, **dict.fromkeys(names))))
    if plan is None:
        return None
    values = {name: plan.layout.to_dict()[name] for name in names}
    text = " and ".join(f"layout.{name}: {_text(value)}" for name, value in values.items())
    if len(names) > 1:
        return Suggestion(path="layout", value="", text=text, plan=plan)
    return Suggestion(path=f"layout.{names[0]}", value=values[names[0]], text=text, plan=plan)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _other_gpu_counts(job: Job) -> Iterator[Suggestion]:
    """The nearest count below that works, and the smallest found above."""
    unit = job.cluster.accelerators_per_node
    if job.cluster.accelerator.is_slice:
        return
    for counts in (_smaller_counts(job.gpus, unit), _larger_counts(job.gpus, unit)):
        plan = _first_plan(replace(job, gpus=gpus) for gpus in counts)
        if plan is not None:
            gpus = plan.job.gpus
            yield Suggestion(path="gpus", value=gpus, text=f"gpus: {gpus}", plan=plan)


def _smaller_counts(gpus: int, unit: int) -> Iterator[int]:
    """Whole nodes downwards; the parts of a node once there is one at most."""
    nodes = gpus // unit
    whole = [n * unit for n in range(nodes, max(nodes - _NEIGHBOURS, 0), -1)]
    parts = sorted(divisors(unit), reverse=True) if nodes <= 1 else []
    return (count for count in dict.fromkeys([*whole, *parts]) if count < gpus)


def _larger_counts(gpus: int, unit: int) -> Iterator[int]:
    """The parts of a node that are more, then whole nodes, close by and growing."""
    nodes = max(gpus // unit, 1)
    whole = {nodes + i for i in range(_NEIGHBOURS + 1)} | {max(round(nodes * g), nodes + 1) for g in _GROWTH}
    return (count for count in sorted({*divisors(unit), *(n * unit for n in whole)}) if count > gpus)


def _first_plan(jobs: Iterable[Job]) -> Plan | None:
    """The best plan of the first job that has one."""
    return next((plan for job in jobs if (plan := _best(job)) is not None), None)


def _other_batches(job: Job) -> Iterator[Suggestion]:
    """The nearest global batches, below and above, with which a plan exists."""
    batch = job.training.global_batch
    replicas = [d for d in divisors(job.gpus) if d > 1]
    below = sorted({batch // d * d for d in replicas} - {0, batch}, reverse=True)
    above = sorted({-(-batch // d) * d for d in replicas} - {batch})
    for candidates in (below, above):
        trainings = (replace(job.training, global_batch=value) for value in candidates[:_NEIGHBOURS])
        plan = _first_plan(replace(job, training=training) for training in trainings)
        if plan is not None:
            path, value = "training.global_batch", plan.job.training.global_batch
            yield Suggestion(path=path, value=value, text=f"{path}: {value}", plan=plan)


def _less_headroom(job: Job) -> Iterator[Suggestion]:
    """A smaller share of memory kept free, when that alone would do."""
    if job.headroom == 0:
        return
    plan = _best(replace(job, headroom=0.0))
    if plan is None:
        return
    needed = 1 - float(required_band(plan.memory).high) / float(plan.memory.capacity_bytes)
    value = int(needed * 100) / 100
    plan = _best(replace(job, headroom=max(value, 0.0)))
    if plan is not None:
        path = "memory.headroom"
        yield Suggestion(path=path, value=value, text=f"{path}: {value:g}", plan=plan)
