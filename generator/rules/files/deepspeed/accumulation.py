"""Batches and accumulation beyond the product: what runs, but not as it is meant."""

from __future__ import annotations

from typing import Final

from ....documents.deepspeed_config import Config
from ....documents.submission import Submission
from ....documents.world import world_of
from ....findings import NOTE, WARNING, Violation, Violations
from ...rule import submissions
from ...sources import deepspeed, deepspeed_now, derived
from .subjects import configs
from .values import shown

#: As many sequences in a batch are usually tokens; the rule of jobs has the same limit.
TOKENS_FROM: Final = 100_000

#: bf16 has 8 bits of precision: what is added to a sum of 256 such numbers is below half of the sum's last bit.
LOST_FROM: Final = 256


@configs.rule("BATCH010", WARNING, "parse", deepspeed("runtime/config.py:937"))
def batches_are_sequences(config: Config) -> Violations:
    """A global batch is in sequences; as many as this are usually tokens.

    Prevents: a batch that no GPUs can hold, or thousands of accumulation steps
    Fix: tokens / sequence length
    """
    batch = config.whole("/train_batch_size")
    if batch is not None and batch > TOKENS_FROM:
        message = f"train_batch_size: {shown(config.value('/train_batch_size'))} counts sequences; is it tokens?"
        where = config.locate("/train_batch_size")
        yield Violation(where=where, message=message, hint="tokens / sequence length")


def _accumulation(submission: Submission, config: Config) -> int | None:
    """Micro-batches of a step, as written or as they follow."""
    written = config.whole("/gradient_accumulation_steps")
    if written is not None or config.has("/gradient_accumulation_steps"):
        return written
    batch, micro = (config.whole(key) for key in ("/train_batch_size", "/train_micro_batch_size_per_gpu"))
    replicas = world_of(submission).replicas
    if batch and micro and replicas and not batch % (micro * replicas):
        return batch // (micro * replicas)
    return None


@submissions.rule(
    "BATCH020",
    WARNING,
    "silent",
    derived("bf16 has 8 bits of precision, and ZeRO accumulates in the model's type unless told otherwise"),
    reads=("DeepSpeed config",),
)
def long_sums_are_fp32(submission: Submission) -> Violations:
    """Gradients of hundreds of micro-batches accumulate in fp32.

    Prevents: micro-batches whose gradients silently don't count
    Fix: grad_accum_dtype: fp32
    """
    for config in configs(submission):
        steps = _accumulation(submission, config)
        in_bf16 = config.precision == "bf16" and bool(config.stage) and not config.accumulates_in
        if in_bf16 and steps and steps > LOST_FROM:
            message = f"gradient_accumulation_steps: {steps} in bf16: what is added last is below the sum's last bit"
            where = config.locate("/gradient_accumulation_steps")
            yield Violation(where=where, message=message, hint='"data_types": {"grad_accum_dtype": "fp32"}')


@submissions.rule(
    "BATCH021", WARNING, "silent", deepspeed_now("runtime/engine.py:475"), since=(0, 19, 6), reads=("DeepSpeed config",)
)
def sums_are_meant(submission: Submission) -> Violations:
    """gradient_allreduce_op: sum multiplies gradients by the number of replicas, so the rate is set for it.

    Prevents: steps that are larger by the number of replicas
    Fix: mean
    """
    replicas = world_of(submission).replicas
    for config in configs(submission):
        operation = config.read("/gradient_allreduce_op")
        if isinstance(operation, str) and operation.lower() == "sum":
            factor = f"{replicas}" if replicas else "the number of"
            message = (
                f"gradient_allreduce_op: {shown(operation)} makes gradients {factor} replicas' sum, not their mean"
            )
            where = config.locate("/gradient_allreduce_op")
            yield Violation(where=where, message=message, hint='"mean", unless the loss is divided by the replicas')


@configs.rule("BATCH022", NOTE, "silent", deepspeed_now("runtime/engine.py:3457"), since=(0, 19, 4))
def callers_scale_the_loss(config: Config) -> Violations:
    """managed_gradient_accumulation: false leaves the boundary to the script, whatever the accumulation steps say.

    Prevents: another batch than the one written
    Fix: true
    """
    steps = config.whole("/gradient_accumulation_steps")
    off = config.switch("/managed_gradient_accumulation", True) is False
    if off and steps and steps > 1:
        message = f"gradient_accumulation_steps: {steps} doesn't decide when a step is taken:"
        message += " managed_gradient_accumulation is false, so every call of step() is one"
        where = config.locate("/gradient_accumulation_steps")
        yield Violation(where=where, message=message, hint="true, unless the script counts micro-batches")
