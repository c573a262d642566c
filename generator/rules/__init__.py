"""Requirements on jobs and layouts, with ids, severities and sources."""

from __future__ import annotations

from .layout_expert import EXPERT_RULES
from .layout_pipeline import PIPELINE_RULES
from .layout_sequence import SEQUENCE_RULES
from .layout_tensor import TENSOR_RULES
from .layout_zero import ZERO_RULES
from .rule import LayoutRule

LAYOUT_RULES: tuple[LayoutRule, ...] = (
    *TENSOR_RULES,
    *SEQUENCE_RULES,
    *PIPELINE_RULES,
    *EXPERT_RULES,
    *ZERO_RULES,
)
