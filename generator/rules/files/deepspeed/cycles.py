"""Schedules that cycle or sweep the rate: OneCycle and LRRangeTest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ....documents.document import DsConfig
from ....documents.submission import Submission
from ....findings import Severity
from ...sources import deepspeed_now
from ..rule import Breach, DocumentRule
from .values import building, ds_rule, given, number, shown, switch

PARAMS: Final = "/scheduler/params"


def _with(submission: Submission, name: str) -> Iterator[DsConfig]:
    for config in building(submission):
        if given(config, "/scheduler/type") == name:
            yield config


def range_tests_dont_train(submission: Submission) -> Iterator[Breach]:
    """LRRangeTest raises the rate without end: it looks for a rate, it doesn't train with one."""
    for config in _with(submission, "LRRangeTest"):
        message = "LRRangeTest raises the learning rate until the job ends, to see where training breaks"
        hint = "WarmupDecayLR or WarmupCosineLR to train"
        yield Breach(where=config.locate("/scheduler/type"), message=message, hint=hint)


def range_tests_take_steps(submission: Submission) -> Iterator[Breach]:
    """lr_range_test_step_size is a whole number above zero."""
    for config in _with(submission, "LRRangeTest"):
        pointer = f"{PARAMS}/lr_range_test_step_size"
        value = number(given(config, pointer))
        if value is not None and (value <= 0 or value != int(value)):
            message = f"lr_range_test_step_size: {shown(value)} is no whole number above zero"
            yield Breach(where=config.locate(pointer), message=message, hint="2000, the default")


def cycles_have_a_length(submission: Submission) -> Iterator[Breach]:
    """OneCycle's first half takes steps, and its second half no negative number of them."""
    for config in _with(submission, "OneCycle"):
        for key, lowest in (("cycle_first_step_size", "above 0"), ("cycle_second_step_size", "0 or more")):
            value = number(given(config, f"{PARAMS}/{key}"))
            if value is not None and (value < 0 or (value == 0 and lowest == "above 0")):
                message = f"{key}: {shown(value)} is not {lowest}"
                yield Breach(where=config.locate(f"{PARAMS}/{key}"), message=message, hint="2000, the default")


def cycles_leave_momentum(submission: Submission) -> Iterator[Breach]:
    """OneCycle says whether it cycles the momentum: by default it replaces the optimizer's betas."""
    for config in _with(submission, "OneCycle"):
        betas = given(config, "/optimizer/params/betas")
        if isinstance(betas, list) and switch(config, f"{PARAMS}/cycle_momentum", True):
            message = f"OneCycle replaces betas: {shown(betas)} by its own: 0.8 to 0.9 unless set, and 0.99"
            where = config.locate("/scheduler/type")
            yield Breach(where=where, message=message, hint='"cycle_momentum": false keeps the optimizer\'s')


def decays_have_steps(submission: Submission) -> Iterator[Breach]:
    """OneCycle decays after its cycle only with a decay_step_size."""
    for config in _with(submission, "OneCycle"):
        size = number(given(config, f"{PARAMS}/decay_step_size")) if config.has(f"{PARAMS}/decay_step_size") else 0.0
        for key in ("decay_lr_rate", "decay_mom_rate"):
            rate = number(given(config, f"{PARAMS}/{key}"))
            if rate and size == 0:
                message = f"{key}: {shown(rate)} has no effect: decay_step_size is 0, so nothing decays after the cycle"
                where = config.locate(f"{PARAMS}/{key}")
                yield Breach(where=where, message=message, hint='"decay_step_size": the steps of a decay')


RULES: Final[tuple[DocumentRule, ...]] = (
    ds_rule(
        "OPT034",
        Severity.WARNING,
        "silent",
        range_tests_dont_train,
        source=deepspeed_now("runtime/lr_schedules.py:314"),
        prevents="a loss that diverges by design",
        fix="a training schedule",
    ),
    ds_rule(
        "OPT035",
        Severity.ERROR,
        "init",
        range_tests_take_steps,
        source=deepspeed_now("runtime/lr_schedules.py:371"),
        prevents="`lr_range_test_step_size must be a positive integer`",
        fix="a whole number above zero",
        since=(0, 19, 4),
    ),
    ds_rule(
        "OPT036",
        Severity.ERROR,
        "init",
        cycles_have_a_length,
        source=deepspeed_now("runtime/lr_schedules.py:527"),
        prevents="`cycle_first_step_size must be positive`",
        fix="steps above zero",
        since=(0, 19, 4),
    ),
    ds_rule(
        "OPT037",
        Severity.WARNING,
        "silent",
        cycles_leave_momentum,
        source=deepspeed_now("runtime/lr_schedules.py:578; runtime/lr_schedules.py:691"),
        prevents="training with other betas than the optimizer's block says",
        fix="cycle_momentum: false",
    ),
    ds_rule(
        "OPT038",
        Severity.WARNING,
        "silent",
        decays_have_steps,
        source=deepspeed_now("runtime/lr_schedules.py:540"),
        prevents="a rate that stays at cycle_min_lr where a decay is written",
        fix="decay_step_size",
    ),
)
