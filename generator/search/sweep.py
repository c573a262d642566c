"""A job planned at many values of one or two keys, and the smallest that meets a goal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import product

from ..dataclass import dataclass
from ..findings import InvalidJob, Severity
from ..job.records import Job
from ..rules.violations import divisors
from ..version import __version__
from .enumerate import has_layouts
from .feasible import feasible_layouts
from .plan import Plan
from .search import obstacle
from .suggestions import Searches, best_plan, divided_better


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Counts of GPUs, or of nodes, of one job."""

    job: Job
    unit: int  #: counts are multiples of it: the GPUs of a node, or one node
    gpus: int  #: GPUs that each count stands for

    @classmethod
    def of_gpus(cls, job: Job) -> Counts:
        """Count GPUs, by whole nodes."""
        return cls(job=job, unit=job.cluster.accelerators_per_node, gpus=1)

    @classmethod
    def of_nodes(cls, job: Job) -> Counts:
        """Count nodes."""
        return cls(job=job, unit=1, gpus=job.cluster.accelerators_per_node)

    def between(self, low: int, high: int) -> Iterator[int]:
        """The counts from `low` to `high`, both included, on which some layout breaks no rule; none
        need fit.
        """
        first = max(-(-low // self.unit), 1) * self.unit
        for count in range(first, high + 1, self.unit):
            if has_layouts(replace(self.job, gpus=count * self.gpus)):
                yield count

    def grid(self, low: int, high: int) -> tuple[int, ...]:
        """From `low` to `high`: parts of one node, then whole nodes, up to eight counts to a
        doubling.

        Of each eighth, the first count on which some layout is legal; where there is none, the
        first.
        """
        parts = [part for part in divisors(self.unit) if low <= part <= high and part < self.unit]
        counts, nodes = [], max(-(-low // self.unit), 1)
        while nodes * self.unit <= high:
            step = 1 << max(nodes.bit_length() - 4, 0)
            following = nodes // step * step + step
            legal = self.between(nodes * self.unit, min(following * self.unit - 1, high))
            counts.append(next(legal, nodes * self.unit))
            nodes = following
        return (*parts, *counts)


#: Counts that are tried at once between two neighbours to find the smallest.
_BETWEEN = 16
#: Counts one below the other that miss the goal with another batch too, before no smaller one is
#: tried.
_MISSES = 2
#: Keys that count machines.
MACHINES = frozenset({"gpus", "nodes"})

Value = object
#: The job with keys of the spec, by dotted path, set to values; raises `InvalidJob`.
Load = Callable[[Mapping[str, Value]], Job]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A key of the job spec and the values that it takes, in the order of the table."""

    path: str
    values: tuple[Value, ...]
    counts: Counts | None = None  #: where values in between may be tried: what they are counts of
    span: tuple[int, int] | None = None  #: the range that was asked for, where it has such counts

    def place(self, value: Value) -> float:
        """Order of a value: numbers by size, others as they were listed."""
        return float(value) if isinstance(value, (int, float)) else float(self.values.index(value))

    @property
    def ordered(self) -> bool:
        """Whether all values are numbers; words have only the order in which they were listed."""
        return all(type(value) in (int, float) for value in self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """Limits of the whole run; `None` where there is none."""

    within_s: float | None = None
    at_most: float | None = None  #: in the currency of the cluster's price

    def excess(self, plan: Plan, *, slow: bool = False) -> float:
        """The run over its limits: at most 1 where the goal is met.

        `slow`: at the slow end of the band.
        """
        run = plan.run
        if run is None:
            return math.inf
        band = 1.0
        if slow:
            band = float(plan.uncertainty.step_time.high) / float(plan.step_time.total_s)
        shares = [] if self.within_s is None else [run.wall_s / self.within_s]
        if self.at_most is not None:
            shares.append(math.inf if run.wall_cost is None else run.wall_cost / self.at_most)
        return band * max(shares)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The best plan at some values, or the rule that leaves none."""

    values: Mapping[str, Value]
    plan: Plan | None
    rule: str | None = None  #: that binds, where there is no plan
    message: str | None = None  #: with the numbers, where the rule names one layout or value

    def to_dict(self) -> dict[str, object]:
        """One row, as plain data."""
        plan, run = self.plan, self.plan.run if self.plan else None
        band = plan.uncertainty.step_time if plan else None
        return {
            "values": dict(self.values),
            "gpus": plan.job.gpus if plan else None,
            "layout": plan.layout.to_dict() if plan else None,
            "step_time_s": float(plan.step_time.total_s) if plan else None,
            "step_time_low_s": float(band.low) if band else None,
            "step_time_high_s": float(band.high) if band else None,
            "mfu": float(plan.throughput.mfu) if plan else None,
            "tokens_per_s": float(plan.throughput.tokens_per_s) if plan else None,
            "required_bytes": round(float(plan.memory.required_bytes)) if plan else None,
            "run": asdict(run) if run else None,
            "rule": self.rule,
            "message": self.message,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """All points, ordered by their values, and what meets the goal."""

    axes: tuple[Axis, ...]
    points: tuple[Point, ...]
    goal: Goal | None = None
    #: with fewer GPUs than the smallest, of those tried: it meets the goal with another batch, and
    #: doesn't with the job's
    other_batch: Point | None = None

    def left_out(self, axis: Axis) -> tuple[int, ...]:
        """The counts in the range of an axis that aren't planned."""
        if axis.counts is None or axis.span is None:
            return ()
        (low, high), unit = axis.span, axis.counts.unit
        planned = {point.values[axis.path] for point in self.points}
        every = range(max(-(-low // unit), 1) * unit, high + 1, unit)
        return tuple(count for count in every if count not in planned)

    @property
    def has_sizes(self) -> bool:
        """Whether one point can be smaller than another: by numbers swept, or by GPUs."""
        gpus = {point.plan.job.gpus for point in self.points if point.plan}
        return len(gpus) > 1 or any(axis.ordered for axis in self.axes)

    def smallest(self, *, slow: bool = False) -> Point | None:
        """The smallest point that meets the goal; with `slow`, even at the slow end of its band.

        The smallest has the fewest GPUs, then the smallest numbers, then the lowest price, then the
        least time.
        """
        numbers = [axis for axis in self.axes if axis.ordered]

        def size(planned: tuple[Point, Plan]) -> tuple[float, ...]:
            point, plan = planned
            places = (axis.place(point.values[axis.path]) for axis in numbers)
            return (plan.job.gpus, *places, _cost(plan), float(plan.step_time.total_s))

        met = self._met(slow=slow) if self.goal else []
        if not met:
            return None
        point, _ = min(met, key=size)
        return point

    @property
    def cheapest(self) -> Point | None:
        """The point of the lowest price, of those that meet the goal where there is one."""
        cheapest: Point | None = None
        least = math.inf
        for point, plan in self._met():
            if 0 < _cost(plan) < least:
                cheapest, least = point, _cost(plan)
        return cheapest

    def _met(self, *, slow: bool = False) -> list[tuple[Point, Plan]]:
        """Points with a plan, and with a goal those that meet it."""
        goal = self.goal
        planned = [(point, point.plan) for point in self.points if point.plan is not None]
        if goal is None:
            return planned
        return [(point, plan) for point, plan in planned if goal.excess(plan, slow=slow) <= 1]

    @property
    def nearest(self) -> Point | None:
        """The point that comes closest to the goal; `None` without a goal, or without a plan at any
        value.
        """
        nearest: Point | None = None
        least: float | None = None
        for point in self.points:
            if self.goal is None or point.plan is None:
                continue
            excess = self.goal.excess(point.plan)
            if least is None or excess < least:
                nearest, least = point, excess
        return nearest

    def to_dict(self) -> dict[str, object]:
        """The form of `dsgen sweep --format json`, described by `schemas/sweep.schema.json`."""
        smallest, surely = self.smallest(), self.smallest(slow=True)
        return {
            "dsgen_version": __version__,
            "keys": [axis.path for axis in self.axes],
            "points": [point.to_dict() for point in self.points],
            "goal": asdict(self.goal) if self.goal else None,
            "smallest": dict(smallest.values) if smallest else None,
            "smallest_at_slow_end": dict(surely.values) if surely else None,
            "cheapest": dict(self.cheapest.values) if self.cheapest else None,
            "nearest": dict(self.nearest.values) if self.nearest else None,
            "other_batch": self.other_batch.to_dict() if self.other_batch else None,
        }


def sweep(
    load: Load, axes: Sequence[Axis], goal: Goal | None = None, *, bold: bool = False
) -> Sweep:
    """Plan the job at every combination of values.

    With a goal, and one key whose values have counts in between: also at those between the smallest
    that meets it and the one before; of these, only those with a plan become points. With a goal,
    smaller counts of machines are tried with a batch that they divide better.
    """
    swept = _sweep(load, axes, goal, bold)
    if goal is None or len(axes) > 1 or axes[0].path not in MACHINES:
        return swept
    return replace(swept, other_batch=_other_batch(load, swept, goal, bold))


def _sweep(load: Load, axes: Sequence[Axis], goal: Goal | None, bold: bool) -> Sweep:
    combinations = product(*(axis.values for axis in axes))
    points = [_point(load, axes, chosen, bold) for chosen in combinations]
    axis = axes[0]
    if goal is None or len(axes) > 1 or axis.counts is None:
        return _sorted(axes, points, goal)
    tried = {axis.place(value) for value in axis.values}
    for slow in (False, True):
        while True:
            met = _sorted(axes, points, goal).smallest(slow=slow)
            if met is None:
                break
            more = _between(axis.counts, tried, axis.place(met.values[axis.path]))
            if not more:
                break
            tried |= set(more)
            further = [_point(load, axes, (value,), bold, explain=False) for value in more]
            points += [point for point in further if point.plan is not None]
    return _sorted(axes, points, goal)


def _cost(plan: Plan) -> float:
    """The price of the whole run; infinite where it isn't known."""
    return math.inf if plan.run is None or plan.run.wall_cost is None else plan.run.wall_cost


def _sorted(axes: Sequence[Axis], points: Iterable[Point], goal: Goal | None) -> Sweep:
    def place(point: Point) -> tuple[float, ...]:
        return tuple(axis.place(point.values[axis.path]) for axis in axes)

    return Sweep(axes=tuple(axes), points=tuple(sorted(points, key=place)), goal=goal)


def _other_batch(load: Load, swept: Sweep, goal: Goal, bold: bool) -> Point | None:
    """The smallest point found that meets the goal with a batch that its GPUs divide far better.

    From the largest count that misses the goal downwards.
    """
    smallest = swept.smallest()
    most = smallest.plan.job.gpus if smallest and smallest.plan else math.inf
    found: Point | None = None
    misses = 0
    for point in reversed(swept.points):
        job = _job_at(load, point)
        if job is None or job.gpus >= most or job.training.duration_steps is not None:
            continue  # as many steps of another batch are another number of tokens
        other = divided_better(job)
        plan = Searches(_least_speed(job, goal)).best(other, bold=bold) if other else None
        if plan is not None and goal.excess(plan) <= 1:
            batch = {"training.global_batch": plan.job.training.global_batch}
            found, misses = Point(values={**point.values, **batch}, plan=plan), 0
        elif misses + 1 == _MISSES:
            break
        else:
            misses += 1
    return found


def _job_at(load: Load, point: Point) -> Job | None:
    """The job of a point; `None` where it breaks a rule."""
    if point.plan is not None:
        return point.plan.job
    try:
        return load(point.values)
    except InvalidJob:
        return None


def _least_speed(job: Job, goal: Goal) -> float:
    """Tokens a second and GPU with which steps alone take as long as the goal allows."""
    tokens = job.training.duration_tokens or 0.0
    return tokens / goal.within_s / job.gpus if goal.within_s else 0.0


def _between(counts: Counts, tried: Iterable[float], met: float) -> list[int]:
    """Counts, evenly spaced, between the one that meets the goal and the largest that was tried
    below it.
    """
    below = max((value for value in tried if value < met), default=met)
    legal = [*counts.between(round(below) + 1, round(met) - 1)]
    return legal[:: -(-len(legal) // _BETWEEN)] if legal else []


def _point(
    load: Load, axes: Sequence[Axis], chosen: tuple[Value, ...], bold: bool, *, explain: bool = True
) -> Point:
    """The point at some values; `explain` says where there is no plan why."""
    values = {axis.path: value for axis, value in zip(axes, chosen, strict=True)}
    try:
        job = load(values)
    except InvalidJob as invalid:
        error = next(finding for finding in invalid.findings if finding.severity is Severity.ERROR)
        return Point(values=values, plan=None, rule=error.rule, message=error.message)
    feasible = feasible_layouts(job)
    plan = best_plan(job, feasible, bold=bold)
    if plan is not None or not explain:
        return Point(values=values, plan=plan)
    rule, message = obstacle(job, feasible)
    return Point(values=values, plan=None, rule=rule, message=message)
