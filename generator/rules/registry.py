"""Every rule, in explicit tuples."""

from __future__ import annotations

from .fit import FIT_RULES
from .job.rules import JOB_RULES
from .layout.expert import EXPERT_RULES
from .layout.identities import IDENTITY_RULES
from .layout.offload import OFFLOAD_RULES
from .layout.pipeline import PIPELINE_RULES
from .layout.recompute import RECOMPUTE_RULES
from .layout.sequence import SEQUENCE_RULES
from .layout.tensor import TENSOR_RULES
from .layout.zero import ZERO_RULES
from .planning_rule import FitRule, JobRule, LayoutRule

LAYOUT_RULES: tuple[LayoutRule, ...] = (
    *TENSOR_RULES,
    *SEQUENCE_RULES,
    *PIPELINE_RULES,
    *EXPERT_RULES,
    *ZERO_RULES,
    *OFFLOAD_RULES,
    *RECOMPUTE_RULES,
)

#: Everything that `dsgen rules` prints.
ALL_RULES: tuple[JobRule | LayoutRule | FitRule, ...] = (*JOB_RULES, *IDENTITY_RULES, *LAYOUT_RULES, *FIT_RULES)

__all__ = ["ALL_RULES", "FIT_RULES", "IDENTITY_RULES", "JOB_RULES", "LAYOUT_RULES"]
