"""Model states: bytes per parameter for weights, gradients and optimizer.

They depend on framework, precision and ZeRO stage.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..catalog.layers.stack import Layer
from ..dataclass import dataclass
from ..job.records import Job
from .layout import LayoutLike, Offload
from .model_size import embedding_parameters, head_parameters, over_layers
from .rates import rates

#: Optimizer moments in bytes per parameter: two fp32 moments, or SGD's one momentum.
MOMENT_BYTES = {
    **dict.fromkeys(("adamw", "adam", "lamb", "adamw-foreach"), 8),
    "sgd": 4,
    "muon": 4,  # of a matrix; see muon.py
    # A byte each, and an fp32 scale for 256 elements (bitsandbytes 0.45, functional.py,
    # quantize_blockwise).
    "adamw-8bit": 2 * (1 + 4 / 256),
}
_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}
FP32 = 4
_HALF = 2
#: Bytes of an element of activations and of weights in 8 or 4 bits, with its share of the scale:
#: fp32 for 128 elements, or a byte for 32 or 16; weights' blocks of 128 by 128 and a tensor's
#: single scale weigh nothing. Source: Transformer Engine 2.9, pytorch/tensor:
#: float8_blockwise_tensor.py:112 (get_scale_shape), mxfp8_tensor.py:88 and nvfp4_tensor.py
#: (make_empty).
_NVFP4_BYTES = 1 / 2 + 1 / 16
NARROW_INPUT_BYTES = {"blockwise": 1 + 4 / 128, "mxfp8": 1 + 1 / 32, "nvfp4": _NVFP4_BYTES}
_NARROW_WEIGHT_BYTES = {"mxfp8": 1 + 1 / 32, "nvfp4": _NVFP4_BYTES}


@dataclass(frozen=True, slots=True, kw_only=True)
class StateBytes:
    """Bytes per parameter of one rank on the device.

    `d` ranks share a parameter's states.
    """

    parameters: Any
    gradients: Any
    optimizer: Any


def weight_bytes(job: Job) -> int:
    """Bytes of one weight as computed with: 4 in fp32, 2 otherwise."""
    return FP32 if job.training.precision == "fp32" else _HALF


def fp8_copies(job: Job) -> int:
    """Copies of a narrow tensor that products both ways need: by rows and by columns, or one that
    is read either way.

    **Source**: Transformer Engine 2.9, common/transformer_engine.cpp:719
    (nvte_is_non_tn_fp8_gemm_supported: from compute capability 10.0 on) and
    pytorch/csrc/quantizer.cpp:137, for a tensor's single scale; mxfp8_tensor.py:88 and
    float8_blockwise_tensor.py:213 have both copies. Weights' are kept between micro-batches
    (get_weight_workspace in pytorch/module/base.py:1333).
    """
    single_scale = job.training.scaling in ("delayed", "tensorwise")
    return 1 if single_scale and job.cluster.accelerator.generation.fp8_both_ways else 2


def product_bytes(job: Job) -> float:
    """Bytes of an element that a product of a linear layer reads, with its share of the scale."""
    if not job.is_narrow:
        return weight_bytes(job)
    return NARROW_INPUT_BYTES.get(job.training.scaling, 1.0)


def has_no_masters(job: Job) -> bool:
    """Tell whether the optimizer updates 16-bit weights, of which there are no fp32 ones."""
    return job.training.master_dtype == "same"


def shard_bytes(job: Job) -> int:
    """Bytes of a trained weight, and of its gradient, in the shards that an optimizer updates."""
    return weight_bytes(job) if has_no_masters(job) else FP32


def sums_gradients_in_fp32(job: Job) -> bool:
    """Tell whether gradients are summed in fp32: the default of 16-bit training but for fp16."""
    if has_no_masters(job):
        return False
    if job.training.gradient_dtype is None:
        return job.training.precision != "fp16"
    return job.training.gradient_dtype == "fp32"


def summed_bytes(job: Job) -> int:
    """Bytes of the sum of one parameter's gradients."""
    return FP32 if sums_gradients_in_fp32(job) else weight_bytes(job)


def moment_bytes(job: Job) -> float:
    """Bytes per parameter of the optimizer's moments, which have the type of what it updates."""
    in_fp32, dtype = MOMENT_BYTES[job.training.optimizer], job.training.moment_dtype
    if has_no_masters(job) and job.training.optimizer != "adamw-8bit":
        dtype = "same"
    element = weight_bytes(job) if dtype == "same" else _BYTES[dtype or "fp32"]
    return in_fp32 * element / FP32


def is_precision_aware(job: Job) -> bool:
    """Tell whether the optimizer is the precision-aware one: a type of its states asks for it."""
    state_types = (job.training.moment_dtype, job.training.master_dtype)
    is_adam = job.training.optimizer not in ("sgd", "muon")
    names_type = any(dtype is not None for dtype in state_types)
    return is_adam and job.engine.chooses_types and names_type


def master_bytes(job: Job) -> int:
    """Bytes per parameter of the optimizer's own copy of 16-bit weights.

    **Source**: Megatron-LM core_v0.16.1, core/optimizer/optimizer_config.py,
    store_param_remainders: beside bf16 weights the precision-aware optimizer keeps only the 16 bits
    that they lack of fp32. It doesn't where Megatron itself keeps the copy, which it does with
    every recipe of fp8 but the delayed one, whatever the precision
    (use_precision_aware_optimizer_no_fp8_or_ds_fp8), and where the weights' type is fp8.
    """
    if not job.engine.chooses_types:
        return shard_bytes(job)
    if job.training.master_dtype == "fp16":
        return _HALF
    remainders = (
        is_precision_aware(job)
        and job.training.precision != "fp16"
        and job.training.fp8_recipe == "delayed"
        and not job.training.fp8_parameters
    )
    return _HALF if remainders and job.training.moment_dtype != "same" else FP32


def reduced_bytes(job: Job) -> int:
    """Bytes of one parameter's gradient as it is sent."""
    return summed_bytes(job) if job.engine.reduces_sums else weight_bytes(job)


def holds_whole_gradients(job: Job, layout: LayoutLike) -> Any:
    """Tell where whole gradients are summed until a step's last micro-batch.

    **Source**: accelerate 1.15, accelerator.py, `accumulate` and `no_sync`: all micro-batches but
    the last run without synchronization, unless `sync_each_batch` asks for it; torch 2.13,
    torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py, `post_backward`.
    """
    if not job.engine.defers_reduction:
        return layout.zero_stage < 0
    return (layout.gradient_accumulation > 1) & np.logical_not(layout.sync_each_batch)


def whole_gradient_bytes(job: Job) -> int:
    """Bytes of a parameter's gradient while micro-batches sum it whole: of the wider type.

    **Source**: torch 2.13, _fsdp_param.py, `to_accumulated_grad_if_needed`.
    """
    return max(weight_bytes(job), reduced_bytes(job))


def state_bytes(job: Job, layout: LayoutLike, d: Any) -> StateBytes:
    """Device bytes per parameter after sharding over `d` ranks and offloading."""
    return _offloaded(job, layout, _held(job, layout, d))


def has_flat_gradients(job: Job, layout: LayoutLike) -> Any:
    """Tell where all of a rank's gradients are kept in one flat tensor.

    DeepSpeed's BF16_Optimizer does so.

    **Source**: DeepSpeed 0.19.8, runtime/engine.py, `_do_optimizer_sanity_check`: for bf16 at stage
    1 with fp32 sums and no offload, and under a pipeline without ZeRO, where it shards the
    optimizer all the same.
    """
    if not job.engine.flat_gradients or job.training.precision in ("fp32", "fp16"):
        return layout.zero_stage < 0
    stays_here = layout.offload == int(Offload.NONE)
    sharded = (layout.zero_stage == 1) & stays_here & sums_gradients_in_fp32(job)
    return sharded | ((layout.zero_stage == 0) & (layout.pipeline > 1))


def reduces_at_once(layout: LayoutLike) -> Any:
    """Tell where ZeRO reduces each gradient in its backward pass.

    Stage 1 then keeps its share alone, as stage 2 does.

    **Source**: DeepSpeed 0.19.8, runtime/zero/stage_1_and_2.py: gradients are reduced as they come
    on the step's last micro-batch; a pipeline engine reduces when all are done.
    """
    return (layout.gradient_accumulation == 1) & (layout.pipeline == 1)


def _held(job: Job, layout: LayoutLike, d: Any) -> StateBytes:
    """What the engine's optimizer holds by ZeRO stage, while micro-batches run.

    Megatron's is whole on every rank, distributed from stage 1, or FSDP's. Its bf16 gradients go
    with the precision-aware optimizer, which reads them as they are. fp8 parameters are their own
    cache: a byte, and one for the other copy where there is one.

    **Source**: ZeRO (1910.02054 sec 3, K=12); Megatron-LM docs/source/api-guide/dist_optimizer.md
    (6 + 12/d in bf16, 8 + 8/d in fp32, and in fp16 4 + 16/d, of which the update alone has 4/d:
    `buffers.step_bytes`); DeepSpeed 0.19.8: 16-bit sums are the weights' own gradients at stages 0
    and 1; fp32 sums replace them, but in BF16_Optimizer, which holds both
    (runtime/bf16_optimizer.py). ZeRO++'s hpZ keeps a second, 16-bit copy over fewer ranks
    (partition_parameters.py, ds_secondary_tensor). Counted with the engine itself
    (tests/estimate/test_deepspeed_memory.py).
    """
    engine, training = job.engine, job.training
    if engine.sharding == "units":
        return _held_by_units(job, layout, d)
    element, stage, flat = weight_bytes(job), layout.zero_stage, has_flat_gradients(job, layout)
    half, summed = element < FP32, summed_bytes(job)

    whole = np.where(stage < engine.sums_from, element, summed) + element * flat
    at_once = (stage == 1) & reduces_at_once(layout) & np.logical_not(flat)
    sharded = (stage >= 2) | (at_once & engine.frees_gradients)

    has_master = (stage >= 1) & engine.copies_fp32 | half
    master = np.where(has_master, master_bytes(job), 0)

    narrow = _NARROW_WEIGHT_BYTES.get(training.scaling, 1.0) if engine.chooses_types else 1.0
    cache = fp8_copies(job) * narrow if job.is_narrow else 0
    second = np.where(layout.zero_hpz > 1, element / layout.zero_hpz, 0) * engine.has("zero_hpz")
    parameters = np.where(stage >= 3, element / d + second, element) + cache
    if half and training.fp8_parameters and engine.chooses_types:
        parameters = narrow * (1 / np.where(stage >= 3, d, 1) + fp8_copies(job) - 1)

    return StateBytes(
        parameters=parameters,
        gradients=np.where(sharded, summed / d, whole),
        optimizer=(master + moment_bytes(job)) / np.where((stage >= 1) | flat, d, 1),
    )


def _held_by_units(job: Job, layout: LayoutLike, d: Any) -> StateBytes:
    """What FSDP2 holds of a parameter that is trained: shards of it, of its gradient and of the
    moments, in fp32 or, without masters, in the weights' type.

    Gradients are whole, in the type that they are computed or sent in, where they are reduced with
    the last micro-batch alone. Stages 2 and 3 differ in what is gathered, not in what lasts.

    **Source**: torch 2.13, torch/distributed/fsdp/_fully_shard/_fsdp_param.py,
    `_init_sharded_param` (one shard, of the type that the module has), _fsdp_collectives.py,
    `foreach_reduce` (gradients are cast to it); accelerate 1.15, utils/fsdp_utils.py,
    `fsdp2_prepare_model` (with mixed precision, weights that are trained are cast to fp32 before).
    Counted with both (tests/programs/test_fsdp.py).
    """
    whole, element = holds_whole_gradients(job, layout), shard_bytes(job)
    return StateBytes(
        parameters=element / d,
        gradients=np.where(whole, whole_gradient_bytes(job), element / d),
        optimizer=moment_bytes(job) / d,
    )


def second_shares(layout: LayoutLike) -> Any:
    """How many times as large as a rank's share of the parameters its part of hpZ's copy is."""
    return np.where(layout.zero_hpz > 1, layout.data * layout.context / layout.zero_hpz, 0.0)


def _offloaded(job: Job, layout: LayoutLike, held: StateBytes) -> StateBytes:
    """Bytes that stay on the device. A rank's gradients may go with an offloaded optimizer.

    **Source**: DeepSpeed 0.19.8, runtime/zero/stage_1_and_2.py: stage 1 sums whole gradients on the
    device first, and fp32 sums of stage 2 stay there (`_build_compact_grad_partition_buffer`).
    """
    out = layout.offload >= int(Offload.OPTIMIZER)
    parameters_out = layout.offload == int(Offload.OPTIMIZER_AND_PARAMETERS)
    stays = np.where(out, 1.0 - layout.offload_fraction, 1.0)
    gradients = held.gradients
    if job.engine.sharding == "units":
        gradients = np.where(out & ~holds_whole_gradients(job, layout), 0, gradients)
    if job.engine.offloads_gradients:
        wide = weight_bytes(job) < FP32 and sums_gradients_in_fp32(job)
        at_end = (layout.zero_stage == 1) & np.logical_not(reduces_at_once(layout))
        stay = at_end | ((layout.zero_stage == 2) & wide)
        gradients = np.where(out & np.logical_not(stay), 0, gradients)
    return StateBytes(
        parameters=np.where(parameters_out, 0, held.parameters),
        gradients=gradients,
        optimizer=held.optimizer * stays,
    )


def host_bytes(job: Job, layout: LayoutLike, parameters: Any) -> Any:
    """Host bytes for one rank's share `parameters` (already divided by the sharding group).

    **Source**: DeepSpeed 0.19.8: master weight, its gradient and the moments; a copy of the 16-bit
    weights at stages 1 and 2 (stage_1_and_2.py, param_buffer_of_bit16_for_cpu_offload_groups),
    16-bit sums at stage 2; the gradient partition and, offloaded, the weights at stage 3
    (stage3.py, grad_partitions_flat_buffer), with the second copy of hpZ, which lies where they do
    (partition_parameters.py, _partition_param_sec). torch 2.13, _fsdp_api.py, `CPUOffloadPolicy`:
    all states of what is trained.
    """
    element = weight_bytes(job)
    summed = summed_bytes(job)
    if job.engine.sharding == "units":
        states = 2 * shard_bytes(job) + moment_bytes(job)
        moved = np.where(layout.offload == int(Offload.NONE), 0, states)
        return parameters * moved * rates(job).pinned_memory_factor
    stage = layout.zero_stage
    keeps_sums = (stage == 2) & (layout.gradient_accumulation > 1) & (summed < FP32)
    kept = np.where(keeps_sums, element, 0)
    narrow = np.where(stage >= 3, summed, element + kept)
    optimizer = FP32 + FP32 + moment_bytes(job) + narrow
    per_parameter = np.where(
        layout.offload == int(Offload.OPTIMIZER_AND_PARAMETERS),
        optimizer + element * (1 + second_shares(layout)),
        np.where(layout.offload == int(Offload.OPTIMIZER), optimizer, 0),
    )
    return parameters * per_parameter * layout.offload_fraction * host_factor(job)


def host_factor(job: Job) -> float:
    """Host memory of offloaded states over their bytes: buffers that are pinned are rounded up.

    **Source**: DeepSpeed's estimators (runtime/zero/stage3.py:3755-3772), whose factor is for
    `pin_memory`; without it the bytes alone are held.
    """
    offloads = job.deepspeed_config.get("zero_optimization", {})
    block = offloads.get("offload_optimizer") if isinstance(offloads, Mapping) else None
    is_pinned = not isinstance(block, Mapping) or block.get("pin_memory") is not False
    return rates(job).pinned_memory_factor if is_pinned else 1.0


def first_copies_bytes(job: Job, layout: LayoutLike) -> Any:
    """Host bytes a rank of pinned blocks that held the weights while the model was built.

    With offloaded parameters, `zero.Init` pins a rank's part of every weight; the engine then moves
    all into one flat tensor. torch's allocator of pinned memory rounds each block up to a power of
    two and keeps it when it is free.

    **Source**: DeepSpeed 0.19.8, partition_parameters.py (`_partition_param`) and stage3.py
    (`_create_param_groups_fp16_flat_cpu_memory`); PyTorch 2.9, CachingHostAllocator.h.
    **Assumes** that weights outside of linear layers, such as those of experts in one tensor, need
    what they hold.
    """
    ranks, element = layout.data * layout.context, weight_bytes(job)

    def block(elements: int) -> Any:
        return 2.0 ** np.ceil(np.log2(element * np.ceil(elements / ranks)))

    def of_layer(layer: Layer) -> Any:
        weights = [each.inputs * each.outputs for each in layer.projections]
        # What a layer before holds was built here too, before it was tied.
        return sum(map(block, weights)) + element * (layer.used_parameters - sum(weights)) / ranks

    tables = filter(None, (embedding_parameters(job.model), head_parameters(job.model)))
    offloaded = layout.offload == int(Offload.OPTIMIZER_AND_PARAMETERS)
    return np.where(offloaded, over_layers(job.model, of_layer) + sum(map(block, tables)), 0.0)
