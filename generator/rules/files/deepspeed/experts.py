"""Mixtures of experts: DeepSpeed's own layers, and AutoEP's `expert_parallel` block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ....documents.deepspeed_config import Config
from ....documents.submission import Submission
from ....documents.world import world_of
from ....findings import ERROR, WARNING, Violation, Violations
from ...numbers import divisors, listed
from ...rule import subject, submissions
from ...sources import deepspeed, deepspeed_now
from .subjects import configs
from .values import shown

ZERO: Final = "/zero_optimization"
EXPERTS: Final = "/expert_parallel"

#: The choices of AutoEP's keys.
CHOICES: Final = {
    "score_apply": ("auto", "pre", "post"),
    "combine_impl": ("auto", "weighted_sum", "fused_weighted_sum", "legacy_bmm"),
    "row_weighting_impl": ("auto", "eager", "fused"),
    "gate_up_impl": ("separate", "fused"),
    "comm_backend": ("comm", "deepep"),
    "score_func": ("auto", "softmax", "sigmoid"),
}


def _native_experts(submission: Submission) -> int:
    """Experts of DeepSpeed's own MoE layers, as the arguments of Megatron-DeepSpeed say."""
    if any(arguments.flavour != "megatron-deepspeed" for arguments in submission.megatron):
        return 1
    counts = [arguments.value("--num-experts") for arguments in submission.megatron]
    flat = [n for count in counts for n in (count if isinstance(count, (list, tuple)) else [count])]
    return max((n for n in flat if isinstance(n, int)), default=1)


@submissions.rule("MOE001", ERROR, "init", deepspeed("moe/layer.py:59"), since=(0, 19, 2), reads=("DeepSpeed config",))
def experts_divide(submission: Submission) -> Violations:
    """Expert parallelism gives every rank the same number of experts.

    Prevents: `num_experts is not divisible by autoep_size`
    Fix: a divisor of the experts
    """
    model = submission.model
    for config in _autoep(submission) if model and model.experts else ():
        size = config.whole(f"{EXPERTS}/autoep_size")
        if model and size and size > 1 and model.experts % size:
            message = f"autoep_size: {size} does not divide {model.name}'s {model.experts} experts"
            hint = f"autoep_size: {listed(divisors(model.experts))}"
            yield Violation(where=config.locate(f"{EXPERTS}/autoep_size"), message=message, hint=hint)


@submissions.rule(
    "MOE006",
    ERROR,
    "init",
    deepspeed_now("module_inject/auto_ep_folding.py:110"),
    since=(0, 19, 2),
    reads=("DeepSpeed config",),
)
def expert_ranks_divide_the_gpus(submission: Submission) -> Violations:
    """Expert parallel groups are cut out of the data and context parallel ranks.

    Prevents: a ValueError when the groups are made
    Fix: a divisor of the GPUs
    """
    world = world_of(submission)
    for config in _autoep(submission):
        size = config.whole(f"{EXPERTS}/autoep_size")
        stage = world.gpus // world.pipeline if world.gpus and not world.gpus % world.pipeline else None
        if stage and size and size > 1 and stage % size:
            message = f"autoep_size: {size} does not divide the {stage} GPUs of a stage"
            where = config.locate(f"{EXPERTS}/autoep_size")
            yield Violation(where=where, message=message, hint=f"autoep_size: {listed(divisors(stage)[:8])}")


@submissions.rule("MOE002", ERROR, "init", deepspeed_now("runtime/engine.py:2215"), reads=("DeepSpeed config",))
def native_experts_stop_at_stage_2(submission: Submission) -> Violations:
    """DeepSpeed's MoE layers run with ZeRO up to stage 2.

    Prevents: `Native DeepSpeed MoE is not supported with ZeRO Stage 3`
    Fix: stage 1 or 2
    """
    experts = _native_experts(submission)
    for config in configs(submission) if experts > 1 else ():
        if config.stage == 3:
            message = f"stage: 3 with --num-experts {experts} is refused: DeepSpeed's MoE layers take at most 2"
            yield Violation(where=config.locate(f"{ZERO}/stage"), message=message, hint="stage 1 or 2")


@submissions.rule(
    "MOE003", ERROR, "init", deepspeed_now("runtime/zero/stage_1_and_2.py:864"), reads=("DeepSpeed config",)
)
def experts_have_contiguous_gradients(submission: Submission) -> Violations:
    """With experts, ZeRO reduces and scatters gradients, at stage 2 contiguous ones.

    Prevents: `Contiguous Gradients in ZeRO Stage 2 must be set to True for MoE`
    Fix: true
    """
    native = _native_experts(submission) > 1
    autoep = {config.path for config in _autoep(submission)}
    for config in configs(submission):
        stage = config.stage
        if stage not in (1, 2) or not (native or config.path in autoep):
            continue
        keys = ["reduce_scatter"] if submission.deepspeed_version >= (0, 19, 8) or stage == 2 else []
        keys += ["contiguous_gradients"] if stage == 2 and not config.offloads("optimizer") else []
        for key in keys:
            if config.switch(f"{ZERO}/{key}", True) is False:
                message = f"{key}: false is refused for experts at stage {stage}"
                yield Violation(where=config.locate(f"{ZERO}/{key}"), message=message, hint=f"{key}: true")


@submissions.rule(
    "MOE004", ERROR, "init", deepspeed_now("runtime/engine.py:2219"), since=(0, 19, 2), reads=("DeepSpeed config",)
)
def autoep_at_stage_3_goes_alone(submission: Submission) -> Violations:
    """AutoEP at stage 3 runs without Ulysses, quantized gradients, second partitions and, before 0.19.8, AutoTP.

    Prevents: `AutoEP with ZeRO Stage 3 does not support ... yet`
    Fix: one of the two
    """
    version = submission.deepspeed_version
    for config in _autoep(submission):
        if config.stage != 3:
            continue
        sequence, hpz = (config.whole(p) for p in ("/sequence_parallel_size", f"{ZERO}/zero_hpz_partition_size"))
        found = [("/sequence_parallel_size", sequence)] if sequence and sequence > 1 else []
        found += [(f"{ZERO}/zero_hpz_partition_size", hpz)] if hpz and hpz > 1 else []
        if config.switch(f"{ZERO}/zero_quantized_gradients"):
            found.append((f"{ZERO}/zero_quantized_gradients", 1))
        found += [
            (pointer, size)
            for pointer, least, first, last in _REFUSED_BESIDE_AUTOEP
            if (size := config.whole(pointer)) and size >= least and first <= version < last
        ]
        for pointer, _ in found:
            name = pointer.rpartition("/")[2]
            message = f"{name}: {shown(config.value(pointer))} is refused with AutoEP at stage 3"
            yield Violation(where=config.locate(pointer), message=message, hint="stage 1 or 2, or leave it out")


#: Sizes that some releases refuse beside AutoEP at stage 3: from which value on, in which release first, and in which
#: no more (deepspeed/runtime/engine.py:1771, :1781 @ 0.19.3; :2176 @ 0.19.7).
_REFUSED_BESIDE_AUTOEP: Final = (
    ("/tensor_parallel/autotp_size", 2, (0, 19, 3), (0, 19, 8)),
    (f"{ZERO}/mics_shard_size", 1, (0, 19, 3), (0, 19, 7)),
)


@subject("DeepSpeed config")
def _autoep(submission: Submission) -> Iterator[Config]:
    for config in configs(submission):
        if isinstance(config.value(EXPERTS), dict) and config.switch(f"{EXPERTS}/enabled"):
            yield config


@_autoep.rule("MOE008", ERROR, "init", deepspeed_now("module_inject/auto_ep_folding.py:214"), since=(0, 19, 8))
def autoep_cuts_no_expert(config: Config) -> Violations:
    """expert_tensor_parallel_size is 1: other sizes are reserved.

    Prevents: a ValueError when the groups are made
    Fix: 1
    """
    pointer = f"{EXPERTS}/expert_tensor_parallel_size"
    size = config.whole(pointer)
    if size is not None and size != 1:
        message = f"expert_tensor_parallel_size: {size} is refused: only 1 is built"
        yield Violation(where=config.locate(pointer), message=message, hint="1, or leave it out")


@_autoep.rule("MOE009", ERROR, "init", deepspeed_now("module_inject/auto_ep_config.py:180"), since=(0, 19, 8))
def autoep_choices_are_known(config: Config) -> Violations:
    """expert_parallel's choices are ones that AutoEP has.

    Prevents: a ValueError when the engine starts
    Fix: one of the choices
    """
    for key, choices in CHOICES.items():
        value = config.value(f"{EXPERTS}/{key}", choices[0])
        if value not in choices:
            message = f"{key}: {shown(value)} is none of AutoEP's choices"
            yield Violation(where=config.locate(f"{EXPERTS}/{key}"), message=message, hint=listed(choices))


@_autoep.rule("MOE010", ERROR, "init", deepspeed_now("module_inject/auto_ep_config.py:232"), since=(0, 19, 8))
def deepep_knows_its_tokens(config: Config) -> Violations:
    """comm_backend deepep knows how many tokens a rank routes at most.

    Prevents: `comm_max_tokens_per_rank must be a positive integer when comm_backend='deepep'`
    Fix: write it
    """
    tokens = config.value(f"{EXPERTS}/comm_max_tokens_per_rank", 0)
    if config.value(f"{EXPERTS}/comm_backend") == "deepep" and tokens == 0:
        message = 'comm_backend: "deepep" needs comm_max_tokens_per_rank'
        hint = "micro-batch × longest padded sequence"
        yield Violation(where=config.locate(f"{EXPERTS}/comm_backend"), message=message, hint=hint)


@_autoep.rule(
    "MOE011",
    ERROR,
    "init",
    deepspeed_now("module_inject/auto_ep_folding.py:240; module_inject/auto_ep_folding.py:248"),
    since=(0, 19, 8),
)
def autoep_folds_over_experts(config: Config) -> Violations:
    """AutoEP with AutoTP has an autoep_size above 1, and no offload.

    Prevents: `AutoEP+AutoTP folding requires expert_parallel.autoep_size > 1`
    Fix: one of the two
    """
    tensor = config.whole("/tensor_parallel/autotp_size")
    size = config.whole(f"{EXPERTS}/autoep_size") if config.has(f"{EXPERTS}/autoep_size") else 1
    if not tensor or tensor <= 1:
        return
    if size == 1:
        message = f"autoep_size: 1 with autotp_size: {tensor} is refused: gradients would count {tensor} times"
        yield Violation(where=config.locate(EXPERTS), message=message, hint="autoep_size above 1, or autotp_size: 1")
    if config.offloads("optimizer") or (config.offloads("param") and config.stage == 3):
        message = f"AutoEP with autotp_size: {tensor} is refused with offload"
        yield Violation(where=config.locate(EXPERTS), message=message, hint="no offload, or autotp_size: 1")


@configs.rule("MOE012", WARNING, "silent", deepspeed_now("module_inject/auto_ep_config.py:46"), since=(0, 19, 2))
def autoep_is_switched_on(config: Config) -> Violations:
    """expert_parallel is enabled where it has settings.

    Prevents: no expert parallelism at all
    Fix: enabled: true
    """
    if config.block(EXPERTS) and not config.has(f"{EXPERTS}/enabled"):
        message = "expert_parallel is not enabled, so its settings have no effect"
        yield Violation(where=config.locate_key(EXPERTS), message=message, hint='"enabled": true')
