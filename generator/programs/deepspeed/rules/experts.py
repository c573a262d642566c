"""Mixtures of experts: DeepSpeed's own layers, and AutoEP's `expert_parallel` block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ....findings import ERROR, WARNING, Version, Violation, Violations
from ....rules.numbers import divisors, listed
from ....rules.sources import deepspeed_now
from ....rules.violations import violation
from ...subjects import subject
from ...submission import Submission
from ..config import ZERO, Config
from .parallel import AUTOTP, ULYSSES, Split, splits
from .subjects import Run, configs, runs, shown

_EXPERTS: Final = "/expert_parallel"
_SIZE: Final = f"{_EXPERTS}/autoep_size"
_BACKEND: Final = f"{_EXPERTS}/comm_backend"

#: The choices of AutoEP's keys.
_CHOICES: Final = {
    "score_apply": ("auto", "pre", "post"),
    "combine_impl": ("auto", "weighted_sum", "fused_weighted_sum", "legacy_bmm"),
    "row_weighting_impl": ("auto", "eager", "fused"),
    "gate_up_impl": ("separate", "fused"),
    "comm_backend": ("comm", "deepep"),
    "score_func": ("auto", "softmax", "sigmoid"),
}

#: Sizes that are refused with AutoEP at stage 3: from which value on, in which release first, and in which no more
#: (deepspeed/runtime/engine.py:1771, :1781 @ 0.19.3; :2176 @ 0.19.7).
_NEVER: Final[Version] = (1000,)
_REFUSED_WITH_AUTOEP: Final[tuple[tuple[str, int, Version, Version], ...]] = (
    (ULYSSES, 2, (), _NEVER),
    (f"{ZERO}/zero_hpz_partition_size", 2, (), _NEVER),
    (f"{ZERO}/zero_quantized_gradients", 1, (), _NEVER),
    (AUTOTP, 2, (0, 19, 3), (0, 19, 8)),
    (f"{ZERO}/mics_shard_size", 1, (0, 19, 3), (0, 19, 7)),
)


def _is_on(config: Config) -> bool:
    return isinstance(config.value(_EXPERTS), dict) and bool(config.switch(f"{_EXPERTS}/enabled"))


@subject("DeepSpeed config")
def _autoep(submission: Submission) -> Iterator[Config]:
    return (config for config in configs(submission) if _is_on(config))


_split: Final = splits(_SIZE, _is_on)


def _native_experts(submission: Submission) -> int:
    """Experts of DeepSpeed's own MoE layers, by the arguments of Megatron-DeepSpeed."""
    if any(arguments.flavour != "megatron-deepspeed" for arguments in submission.megatron):
        return 1
    counts = [arguments.value("--num-experts") for arguments in submission.megatron]
    flat = [n for count in counts for n in (count if isinstance(count, (list, tuple)) else [count])]
    return max((n for n in flat if isinstance(n, int)), default=1)


@_split.rule("MOE006", ERROR, "init", deepspeed_now("module_inject/auto_ep_folding.py:110"), since=(0, 19, 2))
def expert_ranks_divide_the_gpus(split: Split) -> Violations:
    """autoep_size divides the GPUs of a pipeline stage: its groups are cut out of the data and context parallel ranks.

    Prevents: a ValueError when the groups are made
    Fix: set it to a divisor of the GPUs"""
    gpus, stages = split.world.gpus, split.world.pipeline
    if gpus and not gpus % stages and gpus // stages % split.size:
        yield split.violation(f"does not divide the {gpus // stages} GPUs of a stage", divisors(gpus // stages)[:8])


@runs.rule("MOE003", ERROR, "init", deepspeed_now("runtime/zero/stage_1_and_2.py:864"))
def experts_have_contiguous_gradients(run: Run) -> Violations:
    """With experts, ZeRO reduces and scatters gradients, at stage 2 contiguous ones.

    Prevents: `Contiguous Gradients in ZeRO Stage 2 must be set to True for MoE`
    Fix: set them to true"""
    config, stage = run.config, run.config.stage
    if stage not in (1, 2) or not (_is_on(config) or _native_experts(run.submission) > 1):
        return
    keys = ["reduce_scatter"] if config.version >= (0, 19, 8) or stage == 2 else []
    keys += ["contiguous_gradients"] if stage == 2 and not config.offloads("optimizer") else []
    for key in keys:
        if config.switch(f"{ZERO}/{key}") is False:
            message, hint = f"{key}: false is refused for experts at stage {stage}", f"set {key} to true"
            yield violation(config, f"{ZERO}/{key}", message, hint)


@_autoep.rule("MOE004", ERROR, "init", deepspeed_now("runtime/engine.py:2219"), since=(0, 19, 2))
def autoep_at_stage_3_goes_alone(config: Config) -> Violations:
    """AutoEP at stage 3 runs without Ulysses, quantized gradients, second partitions and, before 0.19.8, AutoTP.

    Prevents: `AutoEP with ZeRO Stage 3 does not support ... yet`
    Fix: remove one of the two"""
    for pointer, least, first, last in _REFUSED_WITH_AUTOEP if config.stage == 3 else ():
        size = config.number(pointer)
        if size is not None and size >= least and first <= config.version < last:
            name = pointer.rpartition("/")[2]
            message = f"{name}: {shown(config.value(pointer))} is refused with AutoEP at stage 3"
            yield violation(config, pointer, message, f"use stage 1 or 2, or remove {name}")


@_autoep.rule("MOE008", ERROR, "init", deepspeed_now("module_inject/auto_ep_folding.py:214"), since=(0, 19, 8))
def autoep_cuts_no_expert(config: Config) -> Violations:
    """expert_tensor_parallel_size is 1: other sizes are reserved.

    Prevents: a ValueError when the groups are made
    Fix: remove it"""
    pointer = f"{_EXPERTS}/expert_tensor_parallel_size"
    size = config.whole(pointer)
    if size is not None and size != 1:
        message = f"expert_tensor_parallel_size: {size} is refused: only 1 is supported"
        yield violation(config, pointer, message, "set it to 1, or remove it")


@_autoep.rule("MOE009", ERROR, "init", deepspeed_now("module_inject/auto_ep_config.py:180"), since=(0, 19, 8))
def autoep_choices_are_known(config: Config) -> Violations:
    """expert_parallel's choices are ones that AutoEP has.

    Prevents: a ValueError when the engine starts
    Fix: use one of the choices"""
    for key, choices in _CHOICES.items():
        value = config.value(f"{_EXPERTS}/{key}", choices[0])
        if value not in choices:
            message, hint = f"{key}: {shown(value)} is not one of AutoEP's choices", f"use {listed(choices)}"
            yield violation(config, f"{_EXPERTS}/{key}", message, hint)


@_autoep.rule("MOE010", ERROR, "init", deepspeed_now("module_inject/auto_ep_config.py:232"), since=(0, 19, 8))
def deepep_knows_its_tokens(config: Config) -> Violations:
    """comm_backend deepep is used with comm_max_tokens_per_rank, the most tokens that a rank routes.

    Prevents: `comm_max_tokens_per_rank must be a positive integer when comm_backend='deepep'`
    Fix: add comm_max_tokens_per_rank"""
    if config.value(_BACKEND) == "deepep" and config.value(f"{_EXPERTS}/comm_max_tokens_per_rank", 0) == 0:
        message = 'comm_backend: "deepep" requires comm_max_tokens_per_rank'
        hint = "set comm_max_tokens_per_rank to micro batch × longest padded sequence"
        yield violation(config, _BACKEND, message, hint)


@_autoep.rule("MOE011", ERROR, "init", deepspeed_now("module_inject/auto_ep_folding.py:240, :248"), since=(0, 19, 8))
def autoep_folds_over_experts(config: Config) -> Violations:
    """AutoEP with AutoTP has an autoep_size above 1, and no offload.

    Prevents: `AutoEP+AutoTP folding requires expert_parallel.autoep_size > 1`
    Fix: use one of the two"""
    tensor, size = config.whole(AUTOTP) or 1, config.whole(_SIZE) if config.has(_SIZE) else 1
    if tensor > 1 and size == 1:
        message = f"autoep_size: 1 with autotp_size: {tensor} is refused: gradients would count {tensor} times"
        yield violation(config, _EXPERTS, message, "set autoep_size above 1, or autotp_size to 1")
    if tensor > 1 and (config.offloads("optimizer") or (config.offloads("param") and config.stage == 3)):
        message = f"AutoEP with autotp_size: {tensor} is refused with offload"
        yield violation(config, _EXPERTS, message, "remove the offload, or set autotp_size to 1")


@configs.rule("MOE012", WARNING, "silent", deepspeed_now("module_inject/auto_ep_config.py:46"), since=(0, 19, 2))
def autoep_is_switched_on(config: Config) -> Violations:
    """expert_parallel is enabled where it has settings.

    Prevents: Experts are silently not distributed.
    Fix: set enabled to true"""
    if config.block(_EXPERTS) and not config.has(f"{_EXPERTS}/enabled"):
        message = "expert_parallel is not enabled, so its settings have no effect"
        yield Violation(config.locate_key(_EXPERTS), message, 'add "enabled": true')
