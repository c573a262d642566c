"""Warming the learning rate up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ....documents.deepspeed_config import Config, whole_of
from ....documents.submission import Submission
from ....findings import ERROR, WARNING, Severity, Violation, Violations
from ...rule import submissions
from ...sources import deepspeed_now
from .subjects import building
from .values import shown

SCHEDULER: Final = "/scheduler"
PARAMS: Final = "/scheduler/params"

#: The first DeepSpeed that checks warmup_num_steps, and the first that takes the optimizer's rate for WarmupLR's.
CHECKS_WARMUP: Final = (0, 19, 3)

TAKES_OPTIMIZERS_RATE: Final = (0, 17, 0)


def _schedules(submission: Submission, *names: str) -> Iterator[tuple[Config, str]]:
    """The configs with a schedule, of these names if any are given, that DeepSpeed has or might have."""
    for config in building(submission):
        name = config.read(f"{SCHEDULER}/type")
        if isinstance(name, str) and (not names or name in names):
            yield config, name


@submissions.rule(
    "OPT012",
    ERROR,
    "init",
    deepspeed_now("runtime/lr_schedules.py:816; runtime/lr_schedules.py:826; runtime/lr_schedules.py:866"),
    reads=("DeepSpeed config",),
)
def warmup_ends_before_the_end(submission: Submission) -> Violations:
    """A schedule with an end knows total_num_steps, and its warm-up is shorter.

    Prevents: `TypeError: missing required positional argument: 'total_num_steps'`, or a run within its warm-up
    Fix: total_num_steps, and a shorter warm-up
    """
    for config, name in _schedules(submission, "WarmupDecayLR", "WarmupCosineLR"):
        if config.has(PARAMS) and not config.has(f"{PARAMS}/total_num_steps"):
            message = f"{name} without total_num_steps: its constructor raises"
            yield Violation(where=config.locate(PARAMS), message=message, hint='"total_num_steps": ...')
        total = config.number(f"{PARAMS}/total_num_steps")
        written = config.has(f"{PARAMS}/warmup_num_steps")
        steps = config.number(f"{PARAMS}/warmup_num_steps") if written else 1000
        if total is not None and steps is not None and total < steps:
            said = f"warmup_num_steps: {shown(steps)}" if written else "warmup_num_steps, 1000 by default,"
            message = f"{said} is more than total_num_steps: {shown(total)}: {name} never reaches the full rate"
            where = config.locate(f"{PARAMS}/total_num_steps")
            hint = f"warmup_num_steps: {max(1, int(total) // 100)}"
            yield Violation(where=where, message=message, hint=hint, severity=Severity.WARNING)


@submissions.rule(
    "OPT011",
    ERROR,
    "init",
    deepspeed_now("runtime/lr_schedules.py:733; runtime/lr_schedules.py:874"),
    since=(0, 19, 3),
    reads=("DeepSpeed config",),
)
def warmup_takes_steps(submission: Submission) -> Violations:
    """warmup_num_steps is a whole number above zero.

    Prevents: `warmup_num_steps must be a positive integer`
    Fix: a whole number above zero
    """
    floats = submission.consumer == "deepspeed"  # hjson makes whole numbers of 1e3 and 1000.0
    for config, _ in _schedules(submission, "WarmupLR", "WarmupDecayLR", "WarmupCosineLR"):
        pointer = f"{PARAMS}/warmup_num_steps"
        value = config.read(pointer)
        if value is None or isinstance(value, str):
            continue
        steps = whole_of(value) if floats or isinstance(value, int) else None
        if steps is None or steps <= 0:
            message = f"warmup_num_steps: {shown(value)} is no whole number above zero, which DeepSpeed refuses"
            yield Violation(
                where=config.locate(pointer), message=message, hint=f"warmup_num_steps: {max(1, steps or 1)}"
            )


@submissions.rule(
    "OPT013", WARNING, "silent", deepspeed_now("runtime/lr_schedules.py:745"), reads=("DeepSpeed config",)
)
def warmup_is_log_or_linear(submission: Submission) -> Violations:
    """warmup_type is log or linear: anything else is silently log.

    Prevents: another warm-up than the one written
    Fix: log or linear
    """
    for config, _ in _schedules(submission, "WarmupLR", "WarmupDecayLR", "WarmupCosineLR"):
        kind = config.read(f"{PARAMS}/warmup_type")
        if kind is not None and kind not in ("log", "linear"):
            message = f'warmup_type: {shown(kind)} is unknown, so the rate warms up as with "log"'
            yield Violation(where=config.locate(f"{PARAMS}/warmup_type"), message=message, hint='"linear" or "log"')


@submissions.rule(
    "OPT014", WARNING, "silent", deepspeed_now("runtime/lr_schedules.py:738"), reads=("DeepSpeed config",)
)
def one_rate(submission: Submission) -> Violations:
    """The schedule's highest rate is the optimizer's: the schedule's wins.

    Prevents: training at another rate than the optimizer's block says
    Fix: one rate
    """
    for config, name in _schedules(submission, "WarmupLR", "WarmupDecayLR"):
        rate = config.number("/optimizer/params/lr")
        highest = config.number(f"{PARAMS}/warmup_max_lr")
        if rate is not None and highest is not None and rate != highest:
            message = f"warmup_max_lr: {shown(highest)} is not the optimizer's lr: {shown(rate)}: {name} takes its own"
            yield Violation(
                where=config.locate(f"{PARAMS}/warmup_max_lr"), message=message, hint="the same in both places"
            )


@submissions.rule("OPT032", ERROR, "silent", deepspeed_now("runtime/lr_schedules.py:818"), reads=("DeepSpeed config",))
def decay_starts_from_the_rate(submission: Submission) -> Violations:
    """A schedule with a default for the highest rate is told the optimizer's, or trains at 0.001.

    Prevents: training at 0.001 whatever lr says
    Fix: write warmup_max_lr
    """
    old = submission.deepspeed_version < TAKES_OPTIMIZERS_RATE
    for config, name in _schedules(submission, "WarmupDecayLR", *(("WarmupLR",) if old else ())):
        rate = config.number("/optimizer/params/lr")
        if config.has(PARAMS) and not config.has(f"{PARAMS}/warmup_max_lr") and rate != 0.001:
            instead = (
                f"in place of the optimizer's lr: {shown(rate)}" if rate is not None else "whatever the optimizer's is"
            )
            message = f"{name} without warmup_max_lr trains at its default, 0.001, {instead}"
            hint = f'"warmup_max_lr": {shown(rate)}' if rate is not None else '"warmup_max_lr": ...'
            yield Violation(where=config.locate(PARAMS), message=message, hint=hint)


@submissions.rule(
    "OPT033", WARNING, "silent", deepspeed_now("runtime/lr_schedules.py:742"), reads=("DeepSpeed config",)
)
def rate_rises_in_warmup(submission: Submission) -> Violations:
    """Warming up starts below the highest rate.

    Prevents: a rate that falls where it should rise
    Fix: warmup_min_lr: 0
    """
    for config, _ in _schedules(submission, "WarmupLR", "WarmupDecayLR"):
        lowest, highest = (config.number(f"{PARAMS}/warmup_{end}_lr") for end in ("min", "max"))
        if lowest is not None and highest is not None and lowest > highest:
            message = f"warmup_min_lr: {shown(lowest)} is above warmup_max_lr: {shown(highest)}: the rate falls"
            yield Violation(where=config.locate(f"{PARAMS}/warmup_min_lr"), message=message, hint="warmup_min_lr: 0")
