"""Every rule on TrainingArguments and accelerate configs."""

from __future__ import annotations

from typing import Final

from ..rule import DocumentRule
from . import (
    accelerate,
    accelerate_deepspeed,
    accelerate_launch,
    accelerate_machines,
    arguments,
    configs,
    job,
    match,
    parallelism,
    schedule,
)

RULES: Final[tuple[DocumentRule, ...]] = (
    *match.RULES,
    *configs.RULES,
    *arguments.RULES,
    *schedule.RULES,
    *job.RULES,
    *accelerate.RULES,
    *accelerate_deepspeed.RULES,
    *accelerate_launch.RULES,
    *accelerate_machines.RULES,
    *parallelism.RULES,
)
