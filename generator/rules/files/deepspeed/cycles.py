"""Schedules that cycle or sweep the rate: OneCycle and LRRangeTest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ....documents.deepspeed_config import Config
from ....documents.submission import Submission
from ....findings import ERROR, WARNING, Violation, Violations
from ...rule import submissions
from ...sources import deepspeed_now
from .subjects import building
from .values import shown

PARAMS: Final = "/scheduler/params"


def _with(submission: Submission, name: str) -> Iterator[Config]:
    for config in building(submission):
        if config.read("/scheduler/type") == name:
            yield config


@submissions.rule(
    "OPT034", WARNING, "silent", deepspeed_now("runtime/lr_schedules.py:314"), reads=("DeepSpeed config",)
)
def range_tests_dont_train(submission: Submission) -> Violations:
    """LRRangeTest raises the rate without end: it looks for a rate, it doesn't train with one.

    Prevents: a loss that diverges by design
    Fix: a training schedule
    """
    for config in _with(submission, "LRRangeTest"):
        message = "LRRangeTest raises the learning rate until the job ends, to see where training breaks"
        hint = "WarmupDecayLR or WarmupCosineLR to train"
        yield Violation(where=config.locate("/scheduler/type"), message=message, hint=hint)


@submissions.rule(
    "OPT035", ERROR, "init", deepspeed_now("runtime/lr_schedules.py:371"), since=(0, 19, 4), reads=("DeepSpeed config",)
)
def range_tests_take_steps(submission: Submission) -> Violations:
    """lr_range_test_step_size is a whole number above zero.

    Prevents: `lr_range_test_step_size must be a positive integer`
    Fix: a whole number above zero
    """
    for config in _with(submission, "LRRangeTest"):
        pointer = f"{PARAMS}/lr_range_test_step_size"
        value = config.number(pointer)
        if value is not None and (value <= 0 or value != int(value)):
            message = f"lr_range_test_step_size: {shown(value)} is no whole number above zero"
            yield Violation(where=config.locate(pointer), message=message, hint="2000, the default")


@submissions.rule(
    "OPT036", ERROR, "init", deepspeed_now("runtime/lr_schedules.py:527"), since=(0, 19, 4), reads=("DeepSpeed config",)
)
def cycles_have_a_length(submission: Submission) -> Violations:
    """OneCycle's first half takes steps, and its second half no negative number of them.

    Prevents: `cycle_first_step_size must be positive`
    Fix: steps above zero
    """
    for config in _with(submission, "OneCycle"):
        for key, lowest in (("cycle_first_step_size", "above 0"), ("cycle_second_step_size", "0 or more")):
            value = config.number(f"{PARAMS}/{key}")
            if value is not None and (value < 0 or (value == 0 and lowest == "above 0")):
                message = f"{key}: {shown(value)} is not {lowest}"
                yield Violation(where=config.locate(f"{PARAMS}/{key}"), message=message, hint="2000, the default")


@submissions.rule(
    "OPT037",
    WARNING,
    "silent",
    deepspeed_now("runtime/lr_schedules.py:578; runtime/lr_schedules.py:691"),
    reads=("DeepSpeed config",),
)
def cycles_leave_momentum(submission: Submission) -> Violations:
    """OneCycle says whether it cycles the momentum: by default it replaces the optimizer's betas.

    Prevents: training with other betas than the optimizer's block says
    Fix: cycle_momentum: false
    """
    for config in _with(submission, "OneCycle"):
        betas = config.read("/optimizer/params/betas")
        if isinstance(betas, list) and config.switch(f"{PARAMS}/cycle_momentum", True):
            message = f"OneCycle replaces betas: {shown(betas)} by its own: 0.8 to 0.9 unless set, and 0.99"
            where = config.locate("/scheduler/type")
            yield Violation(where=where, message=message, hint='"cycle_momentum": false keeps the optimizer\'s')


@submissions.rule(
    "OPT038", WARNING, "silent", deepspeed_now("runtime/lr_schedules.py:540"), reads=("DeepSpeed config",)
)
def decays_have_steps(submission: Submission) -> Violations:
    """OneCycle decays after its cycle only with a decay_step_size.

    Prevents: a rate that stays at cycle_min_lr where a decay is written
    Fix: decay_step_size
    """
    for config in _with(submission, "OneCycle"):
        size = config.number(f"{PARAMS}/decay_step_size") if config.has(f"{PARAMS}/decay_step_size") else 0.0
        for key in ("decay_lr_rate", "decay_mom_rate"):
            rate = config.number(f"{PARAMS}/{key}")
            if rate and size == 0:
                message = f"{key}: {shown(rate)} has no effect: decay_step_size is 0, so nothing decays after the cycle"
                where = config.locate(f"{PARAMS}/{key}")
                yield Violation(where=where, message=message, hint='"decay_step_size": the steps of a decay')
