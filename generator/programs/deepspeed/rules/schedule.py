"""Rules on learning-rate schedules: which is built, its parameters, and how it sets the rate."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from ....findings import ERROR, NOTE, WARNING, Violation, Violations
from ....rules.violations import deepspeed_0_19_8, listed, suggest, violation
from ....submission.repository import sets_key
from ....submission.subjects import Subject
from ....text.wording import escape
from ..config import PARAMS, Config, Number, whole_of
from .subjects import counted_from_1, schedule_from_config, setting, shown

_SCHEDULER: Final = "/scheduler"
_TYPE: Final = "/scheduler/type"
_PARAMS: Final = "/scheduler/params"
#: DeepSpeed's own schedules.
_OWN: Final = ("WarmupLR", "WarmupDecayLR", "WarmupCosineLR", "LRRangeTest", "OneCycle")
#: Classes of torch.optim.lr_scheduler in torch 2.13.
_TORCH: Final = (
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
)
_TOTAL: Final = f"{_PARAMS}/total_num_steps"
_WARMUP: Final = f"{_PARAMS}/warmup_num_steps"
_LOWEST: Final = f"{_PARAMS}/warmup_min_lr"
_HIGHEST: Final = f"{_PARAMS}/warmup_max_lr"
_RATE: Final = f"{PARAMS}/lr"
#: The first DeepSpeed whose WarmupLR without warmup_max_lr goes up to the optimizer's rate.
_FIRST_WITH_OPTIMIZERS_RATE: Final = (0, 17, 0)


def _of(*names: str) -> Subject[Config]:
    """The configs from which DeepSpeed builds a schedule of one of these names."""
    return schedule_from_config.where(lambda config: config.text(_TYPE) in names)


#: The configs that name a schedule, known or not.
_named: Final = schedule_from_config.where(lambda config: config.text(_TYPE) is not None)
_cycles: Final = _of("OneCycle")
_range_tests: Final = _of("LRRangeTest")
_ending: Final = _of("WarmupDecayLR", "WarmupCosineLR")
#: Those with a warmup_max_lr; WarmupCosineLR takes shares of the optimizer's rate.
_with_highest_rate: Final = _of("WarmupLR", "WarmupDecayLR")
_warming: Final = _of("WarmupLR", "WarmupDecayLR", "WarmupCosineLR")


@schedule_from_config.rule("OPT027", ERROR, "silent", deepspeed_0_19_8("runtime/config.py:329"))
def scheduler_has_a_type(config: Config) -> Violations:
    """The scheduler block names its type: without one, DeepSpeed ignores the block.
    Prevents: There is no schedule: the rate silently stays as it is.
    Fix: add "type" """
    block = config.block(_SCHEDULER)
    if block and block.get("type") is None:
        message = (
            f"scheduler has no type, so DeepSpeed ignores it: {', '.join(list(block)[:4])} with it"
        )
        yield Violation(config.locate_key(_SCHEDULER), message, 'add "type": "WarmupDecayLR"')


@_named.rule("OPT028", ERROR, "init", deepspeed_0_19_8("runtime/engine.py:1936"))
def scheduler_has_params(config: Config) -> Violations:
    """The scheduler block has params, even where they are empty.
    Prevents: `TypeError: argument after ** must be a mapping, not NoneType`
    Fix: add params, at least empty"""
    if config.value(_PARAMS) is None:
        message = (
            f"scheduler {shown(config.text(_TYPE))} has no params, and DeepSpeed "
            "requires them, even empty"
        )
        yield Violation(config.locate_key(_SCHEDULER), message, 'add "params": {}')


@_named.rule("OPT009", ERROR, "init", deepspeed_0_19_8("runtime/engine.py:1929"))
def schedule_is_known(config: Config) -> Violations:
    """The schedule is one of DeepSpeed's, or a class of torch.optim.lr_scheduler.
    Prevents: `DeepSpeed does not recognize LR scheduler ...`
    Fix: use a known schedule"""
    schedules, name = (*_OWN, *_TORCH), config.text(_TYPE) or ""
    if name not in schedules:
        message = (
            f"unknown schedule {shown(name)}: neither DeepSpeed nor torch.optim.lr_scheduler has it"
        )
        in_other_case = [schedule for schedule in schedules if schedule.lower() == name.lower()]
        hint = suggest(name, schedules, f"use {listed(_OWN)}")
        if in_other_case:
            hint = f"use {in_other_case[0]}"
        yield violation(config, _TYPE, message, hint)


@_of(*_TORCH).rule("OPT029", ERROR, "init", deepspeed_0_19_8("runtime/engine.py:1885"))
def torch_schedules_drive_torch_optimizers(config: Config) -> Violations:
    """torch's schedules are used without ZeRO, fp16 and bf16: they refuse the optimizers that wrap
    torch's.
    Prevents: `TypeError: DeepSpeedZeroOptimizer is not an Optimizer`
    Fix: use a schedule of DeepSpeed
    """
    stage, precision = config.stage, config.precision
    wrapper: str | None = precision if precision in ("fp16", "bf16") else None
    if stage:
        wrapper = f"ZeRO stage {stage}"
    if wrapper:
        message = (
            f"{setting(config, _TYPE)} is torch's, which refuses the wrapped optimizer of {wrapper}"
        )
        hint = f"use {listed(_OWN)}, or build the schedule in the script"
        yield violation(config, _TYPE, message, hint)


@_of(*_OWN).rule(
    "OPT030", ERROR, "init", deepspeed_0_19_8("runtime/lr_schedules.py:313, :414, :703")
)
def parameters_are_the_schedules(config: Config) -> Violations:
    """The schedule's params are ones that its constructor accepts.
    Prevents: `TypeError: __init__() got an unexpected keyword argument`
    Fix: use parameters that the constructor accepts"""
    name = config.text(_TYPE) or ""
    accepted = (*config.schema.schedulers[name], "last_batch_iteration")
    keys_by_hint = defaultdict[str, list[str]](list)
    for key in config.block(_PARAMS):
        if key in accepted:
            continue
        hint = suggest(key, accepted, present=config.block(_PARAMS))
        if name == "WarmupCosineLR" and key in ("warmup_max_lr", "warmup_min_lr"):
            hint = (
                "set the optimizer's lr, the highest rate; warmup_min_ratio and "
                "cos_min_ratio are shares of it"
            )
        keys_by_hint[hint].append(key)
    for hint, keys in keys_by_hint.items():
        parameters = "parameters" if len(keys) > 1 else "parameter"
        message = f"unknown {parameters} {', '.join(keys)} of {name}: its constructor raises"
        yield Violation(config.locate_key(f"{_PARAMS}/{escape(keys[0])}"), message, hint)


@_cycles.rule("OPT031", ERROR, "init", deepspeed_0_19_8("runtime/lr_schedules.py:471"))
def schedule_is_complete(config: Config) -> Violations:
    """OneCycle has its two rates.
    Prevents: `TypeError: missing required positional argument: 'cycle_max_lr'`
    Fix: add cycle_min_lr and cycle_max_lr"""
    if not config.has(_PARAMS):
        return
    for key in ("cycle_min_lr", "cycle_max_lr"):
        if not config.has(f"{_PARAMS}/{key}"):
            message = f"OneCycle requires {key}: its constructor raises"
            yield violation(config, _PARAMS, message, f'add "{key}"')


@_ending.rule("OPT012", ERROR, "init", deepspeed_0_19_8("runtime/lr_schedules.py:816, :826, :866"))
def warmup_ends_before_the_end(config: Config) -> Violations:
    """A schedule with an end has total_num_steps, and a shorter warm-up.
    Prevents: `TypeError: missing required positional argument: 'total_num_steps'`, or a run within
    its warm-up
    Fix: add total_num_steps, and shorten the warm-up
    """
    name, total, written_total = config.text(_TYPE), config.number(_TOTAL), config.read(_TOTAL)
    is_missing = config.has(_PARAMS) and not config.has(_TOTAL)
    if is_missing and not sets_key("total_num_steps", config.path):
        message = f"{name} requires total_num_steps: its constructor raises"
        yield violation(config, _PARAMS, message, 'add "total_num_steps"')
    if total is None and written_total not in (None, "auto"):
        message = (
            f"total_num_steps must be a number of steps, not {shown(written_total)}: "
            f"{name} compares it"
        )
        yield violation(config, _TOTAL, message, "write the number of steps of the run")
    warmup: Number | None = 1000
    shown_warmup = "warmup_num_steps, 1000 by default,"
    if config.has(_WARMUP):
        warmup = config.number(_WARMUP)
        shown_warmup = f"warmup_num_steps: {shown(warmup)}"
    if total is not None and warmup is not None and total < warmup:
        message = (
            f"{shown_warmup} is more than total_num_steps: {shown(total)}: {name} never "
            "reaches the full rate"
        )
        hint = f"set warmup_num_steps to {max(1, int(total) // 100)}"
        yield violation(config, _TOTAL, message, hint, severity=WARNING)


@_warming.rule(
    "OPT011", ERROR, "init", deepspeed_0_19_8("runtime/lr_schedules.py:733, :874"), since=(0, 19, 3)
)
def warmup_takes_steps(config: Config) -> Violations:
    """warmup_num_steps is an integer greater than 0.
    Prevents: `warmup_num_steps must be a positive integer`
    Fix: write an integer greater than 0"""
    value = config.read(_WARMUP)
    if value is None or isinstance(value, str):
        return
    # DeepSpeed itself reads configs with hjson, which makes an integer of 1e3.
    is_integer = isinstance(value, int) or config.consumer == "deepspeed"
    steps = whole_of(value) if is_integer else None
    if steps is None or steps <= 0:
        message = f"warmup_num_steps must be an integer greater than 0, not {shown(value)}"
        yield violation(config, _WARMUP, message, f"set warmup_num_steps to {max(1, steps or 1)}")


@_warming.rule("OPT013", WARNING, "silent", deepspeed_0_19_8("runtime/lr_schedules.py:745"))
def warmup_is_log_or_linear(config: Config) -> Violations:
    """warmup_type is log or linear: anything else is silently log.
    Prevents: Another warm-up than the one written.
    Fix: use log or linear"""
    pointer = f"{_PARAMS}/warmup_type"
    kind = config.read(pointer)
    if kind is not None and kind not in ("log", "linear"):
        message = f'unknown warmup_type {shown(kind)}: the rate warms up as with "log"'
        yield violation(config, pointer, message, 'use "linear" or "log"')


@_with_highest_rate.rule(
    "OPT014", WARNING, "silent", deepspeed_0_19_8("runtime/lr_schedules.py:738")
)
def one_rate(config: Config) -> Violations:
    """The schedule's highest rate is the optimizer's, which it replaces.
    Prevents: training at another rate than the optimizer's
    Fix: write the same rate in both places"""
    rate, highest = config.number(_RATE), config.number(_HIGHEST)
    # A rate of 0 would train nothing, so the schedule is meant to set it.
    if rate and highest is not None and rate != highest:
        message = f"warmup_max_lr: {shown(highest)} replaces the optimizer's lr: {shown(rate)}"
        yield violation(config, _HIGHEST, message, "write the same rate in both places")


@_with_highest_rate.rule("OPT032", ERROR, "silent", deepspeed_0_19_8("runtime/lr_schedules.py:818"))
def decay_starts_from_the_rate(config: Config) -> Violations:
    """A schedule that doesn't use the optimizer's rate sets its own highest rate: the default is
    0.001.
    Prevents: Training at 0.001 whatever lr is.
    Fix: set warmup_max_lr
    """
    rate, name = config.number(_RATE), config.text(_TYPE)
    takes_rate = name == "WarmupLR" and config.version >= _FIRST_WITH_OPTIMIZERS_RATE
    uses_default = config.has(_PARAMS) and not config.has(_HIGHEST) and not takes_rate
    if uses_default and rate != 0.001:
        in_place_of, wanted = "whatever the optimizer's is", "..."
        if rate is not None:
            in_place_of, wanted = f"in place of the optimizer's lr: {shown(rate)}", shown(rate)
        message = f"{name} without warmup_max_lr trains at its default, 0.001, {in_place_of}"
        # Without an optimizer block the script makes the optimizer, maybe with this very rate.
        severity = None if config.has("/optimizer") else NOTE
        hint = f'add "warmup_max_lr": {wanted}'
        yield violation(config, _PARAMS, message, hint, severity=severity)


@_with_highest_rate.rule(
    "OPT033", WARNING, "silent", deepspeed_0_19_8("runtime/lr_schedules.py:742")
)
def rate_rises_in_warmup(config: Config) -> Violations:
    """The warm-up starts below the highest rate.
    Prevents: A rate that falls where it should rise.
    Fix: set warmup_min_lr to 0"""
    lowest, highest = config.number(_LOWEST), config.number(_HIGHEST)
    if lowest is not None and highest is not None and lowest > highest:
        message = (
            f"warmup_min_lr: {shown(lowest)} is above warmup_max_lr: "
            f"{shown(highest)}: the rate falls"
        )
        yield violation(config, _LOWEST, message, "set warmup_min_lr to 0")


@_range_tests.rule("OPT034", WARNING, "silent", deepspeed_0_19_8("runtime/lr_schedules.py:314"))
def range_tests_dont_train(config: Config) -> Violations:
    """LRRangeTest is not used to train: it raises the rate without end, to find the highest usable
    one.
    Prevents: A loss that diverges by design.
    Fix: use a training schedule
    """
    message = (
        "LRRangeTest raises the learning rate until the job ends, to see where training diverges"
    )
    yield violation(config, _TYPE, message, "use WarmupDecayLR or WarmupCosineLR to train")


@_range_tests.rule(
    "OPT035", ERROR, "init", deepspeed_0_19_8("runtime/lr_schedules.py:371"), since=(0, 19, 4)
)
def range_tests_take_steps(config: Config) -> Violations:
    """lr_range_test_step_size is an integer greater than 0.
    Prevents: `lr_range_test_step_size must be a positive integer`
    Fix: write an integer greater than 0"""
    pointer = f"{_PARAMS}/lr_range_test_step_size"
    yield from counted_from_1(config, pointer, "write 2000, the default")


@_cycles.rule(
    "OPT036", ERROR, "init", deepspeed_0_19_8("runtime/lr_schedules.py:527"), since=(0, 19, 4)
)
def cycles_have_a_length(config: Config) -> Violations:
    """cycle_first_step_size is greater than 0, and cycle_second_step_size is 0 or more.
    Prevents: `cycle_first_step_size must be positive`
    Fix: write numbers of steps greater than 0"""
    for key, may_be_0 in (("cycle_first_step_size", False), ("cycle_second_step_size", True)):
        value = config.number(f"{_PARAMS}/{key}")
        if value is None or value > 0 or (value == 0 and may_be_0):
            continue
        accepted = "0 or more" if may_be_0 else "greater than 0"
        message = f"{key} must be {accepted}, not {shown(value)}"
        yield violation(config, f"{_PARAMS}/{key}", message, "write 2000, the default")


@_cycles.rule(
    "OPT037",
    WARNING,
    "silent",
    deepspeed_0_19_8("runtime/lr_schedules.py:578; runtime/lr_schedules.py:691"),
)
def cycles_leave_momentum(config: Config) -> Violations:
    """OneCycle sets cycle_momentum where the optimizer has betas: by default it replaces them.
    Prevents: training with other betas than the optimizer's
    Fix: set cycle_momentum to false"""
    betas = config.read(f"{PARAMS}/betas")
    if isinstance(betas, list) and config.switch(f"{_PARAMS}/cycle_momentum", True):
        message = (
            f"OneCycle replaces betas: {shown(betas)} with its own: 0.8 to 0.9 unless set, and 0.99"
        )
        hint = 'set "cycle_momentum" to false to keep the optimizer\'s'
        yield violation(config, _TYPE, message, hint)


@_cycles.rule("OPT038", WARNING, "silent", deepspeed_0_19_8("runtime/lr_schedules.py:540"))
def decays_have_steps(config: Config) -> Violations:
    """OneCycle's decay rates are used with a decay_step_size.
    Prevents: A rate that stays at cycle_min_lr where a decay is written.
    Fix: add decay_step_size"""
    size = f"{_PARAMS}/decay_step_size"
    if config.has(size) and config.number(size) != 0:
        return
    for key in ("decay_lr_rate", "decay_mom_rate"):
        rate = config.number(f"{_PARAMS}/{key}")
        if rate:
            message = (
                f"{key}: {shown(rate)} has no effect: decay_step_size is 0, so nothing "
                "decays after the cycle"
            )
            hint = 'add "decay_step_size": the steps of a decay'
            yield violation(config, f"{_PARAMS}/{key}", message, hint)
