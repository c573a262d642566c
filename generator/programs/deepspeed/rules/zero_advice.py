"""ZeRO settings that work, but not as well as they could."""

from __future__ import annotations

from typing import Final

from ....findings import NOTE, WARNING, Violation, Violations
from ....rules.sources import deepspeed, deepspeed_now, derived
from ...launching.program_options import gathers_weights
from ...world import world_of
from ..config import ZERO, Config
from .subjects import Run, configs, runs
from .values import shown

#: Above this many elements a bucket alone needs gigabytes; twice DeepSpeed's own default.
_LARGE_BUCKET: Final = 1_000_000_000
_STAGE: Final = f"{ZERO}/stage"


@configs.rule("ZERO024", WARNING, "training", deepspeed_now("runtime/zero/config.py:112"))
def buckets_are_counts(config: Config) -> Violations:
    """Bucket sizes count elements, not bytes.

    Prevents: CUDA out of memory: buffers of many gigabytes
    Fix: set it to 500000000 elements or fewer"""
    gathered = "stage3_prefetch_bucket_size" if config.stage == 3 else "allgather_bucket_size"
    for pointer in (f"{ZERO}/reduce_bucket_size", f"{ZERO}/{gathered}") if config.stage else ():
        size = config.whole(pointer)
        if size is not None and size > _LARGE_BUCKET:
            name, memory = pointer.rpartition("/")[2], f"{2 * size / 1e9:,.0f} GB in 16 bits"
            message = f"{name}: {shown(config.value(pointer))} counts elements: the buffer may need {memory}"
            yield Violation(config.locate(pointer), message, f"set {name} to 500000000, the default, or less")


@runs.rule("ZERO023", NOTE, "silent", deepspeed_now("runtime/zero/config.py:377"))
def overlap_is_decided(run: Run) -> Violations:
    """At stage 2 overlap_comm is set: communication overlaps computation only where it is true.

    Prevents: Reductions that could overlap the backward pass don't.
    Fix: set "overlap_comm" to true"""
    config, submission = run
    if config.stage == 2 and not config.has(f"{ZERO}/overlap_comm") and world_of(submission).pipeline == 1:
        message = "overlap_comm is not set, and its default is true only at stage 3:"
        message += " gradients are reduced while nothing is computed"
        yield Violation(config.locate(_STAGE), message, 'set "overlap_comm" to true')


@runs.rule("ZERO040", NOTE, "silent", derived("nothing is sharded over one rank"))
def sharding_needs_replicas(run: Run) -> Violations:
    """With ZeRO, there is more than one rank to shard over.

    Prevents: Communication costs time, and no memory is saved.
    Fix: use stage 0, or more replicas"""
    config, world = run.config, world_of(run.submission)
    offloads = config.offloads("optimizer") or config.offloads("param")
    if config.stage and world.replicas is not None and world.replicas * world.context == 1 and not offloads:
        gpus = f"{world.gpus} GPU{'' if world.gpus == 1 else 's'}"
        message = f"stage: {config.stage} on {gpus} has one replica, so nothing to shard over: overhead without saving"
        yield Violation(config.locate(_STAGE), message, "use stage 0, or more replicas")


@configs.rule("ZERO039", WARNING, "silent", deepspeed("runtime/engine.py:5592"))
def checkpoints_hold_weights(config: Config) -> Violations:
    """At stage 3 the weights are gathered for Hugging Face's checkpoints.

    Prevents: checkpoints without weights: `Did not save the model ...`, only in the log
    Fix: set stage3_gather_16bit_weights_on_model_save, or run zero_to_fp32.py"""
    pointer = f"{ZERO}/stage3_gather_16bit_weights_on_model_save"
    if config.filled and config.stage == 3 and config.switch(pointer) is False:
        message = "stage3_gather_16bit_weights_on_model_save is off: the model that is saved has no usable weights"
        hint = 'set "stage3_gather_16bit_weights_on_model_save" to true, or run zero_to_fp32.py afterwards'
        # A script of one's own may gather the weights itself.
        own = config.consumer == "accelerate" or gathers_weights(config.path)
        less = NOTE if config.may_infer or own else None
        yield Violation(config.locate(pointer if config.has(pointer) else _STAGE), message, hint, severity=less)


@runs.rule("ZERO022", WARNING, "training", deepspeed("runtime/zero/stage_1_and_2.py:1627"))
def unused_parameters_are_allowed(run: Run) -> Violations:
    """ignore_unused_parameters is true, or the job ends at the first parameter without a gradient.

    Prevents: `This assert indicates that your module has parameters that were not used`
    Fix: remove ignore_unused_parameters"""
    config, model = run.config, run.submission.model
    pointer = f"{ZERO}/ignore_unused_parameters"
    if config.stage in (1, 2) and config.switch(pointer) is False:
        moe = model is not None and model.experts > 0
        which = "this model's experts may get none" if moe else "frozen weights, experts and adapters may get none"
        message = f"ignore_unused_parameters: false ends the job when a parameter gets no gradient: {which}"
        yield Violation(config.locate(pointer), message, "set ignore_unused_parameters to true, the default")
