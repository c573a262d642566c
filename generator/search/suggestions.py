"""Changes after which a job without a plan has one, and small changes that make a plan much faster.

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
#: The factor for a batch that divides better, which also makes a plainer plan, and for a key that
#: leaves results and layout as they are.
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
            plan = self.best(job) if has_one else None
            if plan is not None:
                return plan
        return None

    def best(self, job: Job, *, bold: bool = False) -> Plan | None:
        """The best plan of a job, without explanations."""
        feasible = self._search(job)
        return None if feasible is None else self._best(job, feasible, bold=bold)

    def _best(
        self, job: Job, feasible: Feasible, *, least: float | None = None, bold: bool = False
    ) -> Plan | None:
        speed = self._speed if least is None else least
        tokens = job.training.global_batch * job.training.sequence_length / job.gpus
        possible = len(feasible.layouts) and tokens > speed * least_s(job, feasible)
        return best_plan(job, feasible, bold=bold) if possible else None

    def fastest(self, jobs: Iterable[Job], *, least: float | None = None) -> Plan | None:
        """The plan with most tokens a second and GPU among those of all jobs; with `least`, one
        with more than that instead of `speed`.

        The jobs are compared by sequences a second and GPU of their fastest layouts, before details
        are turned.
        """
        fastest: tuple[Job, Feasible] | None = None
        most = -inf
        for job in jobs:
            feasible = self._search(job)
            if feasible is None or not len(feasible.layouts):
                continue
            speed = job.training.global_batch / job.gpus / float(feasible.total_s.min())
            if speed > most:
                fastest, most = (job, feasible), speed
        return None if fastest is None else self._best(*fastest, least=least)

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
    if asks_script(job):
        yield from _with_context(job, searches)
    yield from _without_pins(job, searches)
    yield from _other_gpu_counts(job, searches)
    yield from _other_batches(job, searches)
    yield from _less_headroom(job, searches)
    # These may change results: they stay the user's to set.
    for name, value, other in lighter(job):
        plan = searches.best(other)
        if plan is not None:
            yield _key(f"training.{name}", value, plan)


def _with_context(job: Job, searches: Searches) -> Iterator[Suggestion]:
    """The context parallelism with the fastest plan, which the search leaves to the user."""
    sizes = divisors(job.gpus)[1:]
    split = (replace(job, pins=replace(job.pins, context=size)) for size in sizes)
    plans = [plan for plan in map(searches.best, split) if plan is not None]
    if plans:
        plan = max(plans, key=_speed)
        yield _key("layout.context", plan.layout.context, plan)


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

    These are a GPU count and a batch nearby; a pin that costs; another dispatcher of tokens, which
    leaves results and layout as they are; and with `check`, which knows the rules of its program, a
    CUDA graph of whole iterations. For a plan that spends time to fit they are also keys of
    `training` that save memory.

    Each is the best plan of the changed job. Of a program that cuts layers only those layouts are
    searched that are cut like the plan's, a fraction of all: the gain is `at_least` theirs. For a
    batch that divides far better all layouts are searched.
    """
    searches = Searches(_MUCH_FASTER * _speed(plan))
    batch = dividing_batch(plan)
    offers = [
        *_nearby_sizes(plan, searches, with_batches=batch is None),
        *_freed_pins(plan, searches),
        *_lighter_training(plan, searches),
    ]
    dispatched = _dispatched(plan)
    fastest = dispatched.plan if dispatched else plan
    graphed = _graphed(plan, _speed(fastest), check) if check else None

    # The batch and the last two have bounds of their own.
    if batch:
        yield batch
    for change in offers:
        if _speed(change.plan) > _MUCH_FASTER * _speed(plan) or _saves_gpus(plan, change.plan):
            yield change
    yield from (change for change in (dispatched, graphed) if change)


def _alike(job: Job, plan: Plan) -> Job:
    """The job whose layers are cut like the plan's; as it is where its program cuts none."""
    if not job.engine.has_parallel_layers:
        return job
    layout = plan.layout
    return replace(job, pins=replace(job.pins, tensor=layout.tensor, context=layout.context))


def _is_narrowed(plan: Plan) -> bool:
    """Return whether a job alike has fewer layouts than the plan's job."""
    return _alike(plan.job, plan).pins != plan.job.pins


def _saves_gpus(plan: Plan, other: Plan) -> bool:
    """Return whether another plan trains no slower on fewer GPUs."""
    is_as_fast = other.throughput.tokens_per_s >= plan.throughput.tokens_per_s
    return other.job.gpus < plan.job.gpus and is_as_fast


def _nearby_sizes(plan: Plan, searches: Searches, *, with_batches: bool) -> Iterator[Suggestion]:
    """The fastest GPU count nearby and, `with_batches`, the fastest batch."""
    alike, is_narrowed = _alike(plan.job, plan), _is_narrowed(plan)
    on_other_gpus = searches.fastest(_round_counts(alike), least=_speed(plan))
    if on_other_gpus is not None:
        yield replace(_changed("gpus", on_other_gpus), at_least=is_narrowed)
    if not with_batches:
        return

    # A batch nearby saves its memory alike: this spares half of the time.
    layout = plan.layout.to_dict()
    saving: dict[str, Any] = {name: layout[name] for name in ("zero_stage", "recompute", "offload")}
    alike = replace(alike, pins=replace(alike.pins, **saving))
    with_other_batch = searches.fastest(_round_batches(alike))
    if with_other_batch is not None:
        yield replace(_changed("training.global_batch", with_other_batch), at_least=True)


def _freed_pins(plan: Plan, searches: Searches) -> Iterator[Suggestion]:
    """Each pin that spends time to save memory, at the value that it would have unpinned."""
    for name in _SPENDING:
        if getattr(plan.job.pins, name) is None:
            continue
        alike = _alike(plan.job, plan)
        freed = searches.best(replace(alike, pins=replace(alike.pins, **{name: None})))
        if freed is not None:
            change = _key(f"layout.{name}", freed.layout.to_dict()[name], freed)
            yield replace(change, at_least=_is_narrowed(plan))


def _lighter_training(plan: Plan, searches: Searches) -> Iterator[Suggestion]:
    """Keys of `training` that save the memory for which a plan recomputes or offloads."""
    layout, job = plan.layout, plan.job
    if layout.recompute == Recompute.NONE and layout.offload == Offload.NONE:
        return
    pins = _alike(job, plan).pins
    if job.engine.has_parallel_layers:
        pins = replace(pins, pipeline=layout.pipeline)

    # What saves memory needn't stay pinned where another key saves it; what the job has without
    # pins is no gain of that key.
    saving = [name for name in _SAVING if getattr(job.pins, name) is not None]
    without_saving = replace(pins, **dict.fromkeys(saving))
    unpinned = searches.best(replace(job, pins=Pins())) if saving else None
    least = _MUCH_FASTER * max(_speed(plan), _speed(unpinned) if unpinned else 0.0)
    for name, value, other in lighter(job):
        smaller, is_narrowed = searches.best(replace(other, pins=pins)), pins != job.pins
        is_faster = smaller is not None and _speed(smaller) > _MUCH_FASTER * _speed(plan)
        if saving and not is_faster:
            smaller, is_narrowed = searches.best(replace(other, pins=without_saving)), False
            if smaller is None or _speed(smaller) <= least:
                continue
        if smaller is not None:
            yield replace(_key(f"training.{name}", value, smaller), at_least=is_narrowed)


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
    least = _LITTLE_FASTER * _speed(plan)
    possible = [each for each in offers if _works(each.plan, least)]
    best = max(possible, key=lambda each: _speed(each.plan), default=None)
    return _planned_anew(best, plan, least) if best else None


def _planned_anew(change: Suggestion, plan: Plan, least: float) -> Suggestion | None:
    """The change with the best plan of its job, where that has more than `least` tokens a second
    and GPU.

    It is cut like `plan`, whose layout the change had: with the change another may be better.
    """
    anew = Searches(least).best(_alike(change.plan.job, plan))
    if anew is None or _speed(anew) <= least:
        return None
    return replace(change, plan=anew, at_least=_is_narrowed(plan))


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
    has_other_dispatcher = has_experts and training.dispatcher not in (None, "hybridep")
    if training.cuda_graphs != "none" or has_other_dispatcher:
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
    if not _works(captured, _LITTLE_FASTER * _speed(plan)):
        return None
    text = ", ".join(f"training.{name}: {value}" for name, value in keys.items())
    graphed = Suggestion(
        path="training.cuda_graphs", value="full_iteration", text=text, plan=captured
    )
    return _planned_anew(graphed, plan, _LITTLE_FASTER * speed)


def dividing_batch(plan: Plan) -> Suggestion | None:
    """The nearest batch that has far more in common with the GPU count, where its best plan is
    faster.
    """
    round_job = divided_better(plan.job)
    if round_job is None:
        return None
    least = _LITTLE_FASTER * _speed(plan)
    faster = Searches(least).best(round_job)
    return _changed("training.global_batch", faster) if faster and _speed(faster) > least else None


def divided_better(job: Job) -> Job | None:
    """The job with the nearest batch that has far more in common with the GPU count; `None` where
    its own divides well enough.
    """
    round_job = next(_round_batches(job), None)
    in_common = gcd(job.training.global_batch, job.gpus)
    if round_job is None or gcd(round_job.training.global_batch, job.gpus) < _AWKWARD * in_common:
        return None
    return round_job


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
    plan = searches.best(replace(job, pins=Pins())) if len(pinned) > 2 else None
    if plan is not None:
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
    nodes, parts_of_node = gpus // unit, divisors(unit)

    # Below: whole nodes, and parts of a node where there is one node at most.
    below = [n * unit for n in range(nodes, max(nodes - _NEIGHBOURS, 0), -1)]
    if nodes <= 1:
        below += sorted(parts_of_node, reverse=True)
    # Above: larger parts of a node, then whole nodes, close by and growing.
    some = max(nodes, 1)
    more = {some + i for i in range(_NEIGHBOURS + 1)}
    more |= {max(round(some * factor), some + 1) for factor in _GROWTH}
    above = sorted({*parts_of_node, *(n * unit for n in more)})

    sides = (
        [count for count in dict.fromkeys(below) if count < gpus],
        [count for count in above if count > gpus],
    )
    nearest = (searches.first(replace(job, gpus=count) for count in side) for side in sides)
    plans = [plan for plan in nearest if plan is not None]
    yield from _with_faster("gpus", plans, searches.fastest(_round_counts(job)))


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
    first = -(-(job.gpus - reach) // unit) * unit
    counts = {*range(first, job.gpus + reach + 1, unit)} - {0, job.gpus}
    round_ones = sorted(counts, key=lambda count: (-len(divisors(count)), abs(count - job.gpus)))
    powers_of_two = [count for count in round_ones if count & (count - 1) == 0]
    for count in dict.fromkeys([*powers_of_two, *round_ones[:_COMPARED]]):
        yield replace(job, gpus=count)


def batches_with_a_plan(job: Job) -> list[int]:
    """The nearest global batches below and above a job's with which it has a plan."""
    offers = _other_batches(job, Searches())
    return sorted({offer.plan.job.training.global_batch for offer in offers})


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
    plans = [plan for plan in nearest if plan is not None]
    fastest = searches.fastest(_round_batches(job)) if plans else None
    yield from _with_faster("training.global_batch", plans, fastest)


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
    device = float(required_band(plan.memory).high) / float(plan.memory.capacity_bytes)
    left = 1 - max(device, host)
    value = int(left * 100) / 100
    plan = searches.best(replace(job, headroom=max(value, 0.0)))
    if plan is not None:
        yield _key("memory.headroom", value, plan)
