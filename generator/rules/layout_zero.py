"""ZeRO stages, offload and recomputation against the framework and each other."""

from __future__ import annotations

from typing import Any

from ..estimate.layout import Layout, LayoutLike, Offload, Recompute
from ..findings import Severity
from ..spec.job import Job
from .frameworks import AUTOTP, ENGINES, MEGATRON_LM
from .rule import LayoutRule
from .sources import deepspeed, derived, megatron_lm

#: The first DeepSpeed whose engine takes AutoTP with ZeRO stage 3 (to be confirmed).
FIRST_AUTOTP_WITH_STAGE_3 = (0, 17, 0)

#: Optimizers that DeepSpeed can run on the host.
HOST_OPTIMIZERS = ("adam", "adamw")


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


def recompute_is_all_or_nothing(_: Job, layout: LayoutLike) -> Any:
    """Gradient checkpointing of a plain module repeats whole layers."""
    return layout.recompute != Recompute.SELECTIVE


def _explain_recompute(job: Job, _: Layout) -> tuple[str, str]:
    return (
        f"recompute: selective is not available with framework: {job.framework}",
        "recompute: none or full",
    )


ZERO_RULES: tuple[LayoutRule, ...] = (
    LayoutRule(
        id="MLM042",
        severity=Severity.ERROR,
        source=derived("--use-distributed-optimizer shards optimizer states only"),
        variables=("zero_stage",),
        holds=megatron_shards_states_only,
        explain=_explain_megatron,
        frameworks=(MEGATRON_LM,),
    ),
    LayoutRule(
        id="ZERO041",
        severity=Severity.ERROR,
        source=derived("deepspeed/runtime/engine.py of 0.16.5 asserts it; 0.19.8 takes it (tried on CPU)"),
        variables=("zero_stage", "tensor"),
        holds=autotp_stops_at_stage_2,
        explain=_explain_autotp,
        frameworks=AUTOTP,
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
    LayoutRule(
        id="ZERO043",
        severity=Severity.ERROR,
        source=derived("offload_optimizer is a key of zero_optimization and is read by stages 1 to 3"),
        variables=("offload", "zero_stage"),
        holds=offload_needs_sharding,
        explain=_explain_sharding,
        frameworks=ENGINES,
    ),
    LayoutRule(
        id="ZERO006",
        severity=Severity.ERROR,
        source=deepspeed("runtime/zero/config.py:157"),
        variables=("offload", "zero_stage"),
        holds=parameter_offload_needs_stage_3,
        explain=_explain_stage_3,
        frameworks=ENGINES,
    ),
    LayoutRule(
        id="PIPE016",
        severity=Severity.ERROR,
        source="deepspeedai/Megatron-DeepSpeed issue 369",
        variables=("offload", "pipeline"),
        holds=offload_excludes_pipeline,
        explain=_explain_offload_pipeline,
        frameworks=ENGINES,
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
        frameworks=(MEGATRON_LM,),
    ),
    LayoutRule(
        id="MLM043",
        severity=Severity.ERROR,
        source=derived("--optimizer-cpu-offload moves optimizer states only"),
        variables=("offload",),
        holds=megatron_keeps_parameters,
        explain=_explain_keeps,
        frameworks=(MEGATRON_LM,),
    ),
    LayoutRule(
        id="ACT006",
        severity=Severity.ERROR,
        source=derived(
            "transformers' gradient_checkpointing and deepspeed.checkpointing repeat what they wrap, a layer"
        ),
        variables=("recompute",),
        holds=recompute_is_all_or_nothing,
        explain=_explain_recompute,
        frameworks=AUTOTP,
    ),
)
