"""ZeRO stages against the framework, the optimizer and the replicas."""

from __future__ import annotations

from typing import Any

from ...estimate.layout import Layout, LayoutLike
from ...findings import ERROR, WARNING
from ...job.records import Job
from ..planned import layout_rule
from ..sources import deepspeed, derived

#: The first DeepSpeed whose engine takes AutoTP with ZeRO stage 3; 0.19.3 and earlier assert at most 2.
FIRST_AUTOTP_WITH_STAGE_3 = (0, 19, 4)


def _explain_megatron(_: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"zero_stage: {layout.zero_stage} is not available with framework: megatron-lm: at most 1",
        "zero_stage: 1 (the distributed optimizer)",
    )


@layout_rule(
    "MLM042",
    ERROR,
    "silent",
    derived("--use-distributed-optimizer shards optimizer states only"),
    ("zero_stage",),
    _explain_megatron,
    of=("Megatron-LM",),
)
def megatron_shards_states_only(_: Job, layout: LayoutLike) -> Any:
    """Megatron-LM's distributed optimizer shards optimizer states, as ZeRO stage 1 does, and no more.

    Prevents: No error: the stage would be 1 all the same, and gradients and parameters would not be sharded as
    planned.
    Fix: layout.zero_stage: 1, or framework: megatron-deepspeed
    """
    return layout.zero_stage <= 1


def _explain_autotp(job: Job, layout: Layout) -> tuple[str, str]:
    mine, first = (".".join(map(str, v)) for v in (job.deepspeed_version, FIRST_AUTOTP_WITH_STAGE_3))
    return (
        f"zero_stage: {layout.zero_stage} with tensor: {layout.tensor} is refused by DeepSpeed {mine}: at most 2",
        f"zero_stage: 2, tensor: 1, or DeepSpeed {first} or later",
    )


@layout_rule(
    "ZERO041",
    ERROR,
    "init",
    "deepspeedai/DeepSpeed deepspeed/runtime/engine.py:634 @ 0.19.3 (an assertion, gone in 0.19.4)",
    ("zero_stage", "tensor"),
    _explain_autotp,
    of=("AutoTP",),
    applies=lambda job: job.deepspeed_version < FIRST_AUTOTP_WITH_STAGE_3,
)
def autotp_stops_at_stage_2(_: Job, layout: LayoutLike) -> Any:
    """This version of DeepSpeed runs AutoTP with ZeRO up to stage 2.

    Prevents: DeepSpeed 0.19.3 and earlier stop at start on an assertion.
    Fix: layout.zero_stage: 2 or lower, or DeepSpeed 0.19.4 or later (`deepspeed_version`)
    """
    return (layout.zero_stage <= 2) | (layout.tensor == 1)


def _explain_replicas(_: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"zero_stage: {layout.zero_stage} with data: {layout.data} × context: {layout.context} has nothing to shard"
        " over: overhead without saving",
        "zero_stage: 0, or data: 2 or more",
    )


@layout_rule(
    "ZERO040",
    WARNING,
    "silent",
    derived("nothing is sharded over one rank"),
    ("zero_stage", "data", "context"),
    _explain_replicas,
)
def sharding_needs_replicas(_: Job, layout: LayoutLike) -> Any:
    """ZeRO saves nothing without ranks to shard over.

    Prevents: No error: overhead without any saving.
    Fix: layout.zero_stage: 0, or a larger data
    """
    return (layout.zero_stage == 0) | (layout.data * layout.context > 1)


def _explain_lamb(_: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"zero_stage: {layout.zero_stage} with optimizer: lamb is refused as untested: its trust ratio needs whole"
        " layers, which only stage 0 keeps",
        "zero_stage: 0, or training.optimizer: adamw",
    )


@layout_rule(
    "ZERO042",
    ERROR,
    "init",
    deepspeed("runtime/zero/utils.py:45"),
    ("zero_stage",),
    _explain_lamb,
    applies=lambda job: job.training.optimizer == "lamb",
)
def lamb_needs_whole_tensors(_: Job, layout: LayoutLike) -> Any:
    """LAMB's trust ratio is a layer's norm, which ZeRO's flat partitions don't have.

    Prevents: DeepSpeed stops at start: the optimizer is untested with ZeRO; where it runs, the trust ratios are wrong.
    Fix: layout.zero_stage: 0, or training.optimizer: adamw
    """
    return layout.zero_stage == 0
