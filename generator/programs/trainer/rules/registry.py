"""Every rule on TrainingArguments and accelerate configs."""

from __future__ import annotations

from typing import Final

from . import (
    accelerate,
    accelerate_deepspeed,
    accelerate_machines,
    arguments,
    configs,
    job,
    match,
    parallelism,
    schedule,
)

_OF_ARGUMENTS: Final = (match, configs, arguments, schedule, job)
MODULES: Final = (*_OF_ARGUMENTS, accelerate, accelerate_deepspeed, accelerate_machines, parallelism)
