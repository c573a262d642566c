"""Types of gradients, weights and optimizer states, and adapters, against framework and precision."""

from __future__ import annotations

from ...findings import ERROR, Violations
from ...job.records import Job
from ..planned import jobs, lm_jobs, violation
from ..sources import derived, megatron_lm

_STATE_TYPES = ("moment_dtype", "master_dtype")


def _narrow_states(job: Job) -> list[tuple[str, str]]:
    """The state types that are set and not fp32."""
    types = [(key, getattr(job.training, key)) for key in _STATE_TYPES]
    return [(key, kept) for key, kept in types if kept not in (None, "fp32")]


@jobs.rule("OPT042", ERROR, "silent", derived("only Megatron-LM's --use-precision-aware-optimizer sets them"))
def framework_has_state_types(job: Job) -> Violations:
    """Optimizer states other than fp32 need Megatron-LM, or 8-bit Adam of the Trainer.

    Prevents: No error: the optimizer's states would be fp32, and the job could run out of memory.
    Fix: remove moment_dtype and master_dtype, or use framework: megatron-lm"""
    if job.framework.runs("Megatron-LM"):
        return
    for key, kept in _narrow_states(job):
        message = f"{job.says(key, kept)} is not available with {job.says('framework', job.framework)}"
        hint = f"use {job.says(key, 'fp32')}, or {job.says('framework', 'megatron-lm')}"
        yield violation(job, f"/training/{key}", message, hint)


@lm_jobs.rule(
    "OPT043", ERROR, "init", megatron_lm("core/optimizer/optimizer_config.py (use_precision_aware_optimizer)")
)
def precision_aware_optimizer_is_adam(job: Job) -> Violations:
    """Optimizer states other than fp32 need Adam.

    Prevents: Megatron-LM stops at start on an assertion: its precision-aware optimizer is Adam only.
    Fix: set training.optimizer to adamw, or remove moment_dtype and master_dtype"""
    for key, kept in _narrow_states(job):
        if job.training.optimizer == "sgd":
            message = f"{job.says(key, kept)} with {job.says('optimizer', 'sgd')}: the optimizer has to be Adam"
            hint = f"use {job.says('optimizer', 'adamw')}, or {job.says(key, 'fp32')}"
            yield violation(job, f"/training/{key}", message, hint)


@jobs.rule("PREC031", ERROR, "silent", megatron_lm("training/arguments.py (--fp8-param-gather)"))
def fp8_parameters_need_fp8(job: Job) -> Violations:
    """Weights in fp8 need Megatron-LM and products in fp8.

    Prevents: The option has no effect without fp8 products, or the framework has none: weights stay in 16 bits.
    Fix: set training.precision to fp8 with framework: megatron-lm, or remove fp8_parameters"""
    if not job.training.fp8_parameters:
        return
    missing = []
    if not job.framework.runs("Megatron-LM"):
        missing.append((job.says("framework", job.framework), job.says("framework", "megatron-lm")))
    if job.training.precision != "fp8":
        missing.append((job.says("precision", job.training.precision), job.says("precision", "fp8")))
    for found, wanted in missing:
        message = f"{job.says('fp8_parameters', True)} with {found} has no effect"
        yield violation(job, "/training/fp8_parameters", message, f"use {wanted}, or remove fp8_parameters")


@jobs.rule("OPT044", ERROR, "init", derived("bitsandbytes' AdamW is the Trainer's --optim adamw_bnb_8bit"))
def framework_has_8bit_adam(job: Job) -> Violations:
    """Adam in 8 bits needs the Hugging Face Trainer.

    Prevents: DeepSpeed stops at start: it has no optimizer of that name.
    Fix: set training.optimizer to adamw, or use framework: huggingface"""
    if job.training.optimizer == "adamw-8bit" and job.framework.runs("own script"):
        message = f"{job.says('optimizer', 'adamw-8bit')} is not available with {job.says('framework', job.framework)}"
        hint = f"use {job.says('optimizer', 'adamw')}, or {job.says('framework', 'huggingface')}"
        yield violation(job, "/training/optimizer", message, hint)
