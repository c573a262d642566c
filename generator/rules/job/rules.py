"""The rules on a job alone, in the order of their modules."""

from __future__ import annotations

from ..planning_rule import JobRule
from .calibration import CALIBRATION_RULES
from .cluster import CLUSTER_RULES
from .launch import LAUNCH_RULES
from .model import MODEL_RULES
from .parts import PART_RULES

JOB_RULES: tuple[JobRule, ...] = (*CALIBRATION_RULES, *CLUSTER_RULES, *LAUNCH_RULES, *MODEL_RULES, *PART_RULES)
