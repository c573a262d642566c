"""ZeRO stages against the framework, the optimizer and the replicas."""

from __future__ import annotations

from ...estimate.layout import LayoutLike
from ...findings import ERROR, WARNING
from ...job.records import Job
from ..planned import Judgement, autotp_layouts, layouts, lm_layouts
from ..sources import deepspeed, derived

#: The first DeepSpeed whose engine accepts AutoTP with ZeRO stage 3; 0.19.3 and earlier assert at most 2.
FIRST_AUTOTP_WITH_STAGE_3 = (0, 19, 4)
_ASSERTION_OF_0_19_3 = "deepspeedai/DeepSpeed deepspeed/runtime/engine.py:634 @ 0.19.3 (an assertion, gone in 0.19.4)"

_older_autotp = autotp_layouts(
    "zero_stage", "tensor", applies=lambda job: job.deepspeed_version < FIRST_AUTOTP_WITH_STAGE_3
)
_lamb = layouts("zero_stage", applies=lambda job: job.training.optimizer == "lamb")


@lm_layouts("zero_stage").rule(
    "MLM042", ERROR, "silent", derived("the distributed optimizer shards optimizer states only")
)
def megatron_shards_states_only(job: Job, layout: LayoutLike) -> Judgement:
    """The ZeRO stage is 0 or 1 in Megatron-LM, whose distributed optimizer shards optimizer states only.

    Prevents: No error: the stage would be 1 all the same, and gradients and parameters would not be sharded as planned.
    Fix: set layout.zero_stage to 1, or use framework: megatron-deepspeed"""
    yield layout.zero_stage <= 1
    says = job.says("zero_stage", layout.zero_stage)
    message = f"{says} is not available with {job.says('framework', job.framework)}: at most 1"
    yield message, f"use {job.says('zero_stage', 1)} (the distributed optimizer)"


@_older_autotp.rule("ZERO041", ERROR, "init", _ASSERTION_OF_0_19_3)
def autotp_stops_at_stage_2(job: Job, layout: LayoutLike) -> Judgement:
    """With AutoTP, the ZeRO stage is at most 2 before DeepSpeed 0.19.4.

    Prevents: DeepSpeed 0.19.3 and earlier stop at start on an assertion.
    Fix: set layout.zero_stage to 2 or lower, or use DeepSpeed 0.19.4 or later (`deepspeed_version`)"""
    yield (layout.zero_stage <= 2) | (layout.tensor == 1)
    mine, first = (".".join(map(str, v)) for v in (job.deepspeed_version, FIRST_AUTOTP_WITH_STAGE_3))
    stage, tensor = job.says("zero_stage", layout.zero_stage), job.says("tensor", layout.tensor)
    message = f"{stage} with {tensor} is refused by DeepSpeed {mine}: at most 2"
    yield message, f"use {job.says('zero_stage', 2)}, {job.says('tensor', 1)}, or DeepSpeed {first} or later"


@layouts("zero_stage", "data", "context").rule("ZERO040", WARNING, "silent", derived("one rank has nothing to shard"))
def sharding_needs_replicas(job: Job, layout: LayoutLike) -> Judgement:
    """ZeRO has more than one rank to shard over.

    Prevents: No error: overhead without any saving.
    Fix: set layout.zero_stage to 0, or increase data"""
    yield (layout.zero_stage == 0) | (layout.data * layout.context > 1)
    ranks = f"{job.says('data', layout.data)} × {job.says('context', layout.context)}"
    stage = job.says("zero_stage", layout.zero_stage)
    message = f"{stage} with {ranks} has nothing to shard over: overhead without saving"
    yield message, f"use {job.says('zero_stage', 0)}, or {job.says('data', '2 or more')}"


@_lamb.rule("ZERO042", ERROR, "init", deepspeed("runtime/zero/utils.py:45"))
def lamb_needs_whole_tensors(job: Job, layout: LayoutLike) -> Judgement:
    """LAMB runs at ZeRO stage 0: its trust ratio is the norm of a whole layer.

    Prevents: DeepSpeed stops at start: the optimizer is untested with ZeRO; where it runs, the trust ratios are wrong.
    Fix: set layout.zero_stage to 0, or training.optimizer to adamw"""
    yield layout.zero_stage == 0
    message = (
        f"{job.says('zero_stage', layout.zero_stage)} with {job.says('optimizer', 'lamb')} is refused as untested: its"
        " trust ratio needs whole layers, which only stage 0 keeps"
    )
    yield message, f"use {job.says('zero_stage', 0)}, or training.{job.says('optimizer', 'adamw')}"
