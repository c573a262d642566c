"""Every rule on Megatron arguments, but those of `as_job` and `fits`, which need numpy."""

from __future__ import annotations

from typing import Final

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

MODULES: Final = (
    memory_places,
    options,
    shape,
    stages,
    batch,
    ramp_up,
    megatron_lm,
    memory,
    experts,
    environment,
    megatron_deepspeed,
    config,
)
