"""Recomputation of activations against the framework."""

from __future__ import annotations

from typing import Any

from ...estimate.layout import Layout, LayoutLike, Recompute
from ...findings import ERROR, WARNING
from ...job.records import Job
from ...rule import Arguments
from ..columns import implies
from ..planned import layout_rule
from ..sources import derived, megatron_deepspeed, megatron_lm


def _explain_recompute(job: Job, _: Layout) -> tuple[str, str]:
    return (
        f"recompute: selective is not available with framework: {job.framework}",
        "recompute: none or full",
    )


@layout_rule(
    "ACT006",
    ERROR,
    "silent",
    derived("gradient_checkpointing and deepspeed.checkpointing repeat what they wrap: a layer"),
    ("recompute",),
    _explain_recompute,
    of=("AutoTP",),
)
def recompute_is_all_or_nothing(_: Job, layout: LayoutLike) -> Any:
    """Gradient checkpointing of a plain module repeats whole layers.

    Prevents: No error: the script's checkpointing wraps whole layers, so memory would not be what was planned.
    Fix: layout.recompute: full or none; or a Megatron framework, which repeats attention alone
    """
    return layout.recompute != Recompute.SELECTIVE


def _explain_reaches(job: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"recompute: selective has no effect with attention: {job.training.attention} and context: {layout.context}",
        "recompute: none or full",
    )


@layout_rule(
    "MDS021",
    ERROR,
    "silent",
    megatron_deepspeed("megatron/model/transformer.py:629"),
    ("recompute", "context", "attention"),
    _explain_reaches,
    of=("Megatron-DeepSpeed",),
    arguments=Arguments(severity=WARNING),
)
def recompute_reaches_attention(job: Job, layout: LayoutLike) -> Any:
    """Megatron-DeepSpeed repeats core attention only where it is unfused and without Ulysses.

    Prevents: No error: the option would be ignored, activations would stay, and the job could run out of memory.
    Fix: layout.recompute: full or none, or training.attention: unfused without context parallelism
    """
    honoured = (layout.context == 1) & (job.training.attention == "unfused")
    return implies(layout.recompute == Recompute.SELECTIVE, honoured)


def _explain_saves(job: Job, _: Layout) -> tuple[str, str]:
    return (
        f"recompute: selective saves no memory with attention: {job.training.attention}",
        "recompute: none or full (or pin layout.recompute: selective)",
    )


@layout_rule(
    "ACT007",
    ERROR,
    "silent",
    megatron_lm("core/transformer/transformer_config.py (a warning: no need to recompute core_attn)"),
    ("recompute",),
    _explain_saves,
    of=("Megatron-LM",),
    applies=lambda job: job.training.attention == "flash" and job.pins.recompute is None,
)
def recompute_saves_memory(_: Job, layout: LayoutLike) -> Any:
    """Fused attention keeps no scores, so repeating core attention costs time and saves nothing.

    Prevents: No error: steps take longer and memory stays the same, and Megatron-LM warns.
    Fix: layout.recompute: none or full; pin selective to have it anyway
    """
    return layout.recompute != Recompute.SELECTIVE
