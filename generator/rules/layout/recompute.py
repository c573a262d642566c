"""Recomputation of activations against the framework."""

from __future__ import annotations

from ...estimate.layout import LayoutLike, Recompute
from ...findings import ERROR, WARNING
from ...job.records import Job
from ...rule import Arguments
from ..columns import implies
from ..planned import Judgement, autotp_layouts, lm_layouts, mds_layouts
from ..sources import derived, megatron_deepspeed, megatron_lm


def _hint(job: Job) -> str:
    return f"use {job.says('recompute', 'none', 'full')}"


_SELECTIVE = megatron_deepspeed("megatron/model/transformer.py:629")
_CORE_ATTENTION = megatron_lm("core/transformer/transformer_config.py (a warning: no need to recompute core_attn)")
_flash = lm_layouts("recompute", applies=lambda job: job.training.attention == "flash" and job.pins.recompute is None)


@autotp_layouts("recompute").rule("ACT006", ERROR, "silent", derived("gradient_checkpointing repeats whole layers"))
def recompute_is_all_or_nothing(job: Job, layout: LayoutLike) -> Judgement:
    """Recomputation outside of Megatron's layers is none or full: checkpointing repeats whole layers.

    Prevents: No error: the script's checkpointing wraps whole layers, so memory would not be what was planned.
    Fix: set layout.recompute to full or none, or use a Megatron framework, which can repeat attention alone"""
    yield layout.recompute != Recompute.SELECTIVE
    says = job.says("recompute", Recompute.SELECTIVE)
    yield f"{says} is not available with {job.says('framework', job.framework)}", _hint(job)


@mds_layouts("recompute", "context", "attention").rule(
    "MDS021", ERROR, "silent", _SELECTIVE, Arguments(severity=WARNING)
)
def recompute_reaches_attention(job: Job, layout: LayoutLike) -> Judgement:
    """Selective recomputation in Megatron-DeepSpeed needs unfused attention without Ulysses.

    Prevents: No error: the option would be ignored, activations would stay, and the job could run out of memory.
    Fix: set layout.recompute to full or none, or training.attention to unfused without context parallelism"""
    attention = job.training.attention
    yield implies(layout.recompute == Recompute.SELECTIVE, (layout.context == 1) & (attention == "unfused"))
    others = f"{job.says('attention', attention)} and {job.says('context', layout.context)}"
    yield f"{job.says('recompute', Recompute.SELECTIVE)} has no effect with {others}", _hint(job)


@_flash.rule("ACT007", ERROR, "silent", _CORE_ATTENTION)
def recompute_saves_memory(job: Job, layout: LayoutLike) -> Judgement:
    """Selective recomputation is not combined with fused attention, which keeps no scores to save.

    Prevents: No error: steps take longer and memory stays the same, and Megatron-LM warns.
    Fix: set layout.recompute to none or full; pin selective to have it anyway"""
    yield layout.recompute != Recompute.SELECTIVE
    selective = job.says("recompute", Recompute.SELECTIVE)
    message = f"{selective} saves no memory with {job.says('attention', job.training.attention)}"
    yield message, f"{_hint(job)}, or pin layout.{selective}"
