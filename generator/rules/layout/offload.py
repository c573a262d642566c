"""Offload to host memory against ZeRO, the optimizer and the framework."""

from __future__ import annotations

from typing import Any

from ...estimate.layout import Layout, LayoutLike, Offload
from ...findings import ERROR
from ...job.records import Job
from ...rule import Arguments
from ..planned import layout_rule
from ..sources import deepspeed, derived, megatron_lm

#: Optimizers that DeepSpeed can run on the host.
HOST_OPTIMIZERS = ("adam", "adamw")


def _explain_sharding(_: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"offload: {layout.offload.label} with zero_stage: {layout.zero_stage}: it needs at least 1",
        "zero_stage: 1, or offload: none",
    )


@layout_rule(
    "ZERO043",
    ERROR,
    "silent",
    derived("offload_optimizer is a key of zero_optimization and is read by stages 1 to 3"),
    ("offload", "zero_stage"),
    _explain_sharding,
    of=("DeepSpeed engine",),
)
def offload_needs_sharding(_: Job, layout: LayoutLike) -> Any:
    """Offload is a part of ZeRO: it starts at stage 1.

    Prevents: No error: the key is unused, and the optimizer stays on the device.
    Fix: layout.zero_stage: 1 or higher, or offload: none
    """
    return (layout.offload == Offload.NONE) | (layout.zero_stage >= 1)


def _explain_stage_3(_: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"offload: {layout.offload.label} with zero_stage: {layout.zero_stage}: parameters need 3",
        "zero_stage: 3, or offload: optimizer",
    )


@layout_rule(
    "ZERO006",
    ERROR,
    "silent",
    deepspeed("runtime/zero/config.py:157"),
    ("offload", "zero_stage"),
    _explain_stage_3,
    of=("DeepSpeed engine",),
)
def parameter_offload_needs_stage_3(_: Job, layout: LayoutLike) -> Any:
    """Parameters leave the device only when ZeRO shards them, at stage 3; below, the key is silently unused.

    Prevents: No error: offload_param is silently unused, and the job could run out of memory.
    Fix: layout.zero_stage: 3, or offload: optimizer
    """
    return (layout.offload != Offload.OPTIMIZER_AND_PARAMETERS) | (layout.zero_stage == 3)


def _explain_offload_pipeline(_: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"offload: {layout.offload.label} with pipeline: {layout.pipeline} fails in DeepSpeed's pipeline engine",
        "offload: none, or pipeline: 1",
    )


@layout_rule(
    "PIPE016",
    ERROR,
    "init",
    "deepspeedai/Megatron-DeepSpeed issue 369",
    ("offload", "pipeline"),
    _explain_offload_pipeline,
    of=("DeepSpeed engine",),
    arguments=Arguments(),
)
def offload_excludes_pipeline(_: Job, layout: LayoutLike) -> Any:
    """DeepSpeed's pipeline engine runs without offload.

    Prevents: Training is known to fail in the pipeline engine when optimizer states are on the host.
    Fix: layout.offload: none, or pipeline: 1
    """
    return (layout.offload == Offload.NONE) | (layout.pipeline == 1)


def _explain_host_optimizer(job: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"offload: {layout.offload.label} with optimizer: {job.training.optimizer}, which has no host version",
        "offload: none, or training.optimizer: adamw",
    )


@layout_rule(
    "ZERO044",
    ERROR,
    "training",
    deepspeed("runtime/engine.py:2040"),
    ("offload",),
    _explain_host_optimizer,
    applies=lambda job: job.training.optimizer not in HOST_OPTIMIZERS,
)
def offload_needs_host_optimizer(_: Job, layout: LayoutLike) -> Any:
    """What is offloaded is stepped on the host: DeepSpeed has Adam there.

    Prevents: DeepSpeed stops at start: with offload the optimizer has to be its own for the CPU.
    Fix: training.optimizer: adamw, or offload: none
    """
    return layout.offload == Offload.NONE


def _explain_distributed(_: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"offload: {layout.offload.label} with zero_stage: {layout.zero_stage}: it needs the distributed optimizer, 1",
        "zero_stage: 1, or offload: none",
    )


@layout_rule(
    "MLM028",
    ERROR,
    "init",
    megatron_lm("training/arguments.py:1884"),
    ("offload", "zero_stage"),
    _explain_distributed,
    of=("Megatron-LM",),
)
def megatron_offload_needs_distributed_optimizer(_: Job, layout: LayoutLike) -> Any:
    """Megatron-LM offloads a precision-aware optimizer, which is the distributed one.

    Prevents: Megatron-LM stops at start on an assertion: the optimizer on the host has to be precision-aware.
    Fix: layout.zero_stage: 1, or offload: none
    """
    return (layout.offload == Offload.NONE) | (layout.zero_stage == 1)


def _explain_keeps(_: Job, layout: Layout) -> tuple[str, str]:
    return f"offload: {layout.offload.label} is not available with framework: megatron-lm", "offload: optimizer"


@layout_rule(
    "MLM043",
    ERROR,
    "silent",
    derived("--optimizer-cpu-offload moves optimizer states only"),
    ("offload",),
    _explain_keeps,
    of=("Megatron-LM",),
)
def megatron_keeps_parameters(_: Job, layout: LayoutLike) -> Any:
    """Megatron-LM offloads optimizer states, never parameters.

    Prevents: No error: parameters would stay on the device, and the job could run out of memory.
    Fix: layout.offload: optimizer
    """
    return layout.offload != Offload.OPTIMIZER_AND_PARAMETERS
