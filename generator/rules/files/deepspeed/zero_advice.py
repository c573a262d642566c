"""ZeRO settings that work, but not as well as they could."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ....documents.submission import Submission
from ....findings import Severity
from ...sources import deepspeed, deepspeed_now, derived
from ..rule import Breach, DocumentRule
from .values import configs, ds_rule, given, offloads, shown, stage_of, switch, whole

ZERO: Final = "/zero_optimization"

#: Above this many elements a bucket alone takes gigabytes; twice DeepSpeed's own default.
LARGE_BUCKET: Final = 1_000_000_000


def buckets_are_counts(submission: Submission) -> Iterator[Breach]:
    """Bucket sizes count elements, not bytes."""
    for config in configs(submission):
        keys = ["reduce_bucket_size"]
        keys.append("stage3_prefetch_bucket_size" if stage_of(config) == 3 else "allgather_bucket_size")
        for key in keys if stage_of(config) else ():
            size = whole(given(config, f"{ZERO}/{key}"))
            if size is not None and size > LARGE_BUCKET:
                memory = f"{2 * size / 1e9:,.0f} GB in 16 bits"
                message = f"{key}: {shown(config.value(f'{ZERO}/{key}'))} counts elements: the buffer may take {memory}"
                yield Breach(
                    where=config.locate(f"{ZERO}/{key}"), message=message, hint="500000000, the default, or less"
                )


def overlap_is_decided(submission: Submission) -> Iterator[Breach]:
    """At stages 1 and 2 communication overlaps computation only when asked to."""
    for config in configs(submission):
        if stage_of(config) == 2 and f"{ZERO}/overlap_comm" not in config.json.spans and submission.world.pipeline == 1:
            message = "overlap_comm is not set, and its default is true only at stage 3:"
            message += " gradients are reduced while nothing is computed"
            yield Breach(where=config.locate(f"{ZERO}/stage"), message=message, hint='"overlap_comm": true')


def sharding_needs_replicas(submission: Submission) -> Iterator[Breach]:
    """ZeRO saves nothing without ranks to shard over."""
    world = submission.world
    ranks = None if world.replicas is None else world.replicas * world.context
    for config in configs(submission):
        stage = stage_of(config)
        if stage and ranks == 1 and not offloads(config, "optimizer") and not offloads(config, "param"):
            gpus = f"{world.gpus} GPU{'' if world.gpus == 1 else 's'}"
            message = f"stage: {stage} on {gpus} has one replica, so nothing to shard over: overhead without saving"
            yield Breach(where=config.locate(f"{ZERO}/stage"), message=message, hint="stage 0, or more replicas")


def checkpoints_hold_weights(submission: Submission) -> Iterator[Breach]:
    """Hugging Face saves the weights of a stage-3 model only when DeepSpeed gathers them."""
    pointers = (f"{ZERO}/stage3_gather_16bit_weights_on_model_save", f"{ZERO}/stage3_gather_fp16_weights_on_model_save")
    for config in configs(submission) if submission.consumer in ("huggingface", "accelerate") else ():
        if stage_of(config) == 3 and not any(switch(config, pointer) is not False for pointer in pointers):
            message = "stage3_gather_16bit_weights_on_model_save is off: the model that is saved has no usable weights"
            here = config.has(pointers[0])
            where = config.locate(pointers[0] if here else f"{ZERO}/stage")
            hint = '"stage3_gather_16bit_weights_on_model_save": true, or zero_to_fp32.py afterwards'
            yield Breach(where=where, message=message, hint=hint)


def unused_parameters_are_allowed(submission: Submission) -> Iterator[Breach]:
    """ignore_unused_parameters: false ends the job at the first parameter without a gradient."""
    for config in configs(submission):
        pointer = f"{ZERO}/ignore_unused_parameters"
        if stage_of(config) in (1, 2) and switch(config, pointer, True) is False:
            moe = submission.model is not None and submission.model.experts > 0
            who = "this model's experts may get none" if moe else "frozen weights, experts and adapters may get none"
            message = f"ignore_unused_parameters: false ends the job when a parameter gets no gradient: {who}"
            yield Breach(where=config.locate(pointer), message=message, hint="true, the default")


RULES: Final[tuple[DocumentRule, ...]] = (
    ds_rule(
        "ZERO024",
        Severity.WARNING,
        "training",
        buckets_are_counts,
        source=deepspeed_now("runtime/zero/config.py:112"),
        prevents="CUDA out of memory by buffers of many gigabytes",
        fix="5e8 elements or fewer",
    ),
    ds_rule(
        "ZERO023",
        Severity.WARNING,
        "silent",
        overlap_is_decided,
        source=deepspeed_now("runtime/zero/config.py:377"),
        prevents="reductions that could hide behind the backward pass don't",
        fix="overlap_comm: true",
    ),
    ds_rule(
        "ZERO040",
        Severity.WARNING,
        "silent",
        sharding_needs_replicas,
        source=derived("nothing is sharded over one rank"),
        prevents="overhead without saving",
        fix="stage 0 or more replicas",
    ),
    ds_rule(
        "ZERO039",
        Severity.WARNING,
        "silent",
        checkpoints_hold_weights,
        source=deepspeed("runtime/engine.py:5592"),
        prevents="checkpoints without weights: `Did not save the model ...`, told only in the log",
        fix="gather on save, or zero_to_fp32",
    ),
    ds_rule(
        "ZERO022",
        Severity.WARNING,
        "training",
        unused_parameters_are_allowed,
        source=deepspeed("runtime/zero/stage_1_and_2.py:1627"),
        prevents="`This assert indicates that your module has parameters that were not used`",
        fix="the default, true",
    ),
)
