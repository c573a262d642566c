"""ZeRO++ and MiCS: second partitions within a node, and quantized communication."""

from __future__ import annotations

from typing import Final

from ....documents.deepspeed_config import Config
from ....documents.submission import Submission
from ....findings import ERROR, WARNING, Violation, Violations
from ...numbers import divisors, listed, neighbours
from ...rule import submissions
from ...sources import deepspeed, deepspeed_now
from .subjects import configs
from .values import shown, unused

ZERO: Final = "/zero_optimization"
HPZ: Final = f"{ZERO}/zero_hpz_partition_size"
_FLAGS: Final = ("zero_quantized_weights", "zero_quantized_nontrainable_weights", "zero_quantized_gradients")


@submissions.rule("ZERO026", ERROR, "init", deepspeed_now("utils/groups.py:943"), reads=("DeepSpeed config",))
def second_partitions_divide_the_gpus(submission: Submission) -> Violations:
    """The GPUs are a multiple of zero_hpz_partition_size.

    Prevents: `N is not divisible by M` when the engine starts
    Fix: a divisor of the GPUs
    """
    gpus = submission.world.gpus
    for config in configs(submission):
        size = config.whole(HPZ)
        if config.stage == 3 and gpus and size and 1 < size < gpus and gpus % size:
            message = f"zero_hpz_partition_size: {size} does not divide {gpus} GPUs"
            fits = [d for d in divisors(gpus) if d > 1 and d < gpus]
            hint = f"zero_hpz_partition_size: {listed(fits[:6])}" if fits else "remove it"
            yield Violation(where=config.locate(HPZ), message=message, hint=hint)


@submissions.rule(
    "ZERO027",
    WARNING,
    "silent",
    "deepspeedai/DeepSpeed docs/_tutorials/zeropp.md:28 @ 0.19.6",
    reads=("DeepSpeed config",),
)
def second_partitions_stay_in_a_node(submission: Submission) -> Violations:
    """zero_hpz_partition_size is the number of GPUs of a node, so that its gathers stay within one.

    Prevents: slower than without, or more memory than needed
    Fix: the GPUs of a node
    """
    per_node = submission.world.gpus_per_node
    for config in configs(submission):
        size = config.whole(HPZ)
        if config.stage == 3 and per_node and size and size > 1 and size != per_node:
            crosses = size > per_node
            effect = "its gathers cross nodes" if crosses else f"each of the {per_node} GPUs keeps more than it must"
            message = f"zero_hpz_partition_size: {size} on nodes of {per_node} GPUs: {effect}"
            yield Violation(where=config.locate(HPZ), message=message, hint=f"zero_hpz_partition_size: {per_node}")


@submissions.rule("ZERO028", ERROR, "init", deepspeed_now("utils/groups.py:738"), reads=("DeepSpeed config",))
def quantized_gradients_fill_nodes(submission: Submission) -> Violations:
    """Quantized gradients are exchanged within whole nodes first.

    Prevents: `num_gpus not equal to device per node, cannot initialize All-To-All`, or ranks without a group
    Fix: whole nodes
    """
    gpus, per_node = submission.world.gpus, submission.world.gpus_per_node
    for config in configs(submission):
        pointer = f"{ZERO}/zero_quantized_gradients"
        if config.switch(pointer) and gpus and per_node and gpus > per_node and gpus % per_node:
            message = f"zero_quantized_gradients: {gpus} GPUs are no whole number of nodes of {per_node}"
            hint = f"{listed(neighbours(per_node, gpus))} GPUs, or leave it out"
            yield Violation(where=config.locate(pointer), message=message, hint=hint)


@configs.rule("ZERO029", ERROR, "init", deepspeed_now("runtime/zero/stage3.py:390"))
def quantized_gradients_scatter(config: Config) -> Violations:
    """Quantized gradients at stage 3 are reduced and scattered.

    Prevents: `when enable all_to_all_reduce, reduce_scatter should also be enabled`
    Fix: reduce_scatter: true
    """
    off = config.switch(f"{ZERO}/reduce_scatter", True) is False
    if config.stage == 3 and config.switch(f"{ZERO}/zero_quantized_gradients") and off:
        message = "zero_quantized_gradients: true is refused with reduce_scatter: false"
        yield Violation(where=config.locate(f"{ZERO}/reduce_scatter"), message=message, hint="reduce_scatter: true")


@configs.rule("ZERO031", WARNING, "training", deepspeed_now("runtime/zero/stage3.py:2189"))
def frozen_weights_are_half(config: Config) -> Violations:
    """zero_quantized_nontrainable_weights is for fp16 weights, where the script quantizes them itself.

    Prevents: `quantize_dstensor() expects tensor.dtype == torch.float16`
    Fix: fp16
    """
    pointer = f"{ZERO}/zero_quantized_nontrainable_weights"
    if config.stage == 3 and config.switch(pointer) and config.precision == "bf16":
        message = "zero_quantized_nontrainable_weights: true with bf16: quantize_nontrainable_params() takes fp16 only"
        yield Violation(where=config.locate(pointer), message=message, hint="fp16, where the script calls it")


@configs.rule(
    "ZERO066",
    ERROR,
    "training",
    deepspeed_now("runtime/zero/partition_parameters.py:889 (the cast below it is there since 0.19.6)"),
    before=(0, 19, 6),
)
def quantized_weights_are_half(config: Config) -> Violations:
    """Quantized weights are fp16 in this version: its kernel reads bf16 bits as fp16.

    Prevents: weights that are silently wrong, or a first product of two types
    Fix: fp16
    """
    for key in _FLAGS[:2]:
        pointer = f"{ZERO}/{key}"
        if config.stage == 3 and config.switch(pointer) and config.precision == "bf16":
            message = f"{key}: true with bf16: up to DeepSpeed 0.19.5 the kernel reads bf16's bits as fp16's"
            yield Violation(where=config.locate(pointer), message=message, hint="fp16, or DeepSpeed 0.19.6 or later")


@configs.rule("ZERO032", WARNING, "silent", deepspeed_now("runtime/engine.py:2669"))
def zeropp_is_for_stage_3(config: Config) -> Violations:
    """ZeRO++ works at stage 3.

    Prevents: settings that look effective and aren't
    Fix: stage 3
    """
    stage = config.stage
    if stage not in (1, 2):  # at 0, a rule of stage 0 speaks of all keys
        return
    flags = [f"{ZERO}/{flag}" for flag in _FLAGS if config.switch(f"{ZERO}/{flag}")]
    size = config.whole(HPZ)
    yield from unused(config, [*flags, *([HPZ] if size and size > 1 else [])], f"at stage {stage}")


@submissions.rule(
    "ZERO033",
    ERROR,
    "init",
    deepspeed("runtime/zero/mics_utils.py:83; runtime/zero/mics.py:422"),
    before=(0, 19, 8),
    reads=("DeepSpeed config",),
)
def mics_shards_divide_the_gpus(submission: Submission) -> Violations:
    """MiCS shards over a divisor of the GPUs, and without offload.

    Prevents: an assertion when the groups are made
    Fix: a divisor of the GPUs
    """
    gpus = submission.world.gpus
    for config in configs(submission):
        pointer = f"{ZERO}/mics_shard_size"
        size = config.whole(pointer)
        if not size or size < 1 or config.stage != 3:
            continue
        if gpus and gpus % size:
            message = f"mics_shard_size: {size} does not divide {gpus} GPUs"
            hint = f"mics_shard_size: {listed(divisors(gpus)[:8])}"
            yield Violation(where=config.locate(pointer), message=message, hint=hint)
        if config.offloads("optimizer") or config.offloads("param"):
            message = f"mics_shard_size: {size} with offload, which MiCS has not"
            yield Violation(where=config.locate(pointer), message=message, hint="one of the two")


@submissions.rule(
    "ZERO056", WARNING, "silent", deepspeed_now("runtime/zero/config.py:221"), reads=("DeepSpeed config",)
)
def persistent_parameters_are_small(submission: Submission) -> Violations:
    """Parameters that stay whole on every GPU are smaller than the model's weight matrices.

    Prevents: stage 3 silently shards almost nothing, and memory runs out
    Fix: 10 × the hidden size
    """
    model = submission.model
    for config in configs(submission) if model else ():
        pointer = f"{ZERO}/stage3_param_persistence_threshold"
        size = config.whole(pointer)
        if model and config.stage == 3 and size is not None and size > model.hidden**2:
            message = f"stage3_param_persistence_threshold: {shown(config.value(pointer))} keeps every matrix of"
            message += f" {model.hidden} × {model.hidden} = {model.hidden**2} parameters whole on every GPU"
            hint = f"stage3_param_persistence_threshold: {10 * model.hidden} (10 × the hidden size)"
            yield Violation(where=config.locate(pointer), message=message, hint=hint)
