"""Every rule on Megatron arguments by themselves."""

from __future__ import annotations

from typing import Final

from . import batch, environment, megatron_deepspeed, megatron_lm, memory, options, shape

MODULES: Final = (options, shape, batch, megatron_lm, memory, environment, megatron_deepspeed)
