"""Model states: bytes per parameter for weights, gradients and optimizer, by framework, precision and ZeRO stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..job.records import Job
from .layout import LayoutLike, Offload
from .rates import rates

#: Optimizer moments in bytes per parameter: two fp32 moments, or SGD's one momentum.
MOMENT_BYTES = {"adamw": 8, "adam": 8, "lamb": 8, "sgd": 4, "adamw-foreach": 8}
_FP32 = 4
_HALF = 2
#: Transformer Engine keeps an fp8 weight and its transpose between micro-batches.
_FP8_WEIGHT_CACHE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class StateBytes:
    """Bytes per parameter of one rank on the device, `d` being the ranks that share a parameter's states."""

    parameters: Any
    gradients: Any
    optimizer: Any


def weight_bytes(job: Job) -> int:
    """Bytes of one weight as computed with: 4 in fp32, 2 otherwise."""
    return _FP32 if job.training.precision == "fp32" else _HALF


def sums_gradients_in_fp32(job: Job) -> bool:
    """Whether gradients are summed in fp32: the default of 16-bit training but for fp16."""
    if job.training.gradient_dtype is None:
        return job.training.precision != "fp16"
    return job.training.gradient_dtype == "fp32"


def moment_bytes(job: Job) -> float:
    """Bytes per parameter of the optimizer's moments."""
    whole = MOMENT_BYTES[job.training.optimizer]
    return whole * weight_bytes(job) / _FP32 if job.training.moment_dtype == "same" else whole


def state_bytes(job: Job, layout: LayoutLike, d: Any) -> StateBytes:
    """Device bytes per parameter after sharding over `d` ranks and offloading.

    **Source**: ZeRO (1910.02054 sec 3, K=12); Megatron-LM docs/source/api-guide/dist_optimizer.md (6 + 12/d in bf16,
    4 + 16/d in fp16, 8 + 8/d in fp32); DeepSpeed bf16 with ZeRO-1 keeps fp32 gradient sums beside the 16-bit ones
    (bf16_optimizer.py:177-196): 8 + 12/d; its estimators count 2 + 18/d for stage 2 and 18/d for stage 3
    (stage_1_and_2.py:3089, stage3.py:3754).
    """
    if job.framework.runs("DeepSpeed engine"):
        return _offloaded(job, layout, _deepspeed(job, layout.zero_stage, d))
    return _offloaded(job, layout, _megatron(job, layout.zero_stage, d))


def _megatron(job: Job, stage: Any, d: Any) -> StateBytes:
    """Megatron's optimizer: whole on every rank, distributed from stage 1, or FSDP's.

    bf16 gradients go with the precision-aware optimizer, which reads them as they are; fp16 ones are copied to fp32.
    """
    moments = moment_bytes(job)
    cut, cut_gradients, cut_parameters = (np.where(stage >= least, d, 1) for least in (1, 2, 3))
    if job.training.precision == "fp32":
        return StateBytes(parameters=_FP32 / cut_parameters, gradients=_FP32 / cut_gradients, optimizer=moments / cut)
    fp16 = job.training.precision == "fp16"
    gradients = _FP32 if sums_gradients_in_fp32(job) else _HALF
    master = _FP32 + (_FP32 if fp16 else 0)
    cache = _FP8_WEIGHT_CACHE if job.training.precision == "fp8" else 0
    return StateBytes(
        parameters=_HALF / cut_parameters + cache,
        gradients=gradients / cut_gradients,
        optimizer=(master + moments) / cut,
    )


def _deepspeed(job: Job, stage: Any, d: Any) -> StateBytes:
    """DeepSpeed's optimizers, by ZeRO stage."""
    moments = moment_bytes(job)
    cut = np.where(stage >= 1, d, 1)
    if job.training.precision == "fp32":
        parameters = np.where(stage >= 3, _FP32 / d, _FP32)
        gradients = np.where(stage >= 2, _FP32 / d, _FP32)
        return StateBytes(
            parameters=parameters, gradients=gradients, optimizer=(np.where(stage >= 1, _FP32, 0) + moments) / cut
        )
    wide = sums_gradients_in_fp32(job)
    # At stage 0 DeepSpeed takes no other gradient type than the weights'.
    whole = np.where((stage == 1) & wide, _HALF + _FP32, _HALF)
    gradients = np.where(stage >= 3, _FP32 / d, np.where(stage == 2, (_HALF + _FP32) / d, whole))
    master = _FP32 + np.where((stage <= 1) & (not wide), _FP32, 0)
    extra = _FP8_WEIGHT_CACHE if job.training.precision == "fp8" else 0
    parameters = np.where(stage >= 3, _HALF / d, _HALF) + extra
    return StateBytes(parameters=parameters, gradients=gradients, optimizer=(master + moments) / cut)


def _offloaded(job: Job, layout: LayoutLike, held: StateBytes) -> StateBytes:
    """What stays on the device: offloaded optimizers take DeepSpeed's gradient partitions with them."""
    out = layout.offload >= Offload.OPTIMIZER
    parameters_out = layout.offload == Offload.OPTIMIZER_AND_PARAMETERS
    gradients = held.gradients
    if job.framework.runs("DeepSpeed engine"):
        gradients = np.where(out, np.where(layout.zero_stage >= 2, 0, weight_bytes(job)), gradients)
    return StateBytes(
        parameters=np.where(parameters_out, 0, held.parameters),
        gradients=gradients,
        optimizer=np.where(out, 0, held.optimizer),
    )


#: Elements that stage 3 updates at a time: `sub_group_size`'s default (DeepSpeed 0.19.8, runtime/zero/config.py).
_SUB_GROUP = 1_000_000_000
#: torch's own AdamW over lists of tensors: what published runs used, never what we launch.
_FOREACH_ADAMW = "adamw-foreach"
#: It holds the square root of the second moments and the denominator, in fp32 (torch 1.13,
#: torch/optim/adamw.py, _multi_tensor_adamw); its gradients are flattened, then converted.
_FOREACH = 2 * _FP32 + _HALF + _FP32


def step_bytes(job: Job, layout: LayoutLike, d: Any, parameters: Any) -> Any:
    """Device bytes alive only during the optimizer step, for a rank's `parameters` whose states `d` ranks share.

    **Source**: DeepSpeed 0.19.8: the partition's gradients are flattened in 16 bit before their fp32 copy
    (runtime/zero/stage_1_and_2.py, step); stage 3 does so by sub-group (stage3.py, _prepare_fp32_grad_for_sub_group);
    without ZeRO, gradients are converted one by one, then flattened (fp16/fused_optimizer.py, step). With fp32 sums
    the optimizer reads them in place (bf16_optimizer.py).
    """
    half = job.training.precision != "fp32"
    share = parameters / d
    if job.training.optimizer == _FOREACH_ADAMW:
        return _FOREACH * share * half
    if not job.framework.runs("DeepSpeed engine") or not half:
        return 0.0 * share
    narrow = 0 if sums_gradients_in_fp32(job) else _HALF
    group = np.minimum(share, _SUB_GROUP)
    bytes_ = np.where(
        layout.zero_stage >= 3,
        (_FP32 + narrow) * group,
        np.where(layout.zero_stage >= 1, narrow * share, _FP32 * parameters),
    )
    return np.where(layout.offload >= Offload.OPTIMIZER, 0, bytes_)


def host_bytes(job: Job, layout: LayoutLike, parameters: Any) -> Any:
    """Host bytes for one rank's share `parameters` (already divided by the sharding group).

    **Source**: DeepSpeed stage3.py:3755-3772: 16 bytes a parameter for the optimizer, 18 with the parameters, × 1.5.
    """
    optimizer = _FP32 + _FP32 + MOMENT_BYTES[job.training.optimizer]
    per_parameter = np.where(
        layout.offload == Offload.OPTIMIZER_AND_PARAMETERS,
        optimizer + weight_bytes(job),
        np.where(layout.offload == Offload.OPTIMIZER, optimizer, 0),
    )
    return parameters * per_parameter * rates(job).pinned_memory_factor
