"""ZeRO++ and MiCS: second partitions within a node, and quantized communication."""

from __future__ import annotations

from typing import Final

from ....findings import ERROR, WARNING, Violation, Violations
from ....rules.numbers import divisors, listed, neighbours
from ....rules.sources import deepspeed, deepspeed_now
from ...world import world_of
from ..config import ZERO, Config
from .subjects import Run, configs, runs
from .values import shown, unused

_HPZ: Final = f"{ZERO}/zero_hpz_partition_size"
_WEIGHTS: Final = f"{ZERO}/zero_quantized_weights"
_FROZEN: Final = f"{ZERO}/zero_quantized_nontrainable_weights"
_GRADIENTS: Final = f"{ZERO}/zero_quantized_gradients"


@runs.rule("ZERO026", ERROR, "init", deepspeed_now("utils/groups.py:943"))
def second_partitions_divide_the_gpus(run: Run) -> Violations:
    """zero_hpz_partition_size divides the GPUs.

    Prevents: `N is not divisible by M` when the engine starts
    Fix: set it to a divisor of the GPUs"""
    config, gpus = run.config, world_of(run.submission).gpus
    size = config.whole(_HPZ)
    if config.stage == 3 and gpus and size and 1 < size < gpus and gpus % size:
        message = f"zero_hpz_partition_size: {size} does not divide {gpus} GPUs"
        fits = [d for d in divisors(gpus) if 1 < d < gpus]
        hint = f"set zero_hpz_partition_size to {listed(fits[:6])}" if fits else "remove it"
        yield Violation(config.locate(_HPZ), message, hint)


@runs.rule("ZERO027", WARNING, "silent", "deepspeedai/DeepSpeed docs/_tutorials/zeropp.md:28 @ 0.19.6")
def second_partitions_stay_in_a_node(run: Run) -> Violations:
    """zero_hpz_partition_size is the number of GPUs per node, so that its gathers stay within a node.

    Prevents: Training slower than without it, or more memory than needed.
    Fix: set it to the GPUs per node"""
    config, per_node = run.config, world_of(run.submission).gpus_per_node
    size = config.whole(_HPZ)
    if config.stage == 3 and per_node and size and size > 1 and size != per_node:
        crosses = size > per_node
        effect = "its gathers cross nodes" if crosses else f"each of the {per_node} GPUs keeps more than it must"
        message = f"zero_hpz_partition_size: {size} on nodes of {per_node} GPUs: {effect}"
        yield Violation(config.locate(_HPZ), message, f"set zero_hpz_partition_size to {per_node}")


@runs.rule("ZERO028", ERROR, "init", deepspeed_now("utils/groups.py:738"))
def quantized_gradients_fill_nodes(run: Run) -> Violations:
    """With quantized gradients, which are exchanged within a node first, the GPUs fill whole nodes.

    Prevents: `num_gpus not equal to device per node, cannot initialize All-To-All`, or ranks without a group
    Fix: use whole nodes"""
    config, gpus, per_node = run.config, world_of(run.submission).gpus, world_of(run.submission).gpus_per_node
    if config.switch(_GRADIENTS) and gpus and per_node and gpus > per_node and gpus % per_node:
        message = f"zero_quantized_gradients: {gpus} GPUs are not a multiple of the {per_node} GPUs per node"
        hint = f"use {listed(neighbours(per_node, gpus))} GPUs, or remove it"
        yield Violation(config.locate(_GRADIENTS), message, hint)


@configs.rule("ZERO029", ERROR, "init", deepspeed_now("runtime/zero/stage3.py:390"))
def quantized_gradients_scatter(config: Config) -> Violations:
    """Quantized gradients at stage 3 are reduced and scattered.

    Prevents: `when enable all_to_all_reduce, reduce_scatter should also be enabled`
    Fix: set reduce_scatter to true"""
    pointer = f"{ZERO}/reduce_scatter"
    if config.stage == 3 and config.switch(_GRADIENTS) and config.switch(pointer) is False:
        message = "zero_quantized_gradients: true is refused with reduce_scatter: false"
        yield Violation(config.locate(pointer), message, "set reduce_scatter to true")


@configs.rule("ZERO031", WARNING, "training", deepspeed_now("runtime/zero/stage3.py:2189"))
def frozen_weights_are_half(config: Config) -> Violations:
    """zero_quantized_nontrainable_weights is used with fp16 weights, where the script quantizes them itself.

    Prevents: `quantize_dstensor() expects tensor.dtype == torch.float16`
    Fix: use fp16"""
    if config.stage == 3 and config.switch(_FROZEN) and config.precision == "bf16":
        message = "zero_quantized_nontrainable_weights: true with bf16: quantize_nontrainable_params() requires fp16"
        yield Violation(config.locate(_FROZEN), message, "use fp16, where the script calls it")


@configs.rule(
    "ZERO066",
    ERROR,
    "training",
    deepspeed_now("runtime/zero/partition_parameters.py:889 (the cast below it is there since 0.19.6)"),
    before=(0, 19, 6),
)
def quantized_weights_are_half(config: Config) -> Violations:
    """In this version quantized weights are fp16: its kernel reads bf16 bits as fp16.

    Prevents: Weights that are silently wrong, or a first product of two types.
    Fix: use fp16"""
    for pointer in (_WEIGHTS, _FROZEN):
        if config.stage == 3 and config.switch(pointer) and config.precision == "bf16":
            name = pointer.rpartition("/")[2]
            message = f"{name}: true with bf16: up to DeepSpeed 0.19.5 the kernel reads bf16's bits as fp16's"
            yield Violation(config.locate(pointer), message, "use fp16, or DeepSpeed 0.19.6 or later")


@configs.rule("ZERO032", WARNING, "silent", deepspeed_now("runtime/engine.py:2669"))
def zeropp_is_for_stage_3(config: Config) -> Violations:
    """Keys of ZeRO++ are written at stage 3.

    Prevents: The settings silently have no effect.
    Fix: use stage 3"""
    if config.stage in (1, 2):  # at 0, a rule of stage 0 reports all keys
        flags = [pointer for pointer in (_WEIGHTS, _FROZEN, _GRADIENTS) if config.switch(pointer)]
        size = config.whole(_HPZ)
        yield from unused(config, [*flags, *([_HPZ] if size and size > 1 else [])], f"at stage {config.stage}")


@runs.rule(
    "ZERO033", ERROR, "init", deepspeed("runtime/zero/mics_utils.py:83; runtime/zero/mics.py:422"), before=(0, 19, 8)
)
def mics_shards_divide_the_gpus(run: Run) -> Violations:
    """mics_shard_size divides the GPUs, and is used without offload.

    Prevents: an assertion when the groups are made
    Fix: set it to a divisor of the GPUs"""
    config, gpus, pointer = run.config, world_of(run.submission).gpus, f"{ZERO}/mics_shard_size"
    size, where = config.whole(pointer), config.locate(pointer)
    if not size or size < 1 or config.stage != 3:
        return
    if gpus and gpus % size:
        message = f"mics_shard_size: {size} does not divide {gpus} GPUs"
        yield Violation(where, message, f"set mics_shard_size to {listed(divisors(gpus)[:8])}")
    if config.offloads("optimizer") or config.offloads("param"):
        yield Violation(where, f"mics_shard_size: {size} is refused with offload", "remove one of the two")


@runs.rule("ZERO056", WARNING, "silent", deepspeed_now("runtime/zero/config.py:221"))
def persistent_parameters_are_small(run: Run) -> Violations:
    """stage3_param_persistence_threshold is below the size of the model's weight matrices.

    Prevents: Stage 3 silently shards almost nothing, and memory runs out.
    Fix: set it to 10 × the hidden size"""
    config, model, pointer = run.config, run.submission.model, f"{ZERO}/stage3_param_persistence_threshold"
    size = config.whole(pointer) if config.has(pointer) else None
    if model and config.stage == 3 and size is not None and size > model.hidden**2:
        message = f"stage3_param_persistence_threshold: {shown(config.value(pointer))} keeps every matrix of"
        message += f" {model.hidden} × {model.hidden} = {model.hidden**2} parameters whole on every GPU"
        hint = f"set stage3_param_persistence_threshold to {10 * model.hidden} (10 × the hidden size)"
        yield Violation(config.locate(pointer), message, hint)
