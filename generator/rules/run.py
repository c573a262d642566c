"""The rules of planning applied: to a job, to its pins, to one layout, to one ledger."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ..estimate.layout import Layout
from ..estimate.ledgers import Memory
from ..estimate.memory import memory
from ..estimate.whole_run import Run
from ..findings import Finding, in_file_order
from ..job.records import Job
from ..rule import Rule, findings_of
from .layout.identities import BATCH_RULES, WORLD_RULES, batch_product, world_product
from .layout.pins import known_values, layout_of, pinned_values, whole_layout
from .registry import FIT_RULES, IDENTITY_RULES, JOB_RULES, LAYOUT_RULES, LENGTH_RULES


def binding_rules(job: Job, rules: Iterable[Rule] = LAYOUT_RULES) -> tuple[Rule, ...]:
    """The rules on layouts that apply to `job`."""
    return tuple(rule for rule in rules if rule.columns.binds(job))


def check_job(job: Job) -> tuple[Finding, ...]:
    """Every rule on facts alone that `job` breaks, but for those that know one program's options."""
    return in_file_order(findings_of(JOB_RULES, job))


def check_pins(job: Job) -> tuple[Finding, ...]:
    """Every rule that the pinned layout keys break, whatever the search chooses for the others."""
    pinned = pinned_values(job.pins)
    known = known_values(job)
    decided = [
        rule
        for rule in binding_rules(job, (*LAYOUT_RULES, *IDENTITY_RULES))
        if any(name in pinned for name in rule.columns.reads) and all(name in known for name in rule.columns.reads)
    ]
    return in_file_order((*findings_of(decided, (job, layout_of(known))), *_check_partial_products(job, pinned, known)))


def check_layout(job: Job, layout: Layout, ledger: Memory | None = None) -> tuple[Finding, ...]:
    """Every rule that one full layout breaks, warnings included; with its ledger, the capacities it exceeds too."""
    broken = findings_of(binding_rules(job, (*LAYOUT_RULES, *IDENTITY_RULES)), (job, layout))
    return in_file_order((*broken, *(check_fit(job, layout, ledger) if ledger else ())))


def check_fit(job: Job, layout: Layout, ledger: Memory) -> tuple[Finding, ...]:
    """Every capacity that one layout's ledger exceeds."""
    return in_file_order(findings_of(FIT_RULES, (job, layout, ledger)))


def check_length(job: Job, layout: Layout, run: Run | None, fastest_fraction: float) -> tuple[Finding, ...]:
    """Whether a run of one layout fits in its time limit, or goes on after it."""
    return in_file_order(findings_of(LENGTH_RULES, (job, layout, run, fastest_fraction)))


def check_pinned_fit(job: Job) -> tuple[Finding, ...]:
    """Every capacity that a job exceeds whose layout is pinned as a whole; nothing where the search has a choice."""
    known = known_values(job)
    rest = known.get("data", 0) * known.get("micro_batch", 0)
    if rest and job.training.global_batch % rest == 0:
        known.setdefault("gradient_accumulation", job.training.global_batch // rest)
    layout = whole_layout(known)
    return check_fit(job, layout, memory(job, layout)) if layout else ()


def _check_partial_products(job: Job, pinned: dict[str, Any], known: dict[str, Any]) -> Iterator[Finding]:
    """Products of which some factors are known: these must divide the total."""
    products = ((WORLD_RULES, world_product(job, known)), (BATCH_RULES, batch_product(job, known)))
    for rules, product in products:
        (rule,) = binding_rules(job, rules)
        written = [name for name in product.factors if name in pinned]
        if written and len(product.factors) < len(rule.columns.reads) and product.total % product.known:
            yield rule.at(job.origin.locate(f"/layout/{written[0]}"), *product.explain(whole=False))
