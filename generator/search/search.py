"""The search: enumerate, filter by rules, estimate memory, filter by fit, estimate time, rank, and
say why.

Where nothing is left, it says which rule leaves nothing, and what would.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from ..estimate.layout import Layout
from ..findings import Finding, Severity
from ..job.records import Job, Pins
from ..rules.layout.identities import BATCH_RULES, pinned_values
from ..rules.layout.sequence import exchanges_heads_only
from ..rules.run import (
    IDENTITY_RULES,
    LAYOUT_RULES,
    binding_rules,
    check_length,
    check_pinned_fit,
    check_pins,
    pinned_layout,
)
from .choice import is_pinned, named_rows, ranking, reason
from .enumerate import has_layouts
from .feasible import Feasible, feasible_layouts, has_plan, make_plan, make_plans
from .plan import Infeasible, Plan, SearchResult
from .reasons import decisions
from .refine import refined
from .suggestions import batches_with_a_plan, suggestions


def binding_rule(job: Job, feasible: Feasible) -> tuple[str, Plan | None]:
    """The rule that leaves no layout, and the layout that comes nearest to fitting, when memory is
    what binds.

    Where none is legal it is the first rule that the pinned keys break whatever else is chosen,
    else the rule without which some layout would be legal, else the one that removes most.
    """
    if feasible.nearest is not None:  # what the nearest of the legal layouts lacks is what binds
        nearest = make_plan(job, feasible.nearest)
        return next(_broken_rules(nearest.findings)), nearest
    by_pins = next(_broken_rules(check_pins(job)), None)
    if by_pins is not None:
        return by_pins, None
    rules = feasible.rejected_by
    alone = next((rule for rule in rules if has_layouts(job, without=(rule,))), None)
    return alone or next(iter(rules), "BATCH001"), None


def _broken_rules(findings: Iterable[Finding]) -> Iterator[str]:
    return (finding.rule for finding in findings if finding.severity is Severity.ERROR)


def obstacle(job: Job, feasible: Feasible) -> tuple[str, str | None]:
    """The rule that leaves no layout, and its message where it names one layout, or numbers that
    don't divide.
    """
    batch, most = job.training.global_batch, math.gcd(job.training.global_batch, job.gpus)
    if feasible.nearest is None and most < job.gpus:
        # With a batch that the GPUs divide some layout is legal: the batch is what binds.
        whole_batch = replace(job.training, global_batch=-(-batch // job.gpus) * job.gpus)
        if has_layouts(replace(job, training=whole_batch)):
            (rule,) = binding_rules(job, BATCH_RULES)
            divides = f"data divides {job.gpus:,} GPUs and a global batch of {batch:,}"
            replicas = f"a replica has {job.gpus // most} GPUs or a multiple"
            return rule.id, f"{divides}, so {replicas}, and no such layout is legal"
    name, nearest = binding_rule(job, feasible)
    findings = nearest.findings if nearest else ()
    messages = (finding.message for finding in findings if finding.rule == name)
    return name, next(messages, None)


def why_no_plan(job: Job) -> tuple[Finding, ...]:
    """Find what keeps a job from having a plan; nothing where it has one.

    Where the job pins a layout, that is the capacities that it exceeds. Else it is those that the
    nearest of all open layouts exceeds, or the rule that leaves none. Jobs for several numbers of
    GPUs aren't searched.
    """
    if pinned_layout(job):
        return check_pinned_fit(job)
    if job.elastic or has_plan(job)[0]:
        return ()
    feasible = feasible_layouts(job)
    if feasible.nearest is not None:
        nearest = make_plan(job, feasible.nearest)
        words = f"no layout fits; of the nearest ({nearest.in_words()}), "
        exceeded = (each for each in nearest.findings if each.severity is Severity.ERROR)
        return tuple(replace(each, message=words + each.message) for each in exceeded)

    name, message = obstacle(job, feasible)
    rule = next(rule for rule in (*LAYOUT_RULES, *IDENTITY_RULES) if rule.id == name)
    where, hint = "/gpus", None
    if rule in BATCH_RULES:
        where, batches = "/training/global_batch", batches_with_a_plan(job)
        hint = f"use {job.says('global_batch', *batches)}" if batches else None
    if job.pins != Pins():
        where = "/layout"
    said = message or f"no layout is legal: {rule.title}"
    return (rule.at(job.locate(where), said, hint),)


def search(
    job: Job, *, top: int = 10, bold: bool = False, explain: bool = True
) -> SearchResult | Infeasible:
    """The `top` best plans of `job`, or why there is none and what would make one possible.

    `bold` chooses the fastest; `explain` compares each decision of the first plan with the values
    next to it. Exhaustive and deterministic: every layout that satisfies the identities and the
    pins is enumerated, and every one that breaks no rule is estimated.
    """
    return search_with_estimates(job, top=top, bold=bold, explain=explain)[0]


def search_with_estimates(
    job: Job, *, top: int = 10, bold: bool = False, explain: bool = True
) -> tuple[SearchResult | Infeasible, Feasible]:
    """The answer of `search`, and all layouts that it chose from, as columns."""
    started = time.perf_counter()
    feasible = refined(job, feasible_layouts(job), top=top, bold=bold)
    if not len(feasible.layouts):
        binding, nearest = binding_rule(job, feasible)
        none = Infeasible(
            job=job,
            considered=feasible.considered,
            rejected_by=feasible.rejected_by,
            binding_rule=binding,
            nearest=nearest,
            suggestions=tuple(suggestions(job)),
        )
        return none, feasible
    rows = ranking(feasible, top, bold=bold)
    named = named_rows(job, feasible, rows[0])
    needed = [*dict.fromkeys([*rows, *named.values()])]
    plans = dict(zip(needed, make_plans(job, feasible.layouts.take(np.array(needed))), strict=True))
    by_name = {name: plans[row] for name, row in named.items()}
    pinned = is_pinned(job, feasible)
    why = {
        name: reason(name, by_name, feasible.fitting, bold=bold, pinned=pinned) for name in named
    }
    chosen = plans[rows[0]]
    compared = tuple(decisions(feasible, chosen, bold=bold)) if explain else ()
    plans[rows[0]] = replace(_timed(chosen), why=why["chosen"], decisions=compared)
    result = SearchResult(
        job=job,
        plans=tuple(plans[row] for row in rows),
        named={name: plans[row] for name, row in named.items()},
        why=why,
        considered=feasible.considered,
        feasible=feasible.fitting,
        rejected_by=feasible.rejected_by,
        search_s=time.perf_counter() - started,
    )
    return result, feasible


def estimate(job: Job) -> Plan:
    """One layout, unsearched: pinned keys as they are, `data` and what is missing of the batch from
    the identities, and the framework's defaults (1, stage 0, nothing recomputed or offloaded) for
    the rest. Broken rules are in `findings`.
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
    derived = 1
    if accumulation is not None and batch % (data * accumulation) == 0:
        derived = batch // (data * accumulation)
    micro = pins.get("micro_batch", derived)
    accumulation = accumulation or max(batch // (data * micro), 1)
    sizes = {"data": data, "micro_batch": micro, "gradient_accumulation": accumulation}
    return _timed(make_plan(job, Layout.of({**pins, **sizes})))


def _timed(plan: Plan) -> Plan:
    """Add the rules that the plan breaks by its time limit."""
    band, step_s = plan.uncertainty.step_time, float(plan.step_time.total_s)
    fastest, slowest = float(band.low) / step_s, float(band.high) / step_s
    findings = check_length(plan.job, plan.layout, plan.run, fastest, slowest)
    return replace(plan, findings=(*plan.findings, *findings))
