"""Offload to host memory; LoRA against offload and tensor parallelism."""

from __future__ import annotations

from ...estimate.layout import LayoutLike, Offload
from ...findings import ERROR, WARNING
from ...job.records import Job
from ...rule import InFiles
from ..planned import Judgement, autotp_layouts, elsewhere, engine_layouts, given, layouts, lm_layouts, trainer_layouts
from ..violations import deepspeed, deepspeed_now, derived, megatron_lm

#: Optimizers that DeepSpeed can run on the host.
HOST_OPTIMIZERS = ("adam", "adamw")


_other_optimizers = layouts("offload", applies=lambda job: job.training.optimizer not in HOST_OPTIMIZERS)


@engine_layouts("offload", "zero_stage").rule(
    "ZERO043", ERROR, "silent", derived("stages 1 to 3 read zero_optimization.offload_optimizer")
)
def offload_needs_sharding(job: Job, layout: LayoutLike) -> Judgement:
    """Offload needs ZeRO stage 1 or higher.
    Prevents: No error: the key has no effect, and the optimizer stays on the device.
    Fix: set layout.zero_stage to 1 or higher, or offload to none"""
    yield (layout.offload == Offload.NONE) | (layout.zero_stage >= 1)
    message = f"{given(job, layout, 'offload', 'zero_stage')} has no effect: offload requires at least stage 1"
    yield message, f"use {job.says('zero_stage', 1)}, or {job.says('offload', Offload.NONE)}"


@engine_layouts("offload", "zero_stage").rule("ZERO006", ERROR, "silent", deepspeed("runtime/zero/config.py:157"))
def parameter_offload_needs_stage_3(job: Job, layout: LayoutLike) -> Judgement:
    """Offload of parameters needs ZeRO stage 3.
    Prevents: No error: offload_param is silently ignored, and the job could run out of memory.
    Fix: set layout.zero_stage to 3, or offload to optimizer"""
    yield (layout.offload != Offload.OPTIMIZER_AND_PARAMETERS) | (layout.zero_stage == 3)
    both = given(job, layout, "offload", "zero_stage")
    message = f"{both} keeps the parameters on the device: their offload requires stage 3"
    yield message, f"use {job.says('zero_stage', 3)}, or {job.says('offload', Offload.OPTIMIZER)}"


# Runs at stage 1 in bf16 are seen to end well all the same, so that files get a warning.
@engine_layouts("offload", "pipeline").rule(
    "PIPE016", ERROR, "init", "deepspeedai/Megatron-DeepSpeed issue 369", InFiles(severity=WARNING)
)
def offload_excludes_pipeline(job: Job, layout: LayoutLike) -> Judgement:
    """Offload is not combined with DeepSpeed's pipeline engine.
    Prevents: Training is known to fail in the pipeline engine when optimizer states are on the host.
    Fix: set layout.offload to none, or pipeline to 1"""
    yield (layout.offload == Offload.NONE) | (layout.pipeline == 1)
    message = f"{given(job, layout, 'offload', 'pipeline')} fails in DeepSpeed's pipeline engine"
    yield message, f"use {job.says('offload', Offload.NONE)}, or {job.says('pipeline', 1)}"


@_other_optimizers.rule("ZERO044", ERROR, "training", deepspeed("runtime/engine.py:2040"))
def offload_needs_host_optimizer(job: Job, layout: LayoutLike) -> Judgement:
    """An offloaded optimizer is one that runs on the host: Adam or AdamW.
    Prevents: DeepSpeed stops at start: with offload the optimizer has to be its own for the CPU.
    Fix: set training.optimizer to adamw, or offload to none"""
    yield layout.offload == Offload.NONE
    optimizer = job.says("optimizer", job.training.optimizer)
    message = f"{job.says('offload', layout.offload)} with {optimizer}, which has no host version"
    yield message, f"use {job.says('offload', Offload.NONE)}, or training.{job.says('optimizer', 'adamw')}"


@lm_layouts("offload", "zero_stage").rule("MLM028", ERROR, "init", megatron_lm("training/arguments.py:1884"))
def megatron_offload_needs_distributed_optimizer(job: Job, layout: LayoutLike) -> Judgement:
    """Offload in Megatron-LM needs the distributed optimizer.
    Prevents: Megatron-LM stops at start on an assertion: the optimizer on the host has to be precision-aware.
    Fix: set layout.zero_stage to 1, or offload to none"""
    yield (layout.offload == Offload.NONE) | (layout.zero_stage == 1)
    message = (
        f"{given(job, layout, 'offload', 'zero_stage')} is refused: offload requires the distributed optimizer, stage 1"
    )
    yield message, f"use {job.says('zero_stage', 1)}, or {job.says('offload', Offload.NONE)}"


@lm_layouts("offload").rule("MLM043", ERROR, "silent", derived("--optimizer-cpu-offload moves optimizer states only"))
def megatron_keeps_parameters(job: Job, layout: LayoutLike) -> Judgement:
    """Megatron-LM offloads optimizer states, never parameters.
    Prevents: No error: parameters would stay on the device, and the job could run out of memory.
    Fix: set layout.offload to optimizer"""
    yield layout.offload != Offload.OPTIMIZER_AND_PARAMETERS
    yield elsewhere(job, layout, "offload", Offload.OPTIMIZER)


_adapted = autotp_layouts("tensor", applies=lambda job: job.training.lora is not None)
_quantized = trainer_layouts("offload", applies=lambda job: getattr(job.training.lora, "base", None) == "4bit")


@_adapted.rule("LORA010", ERROR, "training", deepspeed_now("module_inject/auto_tp.py (LinearAllreduce)"))
def lora_excludes_autotp(job: Job, layout: LayoutLike) -> Judgement:
    """LoRA is trained without tensor parallelism.
    Prevents: Shapes differ in the first pass: a cut layer reads a part of its input, and its adapter all of it.
    Fix: set layout.tensor to 1, and layout.zero_stage to 3 where the model doesn't fit"""
    yield layout.tensor == 1
    message = f"{job.says('tensor', layout.tensor)} with training.lora: AutoTP does not cut adapters"
    yield message, f"use {job.says('tensor', 1)}"


@_quantized.rule("LORA011", ERROR, "training", derived("bitsandbytes keeps scales of 4-bit weights on the device"))
def four_bits_stay_on_the_device(job: Job, layout: LayoutLike) -> Judgement:
    """A base in 4 bits is not offloaded to the host.
    Prevents: The first pass fails: bitsandbytes multiplies quantized weights with their scales on one device.
    Fix: set layout.offload to none or optimizer, or training.lora.base to unquantized"""
    yield layout.offload != Offload.OPTIMIZER_AND_PARAMETERS
    message = f"{job.says('offload', layout.offload)} with base: 4bit puts quantized weights on the host"
    yield message, f"use {job.says('offload', Offload.NONE)}, or base: unquantized"
