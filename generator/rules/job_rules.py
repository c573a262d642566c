"""The rules on a job alone, in the order of their modules."""

from __future__ import annotations

from .job_calibration import CALIBRATION_RULES
from .job_cluster import CLUSTER_RULES
from .job_launch import LAUNCH_RULES
from .job_model import MODEL_RULES
from .job_parts import PART_RULES
from .rule import JobRule

JOB_RULES: tuple[JobRule, ...] = (*CALIBRATION_RULES, *CLUSTER_RULES, *LAUNCH_RULES, *MODEL_RULES, *PART_RULES)
