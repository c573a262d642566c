"""Rules on choices of `training` that Megatron-LM has by release and by machines."""

from __future__ import annotations

from typing import Final

from ...estimate.groups import FLEXIBLE
from ...findings import ERROR, Violations
from ...job.records import Job
from ...rules.planned import composed_jobs
from ...rules.violations import derived, megatron_lm, violation
from ...text.wording import dots
from .options import LM, flavour_of

_FIRST_WITHOUT_TE_LOSS: Final = (0, 18)


@composed_jobs.rule(
    "MLM140",
    ERROR,
    "init",
    megatron_lm("training/arguments.py:1642-1647"),
)
def loss_is_one_of_the_release(job: Job) -> Violations:
    """Transformer Engine's fused loss runs with Megatron-Core before 0.18.
    Prevents: AssertionError: Transformer Engine cross entropy loss fusion is disabled due to
    stability issues
    Fix: set training.cross_entropy to unfused"""
    release = job.megatron_version
    if job.training.cross_entropy == "te" and release >= _FIRST_WITHOUT_TE_LOSS:
        said = job.says("cross_entropy", "te")
        message = f"{said} is refused by Megatron-LM {dots(release)}, as unstable"
        hint = f"use {job.says('cross_entropy', 'unfused')}, which needs 6 bytes a logit for its 4"
        yield violation(job, "/training/cross_entropy", message, hint)


@composed_jobs.rule("MLM141", ERROR, "init", derived("deepseek-ai/DeepEP, README"))
def dispatcher_runs_on_the_accelerator(job: Job) -> Violations:
    """DeepEP and HybridEP run on Hopper and later.
    Prevents: DeepEP has no kernels for the device, and the first step stops
    Fix: set training.dispatcher to alltoall"""
    kind, accelerator = job.training.dispatcher, job.cluster.accelerator
    if flavour_of(job) == LM and kind in FLEXIBLE and not accelerator.generation.deepep:
        message = f"{job.says('dispatcher', kind)} has no kernels for {accelerator.name}"
        hint = f"use {job.says('dispatcher', 'alltoall')}"
        yield violation(job, "/training/dispatcher", message, hint)


@composed_jobs.rule(
    "MLM143",
    ERROR,
    "init",
    megatron_lm("training/arguments.py, core_v0.16.1 to core_v0.19.0"),
)
def depths_have_rotary_positions(job: Job) -> Violations:
    """Multi-token prediction has rotary positions or none.
    Prevents: AssertionError: Multi-Token Prediction (MTP) is not supported with learned_absolute
    position embedding type.
    Fix: set training.mtp_depths to 0"""
    kind, depths = job.model.position_embedding, job.training.mtp_depths
    if depths and flavour_of(job) == LM and kind == "learned":
        message = f"{job.says('mtp_depths', depths)} is refused with learned positions"
        hint = f"use {job.says('mtp_depths', 0)}, or a model with rotary positions"
        yield violation(job, "/training/mtp_depths", message, hint)
