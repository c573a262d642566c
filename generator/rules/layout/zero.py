"""ZeRO stages against the framework, the optimizer and the replicas."""

from __future__ import annotations

from ...estimate.layout import LayoutLike
from ...estimate.states import is_precision_aware
from ...findings import ERROR, NOTE
from ...job.records import Job
from ..planned import IN_CONFIGS, Judgement, autotp_layouts, layouts, lm_layouts
from ..sources import deepspeed, derived, megatron_lm

#: The first DeepSpeed whose engine accepts AutoTP with ZeRO stage 3; 0.19.3 and earlier assert at most 2.
FIRST_AUTOTP_WITH_STAGE_3 = (0, 19, 4)
_ASSERTION_OF_0_19_3 = "deepspeedai/DeepSpeed deepspeed/runtime/engine.py:634 @ 0.19.3 (an assertion, gone in 0.19.4)"

_FSDP = "NVIDIA/Megatron-LM megatron/core/distributed/fsdp: sharding with tensor, context and expert parallelism only"

_older_autotp = autotp_layouts(
    "zero_stage", "tensor", applies=lambda job: job.deepspeed_version < FIRST_AUTOTP_WITH_STAGE_3
)
_lamb = layouts("zero_stage", applies=lambda job: job.training.optimizer == "lamb")


@lm_layouts("zero_stage", "pipeline").rule("MLM042", ERROR, "silent", _FSDP)
def megatron_fsdp_has_one_stage(job: Job, layout: LayoutLike) -> Judgement:
    """With a pipeline in Megatron-LM, the ZeRO stage is 0 or 1: stages 2 and 3 are Megatron FSDP's.

    Prevents: No error: Megatron FSDP would gather and reduce the model again for every micro-batch of every stage.
    Fix: set layout.zero_stage to 1, or layout.pipeline to 1"""
    yield (layout.zero_stage <= 1) | (layout.pipeline == 1)
    stage, pipeline = job.says("zero_stage", layout.zero_stage), job.says("pipeline", layout.pipeline)
    message = f"{stage} with {pipeline} gathers the model again for every micro-batch: at most 1 with a pipeline"
    yield message, f"use {job.says('zero_stage', 1)} (the distributed optimizer), or {job.says('pipeline', 1)}"


@_older_autotp.rule("ZERO041", ERROR, "init", _ASSERTION_OF_0_19_3, IN_CONFIGS)
def autotp_stops_at_stage_2(job: Job, layout: LayoutLike) -> Judgement:
    """With AutoTP, the ZeRO stage is at most 2 before DeepSpeed 0.19.4.

    Prevents: DeepSpeed 0.19.3 and earlier stop at start on an assertion.
    Fix: set layout.zero_stage to 2 or lower, or use DeepSpeed 0.19.4 or later (`deepspeed_version`)"""
    yield (layout.zero_stage <= 2) | (layout.tensor == 1)
    mine, first = (".".join(map(str, v)) for v in (job.deepspeed_version, FIRST_AUTOTP_WITH_STAGE_3))
    stage, tensor = job.says("zero_stage", layout.zero_stage), job.says("tensor", layout.tensor)
    message = f"{stage} with {tensor} is refused by DeepSpeed {mine}: at most 2"
    yield message, f"use {job.says('zero_stage', 2)}, {job.says('tensor', 1)}, or DeepSpeed {first} or later"


@layouts("zero_stage", "data", "context").rule("ZERO040", NOTE, "silent", derived("one rank has nothing to shard"))
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


_state_types = lm_layouts("zero_stage", applies=is_precision_aware)
_fp8_parameters = lm_layouts("zero_stage", applies=lambda job: job.training.fp8_parameters)


@_state_types.rule("OPT046", ERROR, "init", megatron_lm("core/optimizer/optimizer_config.py (main_params_dtype)"))
def precision_aware_optimizer_is_distributed(job: Job, layout: LayoutLike) -> Judgement:
    """Optimizer states other than fp32 need the distributed optimizer.

    Prevents: Megatron-LM stops at start on an assertion: its precision-aware optimizer is a distributed one.
    Fix: set layout.zero_stage to 1, or remove moment_dtype and master_dtype"""
    yield layout.zero_stage >= 1
    training, stage = job.training, job.says("zero_stage", layout.zero_stage)
    key = "moment_dtype" if training.moment_dtype else "master_dtype"
    message = f"{stage} with {job.says(key, getattr(training, key))}, which needs stage 1"
    yield message, f"use {job.says('zero_stage', 1)}"


@_fp8_parameters.rule("PREC032", ERROR, "init", megatron_lm("training/arguments.py (fp8_param_gather)"))
def fp8_parameters_are_gathered(job: Job, layout: LayoutLike) -> Judgement:
    """Weights in fp8 need the distributed optimizer, which gathers them.

    Prevents: Megatron-LM stops at start on an assertion.
    Fix: set layout.zero_stage to 1, or remove fp8_parameters"""
    yield layout.zero_stage >= 1
    stage = job.says("zero_stage", layout.zero_stage)
    yield f"{stage} with {job.says('fp8_parameters', True)}, which needs stage 1", f"use {job.says('zero_stage', 1)}"
