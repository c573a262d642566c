"""ZeRO stages against the framework, the optimizer and the replicas."""

from __future__ import annotations

from typing import Any

from ...estimate.layout import Layout, LayoutLike
from ...findings import Severity
from ...job.records import Job
from ..planning_rule import LayoutRule
from ..sources import deepspeed, derived

#: The first DeepSpeed whose engine takes AutoTP with ZeRO stage 3; 0.19.3 and earlier assert at most 2.
FIRST_AUTOTP_WITH_STAGE_3 = (0, 19, 4)


def megatron_shards_states_only(_: Job, layout: LayoutLike) -> Any:
    """Megatron-LM's distributed optimizer shards optimizer states, as ZeRO stage 1 does, and no more."""
    return layout.zero_stage <= 1


def _explain_megatron(_: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"zero_stage: {layout.zero_stage} is not available with framework: megatron-lm: at most 1",
        "zero_stage: 1 (the distributed optimizer)",
    )


def autotp_stops_at_stage_2(_: Job, layout: LayoutLike) -> Any:
    """This version of DeepSpeed runs AutoTP with ZeRO up to stage 2."""
    return (layout.zero_stage <= 2) | (layout.tensor == 1)


def _explain_autotp(job: Job, layout: Layout) -> tuple[str, str]:
    mine, first = (".".join(map(str, v)) for v in (job.deepspeed_version, FIRST_AUTOTP_WITH_STAGE_3))
    return (
        f"zero_stage: {layout.zero_stage} with tensor: {layout.tensor} is refused by DeepSpeed {mine}: at most 2",
        f"zero_stage: 2, tensor: 1, or DeepSpeed {first} or later",
    )


def sharding_needs_replicas(_: Job, layout: LayoutLike) -> Any:
    """ZeRO saves nothing without ranks to shard over."""
    return (layout.zero_stage == 0) | (layout.data * layout.context > 1)


def _explain_replicas(_: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"zero_stage: {layout.zero_stage} with data: {layout.data} × context: {layout.context} has nothing to shard"
        " over: overhead without saving",
        "zero_stage: 0, or data: 2 or more",
    )


def lamb_needs_whole_tensors(_: Job, layout: LayoutLike) -> Any:
    """LAMB's trust ratio is a layer's norm, which ZeRO's flat partitions don't have."""
    return layout.zero_stage == 0


def _explain_lamb(_: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"zero_stage: {layout.zero_stage} with optimizer: lamb is refused as untested: its trust ratio needs whole"
        " layers, which only stage 0 keeps",
        "zero_stage: 0, or training.optimizer: adamw",
    )


ZERO_RULES: tuple[LayoutRule, ...] = (
    LayoutRule(
        id="MLM042",
        severity=Severity.ERROR,
        source=derived("--use-distributed-optimizer shards optimizer states only"),
        variables=("zero_stage",),
        holds=megatron_shards_states_only,
        explain=_explain_megatron,
        of=("Megatron-LM",),
    ),
    LayoutRule(
        id="ZERO041",
        severity=Severity.ERROR,
        source="deepspeedai/DeepSpeed deepspeed/runtime/engine.py:634 @ 0.19.3 (an assertion, gone in 0.19.4)",
        variables=("zero_stage", "tensor"),
        holds=autotp_stops_at_stage_2,
        explain=_explain_autotp,
        of=("AutoTP",),
        applies=lambda job: job.deepspeed_version < FIRST_AUTOTP_WITH_STAGE_3,
    ),
    LayoutRule(
        id="ZERO040",
        severity=Severity.WARNING,
        source=derived("nothing is sharded over one rank"),
        variables=("zero_stage", "data", "context"),
        holds=sharding_needs_replicas,
        explain=_explain_replicas,
    ),
    LayoutRule(
        id="ZERO042",
        severity=Severity.ERROR,
        source=deepspeed("runtime/zero/utils.py:45"),
        variables=("zero_stage",),
        holds=lamb_needs_whole_tensors,
        explain=_explain_lamb,
        applies=lambda job: job.training.optimizer == "lamb",
    ),
)
