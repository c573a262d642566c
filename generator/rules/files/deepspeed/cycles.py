"""Schedules that cycle or sweep the rate: OneCycle and LRRangeTest."""

from __future__ import annotations

from typing import Final

from ....findings import ERROR, WARNING, Violations
from ...sources import deepspeed_now
from .schedules import Schedule, schedules_of
from .values import shown

_range_tests: Final = schedules_of("LRRangeTest")
_cycles: Final = schedules_of("OneCycle")


@_range_tests.rule("OPT034", WARNING, "silent", deepspeed_now("runtime/lr_schedules.py:314"))
def range_tests_dont_train(schedule: Schedule) -> Violations:
    """LRRangeTest is not used to train: it raises the rate without end, to find the highest usable one.

    Prevents: a loss that diverges by design
    Fix: use a training schedule
    """
    message = "LRRangeTest raises the learning rate until the job ends, to see where training diverges"
    yield schedule.violation(message, "use WarmupDecayLR or WarmupCosineLR to train")


@_range_tests.rule("OPT035", ERROR, "init", deepspeed_now("runtime/lr_schedules.py:371"), since=(0, 19, 4))
def range_tests_take_steps(schedule: Schedule) -> Violations:
    """lr_range_test_step_size is an integer greater than 0.

    Prevents: `lr_range_test_step_size must be a positive integer`
    Fix: write an integer greater than 0
    """
    key = "lr_range_test_step_size"
    value = schedule.number(key)
    if value is not None and (value <= 0 or value != int(value)):
        message = f"{key} must be an integer greater than 0, not {shown(value)}"
        yield schedule.in_params(key, message, "write 2000, the default")


@_cycles.rule("OPT036", ERROR, "init", deepspeed_now("runtime/lr_schedules.py:527"), since=(0, 19, 4))
def cycles_have_a_length(schedule: Schedule) -> Violations:
    """cycle_first_step_size is greater than 0, and cycle_second_step_size is 0 or more.

    Prevents: `cycle_first_step_size must be positive`
    Fix: write numbers of steps greater than 0
    """
    for key, lowest in (("cycle_first_step_size", "greater than 0"), ("cycle_second_step_size", "0 or more")):
        value = schedule.number(key)
        if value is not None and (value < 0 or (value == 0 and lowest != "0 or more")):
            yield schedule.in_params(key, f"{key} must be {lowest}, not {shown(value)}", "write 2000, the default")


@_cycles.rule("OPT037", WARNING, "silent", deepspeed_now("runtime/lr_schedules.py:578; runtime/lr_schedules.py:691"))
def cycles_leave_momentum(schedule: Schedule) -> Violations:
    """OneCycle sets cycle_momentum where the optimizer has betas: by default it replaces them.

    Prevents: training with other betas than the optimizer's
    Fix: set cycle_momentum to false
    """
    betas = schedule.config.read("/optimizer/params/betas")
    if isinstance(betas, list) and schedule.config.switch("/scheduler/params/cycle_momentum", True):
        message = f"OneCycle replaces betas: {shown(betas)} with its own: 0.8 to 0.9 unless set, and 0.99"
        yield schedule.violation(message, 'set "cycle_momentum" to false to keep the optimizer\'s')


@_cycles.rule("OPT038", WARNING, "silent", deepspeed_now("runtime/lr_schedules.py:540"))
def decays_have_steps(schedule: Schedule) -> Violations:
    """OneCycle's decay rates are used with a decay_step_size.

    Prevents: a rate that stays at cycle_min_lr where a decay is written
    Fix: add decay_step_size
    """
    size = schedule.number("decay_step_size") if schedule.has("decay_step_size") else 0
    for key in ("decay_lr_rate", "decay_mom_rate") if size == 0 else ():
        if rate := schedule.number(key):
            message = f"{key}: {shown(rate)} has no effect: decay_step_size is 0, so nothing decays after the cycle"
            yield schedule.in_params(key, message, 'add "decay_step_size": the steps of a decay')
