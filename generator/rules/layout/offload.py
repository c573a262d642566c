"""Offload to host memory against ZeRO, the optimizer and the framework."""

from __future__ import annotations

from typing import Any

from ...estimate.layout import Layout, LayoutLike, Offload
from ...findings import Severity
from ...job.records import Job
from ..planning_rule import LayoutRule
from ..sources import deepspeed, derived, megatron_lm

#: Optimizers that DeepSpeed can run on the host.
HOST_OPTIMIZERS = ("adam", "adamw")


def offload_needs_sharding(_: Job, layout: LayoutLike) -> Any:
    """Offload is a part of ZeRO: it starts at stage 1."""
    return (layout.offload == Offload.NONE) | (layout.zero_stage >= 1)


def _explain_sharding(_: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"offload: {layout.offload.label} with zero_stage: {layout.zero_stage}: it needs at least 1",
        "zero_stage: 1, or offload: none",
    )


def parameter_offload_needs_stage_3(_: Job, layout: LayoutLike) -> Any:
    """Parameters leave the device only when ZeRO shards them, at stage 3; below, the key is silently unused."""
    return (layout.offload != Offload.OPTIMIZER_AND_PARAMETERS) | (layout.zero_stage == 3)


def _explain_stage_3(_: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"offload: {layout.offload.label} with zero_stage: {layout.zero_stage}: parameters need 3",
        "zero_stage: 3, or offload: optimizer",
    )


def offload_excludes_pipeline(_: Job, layout: LayoutLike) -> Any:
    """DeepSpeed's pipeline engine runs without offload."""
    return (layout.offload == Offload.NONE) | (layout.pipeline == 1)


def _explain_offload_pipeline(_: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"offload: {layout.offload.label} with pipeline: {layout.pipeline} fails in DeepSpeed's pipeline engine",
        "offload: none, or pipeline: 1",
    )


def offload_needs_host_optimizer(_: Job, layout: LayoutLike) -> Any:
    """What is offloaded is stepped on the host: DeepSpeed has Adam there."""
    return layout.offload == Offload.NONE


def _explain_host_optimizer(job: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"offload: {layout.offload.label} with optimizer: {job.training.optimizer}, which has no host version",
        "offload: none, or training.optimizer: adamw",
    )


def megatron_offload_needs_distributed_optimizer(_: Job, layout: LayoutLike) -> Any:
    """Megatron-LM offloads a precision-aware optimizer, which is the distributed one."""
    return (layout.offload == Offload.NONE) | (layout.zero_stage == 1)


def _explain_distributed(_: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"offload: {layout.offload.label} with zero_stage: {layout.zero_stage}: it needs the distributed optimizer, 1",
        "zero_stage: 1, or offload: none",
    )


def megatron_keeps_parameters(_: Job, layout: LayoutLike) -> Any:
    """Megatron-LM offloads optimizer states, never parameters."""
    return layout.offload != Offload.OPTIMIZER_AND_PARAMETERS


def _explain_keeps(_: Job, layout: Layout) -> tuple[str, str]:
    return f"offload: {layout.offload.label} is not available with framework: megatron-lm", "offload: optimizer"


OFFLOAD_RULES: tuple[LayoutRule, ...] = (
    LayoutRule(
        id="ZERO043",
        severity=Severity.ERROR,
        source=derived("offload_optimizer is a key of zero_optimization and is read by stages 1 to 3"),
        variables=("offload", "zero_stage"),
        holds=offload_needs_sharding,
        explain=_explain_sharding,
        of=("DeepSpeed engine",),
    ),
    LayoutRule(
        id="ZERO006",
        severity=Severity.ERROR,
        source=deepspeed("runtime/zero/config.py:157"),
        variables=("offload", "zero_stage"),
        holds=parameter_offload_needs_stage_3,
        explain=_explain_stage_3,
        of=("DeepSpeed engine",),
    ),
    LayoutRule(
        id="PIPE016",
        severity=Severity.ERROR,
        source="deepspeedai/Megatron-DeepSpeed issue 369",
        variables=("offload", "pipeline"),
        holds=offload_excludes_pipeline,
        explain=_explain_offload_pipeline,
        of=("DeepSpeed engine",),
    ),
    LayoutRule(
        id="ZERO044",
        severity=Severity.ERROR,
        source=deepspeed("runtime/engine.py:2040"),
        variables=("offload",),
        holds=offload_needs_host_optimizer,
        explain=_explain_host_optimizer,
        applies=lambda job: job.training.optimizer not in HOST_OPTIMIZERS,
    ),
    LayoutRule(
        id="MLM028",
        severity=Severity.ERROR,
        source=megatron_lm("training/arguments.py:1884"),
        variables=("offload", "zero_stage"),
        holds=megatron_offload_needs_distributed_optimizer,
        explain=_explain_distributed,
        of=("Megatron-LM",),
    ),
    LayoutRule(
        id="MLM043",
        severity=Severity.ERROR,
        source=derived("--optimizer-cpu-offload moves optimizer states only"),
        variables=("offload",),
        holds=megatron_keeps_parameters,
        explain=_explain_keeps,
        of=("Megatron-LM",),
    ),
)
