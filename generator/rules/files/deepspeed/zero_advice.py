"""ZeRO settings that work, but not as well as they could."""

from __future__ import annotations

from typing import Final

from ....documents.deepspeed_config import Config
from ....documents.submission import Submission
from ....findings import WARNING, Violation, Violations
from ...rule import submissions
from ...sources import deepspeed, deepspeed_now, derived
from .subjects import configs
from .values import shown

ZERO: Final = "/zero_optimization"

#: Above this many elements a bucket alone takes gigabytes; twice DeepSpeed's own default.
LARGE_BUCKET: Final = 1_000_000_000


@configs.rule("ZERO024", WARNING, "training", deepspeed_now("runtime/zero/config.py:112"))
def buckets_are_counts(config: Config) -> Violations:
    """Bucket sizes count elements, not bytes.

    Prevents: CUDA out of memory by buffers of many gigabytes
    Fix: 5e8 elements or fewer
    """
    keys = ["reduce_bucket_size"]
    keys.append("stage3_prefetch_bucket_size" if config.stage == 3 else "allgather_bucket_size")
    for key in keys if config.stage else ():
        size = config.whole(f"{ZERO}/{key}")
        if size is not None and size > LARGE_BUCKET:
            memory = f"{2 * size / 1e9:,.0f} GB in 16 bits"
            message = f"{key}: {shown(config.value(f'{ZERO}/{key}'))} counts elements: the buffer may take {memory}"
            yield Violation(
                where=config.locate(f"{ZERO}/{key}"), message=message, hint="500000000, the default, or less"
            )


@submissions.rule(
    "ZERO023", WARNING, "silent", deepspeed_now("runtime/zero/config.py:377"), reads=("DeepSpeed config",)
)
def overlap_is_decided(submission: Submission) -> Violations:
    """At stages 1 and 2 communication overlaps computation only when asked to.

    Prevents: reductions that could hide behind the backward pass don't
    Fix: overlap_comm: true
    """
    for config in configs(submission):
        if config.stage == 2 and f"{ZERO}/overlap_comm" not in config.json.spans and submission.world.pipeline == 1:
            message = "overlap_comm is not set, and its default is true only at stage 3:"
            message += " gradients are reduced while nothing is computed"
            yield Violation(where=config.locate(f"{ZERO}/stage"), message=message, hint='"overlap_comm": true')


@submissions.rule(
    "ZERO040", WARNING, "silent", derived("nothing is sharded over one rank"), reads=("DeepSpeed config",)
)
def sharding_needs_replicas(submission: Submission) -> Violations:
    """ZeRO saves nothing without ranks to shard over.

    Prevents: overhead without saving
    Fix: stage 0 or more replicas
    """
    world = submission.world
    ranks = None if world.replicas is None else world.replicas * world.context
    for config in configs(submission):
        stage = config.stage
        if stage and ranks == 1 and not config.offloads("optimizer") and not config.offloads("param"):
            gpus = f"{world.gpus} GPU{'' if world.gpus == 1 else 's'}"
            message = f"stage: {stage} on {gpus} has one replica, so nothing to shard over: overhead without saving"
            yield Violation(where=config.locate(f"{ZERO}/stage"), message=message, hint="stage 0, or more replicas")


@submissions.rule("ZERO039", WARNING, "silent", deepspeed("runtime/engine.py:5592"), reads=("DeepSpeed config",))
def checkpoints_hold_weights(submission: Submission) -> Violations:
    """Hugging Face saves the weights of a stage-3 model only when DeepSpeed gathers them.

    Prevents: checkpoints without weights: `Did not save the model ...`, told only in the log
    Fix: gather on save, or zero_to_fp32
    """
    pointers = (f"{ZERO}/stage3_gather_16bit_weights_on_model_save", f"{ZERO}/stage3_gather_fp16_weights_on_model_save")
    for config in configs(submission) if submission.consumer in ("huggingface", "accelerate") else ():
        if config.stage == 3 and not any(config.switch(pointer) is not False for pointer in pointers):
            message = "stage3_gather_16bit_weights_on_model_save is off: the model that is saved has no usable weights"
            here = config.has(pointers[0])
            where = config.locate(pointers[0] if here else f"{ZERO}/stage")
            hint = '"stage3_gather_16bit_weights_on_model_save": true, or zero_to_fp32.py afterwards'
            yield Violation(where=where, message=message, hint=hint)


@submissions.rule(
    "ZERO022", WARNING, "training", deepspeed("runtime/zero/stage_1_and_2.py:1627"), reads=("DeepSpeed config",)
)
def unused_parameters_are_allowed(submission: Submission) -> Violations:
    """ignore_unused_parameters: false ends the job at the first parameter without a gradient.

    Prevents: `This assert indicates that your module has parameters that were not used`
    Fix: the default, true
    """
    for config in configs(submission):
        pointer = f"{ZERO}/ignore_unused_parameters"
        if config.stage in (1, 2) and config.switch(pointer, True) is False:
            moe = submission.model is not None and submission.model.experts > 0
            who = "this model's experts may get none" if moe else "frozen weights, experts and adapters may get none"
            message = f"ignore_unused_parameters: false ends the job when a parameter gets no gradient: {who}"
            yield Violation(where=config.locate(pointer), message=message, hint="true, the default")
