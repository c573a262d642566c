"""Requirements on jobs and layouts, with ids, severities and sources.

The names here are imported when they are first asked for: rules on documents need neither the layouts nor numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .planning_rule import FitRule, JobRule, LayoutRule
    from .registry import ALL_RULES, FIT_RULES, IDENTITY_RULES, JOB_RULES, LAYOUT_RULES
    from .run import binding_rules, check_fit, check_job, check_layout, check_pins

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
    "check_pins",
]

_HOMES = {
    ".run": ("binding_rules", "check_fit", "check_job", "check_layout", "check_pins"),
    ".registry": ("ALL_RULES", "FIT_RULES", "IDENTITY_RULES", "JOB_RULES", "LAYOUT_RULES"),
    ".planning_rule": ("FitRule", "JobRule", "LayoutRule"),
}


def __getattr__(name: str) -> Any:
    home = next((home for home, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home, __name__), name)
    globals()[name] = value
    return value
