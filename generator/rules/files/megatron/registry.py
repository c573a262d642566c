"""Every rule on Megatron arguments, but those of `as_job` and `fits`, which need numpy."""

from __future__ import annotations

from typing import Final

from ..rule import DocumentRule
from . import (
    batch,
    config,
    environment,
    experts,
    megatron_deepspeed,
    megatron_lm,
    memory,
    memory_places,
    options,
    ramp_up,
    shape,
    stages,
)

RULES: Final[tuple[DocumentRule, ...]] = (
    *memory_places.RULES,
    *options.RULES,
    *shape.RULES,
    *stages.RULES,
    *batch.RULES,
    *ramp_up.RULES,
    *megatron_lm.RULES,
    *memory.RULES,
    *experts.RULES,
    *environment.RULES,
    *megatron_deepspeed.RULES,
    *config.RULES,
)
