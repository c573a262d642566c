"""The DeepSpeed JSON of a plan, as a dict: only keys that act, every choice explicit.

**Source**: DeepSpeed 0.19.8, runtime/config.py, runtime/precision_config.py, runtime/zero/config.py and the optimizer
set-up of runtime/engine.py. Nothing here was removed up to 0.19.8.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ...estimate.buffers import bucket_elements, max_live_elements, persistence_threshold, prefetch_elements
from ...estimate.layout import Layout, Offload
from ...estimate.states import has_flat_gradients, sums_gradients_in_fp32
from ...job.records import Job
from ..program import BETA1, EPSILON, RenderedFile, beta2
from .options import EIGHT_BIT, batch_ranks, derives_train_batch, uses_autotp, written

FILE_NAME = "ds_config.json"
MAX_LIVE_KEYS = ("stage3_max_live_parameters", "stage3_max_reuse_distance")

#: Keys of the spec that zero_optimization says at stage 3: parameters on part of the ranks (MiCS, ZeRO++ hpZ), and in
#: fewer bits on the way (qwZ, qgZ).
_AT_STAGE_3 = ("layout.zero_copies", "layout.zero_hpz", "training.quantized_weights", "training.quantized_gradients")
_UNTESTED_WITH_ZERO = frozenset({"lamb", "sgd"})  #: not in runtime/zero/utils.py ZERO_SUPPORTED_OPTIMIZERS

Config = dict[str, Any]

#: What DeepSpeed prints. The wall-clock breakdown synchronises the device and is for profiling only.
LOGGING: Config = {"steps_per_print": 10, "wall_clock_breakdown": False}


def batch_block(job: Job, layout: Layout) -> Config:
    """The numbers DeepSpeed multiplies and compares; what it must derive is left out."""
    return written(job, layout, "training.global_batch", "layout.micro_batch", "layout.gradient_accumulation")


def autotp_notes(job: Job, layout: Layout, counted_by: str) -> tuple[str, ...]:
    """Say why the batch of an AutoTP run looks too large; `counted_by` says who counts every rank."""
    if not uses_autotp(job, layout):
        return ()
    product = f"{layout.micro_batch} × {layout.gradient_accumulation} × {batch_ranks(job, layout)}"
    left_out = (
        "It is left out of the JSON because ZeRO-3 checks it again, against the replicas alone."
        if derives_train_batch(job, layout)
        else "A script that passes an mpu to deepspeed.initialize must leave it out of the JSON."
    )
    return (
        f"train_batch_size is {product}: {counted_by} every rank of a tensor group, although {layout.tensor} of them "
        f"share a sample, and {layout.global_batch} samples are used per step. {left_out}",
    )


def precision_block(job: Job, layout: Layout) -> Config:
    """fp16 with a dynamic loss scale, bf16, or neither; fp8 is bf16 to DeepSpeed, the script's layers do the rest."""
    if job.training.precision == "fp16":
        dynamic = {"loss_scale": 0, "initial_scale_power": 16, "loss_scale_window": 1000, "min_loss_scale": 1}
        return {"fp16": {"enabled": True, **dynamic}}
    # The engine refuses to mix gradient types outside ZeRO.
    sums = job.training.precision != "fp32" and layout.zero_stage > 0 and sums_gradients_in_fp32(job)
    return written(job, layout, "training.precision", *(("training.gradient_dtype",) if sums else ()))


def zero_block(job: Job, layout: Layout) -> Config:
    """`zero_optimization`, with only the keys that act at the plan's stage."""
    if layout.zero_stage == 0:
        return {"stage": 0}
    bucket = int(bucket_elements(job, layout))
    block: Config = {
        "stage": layout.zero_stage,
        # A pipeline engine switches it off, and BF16_Optimizer doesn't read it.
        "overlap_comm": layout.pipeline == 1 and not has_flat_gradients(job, layout),
        "contiguous_gradients": True,
        "reduce_scatter": True,
        "reduce_bucket_size": bucket,
    }
    if layout.zero_stage < 3:
        block["allgather_bucket_size"] = bucket
    else:
        block["stage3_prefetch_bucket_size"] = int(prefetch_elements(job, layout))
        block["stage3_param_persistence_threshold"] = persistence_threshold(job)
        block.update(dict.fromkeys(MAX_LIVE_KEYS, int(max_live_elements(job, layout))))
        block.update(written(job, layout, *_AT_STAGE_3).get("zero_optimization", {}))
        if job.framework.runs("Trainer"):  # Trainer.save_model would write a model without weights
            block["stage3_gather_16bit_weights_on_model_save"] = True
    block.update(written(job, layout, "layout.offload").get("zero_optimization", {}))
    if layout.offload >= Offload.OPTIMIZER_AND_PARAMETERS:
        block["offload_param"] = block["offload_optimizer"]
    return block


def optimizer_block(job: Job, layout: Layout) -> Config:
    """`optimizer` and what its type needs. With optimizer offload, DeepSpeed itself puts its CPU Adam in.

    The 8-bit Adam is bitsandbytes', which the Trainer makes and DeepSpeed counts as untested with ZeRO.
    """
    name = job.training.optimizer
    if name == EIGHT_BIT:
        return {"zero_allow_untested_optimizer": True} if layout.zero_stage > 0 else {}
    block = written(job, layout, "training.optimizer", "training.learning_rate", "training.weight_decay")
    params: Config = block["optimizer"]["params"]
    if name != "sgd":
        params.update({"betas": [BETA1, beta2(job)], "eps": EPSILON})
    if name == "adam":
        params["adam_w_mode"] = False  # DeepSpeed's Adam is AdamW otherwise
    if name in _UNTESTED_WITH_ZERO and layout.zero_stage > 0:
        block["zero_allow_untested_optimizer"] = True
    return block


def common_config(job: Job, layout: Layout) -> Config:
    """Return the part of the config that the three frameworks that run on DeepSpeed share."""
    return {
        **batch_block(job, layout),
        **written(job, layout, "training.gradient_clipping"),
        **precision_block(job, layout),
        "zero_optimization": zero_block(job, layout),
    }


def script_config(job: Job, layout: Layout, own: Config) -> Config:
    """The config where DeepSpeed makes the optimizer and tensor parallelism is AutoTP; `own` is the framework's."""
    sizes = written(job, layout, "layout.tensor", "layout.context")
    return {**common_config(job, layout), **optimizer_block(job, layout), **sizes, **own, **LOGGING}


def merged(config: Mapping[str, Any], patch: Mapping[str, Any]) -> Config:
    """`config` under a JSON merge patch: null leaves a key out, other values replace, objects are merged.

    **Source**: RFC 7386, section 2.
    """
    result = {key: value for key, value in config.items() if key not in patch or patch[key] is not None}
    for key, value in patch.items():
        if isinstance(value, Mapping):
            inside = result.get(key)
            result[key] = merged(inside if isinstance(inside, Mapping) else {}, value)
        elif value is not None:
            result[key] = value
    return result


def rendered(job: Job, config: Config) -> RenderedFile:
    """The file, in strict JSON: Transformers, Accelerate and Megatron-DeepSpeed read nothing else."""
    return RenderedFile(path=FILE_NAME, text=json.dumps(merged(config, job.deepspeed_config), indent=2) + "\n")
