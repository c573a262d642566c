"""Requirements on jobs and layouts, with ids, severities and sources."""

from __future__ import annotations

from .check import binding_rules, check_fit, check_job, check_layout, check_pinned_fit, check_pins
from .registry import ALL_RULES, FIT_RULES, IDENTITY_RULES, JOB_RULES, LAYOUT_RULES
from .rule import FitRule, JobRule, LayoutRule

__all__ = [
    "ALL_RULES",
    "FIT_RULES",
    "IDENTITY_RULES",
    "JOB_RULES",
    "LAYOUT_RULES",
    "FitRule",
    "JobRule",
    "LayoutRule",
    "binding_rules",
    "check_fit",
    "check_job",
    "check_layout",
    "check_pinned_fit",
    "check_pins",
]
