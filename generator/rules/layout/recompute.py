"""Recomputation of activations against the framework."""

from __future__ import annotations

from typing import Any

from ...estimate.layout import Layout, LayoutLike, Recompute
from ...findings import Severity
from ...job.records import Job
from ..columns import implies
from ..planning_rule import LayoutRule
from ..sources import derived, megatron_deepspeed, megatron_lm


def recompute_is_all_or_nothing(_: Job, layout: LayoutLike) -> Any:
    """Gradient checkpointing of a plain module repeats whole layers."""
    return layout.recompute != Recompute.SELECTIVE


def _explain_recompute(job: Job, _: Layout) -> tuple[str, str]:
    return (
        f"recompute: selective is not available with framework: {job.framework}",
        "recompute: none or full",
    )


def recompute_reaches_attention(job: Job, layout: LayoutLike) -> Any:
    """Megatron-DeepSpeed repeats core attention only where it is unfused and without Ulysses."""
    honoured = (layout.context == 1) & (job.training.attention == "unfused")
    return implies(layout.recompute == Recompute.SELECTIVE, honoured)


def _explain_reaches(job: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"recompute: selective has no effect with attention: {job.training.attention} and context: {layout.context}",
        "recompute: none or full",
    )


def recompute_saves_memory(_: Job, layout: LayoutLike) -> Any:
    """Fused attention keeps no scores, so repeating core attention costs time and saves nothing."""
    return layout.recompute != Recompute.SELECTIVE


def _explain_saves(job: Job, _: Layout) -> tuple[str, str]:
    return (
        f"recompute: selective saves no memory with attention: {job.training.attention}",
        "recompute: none or full (or pin layout.recompute: selective)",
    )


RECOMPUTE_RULES: tuple[LayoutRule, ...] = (
    LayoutRule(
        id="ACT006",
        severity=Severity.ERROR,
        source=derived("gradient_checkpointing and deepspeed.checkpointing repeat what they wrap: a layer"),
        variables=("recompute",),
        holds=recompute_is_all_or_nothing,
        explain=_explain_recompute,
        of=("AutoTP",),
    ),
    LayoutRule(
        id="MDS021",
        severity=Severity.ERROR,
        source=megatron_deepspeed("megatron/model/transformer.py:629"),
        variables=("recompute", "context"),
        holds=recompute_reaches_attention,
        explain=_explain_reaches,
        of=("Megatron-DeepSpeed",),
    ),
    LayoutRule(
        id="ACT007",
        severity=Severity.ERROR,
        source=megatron_lm("core/transformer/transformer_config.py (a warning: no need to recompute core_attn)"),
        variables=("recompute",),
        holds=recompute_saves_memory,
        explain=_explain_saves,
        of=("Megatron-LM",),
        applies=lambda job: job.training.attention == "flash" and job.pins.recompute is None,
    ),
)
