"""Warming the learning rate up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ....documents.document import DsConfig
from ....documents.submission import Submission
from ....findings import Severity
from ...sources import deepspeed_now
from ..rule import Breach, DocumentRule
from .values import building, ds_rule, given, number, shown, whole

SCHEDULER: Final = "/scheduler"
PARAMS: Final = "/scheduler/params"

#: The first DeepSpeed that checks warmup_num_steps, and the first that takes the optimizer's rate for WarmupLR's.
CHECKS_WARMUP: Final = (0, 19, 3)

TAKES_OPTIMIZERS_RATE: Final = (0, 17, 0)


def _schedules(submission: Submission, *names: str) -> Iterator[tuple[DsConfig, str]]:
    """The configs with a schedule, of these names if any are given, that DeepSpeed has or might have."""
    for config in building(submission):
        name = given(config, f"{SCHEDULER}/type")
        if isinstance(name, str) and (not names or name in names):
            yield config, name


def warmup_ends_before_the_end(submission: Submission) -> Iterator[Breach]:
    """A schedule with an end knows total_num_steps, and its warm-up is shorter."""
    for config, name in _schedules(submission, "WarmupDecayLR", "WarmupCosineLR"):
        if config.has(PARAMS) and not config.has(f"{PARAMS}/total_num_steps"):
            message = f"{name} without total_num_steps: its constructor raises"
            yield Breach(where=config.locate(PARAMS), message=message, hint='"total_num_steps": ...')
        total = number(given(config, f"{PARAMS}/total_num_steps"))
        written = config.has(f"{PARAMS}/warmup_num_steps")
        steps = number(given(config, f"{PARAMS}/warmup_num_steps")) if written else 1000
        if total is not None and steps is not None and total < steps:
            said = f"warmup_num_steps: {shown(steps)}" if written else "warmup_num_steps, 1000 by default,"
            message = f"{said} is more than total_num_steps: {shown(total)}: {name} never reaches the full rate"
            where = config.locate(f"{PARAMS}/total_num_steps")
            hint = f"warmup_num_steps: {max(1, int(total) // 100)}"
            yield Breach(where=where, message=message, hint=hint, severity=Severity.WARNING)


def warmup_takes_steps(submission: Submission) -> Iterator[Breach]:
    """warmup_num_steps is a whole number above zero."""
    floats = submission.consumer == "deepspeed"  # hjson makes whole numbers of 1e3 and 1000.0
    for config, _ in _schedules(submission, "WarmupLR", "WarmupDecayLR", "WarmupCosineLR"):
        pointer = f"{PARAMS}/warmup_num_steps"
        value = given(config, pointer)
        if value is None or isinstance(value, str):
            continue
        steps = whole(value) if floats or isinstance(value, int) else None
        if steps is None or steps <= 0:
            message = f"warmup_num_steps: {shown(value)} is no whole number above zero, which DeepSpeed refuses"
            yield Breach(where=config.locate(pointer), message=message, hint=f"warmup_num_steps: {max(1, steps or 1)}")


def warmup_is_log_or_linear(submission: Submission) -> Iterator[Breach]:
    """warmup_type is log or linear: anything else is silently log."""
    for config, _ in _schedules(submission, "WarmupLR", "WarmupDecayLR", "WarmupCosineLR"):
        kind = given(config, f"{PARAMS}/warmup_type")
        if kind is not None and kind not in ("log", "linear"):
            message = f'warmup_type: {shown(kind)} is unknown, so the rate warms up as with "log"'
            yield Breach(where=config.locate(f"{PARAMS}/warmup_type"), message=message, hint='"linear" or "log"')


def one_rate(submission: Submission) -> Iterator[Breach]:
    """The schedule's highest rate is the optimizer's: the schedule's wins."""
    for config, name in _schedules(submission, "WarmupLR", "WarmupDecayLR"):
        rate = number(given(config, "/optimizer/params/lr"))
        highest = number(given(config, f"{PARAMS}/warmup_max_lr"))
        if rate is not None and highest is not None and rate != highest:
            message = f"warmup_max_lr: {shown(highest)} is not the optimizer's lr: {shown(rate)}: {name} takes its own"
            yield Breach(
                where=config.locate(f"{PARAMS}/warmup_max_lr"), message=message, hint="the same in both places"
            )


def decay_starts_from_the_rate(submission: Submission) -> Iterator[Breach]:
    """A schedule with a default for the highest rate is told the optimizer's, or trains at 0.001."""
    old = submission.deepspeed_version < TAKES_OPTIMIZERS_RATE
    for config, name in _schedules(submission, "WarmupDecayLR", *(("WarmupLR",) if old else ())):
        rate = number(given(config, "/optimizer/params/lr"))
        if config.has(PARAMS) and not config.has(f"{PARAMS}/warmup_max_lr") and rate != 0.001:
            instead = (
                f"in place of the optimizer's lr: {shown(rate)}" if rate is not None else "whatever the optimizer's is"
            )
            message = f"{name} without warmup_max_lr trains at its default, 0.001, {instead}"
            hint = f'"warmup_max_lr": {shown(rate)}' if rate is not None else '"warmup_max_lr": ...'
            yield Breach(where=config.locate(PARAMS), message=message, hint=hint)


def rate_rises_in_warmup(submission: Submission) -> Iterator[Breach]:
    """Warming up starts below the highest rate."""
    for config, _ in _schedules(submission, "WarmupLR", "WarmupDecayLR"):
        lowest, highest = (number(given(config, f"{PARAMS}/warmup_{end}_lr")) for end in ("min", "max"))
        if lowest is not None and highest is not None and lowest > highest:
            message = f"warmup_min_lr: {shown(lowest)} is above warmup_max_lr: {shown(highest)}: the rate falls"
            yield Breach(where=config.locate(f"{PARAMS}/warmup_min_lr"), message=message, hint="warmup_min_lr: 0")


RULES: Final[tuple[DocumentRule, ...]] = (
    ds_rule(
        "OPT012",
        Severity.ERROR,
        "init",
        warmup_ends_before_the_end,
        source=deepspeed_now("runtime/lr_schedules.py:816; runtime/lr_schedules.py:826; runtime/lr_schedules.py:866"),
        prevents="`TypeError: missing required positional argument: 'total_num_steps'`, or a run within its warm-up",
        fix="total_num_steps, and a shorter warm-up",
    ),
    ds_rule(
        "OPT011",
        Severity.ERROR,
        "init",
        warmup_takes_steps,
        source=deepspeed_now("runtime/lr_schedules.py:733; runtime/lr_schedules.py:874"),
        prevents="`warmup_num_steps must be a positive integer`",
        fix="a whole number above zero",
        since=CHECKS_WARMUP,
    ),
    ds_rule(
        "OPT013",
        Severity.WARNING,
        "silent",
        warmup_is_log_or_linear,
        source=deepspeed_now("runtime/lr_schedules.py:745"),
        prevents="another warm-up than the one written",
        fix="log or linear",
    ),
    ds_rule(
        "OPT014",
        Severity.WARNING,
        "silent",
        one_rate,
        source=deepspeed_now("runtime/lr_schedules.py:738"),
        prevents="training at another rate than the optimizer's block says",
        fix="one rate",
    ),
    ds_rule(
        "OPT032",
        Severity.ERROR,
        "silent",
        decay_starts_from_the_rate,
        source=deepspeed_now("runtime/lr_schedules.py:818"),
        prevents="training at 0.001 whatever lr says",
        fix="write warmup_max_lr",
    ),
    ds_rule(
        "OPT033",
        Severity.WARNING,
        "silent",
        rate_rises_in_warmup,
        source=deepspeed_now("runtime/lr_schedules.py:742"),
        prevents="a rate that falls where it should rise",
        fix="warmup_min_lr: 0",
    ),
)
