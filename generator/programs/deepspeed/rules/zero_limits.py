"""Rules on what ZeRO's optimizers refuse at the start or when they save; ZeRO++ and MiCS."""

from __future__ import annotations

from typing import Final

from ....findings import ERROR, NOTE, WARNING, Violations
from ....rules.violations import (
    deepspeed,
    deepspeed_0_19_8,
    divisors,
    listed,
    neighbours,
    violation,
)
from ..config import OPTIMIZER, ZERO, Config
from .subjects import (
    Run,
    configs,
    divides,
    refused_with,
    runs,
    setting,
    shown,
    to_remove,
    unused,
    while_on,
)
from .zero import has_bf16_optimizer

#: The first release that refuses Muon with reduce_scatter and offload at stages 1 and 2, and the
#: first that doesn't any more.
_MUON_OFFLOAD_REFUSED: Final = ((0, 19, 3), (0, 19, 8))
_MUON: Final = (
    f"{deepspeed_0_19_8('runtime/zero/stage3.py:361')}; "
    f"{deepspeed('runtime/zero/stage_1_and_2.py:231')}"
)
_NORMS: Final = "runtime/zero/stage_1_and_2.py:213; runtime/engine.py:2308"
_KERNEL: Final = (
    "runtime/zero/partition_parameters.py:889 (the cast below it is there since 0.19.6)"
)
_DIVIDES: Final = (
    "runtime/engine.py:3809; runtime/zero/stage_1_and_2.py:1500; runtime/zero/stage3.py:1873"
)
_FACTOR: Final = "/gradient_predivide_factor"
_PRESCALE: Final = "/prescale_gradients"
_SCATTER: Final = f"{ZERO}/reduce_scatter"
_MICS: Final = "runtime/zero/mics_utils.py:83; runtime/zero/mics.py:422"
_HPZ: Final = f"{ZERO}/zero_hpz_partition_size"
_WEIGHTS: Final = f"{ZERO}/zero_quantized_weights"
_FROZEN: Final = f"{ZERO}/zero_quantized_nontrainable_weights"
_GRADIENTS: Final = f"{ZERO}/zero_quantized_gradients"


@configs.rule("ZERO015", ERROR, "init", deepspeed_0_19_8("runtime/zero/stage_1_and_2.py:365"))
def buckets_are_even(config: Config) -> Violations:
    """allgather_bucket_size is even at stages 1 and 2: two 16-bit elements are NCCL's 4 bytes.
    Prevents: `allgather_bucket_size must be a multiple of nccl_start_alignment_factor, 2`
    Fix: set it to an even number"""
    pointer = f"{ZERO}/allgather_bucket_size"
    size = config.whole(pointer)
    if config.stage not in (1, 2) or has_bf16_optimizer(config):
        return
    if size is not None and size % 2:
        hint = f"set allgather_bucket_size to {size + 1}"
        yield violation(config, pointer, f"{setting(config, pointer)} is odd", hint)


def _reduces_by_sum(config: Config) -> bool:
    """Whether gradients are added up, and divided by nothing."""
    return (config.text("/gradient_allreduce_op") or "").lower() == "sum"


def _scaled_before(config: Config, stage: int) -> Violations:
    """A violation for each key that scales gradients before they are reduced, at a stage with
    reduce_scatter.
    """
    if config.stage != stage or not config.switch(_SCATTER):
        return
    scaling = {
        _FACTOR: config.number(_FACTOR) not in (1, None),
        _PRESCALE: config.switch(_PRESCALE),
    }
    for pointer, is_on in scaling.items():
        if is_on:
            message = (
                f"{setting(config, pointer)} is refused at stage {stage} with reduce_scatter, "
                "which is its default"
            )
            hint = f"remove {pointer[1:]}, or set reduce_scatter to false"
            yield to_remove(config, pointer, message, hint)


@configs.rule("ZERO016", ERROR, "init", deepspeed_0_19_8("runtime/zero/stage_1_and_2.py:346"))
def stage_2_scales_afterwards(config: Config) -> Violations:
    """With reduce_scatter, stage 2 scales gradients after they are reduced.
    Prevents: `pre-scale gradients is not yet supported with ZeRO-2 with reduce scatter enabled`
    Fix: remove gradient_predivide_factor and prescale_gradients"""
    if not _reduces_by_sum(config):
        yield from _scaled_before(config, 2)


@configs.rule("ZERO017", ERROR, "init", deepspeed_0_19_8("runtime/zero/stage3.py:395"))
def stage_3_scales_afterwards(config: Config) -> Violations:
    """With reduce_scatter, stage 3 scales gradients after they are reduced.
    Prevents: `gradient_predivide_factor != 1.0 is not yet supported with ZeRO-3 with reduce scatter
    enabled`
    Fix: remove gradient_predivide_factor and prescale_gradients
    """
    yield from _scaled_before(config, 3)


@configs.rule("ZERO067", ERROR, "training", deepspeed_0_19_8(_DIVIDES))
def gradients_are_not_divided_by_zero(config: Config) -> Violations:
    """gradient_predivide_factor is not 0: gradients are divided by it.
    Prevents: `ZeroDivisionError` at the first step; at stage 3 infinite gradients
    Fix: remove it, or write 1.0"""
    reads_it = config.switch(_PRESCALE) is False and not _reduces_by_sum(config)
    # With reduce_scatter, stage 1 does not read it, and stages 2 and 3 refuse it.
    scatters = config.stage != 0 and config.switch(_SCATTER) is not False
    if config.number(_FACTOR) == 0 and reads_it and not scatters:
        effect = "ends the job" if config.stage != 3 else "makes gradients infinite"
        message = (
            f"{setting(config, _FACTOR)} is a division by zero, which {effect} at the first step"
        )
        yield to_remove(config, _FACTOR, message, "remove it, or write 1.0")


@configs.rule("ZERO018", ERROR, "init", deepspeed_0_19_8("runtime/engine.py:2650"))
def stage_1_is_the_new_one(config: Config) -> Violations:
    """legacy_stage1 is not set: DeepSpeed 0.5.9 removed the old implementation of stage 1.
    Prevents: `The deprecated version of ZeRO Stage 1 is not supported`
    Fix: remove legacy_stage1"""
    pointer = f"{ZERO}/legacy_stage1"
    if config.switch(pointer) and config.stage:
        message = "legacy_stage1: true is refused: DeepSpeed 0.5.9 removed it"
        yield to_remove(config, pointer, message)


@configs.rule("ZERO019", WARNING, "silent", deepspeed_0_19_8("runtime/engine.py:2758"))
def stage_3_saves_rigid_checkpoints(config: Config) -> Violations:
    """elastic_checkpoint is not set at stage 3: the engine doesn't hand the key to its optimizer.
    Prevents: checkpoints that another number of replicas can't load
    Fix: use universal checkpoints"""
    pointer = f"{ZERO}/elastic_checkpoint"
    if config.switch(pointer) and config.stage == 3:
        message = "elastic_checkpoint: true has no effect at stage 3:"
        message += " checkpoints are for as many replicas as wrote them"
        yield to_remove(config, pointer, message, "remove it, and use universal checkpoints")


@configs.rule("ZERO034", ERROR, "init", _MUON, since=(0, 18, 9))
def muon_reduces_whole_gradients(config: Config) -> Violations:
    """With Muon, reduce_scatter is off at stage 3 and, from 0.19.3 to 0.19.7, with an offloaded
    optimizer.
    Prevents: `Muon and reduce scatter cannot be used together`
    Fix: set reduce_scatter to false
    """
    if config.optimizer != "muon" or not config.switch(_SCATTER):
        return
    first, end = _MUON_OFFLOAD_REFUSED
    is_offloaded = config.stage in (1, 2) and config.offloads("optimizer")
    refuses_offload = is_offloaded and first <= config.version < end
    if config.stage == 3 or refuses_offload:
        offload = ", and offload_optimizer" if refuses_offload else ""
        message = (
            f"Muon at stage {config.stage} is refused with reduce_scatter, which is "
            f"its default{offload}"
        )
        pointer = _SCATTER if config.has(_SCATTER) else OPTIMIZER
        yield violation(config, pointer, message, 'set "reduce_scatter" to false')


@runs.rule("ZERO036", ERROR, "init", deepspeed_0_19_8("runtime/engine.py:2031"), since=(0, 19, 4))
def callers_overlap_at_stage_2(run: Run) -> Violations:
    """managed_gradient_accumulation: false is used with overlap_comm only from stage 2, and not
    with a pipeline.
    Prevents: `managed_gradient_accumulation=False supports ZeRO overlap_comm only with ZeRO stage
    2`
    Fix: remove managed_gradient_accumulation
    """
    config, pointer, stages = run.config, "/managed_gradient_accumulation", run.world.pipeline
    if config.switch(pointer) is not False:
        return
    overlaps_early = config.stage in (0, 1) and config.switch(f"{ZERO}/overlap_comm")
    others = {
        f"overlap_comm at stage {config.stage}": overlaps_early,
        f"{stages} pipeline stages": stages > 1,
        "compile.deepcompile": config.switch("/compile/deepcompile"),
    }
    yield from refused_with(config, pointer, others, "remove it, or the others")


@configs.rule("ZERO048", ERROR, "init", deepspeed_0_19_8(_NORMS), since=(0, 19, 7))
def norms_are_computed_for_clipping(config: Config) -> Violations:
    """compute_grad_norm: false requires gradient_clipping: 0, and neither offload, ZenFlow nor a
    BF16 optimizer.
    Prevents: `zero_optimization.compute_grad_norm=false requires gradient_clipping=0`
    Fix: remove compute_grad_norm
    """
    pointer, offloaded = f"{ZERO}/compute_grad_norm", config.offloads("optimizer")
    if config.switch(pointer) is not False or config.stage not in (1, 2):
        return
    norm = config.number("/gradient_clipping")
    default = "" if config.has("/gradient_clipping") else " by default"
    refusals = {
        f"gradient_clipping is {shown(norm)}{default}": (norm or 0) > 0,
        f"the optimizer is offloaded to {config.offload('optimizer')}": offloaded,
        "ZenFlow is on": config.value(f"{ZERO}/zenflow") is not None,
        "bf16 at stage 1 accumulates in fp32": has_bf16_optimizer(config) and not offloaded,
    }
    reasons = [reason for reason, is_so in refusals.items() if is_so]
    if reasons:
        message = f"compute_grad_norm: false is refused: {', '.join(reasons)}"
        hint = "set it to true, or gradient_clipping to 0 without the others"
        yield violation(config, pointer, message, hint)


@configs.rule("ZERO037", NOTE, "silent", deepspeed_0_19_8("runtime/zero/stage_1_and_2.py:300"))
def offload_copies_contiguous_gradients(config: Config) -> Violations:
    """With offload, contiguous_gradients is not turned off: offload copies contiguous gradients.
    Prevents: The setting silently has no effect.
    Fix: remove contiguous_gradients"""
    pointer = f"{ZERO}/contiguous_gradients"
    if config.stage in (1, 2) and config.offloads("optimizer") and config.switch(pointer) is False:
        yield to_remove(
            config, pointer, "contiguous_gradients: false has no effect: offload turns it on"
        )


@runs.rule("ZERO026", ERROR, "init", deepspeed_0_19_8("utils/groups.py:943"))
def second_partitions_divide_the_gpus(run: Run) -> Violations:
    """zero_hpz_partition_size divides the GPUs.
    Prevents: `N is not divisible by M` when the engine starts
    Fix: set it to a divisor of the GPUs"""
    config, gpus = run.config, run.world.gpus
    size = config.whole(_HPZ)
    if config.stage != 3 or not gpus or not size:
        return
    if 1 < size < gpus and gpus % size:
        message = f"zero_hpz_partition_size: {size} does not divide {gpus} GPUs"
        fitting = [divisor for divisor in divisors(gpus) if 1 < divisor < gpus]
        hint = f"set zero_hpz_partition_size to {listed(fitting[:6])}" if fitting else "remove it"
        yield violation(config, _HPZ, message, hint)


@runs.rule(
    "ZERO027", WARNING, "silent", "deepspeedai/DeepSpeed docs/_tutorials/zeropp.md:28 @ 0.19.6"
)
def second_partitions_stay_in_a_node(run: Run) -> Violations:
    """zero_hpz_partition_size is the number of GPUs per node, so that its gathers stay within a
    node.
    Prevents: Training slower than without it, or more memory than needed.
    Fix: set it to the GPUs per node
    """
    config, per_node = run.config, run.world.gpus_per_node
    size = config.whole(_HPZ)
    if config.stage != 3 or not per_node or not size:
        return
    if size > 1 and size != per_node:
        effect = f"each of the {per_node} GPUs keeps more than it must"
        if size > per_node:
            effect = "its gathers cross nodes"
        message = f"zero_hpz_partition_size: {size} on nodes of {per_node} GPUs: {effect}"
        yield violation(config, _HPZ, message, f"set zero_hpz_partition_size to {per_node}")


@runs.rule("ZERO028", ERROR, "init", deepspeed_0_19_8("utils/groups.py:738"))
def quantized_gradients_fill_nodes(run: Run) -> Violations:
    """With quantized gradients, which are exchanged within a node first, the GPUs fill whole nodes.
    Prevents: `num_gpus not equal to device per node, cannot initialize All-To-All`, or ranks
    without a group
    Fix: use whole nodes
    """
    config, gpus, per_node = run.config, run.world.gpus, run.world.gpus_per_node
    if config.switch(_GRADIENTS) and gpus and per_node and gpus > per_node and gpus % per_node:
        message = (
            f"zero_quantized_gradients: {gpus} GPUs are not a multiple of the "
            f"{per_node} GPUs per node"
        )
        hint = f"use {listed(neighbours(per_node, gpus))} GPUs, or remove it"
        yield violation(config, _GRADIENTS, message, hint)


@configs.rule("ZERO029", ERROR, "init", deepspeed_0_19_8("runtime/zero/stage3.py:390"))
def quantized_gradients_scatter(config: Config) -> Violations:
    """Quantized gradients at stage 3 are reduced and scattered.
    Prevents: `when enable all_to_all_reduce, reduce_scatter should also be enabled`
    Fix: set reduce_scatter to true"""
    if config.stage == 3 and config.switch(_GRADIENTS) and config.switch(_SCATTER) is False:
        message = "zero_quantized_gradients: true is refused with reduce_scatter: false"
        yield violation(config, _SCATTER, message, "set reduce_scatter to true")


@configs.rule("ZERO031", NOTE, "training", deepspeed_0_19_8("runtime/zero/stage3.py:2189"))
def frozen_weights_are_half(config: Config) -> Violations:
    """zero_quantized_nontrainable_weights is used with fp16 weights, where the program freezes
    weights later.
    Prevents: `quantize_dstensor() expects tensor.dtype == torch.float16`
    Fix: use fp16
    """
    if config.stage == 3 and config.precision == "bf16":
        effect = "with bf16: a call of quantize_nontrainable_params() fails"
        hint = "freeze weights before deepspeed.initialize, or use fp16"
        yield from while_on(config, _FROZEN, effect, hint)


@configs.rule("ZERO066", ERROR, "training", deepspeed_0_19_8(_KERNEL), before=(0, 19, 6))
def quantized_weights_are_half(config: Config) -> Violations:
    """In this version quantized weights are fp16: its kernel reads bf16 bits as fp16.
    Prevents: Weights that are silently wrong, or a first product of two types. A note of those that
    don't train: what a program freezes after it is built isn't quantized.
    Fix: use fp16"""
    if config.stage != 3 or config.precision != "bf16":
        return
    for pointer in (_WEIGHTS, _FROZEN):
        effect = "with bf16: up to DeepSpeed 0.19.5 the kernel reads bf16's bits as fp16's"
        severity = ERROR if pointer == _WEIGHTS else NOTE
        hint = "use fp16, or DeepSpeed 0.19.6 or later"
        yield from while_on(config, pointer, effect, hint, severity=severity)


@configs.rule("ZERO032", WARNING, "silent", deepspeed_0_19_8("runtime/engine.py:2669"))
def zeropp_is_for_stage_3(config: Config) -> Violations:
    """Keys of ZeRO++ are written at stage 3.
    Prevents: The settings silently have no effect.
    Fix: use stage 3"""
    if config.stage in (1, 2):  # at 0, a rule of stage 0 reports all keys
        keys = [pointer for pointer in (_WEIGHTS, _FROZEN, _GRADIENTS) if config.switch(pointer)]
        if (config.whole(_HPZ) or 0) > 1:
            keys.append(_HPZ)
        yield from unused(config, keys, f"at stage {config.stage}")


@runs.rule("ZERO033", ERROR, "init", deepspeed(_MICS), before=(0, 19, 8))
def mics_shards_divide_the_gpus(run: Run) -> Violations:
    """mics_shard_size divides the GPUs, and is used without offload.
    Prevents: an assertion when the groups are made
    Fix: set it to a divisor of the GPUs"""
    config, pointer = run.config, f"{ZERO}/mics_shard_size"
    if config.stage == 3 and (config.whole(pointer) or 0) > 0:
        yield from divides(config, pointer, run.world.gpus)
        offloads = {"offload": config.offloads("optimizer") or config.offloads("param")}
        yield from refused_with(config, pointer, offloads, "remove one of the two")


@runs.rule("ZERO056", WARNING, "silent", deepspeed_0_19_8("runtime/zero/config.py:221"))
def persistent_parameters_are_small(run: Run) -> Violations:
    """stage3_param_persistence_threshold is below the size of the model's weight matrices.
    Prevents: Stage 3 silently shards almost nothing, and memory runs out.
    Fix: set it to 10 × the hidden size"""
    config = run.config
    model = run.submission.model
    pointer = f"{ZERO}/stage3_param_persistence_threshold"
    size = config.whole(pointer) if config.has(pointer) else None
    if not model or config.stage != 3 or size is None:
        return
    hidden, matrix = model.hidden, model.hidden**2
    if size > matrix:
        message = f"{setting(config, pointer)} keeps every matrix of"
        message += f" {hidden} × {hidden} = {matrix} parameters whole on every GPU"
        hint = f"set stage3_param_persistence_threshold to {10 * hidden} (10 × the hidden size)"
        yield violation(config, pointer, message, hint)


@configs.rule("ZERO010", ERROR, "parse", deepspeed("runtime/zero/config.py:389-393"))
def partial_offload_needs_stage_3(config: Config) -> Violations:
    """Only ZeRO stage 3 offloads a part of the optimizer.
    Prevents: AssertionError: Partial offloading only supported for ZeRO Stage 3
    Fix: offload all of it, or use stage 3"""
    pointer, stage = f"{ZERO}/offload_optimizer/ratio", config.stage
    # under pydantic 1 DeepSpeed never gets to the check
    ratio = config.number(pointer) if config.schema.pydantic > 1 else None
    if ratio is not None and ratio < 1 and stage not in (3, None):
        message = (
            f"`ratio` {shown(ratio)} offloads a part of the optimizer: stage 3 only; "
            f"this is stage {stage}"
        )
        yield violation(config, pointer, message, 'write "ratio": 1.0, or "stage": 3')


@configs.rule("ZERO080", ERROR, "parse", deepspeed_0_19_8("runtime/zero/config.py:390"))
def norm_is_left_out_at_stage_1_or_2(config: Config) -> Violations:
    """The gradient norm is only left out at ZeRO stage 1 or 2.
    Prevents: ValidationError: compute_grad_norm=false is supported only with ZeRO Stage 1 or 2
    Fix: remove the key"""
    pointer, zero = f"{ZERO}/compute_grad_norm", config.schema.section(ZERO)
    checked = zero is not None and "compute_grad_norm_valid" in zero.checks
    if checked and config.stage not in (1, 2, None) and config.switch(pointer) is False:
        message = (
            f"`compute_grad_norm` is off, which requires stage 1 or 2; this is stage {config.stage}"
        )
        yield violation(config, pointer, message, "remove it")
