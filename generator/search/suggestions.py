"""Changes to a job without a plan after which it has one, and changes nearby that make a poor plan
fast.

Every one is found by searching the changed job, so it is true. All searches together look at a
bounded number of layouts: what is not found within it is not suggested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import combinations, islice
from math import gcd, inf
from typing import Any

from ..estimate.groups import FLEXIBLE, sends_tokens_once_per_rank
from ..estimate.layout import FIELDS, PARTS_OF, Offload, Recompute
from ..estimate.uncertainty import host_band, required_band
from ..findings import Finding, Severity
from ..job.records import Job, Pins
from ..rules.run import check_job, lighter
from ..rules.violations import divisors
from ..text.wording import in_spec
from .choice import ranking
from .feasible import Feasible, asks_script, feasible_layouts, has_plan, make_plan
from .plan import Plan, Suggestion
from .refine import least_s, refined

#: Legal layouts that all searches together may look at; about a second's worth on one core.
_MOST_LAYOUTS = 1_500_000
#: Factors on the GPU count that are tried before single nodes in between are.
_GROWTH = (1.125, 1.25, 1.5, 2, 3, 4, 6, 8, 12, 16, 32, 64)
#: Neighbouring node counts, and batch sizes, tried one by one.
_NEIGHBOURS = 24
#: Pairs of pinned keys that are offered, where no single one is enough.
_MOST_PAIRS = 3
#: Distance, as a share of the GPUs or of the batch, of a change that is offered for its speed.
_NEARBY = 0.125
#: Counts, and batches, that are compared for speed: those that divide best.
_COMPARED = 3
#: Factors by which a change has to be faster, in tokens a second and GPU, to be offered beside a
#: nearer one, or beside a plan that works.
_FASTER, _MUCH_FASTER = 1.05, 1.10
#: As for a batch that divides better, which also makes a plainer plan, and for a key that leaves
#: results and layout as they are.
_LITTLE_FASTER = 1.02
#: Factor by which a batch nearby has to have more in common with the GPU count, for any layout of
#: it to be searched.
_AWKWARD = 4


class Searches:
    """Searches of changed jobs, bounded all together, for plans with more than `speed` tokens a
    second and GPU.
    """

    def __init__(self, speed: float = 0.0) -> None:
        self._left, self._speed = _MOST_LAYOUTS, speed

    def first(self, jobs: Iterable[Job]) -> Plan | None:
        """The best plan of the first job that has one."""
        for job in jobs:
            if self._left <= 0:
                return None
            has_one, looked_at = has_plan(job)
            self._left -= looked_at
            if has_one and (plan := self.best(job)):
                return plan
        return None

    def best(self, job: Job, *, bold: bool = False) -> Plan | None:
        """The best plan of a job, without explanations."""
        feasible = self._search(job)
        return None if feasible is None else self._best(job, feasible, bold=bold)

    def _best(self, job: Job, feasible: Feasible, *, bold: bool = False) -> Plan | None:
        tokens = job.training.global_batch * job.training.sequence_length / job.gpus
        possible = len(feasible.layouts) and tokens > self._speed * least_s(job, feasible)
        return best_plan(job, feasible, bold=bold) if possible else None

    def fastest(self, jobs: Iterable[Job]) -> Plan | None:
        """The plan with most tokens a second and GPU among those of all jobs.

        The jobs are compared by sequences a second and GPU of their fastest layouts, before details
        are turned.
        """
        searches = [
            (job, feasible)
            for job in jobs
            if (feasible := self._search(job)) and len(feasible.layouts)
        ]
        speeds = [
            job.training.global_batch / job.gpus / float(feasible.total_s.min())
            for job, feasible in searches
        ]
        return self._best(*searches[speeds.index(max(speeds))]) if searches else None

    def _search(self, job: Job) -> Feasible | None:
        if self._left <= 0:
            return None
        feasible = feasible_layouts(job)
        self._left -= feasible.legal
        return feasible


def _speed(plan: Plan) -> float:
    return plan.throughput.tokens_per_s_per_gpu


def best_plan(job: Job, feasible: Feasible, *, bold: bool = False) -> Plan | None:
    """The best plan of what was found, without reasons; `None` when nothing fits."""
    if not len(feasible.layouts):
        return None
    every = refined(job, feasible, top=1, bold=bold, names=False)
    (row,) = ranking(every, 1, bold=bold)
    return make_plan(job, every.layouts[row])


def suggestions(job: Job) -> Iterator[Suggestion]:
    """Changes of one key after which there is a plan, or of two pinned keys; nearest first."""
    searches = Searches()
    in_parts = (
        replace(job, pins=replace(job.pins, context=size)) for size in divisors(job.gpus)[1:]
    )
    if asks_script(job) and (plans := [plan for part in in_parts if (plan := searches.best(part))]):
        plan = max(plans, key=_speed)
        yield _key("layout.context", plan.layout.context, plan)
    yield from _without_pins(job, searches)
    yield from _other_gpu_counts(job, searches)
    yield from _other_batches(job, searches)
    yield from _less_headroom(job, searches)
    for name, value, other in lighter(job):
        # these may change results, so that they stay the user's to set
        if plan := searches.best(other):
            yield _key(f"training.{name}", value, plan)


def _key(path: str, value: Any, plan: Plan) -> Suggestion:
    return Suggestion(path=path, value=value, text=f"{path}: {in_spec(value)}", plan=plan)


#: Pins that spend time to save memory, and decide little else.
_SPENDING = ("recompute", "offload", "zero_stage", "micro_batch")

#: Those that spend time for memory alone, with their parts.
_SAVING = tuple(name for whole in ("recompute", "offload") for name in (whole, *PARTS_OF[whole]))


#: Finds the rules that a job breaks.
Check = Callable[[Job], tuple[Finding, ...]]


def faster_nearby(plan: Plan, check: Check | None = None) -> Iterator[Suggestion]:
    """Changes of one key with which the same tensor and context parallelism is clearly faster per
    GPU.

    A GPU count and a batch nearby; a pin that costs; another dispatcher of tokens, which leaves
    results and layout as they are; with `check`, which knows the rules of its program, a CUDA graph
    of whole iterations; of a plan that spends time to fit, keys of `training` that save
    memory, also where it pins what they make needless. Only layouts that are cut like the plan's
    are searched: with others, they may be faster still. Of a batch that divides far better, any
    layout is, and of those keys where a program without stages has few.
    """
    layout, searches, job = plan.layout, Searches(_MUCH_FASTER * _speed(plan)), plan.job
    cut: dict[str, Any] = {name: layout.to_dict()[name] for name in ("tensor", "context", "expert")}
    spent: dict[str, Any] = {
        name: layout.to_dict()[name]
        for name in ("sequence_parallel", "zero_stage", "recompute", "offload")
    }
    alike = replace(job, pins=replace(job.pins, **cut, **spent))
    batch = dividing_batch(plan)
    offers = [batch] if batch else []
    for key, jobs in (
        ("gpus", _round_counts(alike)),
        ("training.global_batch", _round_batches(alike)),
    ):
        if not (batch and key != "gpus") and (nearby := searches.fastest(jobs)):
            offers.append(_changed(key, nearby))
    for name in (name for name in _SPENDING if getattr(job.pins, name) is not None):
        free: dict[str, Any] = {**cut, name: None}
        if freed := searches.best(replace(job, pins=replace(job.pins, **free))):
            offers.append(_key(f"layout.{name}", freed.layout.to_dict()[name], freed))
    if layout.recompute != Recompute.NONE or layout.offload != Offload.NONE:
        staged = job.engine.has_parallel_layers
        pins = replace(job.pins, **cut, pipeline=layout.pipeline) if staged else job.pins
        # What saves memory needn't stay pinned where another key saves it; what the job has without
        # pins is no gain of that key.
        saving = [name for name in _SAVING if getattr(job.pins, name) is not None]
        unpinned = searches.best(replace(job, pins=Pins())) if saving else None
        least = _MUCH_FASTER * max(_speed(plan), _speed(unpinned) if unpinned else 0.0)
        for name, value, other in lighter(job):
            smaller = searches.best(replace(other, pins=pins))
            if saving and not (smaller and _speed(smaller) > _MUCH_FASTER * _speed(plan)):
                unset: dict[str, Any] = dict.fromkeys(saving)
                smaller = searches.best(replace(other, pins=replace(pins, **unset)))
                smaller = smaller if smaller and _speed(smaller) > least else None
            if smaller:
                offers.append(_key(f"training.{name}", value, smaller))
    dispatched = _dispatched(plan)
    fastest = dispatched.plan if dispatched else plan
    graphed = _graphed(plan, _speed(fastest), check) if check else None
    offers += [change for change in (dispatched, graphed) if change]
    yield from (
        change
        for change in offers
        if change in (batch, dispatched, graphed)
        or _speed(change.plan) > _MUCH_FASTER * _speed(plan)
    )


def _dispatched(plan: Plan) -> Suggestion | None:
    """The plan with the fastest dispatcher of tokens that its job doesn't name, if it is faster."""
    job, layout = plan.job, plan.layout
    if job.training.dispatcher is not None or not layout.expert > 1:
        return None

    known = {finding.rule for finding in check_job(job)}
    offers = []
    for kind in FLEXIBLE:
        if not job.framework.can_say({"dispatcher": kind}):
            continue
        changed = replace(job, training=replace(job.training, dispatcher=kind))
        if not sends_tokens_once_per_rank(changed, layout):
            continue
        if {finding.rule for finding in check_job(changed)} <= known:
            offers.append(_key("training.dispatcher", kind, make_plan(changed, layout)))
    possible = [each for each in offers if _works(each.plan, _LITTLE_FASTER * _speed(plan))]
    return max(possible, key=lambda each: _speed(each.plan), default=None)


def _works(plan: Plan, least: float) -> bool:
    """Return whether a plan fits, breaks no rule and has more than `least` tokens a second."""
    errors = [finding for finding in plan.findings if finding.severity is Severity.ERROR]
    return plan.choice.fits and not errors and _speed(plan) > least


def _graphed(plan: Plan, speed: float, check: Check) -> Suggestion | None:
    """The layout with whole iterations as one CUDA graph, of a job without graphs, if it is faster
    than `speed`.

    Experts in a graph need HybridEP, and MXFP8 of recipes in 8 bits, and drop tokens over a rank's
    capacity, which changes results: that is the user's to set.
    """
    job, training = plan.job, plan.job.training
    has_experts = job.model.experts > 0
    if training.cuda_graphs != "none" or (
        has_experts and training.dispatcher not in (None, "hybridep")
    ):
        return None

    keys: dict[str, Any] = {"cuda_graphs": "full_iteration"}
    if has_experts and training.dispatcher is None:
        keys["dispatcher"] = "hybridep"
    if has_experts and training.precision == "fp8" and training.fp8_recipe != "mxfp8":
        keys["fp8_recipe"] = "mxfp8"
    if not job.framework.can_say(keys):
        return None
    other = replace(job, training=replace(training, **keys))
    known = {finding.rule for finding in check(job)}
    if not {finding.rule for finding in check(other)} <= known:
        return None
    captured = make_plan(other, plan.layout)
    if not _works(captured, _LITTLE_FASTER * speed):
        return None
    text = ", ".join(f"training.{name}: {value}" for name, value in keys.items())
    return Suggestion(path="training.cuda_graphs", value="full_iteration", text=text, plan=captured)


def dividing_batch(plan: Plan) -> Suggestion | None:
    """The nearest batch that has far more in common with the GPU count, where its best plan is
    faster.
    """
    job = plan.job
    job_of_round_batch = next(_round_batches(job), None)
    shared = _AWKWARD * gcd(job.training.global_batch, job.gpus)
    if (
        job_of_round_batch is None
        or gcd(job_of_round_batch.training.global_batch, job.gpus) < shared
    ):
        return None
    least = _LITTLE_FASTER * _speed(plan)
    faster = Searches(least).best(job_of_round_batch)
    return _changed("training.global_batch", faster) if faster and _speed(faster) > least else None


def _changed(path: str, plan: Plan) -> Suggestion:
    return _key(path, plan.job.gpus if path == "gpus" else plan.job.training.global_batch, plan)


def _without_pins(job: Job, searches: Searches) -> Iterator[Suggestion]:
    """Each pinned key changed by itself; where that isn't enough, pairs of them, and last all of
    them.
    """
    pinned = [name for name in FIELDS if getattr(job.pins, name) is not None]
    for size, most in ((1, None), (2, _MOST_PAIRS)):
        offers = (_with_others(job, names, searches) for names in combinations(pinned, size))
        offered = [*islice((offer for offer in offers if offer is not None), most)]
        if offered:
            yield from offered
            return
    if len(pinned) > 2 and (plan := searches.best(replace(job, pins=type(job.pins)()))):
        yield Suggestion(path="layout", value="", text="no pinned layout keys", plan=plan)


def _with_others(job: Job, names: tuple[str, ...], searches: Searches) -> Suggestion | None:
    """The best plan that keeps every pin but `names`, if there is one."""
    plan = searches.best(replace(job, pins=replace(job.pins, **dict.fromkeys(names))))
    if plan is None:
        return None
    values = {name: plan.layout.to_dict()[name] for name in names}
    said = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in values.items()
    }
    text = " and ".join(f"layout.{name}: {value}" for name, value in said.items())
    if len(names) > 1:
        return Suggestion(path="layout", value="", text=text, plan=plan)
    return Suggestion(path=f"layout.{names[0]}", value=values[names[0]], text=text, plan=plan)


def _other_gpu_counts(job: Job, searches: Searches) -> Iterator[Suggestion]:
    """The nearest count below that works, the smallest found above, and one nearby that is faster
    than both.
    """
    if job.cluster.accelerator.is_slice:
        return
    gpus, unit = job.gpus, job.cluster.accelerators_per_node
    nodes, parts = gpus // unit, divisors(unit)
    # Below, whole nodes, and the parts of a node once there is one at most; above, parts of a node
    # that are more, then whole nodes, close by and growing.
    fewer = [n * unit for n in range(nodes, max(nodes - _NEIGHBOURS, 0), -1)]
    below = dict.fromkeys([*fewer, *(sorted(parts, reverse=True) if nodes <= 1 else [])])
    some = max(nodes, 1)
    more = {some + i for i in range(_NEIGHBOURS + 1)} | {
        max(round(some * g), some + 1) for g in _GROWTH
    }
    above = sorted({*parts, *(n * unit for n in more)})
    sides = ((count for count in below if count < gpus), (count for count in above if count > gpus))
    nearest = (searches.first(replace(job, gpus=count) for count in side) for side in sides)
    yield from _with_faster(
        "gpus", [plan for plan in nearest if plan], searches.fastest(_round_counts(job))
    )


def _with_faster(path: str, nearest: list[Plan], fastest: Plan | None) -> Iterator[Suggestion]:
    """The nearest changes, and the fastest one where it is clearly faster."""
    if fastest is not None and all(_speed(fastest) > _FASTER * _speed(plan) for plan in nearest):
        nearest = [*nearest, fastest]
    yield from (_changed(path, plan) for plan in nearest)


def _round_counts(job: Job) -> Iterator[Job]:
    """The job on whole nodes nearby, on the counts with most divisors."""
    unit = job.cluster.accelerators_per_node
    if job.cluster.accelerator.is_slice:
        return
    reach = int(_NEARBY * job.gpus)
    while reach // unit > _NEIGHBOURS:  # of very many nodes, the rounder numbers
        unit *= 2
    counts = {*range(-(-(job.gpus - reach) // unit) * unit, job.gpus + reach + 1, unit)} - {
        0,
        job.gpus,
    }
    round_ones = sorted(counts, key=lambda count: (-len(divisors(count)), abs(count - job.gpus)))
    powers = [count for count in round_ones if count & (count - 1) == 0]
    yield from (
        replace(job, gpus=count) for count in dict.fromkeys([*powers, *round_ones[:_COMPARED]])
    )


def batches_with_a_plan(job: Job) -> list[int]:
    """The nearest global batches below and above a job's with which it has a plan."""
    offers = _other_batches(job, Searches())
    return sorted({plan.job.training.global_batch for plan in (each.plan for each in offers)})


def _other_batches(job: Job, searches: Searches) -> Iterator[Suggestion]:
    """The nearest global batches, below and above, with which a plan exists, and one nearby that is
    faster.
    """
    batch = job.training.global_batch
    replicas = [d for d in divisors(job.gpus) if d > 1]
    below = sorted({batch // d * d for d in replicas} - {0, batch}, reverse=True)
    above = sorted({-(-batch // d) * d for d in replicas} - {batch})
    nearest = (
        searches.first(_with_batch(job, size) for size in side[:_NEIGHBOURS])
        for side in (below, above)
    )
    plans = [plan for plan in nearest if plan]
    yield from _with_faster(
        "training.global_batch", plans, searches.fastest(_round_batches(job)) if plans else None
    )


def _round_batches(job: Job) -> Iterator[Job]:
    """The job with batches nearby that share most with the GPU count."""
    batch = job.training.global_batch
    around = {n * d for d in divisors(job.gpus) for n in (batch // d, batch // d + 1)}
    sizes = (size for size in around - {0, batch} if abs(size - batch) <= _NEARBY * batch)
    best = sorted(sizes, key=lambda size: (-gcd(size, job.gpus), abs(size - batch)))
    yield from (_with_batch(job, size) for size in best[:_COMPARED])


def _with_batch(job: Job, size: int) -> Job:
    return replace(job, training=replace(job.training, global_batch=size))


def _less_headroom(job: Job, searches: Searches) -> Iterator[Suggestion]:
    """A smaller share of memory kept free, when that alone would do."""
    if job.headroom == 0:
        return
    plan = searches.best(replace(job, headroom=0.0))
    if plan is None:
        return
    host = float(host_band(job, plan.memory).low) / (job.cluster.host_memory_bytes or inf)
    needed = 1 - max(
        float(required_band(plan.memory).high) / float(plan.memory.capacity_bytes), host
    )
    value = int(needed * 100) / 100
    if plan := searches.best(replace(job, headroom=max(value, 0.0))):
        yield _key("memory.headroom", value, plan)
