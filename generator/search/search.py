"""The search: enumerate, filter by rules, estimate memory, filter by fit, estimate time, rank, and say why."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..estimate.layout import DEFAULTS, FIELDS, Layout, is_constant
from ..estimate.step_time import step_time
from ..findings import Severity
from ..job.records import Job
from ..rules.layout.identities import BATCH_RULES, pinned_values
from ..rules.layout.sequence import exchanges_heads_only
from ..rules.run import binding_rules, check_length, check_pins
from ..text.wording import in_spec
from .choice import named_rows, ranking, reason, why_first
from .enumerate import Enumeration
from .feasible import Estimates, Feasible, feasible_layouts, joined_estimates, make_plan, make_plans
from .plan import Decision, Infeasible, Plan, SearchResult
from .refine import refined, refined_rows
from .suggestions import suggestions

#: The data parallel size and the accumulation follow from the others.
_DECISIONS = tuple(name for name in FIELDS if name not in ("data", "gradient_accumulation"))
#: A layout in which nothing is decided.
_PLAIN = Layout(data=1)
#: Alternatives that a reason compares, best first.
_MOST_COMPARED = 2
#: Fastest rows of each value whose details are turned before they are compared.
_RIVALS = 4
#: By how much an alternative is faster that a reason has to explain: below it, percents in whole numbers are 0.
_NOT_AS_FAST = 0.005


def decisions(found: Estimates, plan: Plan, *, bold: bool = False) -> Iterator[Decision]:
    """Each decision of a plan that had an alternative, against the best layouts with other values."""
    job, chosen = plan.job, plan.layout
    names = [name for name in _DECISIONS if getattr(job.pins, name) is None]
    order = np.argsort(found.total_s, kind="stable")
    firsts = (
        rows
        for name in names
        for rows in _firsts(getattr(found.layouts, name), order, _RIVALS).values()
    )
    rivals = np.array(sorted({int(row) for rows in firsts for row in rows}), np.int64)
    found = joined_estimates([found, *refined_rows(job, found.take(rivals))])
    order = np.argsort(found.total_s, kind="stable")
    picked: list[tuple[str, int | None]] = []
    for name in names:
        value = getattr(chosen, name)
        best = {
            other: int(rows[0])
            for other, rows in _firsts(getattr(found.layouts, name), order, 1).items()
        }
        others = sorted(
            (row for other, row in best.items() if other != value),
            key=lambda row: found.total_s[row],
        )
        if others and not (
            name in DEFAULTS and value == DEFAULTS[name]
        ):  # but for details that nothing turned
            picked += [(name, row) for row in others[:_MOST_COMPARED]]
        elif value != getattr(_PLAIN, name):
            picked.append((name, None))
    compared = [row for _, row in picked if row is not None]
    causes = _causes(plan, found.take(np.array(compared, np.int64)))
    slower = found.total_s / plan.step_time.total_s - 1
    faster = [row for row in compared if slower[row] <= -_NOT_AS_FAST]
    plans = make_plans(job, found.layouts.take(np.array(faster, np.int64))) if faster else iter(())
    for name, row in picked:
        shown = in_spec(chosen.to_dict()[name])
        if row is None:
            yield Decision(key=name, chosen=shown, other=None)
            continue
        yield Decision(
            key=name,
            chosen=shown,
            other=in_spec(found.layouts[row].to_dict()[name]),
            slower_fraction=round(float(slower[row]), 4),
            cause=next(causes),
            more_bytes=round(float(found.required_bytes[row] - plan.memory.required_bytes)),
            why=why_first(plan, next(plans), bold=bold) if slower[row] <= -_NOT_AS_FAST else None,
        )


def _causes(plan: Plan, others: Estimates) -> Iterator[str]:
    """The part of the step that differs most from that of a plan, for each of other layouts."""
    theirs = step_time(plan.job, others.layouts) if len(others.total_s) else plan.step_time
    parts = [f.name for f in fields(theirs) if f.name != "total_s"]
    shape = len(others.total_s)
    more = np.array(
        [
            np.broadcast_to(getattr(theirs, part) - getattr(plan.step_time, part), shape)
            for part in parts
        ]
    )
    for column, seconds in zip(more.T, others.total_s, strict=True):
        most = column.argmax() if seconds >= plan.step_time.total_s else column.argmin()
        yield parts[int(most)].removesuffix("_s")


def _firsts(
    column: NDArray[Any], order: NDArray[np.int64], most: int
) -> dict[Any, NDArray[np.int64]]:
    """The first rows in `order`, at most so many, of each value of a column."""
    found: dict[Any, NDArray[np.int64]] = {}
    rows = order[:most] if is_constant(column) else order
    while len(rows):
        same = column[rows] == column[rows[0]]
        found[column[rows[0]].item()] = rows[same][:most]
        rows = rows[~same]
    return found


def binding_rule(job: Job, found: Feasible) -> tuple[str, Plan | None]:
    """The rule that leaves no layout, and the layout that comes nearest to fitting, when memory is what binds.

    Where none is legal it is the first rule that the pinned keys break whatever else is chosen, else the rule without
    which some layout would be legal, else the one that removes most.
    """
    if found.nearest is not None:  # what the nearest of the legal layouts lacks is what binds
        nearest = make_plan(job, found.nearest)
        return next(f.rule for f in nearest.findings if f.severity is Severity.ERROR), nearest
    broken = (f.rule for f in check_pins(job) if f.severity is Severity.ERROR)
    freed = (
        rule for rule in found.rejected_by if any(True for _ in Enumeration(job, without=(rule,)))
    )
    rule = next(broken, None) or next(freed, None) or next(iter(found.rejected_by), "BATCH001")
    return rule, None


def obstacle(job: Job, found: Feasible) -> tuple[str, str | None]:
    """The rule that leaves no layout, and its message where it names one layout, or numbers that don't divide."""
    batch, most = job.training.global_batch, math.gcd(job.training.global_batch, job.gpus)
    if found.nearest is None and most < job.gpus:
        whole = replace(
            job, training=replace(job.training, global_batch=-(-batch // job.gpus) * job.gpus)
        )
        if any(True for _ in Enumeration(whole)):
            (rule,) = binding_rules(job, BATCH_RULES)
            left = (
                f"a replica has {job.gpus // most} GPUs or a multiple, and no such layout is legal"
            )
            return (
                rule.id,
                f"data divides {job.gpus:,} GPUs and a global batch of {batch:,}, so {left}",
            )
    name, nearest = binding_rule(job, found)
    return name, next(
        (f.message for f in nearest.findings if f.rule == name), None
    ) if nearest else None


def search(
    job: Job, *, top: int = 10, bold: bool = False, explain: bool = True
) -> SearchResult | Infeasible:
    """The `top` best plans of `job`, or why there is none and what would make one possible.

    `bold` asks of memory what is allocated alone, and of a plan no measured kind; `explain` compares each decision of
    the first plan with others.
    Exhaustive and deterministic: every layout that satisfies the identities and the pins is enumerated, and every one
    that breaks no rule is estimated.
    """
    return search_with_estimates(job, top=top, bold=bold, explain=explain)[0]


def search_with_estimates(
    job: Job, *, top: int = 10, bold: bool = False, explain: bool = True
) -> tuple[SearchResult | Infeasible, Feasible]:
    """The answer of `search`, and all layouts that it chose from, as columns."""
    started = time.perf_counter()
    found = refined(job, feasible_layouts(job), bold=bold)
    if not len(found.layouts):
        binding, nearest = binding_rule(job, found)
        none = Infeasible(
            job=job,
            considered=found.considered,
            rejected_by=found.rejected_by,
            binding_rule=binding,
            nearest=nearest,
            suggestions=tuple(suggestions(job)),
        )
        return none, found
    rows = ranking(job, found, top, bold=bold)
    named = named_rows(job, found, rows[0])
    needed = [*dict.fromkeys([*rows, *named.values()])]
    plans = dict(zip(needed, make_plans(job, found.layouts.take(np.array(needed))), strict=True))
    by_name = {name: plans[row] for name, row in named.items()}
    why = {name: reason(name, by_name, found.fitting, bold=bold) for name in named}
    chosen = plans[rows[0]]
    compared = tuple(decisions(found, chosen, bold=bold)) if explain else ()
    plans[rows[0]] = replace(_timed(chosen), why=why["chosen"], decisions=compared)
    result = SearchResult(
        job=job,
        plans=tuple(plans[row] for row in rows),
        named={name: plans[row] for name, row in named.items()},
        why=why,
        considered=found.considered,
        feasible=found.fitting,
        rejected_by=found.rejected_by,
        search_s=time.perf_counter() - started,
    )
    return result, found


def estimate(job: Job) -> Plan:
    """One layout, unsearched: pinned keys as they are, `data` and what is missing of the batch from the identities, and
    the framework's defaults (1, stage 0, nothing recomputed or offloaded) for the rest. Broken rules are in `findings`.
    """
    pins = pinned_values(job.pins)
    if job.model.experts > 0:
        pins.setdefault("expert_tensor", pins.get("tensor", 1))
    if exchanges_heads_only(job):
        pins.setdefault("context_heads", pins.get("context", 1))
    ranks = math.prod(pins.get(name, 1) for name in ("tensor", "pipeline", "context"))
    data = pins.get("data", max(job.gpus // ranks, 1))
    batch = job.training.global_batch
    accumulation = pins.get("gradient_accumulation")
    derived = (
        1
        if accumulation is None or batch % (data * accumulation)
        else batch // (data * accumulation)
    )
    micro = pins.get("micro_batch", derived)
    accumulation = accumulation or max(batch // (data * micro), 1)
    return _timed(
        make_plan(
            job,
            Layout.of(
                {**pins, "data": data, "micro_batch": micro, "gradient_accumulation": accumulation}
            ),
        )
    )


def _timed(plan: Plan) -> Plan:
    """Add the rules that the plan breaks by its time limit."""
    fastest = float(plan.uncertainty.step_time.low) / float(plan.step_time.total_s)
    found = check_length(plan.job, plan.layout, plan.run, fastest)
    return replace(plan, findings=(*plan.findings, *found))
