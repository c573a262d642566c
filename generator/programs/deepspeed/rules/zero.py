"""Rules on ZeRO stages: settings that a stage ignores, and some that work less well."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ....findings import ERROR, NOTE, WARNING, Violation, Violations
from ....rules.violations import deepspeed, deepspeed_0_19_8, derived, violation
from ..config import OPTIMIZER, ZERO, Config
from .subjects import Run, configs, optimizer_from_config, runs, setting, shown, unused

_STAGE: Final = f"{ZERO}/stage"
#: Keys of stages 1 and 2 that the engine does not hand to the optimizer of stage 3.
_BELOW_STAGE_3: Final = (
    "allgather_bucket_size",
    "use_multi_rank_bucket_allreduce",
    "round_robin_gradients",
    "ignore_unused_parameters",
    "parameter_alignment",
)
#: Keys that DeepSpeed's parser accepts and nothing reads, with their defaults.
_UNREAD: Final = {
    "allgather_partitions": True,
    "memory_efficient_linear": True,
    "pipeline_loading_checkpoint": False,
}
_UNNAMED: Final = "no other module of DeepSpeed 0.19.8 names these keys"
#: How gradients are reduced, with the defaults of stage 1.
_REDUCTION: Final = {
    "overlap_comm": False,
    "contiguous_gradients": True,
    "reduce_scatter": True,
    "round_robin_gradients": False,
}
#: Types of optimizers that the engine builds as one of `ZERO_SUPPORTED_OPTIMIZERS` (mup's MuAdam
#: and MuAdamW are Adams of torch), and 1-bit optimizers, which have a rule of their own (OPT008).
_TESTED: Final = frozenset(
    {"adam", "adamw", "adagrad", "lion", "muon", "muadam", "muadamw"}
) | frozenset({"onebitadam", "zerooneadam", "onebitlamb"})
#: Elements of a bucket for a note, twice DeepSpeed's own default, and for a warning: in 16 bits it
#: takes a tenth of a GPU of 80 GB.
_LARGE_BUCKET: Final = 1_000_000_000
_HUGE_BUCKET: Final = 4_000_000_000
_MOST_GIGABYTES: Final = 10**6  #: that a message says of a buffer: no machine has as many


@configs.rule("ZERO045", ERROR, "silent", deepspeed_0_19_8("runtime/zero/config.py:94"))
def zero_has_a_stage(config: Config) -> Violations:
    """zero_optimization sets its stage: without one it is stage 0, and all else in it has no
    effect.
    Prevents: The whole block silently has no effect: no sharding, no offload.
    Fix: set "stage"
    """
    block = config.block(ZERO)
    if block and "stage" not in block:
        message = f"zero_optimization has no stage, so it is 0: {_listed(block)} no effect"
        yield Violation(config.locate_key(ZERO), message, 'set "stage" to 1, 2 or 3')


def _listed(names: Iterable[str]) -> str:
    """The first names and how many more there are, with `has` or `have`."""
    keys = list(names)
    more = f" and {len(keys) - 4} more" if len(keys) > 4 else ""
    return f"{', '.join(keys[:4])}{more} {'has' if len(keys) == 1 else 'have'}"


@configs.rule("ZERO038", NOTE, "silent", derived("the engine builds no ZeRO optimizer at stage 0"))
def stage_0_has_no_settings(config: Config) -> Violations:
    """At stage 0, which is no ZeRO, zero_optimization has no other keys.
    Prevents: The settings silently have no effect.
    Fix: use stage 1, 2 or 3, or remove the other keys"""
    block = config.block(ZERO)
    others = [
        key for key in block if key != "stage" and not key.startswith(("offload_", "cpu_offload"))
    ]
    if others and config.stage == 0 and block.get("stage", "auto") != "auto":
        message = f"stage: 0 turns ZeRO off: {_listed(others)} no effect"
        yield violation(config, _STAGE, message, "use stage 1, 2 or 3, or remove the others")


@configs.rule("ZERO011", NOTE, "silent", deepspeed_0_19_8("runtime/engine.py:2669"))
def stage_3_keys_are_at_stage_3(config: Config) -> Violations:
    """Keys of stage 3 are not written at a lower stage.
    Prevents: The settings silently have no effect.
    Fix: remove them, or use stage 3"""
    if config.stage not in (1, 2):
        return
    of_stage_3 = (
        f"{ZERO}/{key}"
        for key in config.block(ZERO)
        if key.startswith("stage3_") or key == "sub_group_size"
    )
    # rules on keys report those that DeepSpeed doesn't have
    known = [pointer for pointer in of_stage_3 if config.schema.key(pointer) is not None]
    yield from unused(config, known, f"at stage {config.stage}")


@configs.rule("ZERO046", NOTE, "silent", deepspeed_0_19_8("runtime/engine.py:2744"))
def lower_keys_are_not_at_stage_3(config: Config) -> Violations:
    """Keys of stages 1 and 2 are not written at stage 3.
    Prevents: The settings silently have no effect.
    Fix: remove them"""
    if config.stage == 3 and not config.switch("/compile/deepcompile"):
        yield from unused(config, (f"{ZERO}/{key}" for key in _BELOW_STAGE_3), "at stage 3")


@configs.rule("ZERO047", NOTE, "silent", derived(_UNNAMED), since=(0, 19, 8))
def keys_are_read(config: Config) -> Violations:
    """No key is written that DeepSpeed accepts but no longer reads.
    Prevents: The settings silently have no effect.
    Fix: remove them"""
    unread = [
        f"{ZERO}/{key}"
        for key, default in _UNREAD.items()
        if config.switch(f"{ZERO}/{key}") is (not default)
    ]
    if config.switch("/disable_allgather"):
        unread.append("/disable_allgather")
    yield from unused(config, unread, "in this version: nothing reads it")


@optimizer_from_config.rule(
    "ZERO021", ERROR, "init", deepspeed_0_19_8("runtime/engine.py:2299; runtime/zero/utils.py:45")
)
def optimizers_are_tested_with_zero(config: Config) -> Violations:
    """With ZeRO, the optimizer is one that DeepSpeed was tested with, unless
    zero_allow_untested_optimizer is true.
    Prevents: `You are using an untested ZeRO Optimizer`
    Fix: use AdamW, or set zero_allow_untested_optimizer
    """
    untested = config.optimizer is not None and config.optimizer not in _TESTED
    if untested and config.stage and config.switch("/zero_allow_untested_optimizer") is False:
        message = (
            f"optimizer {shown(config.value(OPTIMIZER))} is untested with ZeRO stage {config.stage}"
        )
        hint = 'use AdamW, or set "zero_allow_untested_optimizer" to true'
        yield violation(config, OPTIMIZER, f"{message}, so DeepSpeed refuses it", hint)


@optimizer_from_config.rule("ZERO042", ERROR, "init", deepspeed("runtime/zero/utils.py:45"))
def lamb_needs_whole_tensors(config: Config) -> Violations:
    """LAMB runs without ZeRO: its trust ratio is a layer's norm, which flat partitions don't have.
    Prevents: `You are using an untested ZeRO Optimizer`, or trust ratios of partitions
    Fix: use stage 0, or AdamW"""
    if config.optimizer == "lamb" and config.stage:
        message = f"optimizer {shown(config.value(OPTIMIZER))} with ZeRO stage {config.stage}"
        message += " computes its trust ratio over flat partitions, not layers"
        yield violation(config, OPTIMIZER, message, "use stage 0, or AdamW")


def has_bf16_optimizer(config: Config) -> bool:
    """Whether bf16 at stage 1 sums gradients in fp32, in DeepSpeed's own optimizer for it."""
    return config.precision == "bf16" and config.stage == 1 and config.sums_in == "fp32"


@configs.rule(
    "ZERO065", NOTE, "silent", deepspeed_0_19_8("runtime/engine.py:2303; runtime/engine.py:2635")
)
def bf16_optimizer_has_its_own_ways(config: Config) -> Violations:
    """No key tunes how gradients are reduced where bf16 at stage 1 accumulates in fp32: its
    optimizer ignores them.
    Prevents: The settings silently have no effect.
    Fix: remove them, or use stage 2
    """
    if has_bf16_optimizer(config) and not config.offloads("optimizer"):
        changed = [
            f"{ZERO}/{key}"
            for key, default in _REDUCTION.items()
            if config.switch(f"{ZERO}/{key}") is (not default)
        ]
        why = "with the BF16 optimizer that stage 1 with fp32 accumulation has"
        yield from unused(config, changed, why)


@configs.rule("ZERO024", WARNING, "training", deepspeed_0_19_8("runtime/zero/config.py:112"))
def buckets_are_counts(config: Config) -> Violations:
    """Bucket sizes count elements, not bytes.
    Prevents: CUDA out of memory: buffers of many gigabytes
    Fix: set it to 500000000 elements or fewer"""
    gathered = "stage3_prefetch_bucket_size" if config.stage == 3 else "allgather_bucket_size"
    if not config.stage:
        return
    for pointer in (f"{ZERO}/reduce_bucket_size", f"{ZERO}/{gathered}"):
        size = config.whole(pointer)
        if size is not None and size > _LARGE_BUCKET:
            name = pointer.rpartition("/")[2]
            gigabytes = min((2 * size + 5 * 10**8) // 10**9, _MOST_GIGABYTES)  # rounded
            message = (
                f"{setting(config, pointer)} counts elements: the buffer may need {gigabytes:,} GB "
                "in 16 bits"
            )
            hint = f"set {name} to 500000000, the default, or less"
            severity = None if size > _HUGE_BUCKET else NOTE
            yield violation(config, pointer, message, hint, severity=severity)


@runs.rule("ZERO023", NOTE, "silent", deepspeed_0_19_8("runtime/zero/config.py:377"))
def overlap_is_decided(run: Run) -> Violations:
    """At stage 2 overlap_comm is set: communication overlaps computation only where it is true.
    Prevents: Reductions that could overlap the backward pass don't.
    Fix: set "overlap_comm" to true"""
    config = run.config
    if config.stage == 2 and not config.has(f"{ZERO}/overlap_comm") and run.world.pipeline == 1:
        message = "overlap_comm is not set, and its default is true only at stage 3:"
        message += " gradients are reduced while nothing is computed"
        yield violation(config, _STAGE, message, 'set "overlap_comm" to true')


@runs.rule("ZERO040", NOTE, "silent", derived("nothing is sharded over one rank"))
def sharding_needs_replicas(run: Run) -> Violations:
    """With ZeRO, there is more than one rank to shard over.
    Prevents: Communication costs time, and no memory is saved.
    Fix: use stage 0, or more replicas"""
    config, world = run.config, run.world
    if not config.stage or world.replicas is None:
        return
    offloads = config.offloads("optimizer") or config.offloads("param")
    if world.replicas * world.context == 1 and not offloads:
        gpus = f"{world.gpus} GPU{'' if world.gpus == 1 else 's'}"
        message = (
            f"stage: {config.stage} on {gpus} has one replica, so nothing to shard over: "
            "overhead without saving"
        )
        yield violation(config, _STAGE, message, "use stage 0, or more replicas")


@configs.rule("ZERO039", NOTE, "silent", deepspeed("runtime/engine.py:5592"))
def checkpoints_hold_weights(config: Config) -> Violations:
    """At stage 3 the weights are gathered for Hugging Face's checkpoints.
    Prevents: checkpoints without weights: `Did not save the model ...`, only in the log
    Fix: set stage3_gather_16bit_weights_on_model_save, or run zero_to_fp32.py"""
    pointer = f"{ZERO}/stage3_gather_16bit_weights_on_model_save"
    if config.filled and config.stage == 3 and config.switch(pointer) is False:
        message = (
            "stage3_gather_16bit_weights_on_model_save is off: the model that is saved "
            "has no usable weights"
        )
        hint = (
            'set "stage3_gather_16bit_weights_on_model_save" to true, or run '
            "zero_to_fp32.py afterwards"
        )
        if config.switch("/expert_parallel/enabled"):  # which gathers nothing (HF049)
            hint = "take the weights from the checkpoint by ds_to_universal.py"
        yield violation(config, pointer if config.has(pointer) else _STAGE, message, hint)


@runs.rule("ZERO022", WARNING, "training", deepspeed("runtime/zero/stage_1_and_2.py:1627"))
def unused_parameters_are_allowed(run: Run) -> Violations:
    """ignore_unused_parameters is true, or the job ends at the first parameter without a gradient.
    Prevents: `This assert indicates that your module has parameters that were not used`
    Fix: remove ignore_unused_parameters"""
    config, model = run.config, run.submission.model
    pointer = f"{ZERO}/ignore_unused_parameters"
    if config.stage in (1, 2) and config.switch(pointer) is False:
        which = "frozen weights, experts and adapters"
        if model is not None and model.experts > 0:
            which = "this model's experts"
        message = (
            "ignore_unused_parameters: false ends the job when a parameter gets "
            f"no gradient: {which} may get none"
        )
        hint = "set ignore_unused_parameters to true, the default"
        yield violation(config, pointer, message, hint)
