"""Batches and accumulation beyond the product: what runs, but trains something else than intended."""

from __future__ import annotations

from typing import Final

from ....findings import NOTE, WARNING, Violations
from ....rules.sources import deepspeed, deepspeed_now, derived
from ....rules.violations import violation
from ...world import world_of
from ..config import Config
from .subjects import Run, configs, runs
from .values import shown

_BATCH: Final = "/train_batch_size"
_STEPS: Final = "/gradient_accumulation_steps"
_OPERATION: Final = "/gradient_allreduce_op"

#: As many sequences in a batch are usually tokens; the rule of jobs has the same limit.
_TOKENS_FROM: Final = 100_000

#: bf16 has 8 bits of precision: what is added to a sum of 256 such numbers is below half of the sum's last bit.
_LOST_FROM: Final = 256


@configs.rule("BATCH010", WARNING, "parse", deepspeed("runtime/config.py:937"))
def batches_are_sequences(config: Config) -> Violations:
    """train_batch_size counts sequences, not tokens.

    Prevents: A batch that no GPUs can hold, or thousands of accumulation steps.
    Fix: divide the tokens by the sequence length"""
    batch = config.whole(_BATCH)
    if batch is not None and batch > _TOKENS_FROM:
        message = f"train_batch_size: {shown(config.value(_BATCH))} counts sequences, but looks like tokens"
        yield violation(config, _BATCH, message, "divide the tokens by the sequence length")


def _accumulation(run: Run) -> int | None:
    """Micro-batches of a step, as written or derived."""
    batch, micro = run.config.whole(_BATCH), run.config.whole("/train_micro_batch_size_per_gpu")
    replicas = world_of(run.submission).replicas
    if run.config.has(_STEPS) or not (batch and micro and replicas) or batch % (micro * replicas):
        return run.config.whole(_STEPS)
    return batch // (micro * replicas)


@runs.rule("BATCH020", WARNING, "silent", derived("bf16 has 8 bits, and ZeRO accumulates in the model's type"))
def long_sums_are_fp32(run: Run) -> Violations:
    """Gradients of hundreds of micro-batches accumulate in fp32.

    Prevents: Late micro-batches are silently lost to bf16 rounding.
    Fix: set grad_accum_dtype to fp32"""
    config, steps = run.config, _accumulation(run)
    in_bf16 = config.precision == "bf16" and config.stage and not config.accumulates_in
    if in_bf16 and steps and steps > _LOST_FROM:
        message = f"gradient_accumulation_steps: {steps} in bf16: late micro-batches are lost to bf16 rounding"
        yield violation(config, _STEPS, message, 'add "data_types": {"grad_accum_dtype": "fp32"}')


@runs.rule("BATCH021", WARNING, "silent", deepspeed_now("runtime/engine.py:475"), since=(0, 19, 6))
def sums_are_meant(run: Run) -> Violations:
    """gradient_allreduce_op is mean: sum multiplies gradients by the number of replicas.

    Prevents: Steps that are larger by the number of replicas.
    Fix: use mean"""
    operation, factor = run.config.text(_OPERATION), world_of(run.submission).replicas or "all"
    if operation is not None and operation.lower() == "sum":
        message = f"gradient_allreduce_op: {shown(operation)} adds up the gradients of {factor} replicas"
        yield violation(run.config, _OPERATION, message, 'use "mean", unless the loss is divided by the replicas')


@configs.rule("BATCH022", NOTE, "silent", deepspeed_now("runtime/engine.py:3457"), since=(0, 19, 4))
def callers_scale_the_loss(config: Config) -> Violations:
    """managed_gradient_accumulation is true where there are accumulation steps: else the script counts them.

    Prevents: Another batch than the one written.
    Fix: set managed_gradient_accumulation to true"""
    steps = config.whole(_STEPS)
    if config.switch("/managed_gradient_accumulation", True) is False and steps and steps > 1:
        message = f"gradient_accumulation_steps: {steps} has no effect on when a step is taken:"
        message += " managed_gradient_accumulation is false, so every call of step() is one"
        hint = "set managed_gradient_accumulation to true, unless the script counts micro-batches"
        yield violation(config, _STEPS, message, hint)
