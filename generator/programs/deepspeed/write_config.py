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

FILE_NAME = "ds_config.json"
MAX_LIVE_KEYS = ("stage3_max_live_parameters", "stage3_max_reuse_distance")

_OPTIMIZER_TYPES = {"adamw": "AdamW", "adam": "Adam", "lamb": "Lamb", "sgd": "SGD"}
_UNTESTED_WITH_ZERO = frozenset({"lamb", "sgd"})  #: not in runtime/zero/utils.py ZERO_SUPPORTED_OPTIMIZERS

EIGHT_BIT = "adamw-8bit"

Config = dict[str, Any]

#: What DeepSpeed prints. The wall-clock breakdown synchronises the device and is for profiling only.
LOGGING: Config = {"steps_per_print": 10, "wall_clock_breakdown": False}


def batch_ranks(job: Job, layout: Layout) -> int:
    """Ranks by which DeepSpeed multiplies the micro batch to check `train_batch_size`.

    Where the engine gets an mpu (Megatron-DeepSpeed, and every PipelineModule) these are the model replicas. Otherwise
    DeepSpeed divides the world by the sequence-parallel size alone, so the ranks of an AutoTP group count one by one.

    **Source**: DeepSpeed 0.19.8, runtime/config.py, `DeepSpeedConfig.__init__`.
    """
    has_mpu = job.framework.passes_mpu or layout.pipeline > 1
    return layout.data if has_mpu else layout.data * layout.tensor


def uses_autotp(job: Job, layout: Layout) -> bool:
    """Whether tensor parallelism is DeepSpeed's own: not a Megatron's, nor a PipelineModule's."""
    return layout.tensor > 1 and layout.pipeline == 1 and job.framework.runs("AutoTP")


def derives_train_batch(job: Job, layout: Layout) -> bool:
    """Whether `train_batch_size` has to be left to DeepSpeed, because two checks require different numbers.

    With AutoTP, `deepspeed.initialize` compares it with all ranks and stage 3's `zero.Init`, later, with the replicas.
    With Ulysses, the Trainer compares it with all ranks and DeepSpeed with the replicas.

    **Source**: DeepSpeed 0.19.8, runtime/zero/partition_parameters.py, `Init.__init__` (seen with the engine);
    transformers 5.23, integrations/deepspeed.py, `trainer_config_process`.
    """
    with_autotp = uses_autotp(job, layout) and layout.zero_stage == 3
    return with_autotp or (job.framework.runs("Trainer") and layout.context > 1)


def batch_block(job: Job, layout: Layout) -> Config:
    """The numbers DeepSpeed multiplies and compares; what it must derive is left out."""
    per_rank = layout.micro_batch * layout.gradient_accumulation
    total = {} if derives_train_batch(job, layout) else {"train_batch_size": per_rank * batch_ranks(job, layout)}
    return {
        **total,
        "train_micro_batch_size_per_gpu": layout.micro_batch,
        "gradient_accumulation_steps": layout.gradient_accumulation,
    }


def autotp_notes(job: Job, layout: Layout, counted_by: str) -> tuple[str, ...]:
    """Why the batch of an AutoTP run looks too large; `counted_by` says who counts every rank."""
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
    if job.training.precision == "fp32":
        return {"bf16": {"enabled": False}}  # said, so that nobody takes it for forgotten
    if job.training.precision == "fp16":
        dynamic = {"loss_scale": 0, "initial_scale_power": 16, "loss_scale_window": 1000, "min_loss_scale": 1}
        return {"fp16": {"enabled": True, **dynamic}}
    # The engine refuses to mix gradient types outside ZeRO.
    if layout.zero_stage == 0 or not sums_gradients_in_fp32(job):
        return {"bf16": {"enabled": True}}
    return {"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}}


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
        block.update(_part_of_ranks(job, layout))
        if job.framework.runs("Trainer"):  # Trainer.save_model would write a model without weights
            block["stage3_gather_16bit_weights_on_model_save"] = True
    host = {"device": "cpu", "pin_memory": True}
    if layout.offload >= Offload.OPTIMIZER:
        block["offload_optimizer"] = host
    if layout.offload >= Offload.OPTIMIZER_AND_PARAMETERS:
        block["offload_param"] = host
    return block


def _part_of_ranks(job: Job, layout: Layout) -> Config:
    """Parameters of stage 3 on part of the ranks (MiCS, ZeRO++ hpZ), and in fewer bits on the way (qwZ, qgZ)."""
    block: Config = {}
    if layout.zero_copies > 1:
        block["mics_shard_size"] = layout.data * layout.context // layout.zero_copies
    if layout.zero_hpz > 1:
        block["zero_hpz_partition_size"] = layout.zero_hpz
    for key in ("quantized_weights", "quantized_gradients"):
        if getattr(job.training, key):
            block[f"zero_{key}"] = True
    return block


def optimizer_block(job: Job, layout: Layout) -> Config:
    """`optimizer` and what its type needs. With optimizer offload, DeepSpeed itself puts its CPU Adam in.

    The 8-bit Adam is bitsandbytes', which the Trainer makes and DeepSpeed counts as untested with ZeRO.
    """
    name = job.training.optimizer
    if name == EIGHT_BIT:
        return {"zero_allow_untested_optimizer": True} if layout.zero_stage > 0 else {}
    params: Config = {"lr": job.training.learning_rate, "weight_decay": job.training.weight_decay}
    if name != "sgd":
        params |= {"betas": [BETA1, beta2(job)], "eps": EPSILON}
    if name == "adam":
        params["adam_w_mode"] = False  # DeepSpeed's Adam is AdamW otherwise
    block: Config = {"optimizer": {"type": _OPTIMIZER_TYPES[name], "params": params}}
    if name in _UNTESTED_WITH_ZERO and layout.zero_stage > 0:
        block["zero_allow_untested_optimizer"] = True
    return block


def common_config(job: Job, layout: Layout) -> Config:
    """What the three frameworks that run on DeepSpeed share."""
    return {
        **batch_block(job, layout),
        "gradient_clipping": job.training.gradient_clipping,  # the default changed between releases
        **precision_block(job, layout),
        "zero_optimization": zero_block(job, layout),
    }


def script_config(job: Job, layout: Layout, own: Config) -> Config:
    """The config where DeepSpeed makes the optimizer and tensor parallelism is AutoTP; `own` is the framework's."""
    tensor = {"tensor_parallel": {"autotp_size": layout.tensor}} if uses_autotp(job, layout) else {}
    return {**common_config(job, layout), **optimizer_block(job, layout), **tensor, **own, **LOGGING}


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
