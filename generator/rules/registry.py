"""Every rule, in explicit tuples."""

from __future__ import annotations

from .fit import FIT_RULES
from .identities import IDENTITY_RULES
from .job_rules import JOB_RULES
from .layout_expert import EXPERT_RULES
from .layout_offload import OFFLOAD_RULES
from .layout_pipeline import PIPELINE_RULES
from .layout_recompute import RECOMPUTE_RULES
from .layout_sequence import SEQUENCE_RULES
from .layout_tensor import TENSOR_RULES
from .layout_zero import ZERO_RULES
from .rule import FitRule, JobRule, LayoutRule

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
