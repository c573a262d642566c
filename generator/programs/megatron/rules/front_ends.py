"""Identities of programs that start Megatron with words of their own."""

from __future__ import annotations

from typing import Final

from ....findings import ERROR, Violations
from ....rules.violations import listed, megatron_lm, nearest
from ...launching.settings import settings_of
from ..run import EXPERT, PIPELINE, TENSOR, MegatronRun
from .rule import at, lm_arguments

_EXPERT_TENSOR: Final = "--expert-tensor-parallel-size"
_front_ends: Final = lm_arguments.where(lambda run: run.front_end is not None)


@_front_ends.rule("FRONT001", ERROR, "init", megatron_lm("core/parallel_state.py:871-884"))
def experts_divide_the_ranks(run: MegatronRun) -> Violations:
    """Expert tensor, expert and pipeline ranks divide the GPUs, whatever model is trained.
    Prevents: RuntimeError: world_size is not divisible by ..., on every rank
    Fix: use sizes whose product divides the GPUs
    """
    settings = settings_of(run.launch) if run.launch is not None else None
    expert = run.integer(EXPERT)
    if settings is None or expert is None or expert < 2:
        return
    counted = settings.count("nodes per_node")
    tensor = run.setting(_EXPERT_TENSOR, run.setting(TENSOR, 1))
    pipeline = run.setting(PIPELINE, 1)
    if counted is None or not tensor or not pipeline:
        return

    gpus, cut = counted.value, tensor * expert * pipeline
    # Megatron's own rules say it where the model is known to have experts.
    if gpus % cut and not run.has("--num-experts"):
        product = f"expert tensor {tensor} × {EXPERT} {expert} × pipeline {pipeline} = {cut}"
        message = f"{product} does not divide {gpus} GPUs"
        passing = [size for size in range(1, gpus + 1) if not gpus % (tensor * pipeline * size)]
        hint = f"use {cut} GPUs"
        if passing:
            hint = f"use {EXPERT} {listed(nearest(passing, expert))}"
        yield at(run, EXPERT, message, hint)
