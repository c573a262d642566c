"""The rules applied: to a job, to its pins, to one layout, to one ledger."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any

from ..estimate.layout import Layout
from ..estimate.ledgers import Memory
from ..estimate.memory import memory
from ..findings import Finding, Severity, in_file_order
from ..job.records import Job
from .layout.identities import BATCH_RULES, IDENTITY_RULES, WORLD_RULES, Product, batch_product, world_product
from .layout.pins import known_values, layout_of, pinned_values
from .planning_rule import LayoutRule
from .registry import FIT_RULES, JOB_RULES, LAYOUT_RULES


def binding_rules(job: Job) -> tuple[LayoutRule, ...]:
    """The layout rules that say anything about `job`."""
    return _binding(job, LAYOUT_RULES)


def _binding(job: Job, rules: Iterable[LayoutRule]) -> tuple[LayoutRule, ...]:
    return tuple(rule for rule in rules if rule.binds(job))


def check_job(job: Job) -> tuple[Finding, ...]:
    """Every rule on facts alone that `job` breaks."""
    return in_file_order(
        _finding(job, rule.id, rule.severity, pointer, (message, hint))
        for rule in JOB_RULES
        for pointer, message, hint in rule.check(job)
    )


def check_pins(job: Job) -> tuple[Finding, ...]:
    """Every rule that the pinned layout keys break, whatever the search chooses for the others."""
    pinned = pinned_values(job.pins)
    known = known_values(job)
    layout = layout_of(known)
    decided = (
        rule
        for rule in _binding(job, (*LAYOUT_RULES, *IDENTITY_RULES))
        if any(name in pinned for name in rule.variables) and all(name in known for name in rule.variables)
    )
    broken = (_layout_finding(job, layout, rule, pinned) for rule in decided if not rule.holds(job, layout))
    return in_file_order((*broken, *_check_partial_products(job, pinned, known)))


def check_layout(job: Job, layout: Layout, ledger: Memory | None = None) -> tuple[Finding, ...]:
    """Every rule that one full layout breaks, warnings included; with its ledger, the capacities it exceeds too."""
    rules = _binding(job, (*LAYOUT_RULES, *IDENTITY_RULES))
    pinned = pinned_values(job.pins)
    broken = (_layout_finding(job, layout, rule, pinned) for rule in rules if not rule.holds(job, layout))
    return in_file_order((*broken, *(check_fit(job, layout, ledger) if ledger else ())))


def check_fit(job: Job, layout: Layout, ledger: Memory) -> tuple[Finding, ...]:
    """Every capacity that one layout's ledger exceeds."""
    return in_file_order(
        _finding(job, rule.id, rule.severity, rule.pointer, rule.explain(job, layout, ledger))
        for rule in FIT_RULES
        if not rule.holds(job, layout, ledger)
    )


def check_pinned_fit(job: Job) -> tuple[Finding, ...]:
    """Every capacity that a job exceeds whose layout is pinned as a whole; nothing where the search has a choice."""
    known = known_values(job)
    rest = known.get("data", 0) * known.get("micro_batch", 0)
    if rest and job.training.global_batch % rest == 0:
        known.setdefault("gradient_accumulation", job.training.global_batch // rest)
    if any(field.name not in known for field in fields(Layout)):
        return ()
    layout = layout_of(known)
    return check_fit(job, layout, memory(job, layout))


def _finding(job: Job, rule: str, severity: Severity, pointer: str, explained: tuple[str, str | None]) -> Finding:
    message, hint = explained
    return Finding(rule=rule, severity=severity, where=job.origin.locate(pointer), message=message, hint=hint)


def _layout_finding(job: Job, layout: Layout, rule: LayoutRule, pinned: dict[str, Any]) -> Finding:
    """A finding at the first of the rule's variables that the user wrote, else at the first."""
    written = next((name for name in rule.variables if name in pinned), rule.variables[0])
    return _finding(job, rule.id, rule.severity, f"/layout/{written}", rule.explain(job, layout))


def _check_partial_products(job: Job, pinned: dict[str, Any], known: dict[str, Any]) -> Iterator[Finding]:
    """Products of which some factors are known: these must divide the total."""
    products = ((WORLD_RULES, world_product(job, known)), (BATCH_RULES, batch_product(job, known)))
    for rules, product in products:
        (rule,) = _binding(job, rules)
        written = [name for name in product.factors if name in pinned]
        if written and len(product.factors) < len(rule.variables) and product.total % product.known:
            yield _finding(job, rule.id, rule.severity, f"/layout/{written[0]}", _explain_partial(product))


def _explain_partial(product: Product) -> tuple[str, str]:
    message = f"{product.describe()} does not divide {product.key}: {product.total}"
    return message, product.hint(whole=False)
