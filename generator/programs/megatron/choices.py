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
