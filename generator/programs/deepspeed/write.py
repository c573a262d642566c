"""`ds_config.json`, and a training script of the user's own that calls `deepspeed.initialize`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ...estimate.buffers import (
    bucket_elements,
    max_live_elements,
    persistence_threshold,
    prefetch_elements,
)
from ...estimate.layout import Layout, Offload, Recompute
from ...estimate.states import has_flat_gradients, sums_gradients_in_fp32
from ...job.needs import spec_values
from ...job.records import Framework, Job, Need
from ...search.plan import Plan
from ..program import (
    BETA1,
    EPSILON,
    ConfigPath,
    Program,
    RenderedFile,
    Value,
    beta2,
    group,
    holds,
    make_program,
)
from .engine import ENGINE, VERSIONS, release
from .options import EIGHT_BIT, PLANNED, batch_ranks, derives_train_batch, uses_autotp, written

FILE_NAME = "ds_config.json"
MAX_LIVE_KEYS = ("stage3_max_live_parameters", "stage3_max_reuse_distance")
#: Keys of the spec that zero_optimization says at stage 3: parameters on part of the ranks (MiCS,
#: ZeRO++ hpZ), and in fewer bits on the way (qwZ, qgZ).
_AT_STAGE_3 = (
    "layout.zero_copies",
    "layout.zero_hpz",
    "training.quantized_weights",
    "training.quantized_gradients",
)
#: Optimizers that aren't in ZERO_SUPPORTED_OPTIMIZERS (runtime/zero/utils.py).
_UNTESTED_WITH_ZERO = frozenset({"lamb", "sgd"})
Config = dict[str, Any]
#: What DeepSpeed prints. The wall-clock breakdown synchronises the device and is for profiling
#: only.
LOGGING: Config = {"steps_per_print": 10, "wall_clock_breakdown": False}


def autotp_notes(job: Job, layout: Layout, counted_by: str) -> tuple[str, ...]:
    """Say why an AutoTP run's batch looks too large; `counted_by`: words on who counts ranks."""
    if not uses_autotp(job, layout):
        return ()
    product = f"{layout.micro_batch} × {layout.gradient_accumulation} × {batch_ranks(job, layout)}"
    left_out = (
        "It is left out of the JSON because ZeRO-3 checks it again, against the replicas alone."
        if derives_train_batch(job, layout)
        else "A script that passes an mpu to deepspeed.initialize must leave it out of the JSON."
    )
    return (
        f"train_batch_size is {product}: {counted_by} every rank of a tensor group, although "
        f"{layout.tensor} of them "
        f"share a sample, and {layout.global_batch} samples are used per step. {left_out}",
    )


def precision_block(job: Job, layout: Layout) -> Config:
    """fp16 with a dynamic loss scale, bf16, or neither.

    fp8 is bf16 to DeepSpeed; the script's layers do the rest.
    """
    if job.training.precision == "fp16":
        dynamic_scale = {
            "loss_scale": 0,
            "initial_scale_power": 16,
            "loss_scale_window": 1000,
            "min_loss_scale": 1,
        }
        return {"fp16": {"enabled": True, **dynamic_scale}}
    keys = ["training.precision"]
    # The engine refuses to mix gradient types outside ZeRO.
    may_sum_in_fp32 = job.training.precision != "fp32" and layout.zero_stage > 0
    if may_sum_in_fp32 and sums_gradients_in_fp32(job):
        keys.append("training.gradient_dtype")
    return written(job, layout, *keys)


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
        if job.engine.saves_model:  # the Trainer would write a model without weights
            block["stage3_gather_16bit_weights_on_model_save"] = True
    block.update(written(job, layout, "layout.offload").get("zero_optimization", {}))
    if layout.offload >= Offload.OPTIMIZER_AND_PARAMETERS:
        block["offload_param"] = block["offload_optimizer"]
    return block


def optimizer_block(job: Job, layout: Layout) -> Config:
    """`optimizer` and what its type needs.

    With optimizer offload, DeepSpeed itself puts its CPU Adam in.
    """
    name = job.training.optimizer
    if name == EIGHT_BIT:  # not DeepSpeed's to make
        return {"zero_allow_untested_optimizer": True} if layout.zero_stage > 0 else {}
    block = written(
        job, layout, "training.optimizer", "training.learning_rate", "training.weight_decay"
    )
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
        # The numbers DeepSpeed multiplies and compares; what it must derive is left out.
        **written(
            job,
            layout,
            "training.global_batch",
            "layout.micro_batch",
            "layout.gradient_accumulation",
        ),
        **written(job, layout, "training.gradient_clipping"),
        **precision_block(job, layout),
        "zero_optimization": zero_block(job, layout),
    }


def script_config(job: Job, layout: Layout, settings: Config) -> Config:
    """The config where DeepSpeed makes the optimizer and AutoTP cuts the layers."""
    sizes = written(job, layout, "layout.tensor", "layout.context")
    return {
        **common_config(job, layout),
        **optimizer_block(job, layout),
        **sizes,
        **settings,
        **LOGGING,
    }


def merged(config: Mapping[str, Any], patch: Mapping[str, Any]) -> Config:
    """`config` under a JSON merge patch: null drops a key, objects merge, other values replace.

    **Source**: RFC 7386, section 2.
    """
    result = dict(config)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping):
            old = result.get(key)
            result[key] = merged(old if isinstance(old, Mapping) else {}, value)
        else:
            result[key] = value
    return result


def rendered(job: Job, config: Config) -> RenderedFile:
    """The file as strict JSON, all that Transformers, Accelerate and Megatron-DeepSpeed read."""
    return RenderedFile(
        path=FILE_NAME, text=json.dumps(merged(config, job.deepspeed_config), indent=2) + "\n"
    )


#: The options by which the script is given the spec's `data` and `output`. Those for checkpoints
#: are called like the parameters of engine.save_checkpoint and load_checkpoint
#: (deepspeed/runtime/engine.py @ 0.19.8).
OPTIONS: Final = {
    "data.path": ("--data_path",),
    "data.split": ("--data_split",),
    "data.tokenizer.type": ("--tokenizer_type",),
    "data.tokenizer.path": ("--tokenizer",),
    "data.tokenizer.vocab_file": ("--vocab_file",),
    "data.tokenizer.merges_file": ("--merges_file",),
    "output.checkpoints": ("--save_dir",),
    "output.save_interval": ("--save_interval",),
    "output.resume": ("--load_dir",),
    "output.logs": ("--log_dir",),
}
_FOLDERS: Final = ("data.path", "data.tokenizer.path", "output.checkpoints", "output.logs")
NEEDS: Final = (
    Need(what="data", key="data.path", words=("data", "train_file", "corpus")),
    Need(
        what="folder for checkpoints",
        key="output.checkpoints",
        words=("output", "save", "checkpoint", "ckpt"),
    ),
)


def config(job: Job, layout: Layout) -> Config:
    """The whole `ds_config.json`."""
    settings: Config = {}
    # Ulysses: `deepspeed.initialize` builds the mesh, whose data size the batch check takes.
    if layout.context > 1:
        settings["data_parallel_size"] = layout.data * layout.tensor
    settings.update(written(job, layout, "layout.pipeline"))
    # Read by `deepspeed.checkpointing.configure`, if the script calls it.
    if layout.recompute == Recompute.FULL:
        settings["activation_checkpointing"] = {
            "partition_activations": False,
            "cpu_checkpointing": False,
        }
    return script_config(job, layout, settings)


def notes(plan: Plan) -> Iterator[str]:
    """Say what the script must do: DeepSpeed saves and loads no checkpoints by itself."""
    job, layout = plan.job, plan.layout
    yield from autotp_notes(job, layout, "without an mpu DeepSpeed counts")
    yield from _notes_on_parallelism(layout)
    if layout.recompute != Recompute.NONE:
        yield f"recompute {layout.recompute.label}: the script must checkpoint every layer itself."
    if job.training.precision == "fp8":
        yield (
            "fp8: DeepSpeed runs in bf16, as the plan counts; the script's own layers (Transformer "
            "Engine) must compute in fp8."
        )
    if steps := job.training.steps:
        yield f"training.duration is {steps} optimizer steps: the script must stop there."
    if "scheduler" not in job.deepspeed_config:
        yield (
            f"{FILE_NAME} has no scheduler: the learning rate is constant, unless the script "
            "passes lr_scheduler to "
            "deepspeed.initialize."
        )
    if job.output.checkpoints is not None:
        load = ""
        if job.output.resume:
            load = (
                " before the first step engine.load_checkpoint(load_dir), which returns (None, {}) "
                "where there is none, and"
            )
        yield (
            "Checkpoints are the script's to write and read: on every rank it must call"
            f"{load} every {plan.saving.interval_steps} steps "
            "engine.save_checkpoint(save_dir, client_state={'step': step}). "
            "Nothing deletes old ones: the script may, but for the one in `latest`."
        )


def _notes_on_parallelism(layout: Layout) -> Iterator[str]:
    """What the script must build for each kind of parallelism of the plan."""
    if layout.context > 1:
        yield (
            f"Ulysses over {layout.context} ranks: the script must use DeepSpeed's "
            "DistributedAttention (or "
            f"UlyssesSPAttentionHF) and feed each rank 1/{layout.context} of every sequence."
        )
    if layout.expert > 1:
        yield f"The script must build DeepSpeed's MoE layers with ep_size={layout.expert}."
    if layout.pipeline > 1:
        yield f"The script must pass a PipelineModule of {layout.pipeline} stages."
    if layout.zero_copies > 1:
        yield "MiCS: the script must build the model under deepspeed.zero.MiCS_Init."


def program(plan: Plan) -> Program:
    """The user's script with `--deepspeed_config`, as `deepspeed.add_config_arguments` has it."""
    job = plan.job
    values = spec_values(job)
    if job.output.checkpoints is not None:
        values["output.save_interval"] = (str(plan.saving.interval_steps),)
        if job.output.resume:
            values["output.resume"] = (job.output.checkpoints,)
    # Folders that are among the script's own arguments aren't given to it a second time.
    arguments = job.launch.arguments
    in_arguments: set[str] = {
        key
        for key in _FOLDERS
        if key in values and all(holds(arguments, word) for word in values[key])
    }
    if "output.checkpoints" in in_arguments:  # then it has its own options for saving, too
        in_arguments |= {"output.save_interval", "output.resume"}
    given: dict[str, Value] = {
        option: values[key]
        for key, (option, *_) in OPTIONS.items()
        if key in values and key not in in_arguments
    }
    engine: dict[str, Value] = {"--deepspeed": True, "--deepspeed_config": ConfigPath(FILE_NAME)}
    return make_program(
        job,
        (
            group("batch, precision, optimizer and ZeRO are in the JSON", engine),
            group("data and checkpoints: the script must take these; see above", given),
        ),
        files=(rendered(job, config(job, plan.layout)),),
        notes=tuple(notes(plan)),
    )


FRAMEWORK: Final = Framework(
    name="deepspeed",
    engine=ENGINE,
    versions=VERSIONS,
    packages=release,
    first_with_ulysses=(0, 19),  # makes its groups of a config that is a file
    script="train.py",
    only={
        "cross_entropy": "unfused",
        "dispatcher": "alltoall",
        "cuda_graphs": "none",
        "fp8_attention": False,
        "mtp_depths": 0,
    },
    options=OPTIONS,
    planned=PLANNED,
    needs=NEEDS,
    data_paths="several",
    cross_entropy="unfused",
    loss_traffic_bytes={"unfused": 32},
    kernels_per_layer=40,
    program=program,
)
