"""LoRA against tensor parallelism and offload."""

from __future__ import annotations

from ...estimate.layout import LayoutLike, Offload
from ...findings import ERROR
from ...job.records import Job
from ..planned import Judgement, autotp_layouts, trainer_layouts
from ..sources import deepspeed_now, derived


def _has_adapters(job: Job) -> bool:
    return job.training.lora is not None


def _has_four_bits(job: Job) -> bool:
    return job.training.lora is not None and job.training.lora.base == "4bit"


_adapted = autotp_layouts("tensor", applies=_has_adapters)
_quantized = trainer_layouts("offload", applies=_has_four_bits)


@_adapted.rule("LORA010", ERROR, "training", deepspeed_now("module_inject/auto_tp.py (LinearAllreduce)"))
def lora_excludes_autotp(job: Job, layout: LayoutLike) -> Judgement:
    """LoRA is trained without tensor parallelism.

    Prevents: Shapes differ in the first pass: a cut layer reads a part of its input, and its adapter all of it.
    Fix: set layout.tensor to 1, and layout.zero_stage to 3 where the model doesn't fit"""
    yield layout.tensor == 1
    message = f"{job.says('tensor', layout.tensor)} with training.lora: AutoTP does not cut adapters"
    yield message, f"use {job.says('tensor', 1)}"


@_quantized.rule("LORA011", ERROR, "training", derived("bitsandbytes keeps what turns 4 bits into 16 on the device"))
def four_bits_stay_on_the_device(job: Job, layout: LayoutLike) -> Judgement:
    """A base in 4 bits is not offloaded to the host.

    Prevents: The first pass fails: bitsandbytes multiplies quantized weights with their scales on one device.
    Fix: set layout.offload to none or optimizer, or training.lora.base to unquantized"""
    yield layout.offload != Offload.OPTIMIZER_AND_PARAMETERS
    message = f"{job.says('offload', layout.offload)} with base: 4bit puts quantized weights on the host"
    yield message, f"use {job.says('offload', Offload.NONE)}, or base: unquantized"
