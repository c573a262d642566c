"""The rules applied: to a job, to its pins, to one layout."""

from __future__ import annotations

from ..spec.job import Job
from . import LAYOUT_RULES
from .rule import LayoutRule


def binding_rules(job: Job) -> tuple[LayoutRule, ...]:
    """The layout rules that say anything about `job`."""
    return tuple(rule for rule in LAYOUT_RULES if rule.binds(job))
