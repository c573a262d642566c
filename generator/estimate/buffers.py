"""Buffers of DeepSpeed: those that ZeRO communicates through, and memory at the end of a step.

`ds_config.json` says the sizes, and the memory ledger counts them. At a step's end activations are
gone: gradients are reduced, and the optimizer updates. All was read in DeepSpeed 0.19.8 and counted
with its engine (tests/estimate/test_deepspeed_memory.py).

**Source**: DeepSpeed 0.19.8, runtime/zero/config.py: `reduce_bucket_size` and
`allgather_bucket_size` default to 5e8, `stage3_prefetch_bucket_size` to 5e7,
`stage3_max_live_parameters` to 1e9. All are elements, not bytes. Transformers 5.23,
integrations/deepspeed.py, sizes the prefetch by 0.9·h² and the persistence threshold by 10·h.

Sizes take one layout or columns of them and are a whole number or a column of whole numbers. In
what counts bytes, `sharers` are the ranks that share the states of a rank's `parameters`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..catalog.model import Model
from ..job.records import Job
from . import model_size
from .adapters import adapter_parameters
from .layout import LayoutLike, Offload
from .states import FP32, has_flat_gradients, summed_bytes, weight_bytes

#: 0.4 GB in 16 bit: large enough for bandwidth, less than half of DeepSpeed's default
BUCKET_ELEMENTS = 200_000_000
MAX_LIVE_ELEMENTS = 1_000_000_000  #: DeepSpeed's own default
PERSISTENCE_PER_HIDDEN = 10  #: norms and biases stay whole on every rank, matrices don't
#: The share of a layer that stage 3 gathers ahead: transformers' 0.9·h², of all its matrices.
_PREFETCHED_TENTHS = 9
#: DeepSpeed's reduce bucket by its prefetch bucket, as the defaults are.
_BUCKETS_A_PREFETCH = 10


def layer_elements(model: Model) -> int:
    """Weights of the largest kind of layer. Norms and the router are too small."""
    layer = model.averaged.largest
    return layer.mixer.parameters + layer.feed_forward.matrix_parameters


def _even(elements: Any) -> Any:
    """The next lower even number.

    Stages 1 and 2 refuse an odd all-gather bucket (stage_1_and_2.py, alignment 2).
    """
    return elements // 2 * 2


def _at_most(limit: int, elements: Any) -> Any:
    """The elements up to a limit; a file's sizes may make more than a column's integers hold."""
    return min(limit, elements) if isinstance(elements, int) else np.minimum(limit, elements)


def rank_elements(job: Job, layout: LayoutLike) -> Any:
    """Weights of an average pipeline stage's tensor shard, before ZeRO.

    A larger bucket would stay empty.
    """
    return model_size.parameter_count(job.model) // (layout.tensor * layout.pipeline)


def bucket_elements(job: Job, layout: LayoutLike) -> Any:
    """Elements of the gradient-reduce bucket, and of the all-gather bucket of stages 1 and 2.
    Even.
    """
    if job.training.bucket_elements is not None:
        return _even(job.training.bucket_elements) + 0 * layout.tensor  # a column where that is one
    trained = (
        rank_elements(job, layout)
        if job.training.lora is None
        else adapter_parameters(job) // layout.tensor
    )
    return np.maximum(2, _at_most(BUCKET_ELEMENTS, _even(trained)))


def prefetch_elements(job: Job, layout: LayoutLike) -> Any:
    """Elements stage 3 gathers ahead of their use: most of a layer, and never more than a bucket.

    Even. Where the job itself names the size of buckets, at most a tenth of it: so are the two
    defaults of DeepSpeed.
    """
    most_of_a_layer = layer_elements(job.model) * _PREFETCHED_TENTHS // 10 // layout.tensor
    # With LoRA, buckets hold the adapters' gradients alone, but all weights are gathered.
    limit = bucket_elements(job, layout) if job.training.lora is None else BUCKET_ELEMENTS
    if job.training.bucket_elements is not None:
        limit = limit // _BUCKETS_A_PREFETCH
    return np.maximum(2, np.minimum(_even(limit), _even(most_of_a_layer)))


def max_live_elements(job: Job, layout: LayoutLike) -> Any:
    """Gathered elements above which stage 3 releases parameters before it gathers more."""
    return _at_most(MAX_LIVE_ELEMENTS, _even(rank_elements(job, layout)))


def persistence_threshold(job: Job) -> int:
    """Parameters of fewer elements stay whole on every rank under stage 3."""
    return PERSISTENCE_PER_HIDDEN * job.model.hidden


#: Elements that gradients are reduced by outside ZeRO (runtime/engine.py,
#: MEMORY_OPT_ALLREDUCE_SIZE).
_REDUCED_AT_ONCE = 500_000_000
#: Elements that stage 3 updates at a time: `sub_group_size`'s default (runtime/zero/config.py).
_SUB_GROUP = 1_000_000_000
#: DeepSpeed's releases that surely send ZeRO's buckets for several ranks at once
#: (use_multi_rank_bucket_allreduce).
_SENDS_COPIES = (0, 13)
#: torch's own AdamW over lists of tensors: what published runs used, never what we launch.
_FOREACH_ADAMW = "adamw-foreach"
#: Bytes per parameter that it needs in its update: the square root of the second moments and the
#: denominator, in fp32 (torch 1.13, torch/optim/adamw.py, _multi_tensor_adamw), and gradients
#: converted one by one (InternEvo, solver/optimizer/fsdp_optimizer.py). Outside of FSDP these are
#: flattened before (hybrid_zero_optim.py, _step).
_FOREACH_BYTES = 3 * FP32


def reduction_bytes(job: Job, layout: LayoutLike, sharers: Any, parameters: Any) -> Any:
    """Device bytes of the copies in which gradients of a rank's `parameters` are reduced.

    **Source**: runtime/engine.py, `allreduce_bucket`: gradients are copied into one tensor, by half
    a billion elements. A larger flat gradient of BF16_Optimizer is its own bucket; smaller, it is
    copied with that of the parameters without weight decay, which a training script of its own may
    not tell apart. Its fp32 sums are then sent in bf16. ZeRO 2 makes the new micro-batch's share
    (stage_1_and_2.py, get_flat_partition) before it adds it, but not to fp32 sums of 16-bit
    gradients.
    """
    if not job.engine.has_buckets:
        return 0.0
    element, stage, flat = weight_bytes(job), layout.zero_stage, has_flat_gradients(job, layout)
    # BF16_Optimizer: the copy of a small flat gradient, and that in which its fp32 sums are sent.
    is_copied = (parameters <= _REDUCED_AT_ONCE) & (not job.engine.scripted)
    copy = np.where(is_copied, np.where(stage == 0, element, FP32), 0)
    sent = np.where(stage == 0, 0, element)
    of_flat = (copy + sent) * parameters

    # Without ZeRO: one bucket after another.
    of_bucket = element * np.minimum(parameters, _REDUCED_AT_ONCE)

    # ZeRO 2: the share of a micro-batch that is added to that of those before it.
    adds = (stage == 2) & (layout.gradient_accumulation > 1) & (element == summed_bytes(job))
    of_share = np.where(adds, element * parameters / sharers, 0)
    return np.where(flat, of_flat, np.where(stage == 0, of_bucket, of_share))


def sent_bytes(job: Job, layout: LayoutLike, bucket: Any) -> Any:
    """Device bytes of the copy in which ZeRO 1 and 2 send a `bucket` of elements.

    **Source**: runtime/zero/stage_1_and_2.py, `allreduce_and_copy_with_multiple_ranks`.
    """
    if not job.engine.has_buckets:
        return 0.0
    sharded = (layout.zero_stage == 1) | (layout.zero_stage == 2)
    sends_buckets = sharded & np.logical_not(has_flat_gradients(job, layout))
    copied = summed_bytes(job) * (job.deepspeed_version >= _SENDS_COPIES)
    return np.where(sends_buckets, copied * bucket, 0.0)


def step_bytes(job: Job, layout: LayoutLike, sharers: Any, parameters: Any) -> Any:
    """Device bytes of the further copies of gradients that an update makes: of a rank's share of
    `parameters`, flattened or converted to fp32.

    **Source**: the share is kept by tensor, flattened, and converted (stage_1_and_2.py, step), but
    fp32 sums are read in place; stage 3 does so by sub-group (stage3.py,
    _prepare_fp32_grad_for_sub_group); without ZeRO, gradients are converted one by one, then
    flattened (fp16/fused_optimizer.py, step). BF16_Optimizer's sums are read in place. Megatron-LM
    copies fp16 gradients of the share to fp32, and drops the copies before the next step's forward
    pass (core/optimizer/optimizer.py, zero_grad with set_to_none).
    """
    in_16_bit = job.training.precision != "fp32"
    share = parameters / sharers
    if job.training.optimizer == _FOREACH_ADAMW:
        return (_FOREACH_BYTES + weight_bytes(job) * (layout.zero_stage < 3)) * share * in_16_bit
    if job.engine.copies_fp16_gradients and job.training.precision == "fp16":
        return FP32 * np.where(layout.zero_stage >= 1, share, parameters)
    if not job.engine.converts_gradients:
        return 0.0
    element, stage, flat = weight_bytes(job), layout.zero_stage, has_flat_gradients(job, layout)
    if summed_bytes(job) == element:  # sums in the weights' type
        flattened, converted = element, FP32 if element < FP32 else 0
        by_share = by_sub_group = converted + flattened
    else:
        by_share, by_sub_group = 0, FP32
    of_gradients = np.where(
        stage >= 3,
        by_sub_group * np.minimum(share, _SUB_GROUP),
        np.where(stage >= 1, by_share * share, 2 * FP32 * in_16_bit * parameters),
    )
    of_gradients = np.where(flat, np.where(stage == 0, FP32 * share, 0), of_gradients)
    return np.where(layout.offload >= Offload.OPTIMIZER, 0, of_gradients)


def freed_bytes(job: Job, layout: LayoutLike, share: Any, gradients: Any) -> Any:
    """Device bytes of `gradients` that are freed before the update.

    ZeRO 1 sums them whole, and keeps those of its `share` of the parameters for the update.
    """
    if not job.engine.frees_gradients:
        return 0.0
    sums_whole = (layout.zero_stage == 1) & np.logical_not(has_flat_gradients(job, layout))
    kept = np.where(layout.offload >= Offload.OPTIMIZER, 0, summed_bytes(job) * share)
    return np.where(sums_whole, np.maximum(gradients - kept, 0), 0)


def returning_bytes(job: Job, layout: LayoutLike, gradients: Any, parameters: Any) -> Any:
    """Device bytes of `gradients` that the backward pass allocates anew in each step.

    So it is in steps of one micro-batch, but for BF16_Optimizer's sums and ZeRO 3's shares, which
    are allocated once.

    **Source**: runtime/engine.py, `_take_model_step`, which sets gradients to None; counted with
    the engine. Without ZeRO, where the step's end is mostly the peak, they count as lasting: other
    programs zero them.
    """
    if not job.engine.frees_gradients:
        return 0.0
    stage = layout.zero_stage
    one_pass_a_step = (layout.gradient_accumulation == 1) & (layout.pipeline == 1)
    returns = one_pass_a_step & (stage >= 1) & (stage <= 2)
    lasting = np.where(has_flat_gradients(job, layout), FP32 * parameters, 0)
    return np.where(returns, np.maximum(gradients - lasting, 0), 0)
