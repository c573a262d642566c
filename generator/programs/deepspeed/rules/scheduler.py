"""Which learning-rate schedule is built, and whether it accepts its parameters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from ....findings import ERROR, Severity, Violation, Violations
from ....job.pointer import escape
from ....rules.numbers import listed
from ....rules.sources import deepspeed_now
from ....rules.violations import suggest, violation
from ...rule import Subject, subject
from ...submission import Submission
from ..config import Config, Number
from .subjects import building
from .values import shown

SCHEDULER: Final = "/scheduler"
TYPE: Final = "/scheduler/type"
PARAMS: Final = "/scheduler/params"

_LAST: Final = "last_batch_iteration"
_WARMUP: Final = ("warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type", _LAST)
_CYCLE_RATES: Final = ("cycle_min_lr", "cycle_max_lr")
#: The parameters of each schedule of DeepSpeed.
_ACCEPTED: Final = {
    "WarmupLR": _WARMUP,
    "WarmupDecayLR": ("total_num_steps", *_WARMUP),
    "WarmupCosineLR": (
        *("total_num_steps", "warmup_min_ratio", "warmup_num_steps", "cos_min_ratio", "warmup_type", _LAST),
    ),
    "LRRangeTest": (
        *("lr_range_test_min_lr", "lr_range_test_step_size", "lr_range_test_step_rate", "lr_range_test_staircase"),
        _LAST,
    ),
    "OneCycle": (
        *(*_CYCLE_RATES, "decay_lr_rate", "cycle_first_step_size", "cycle_second_step_size"),
        *("cycle_first_stair_count", "cycle_second_stair_count", "decay_step_size", "cycle_momentum"),
        *("cycle_min_mom", "cycle_max_mom", "decay_mom_rate", _LAST),
    ),
}
#: Classes of torch.optim.lr_scheduler in torch 2.13.
_TORCH: Final = (
    *("ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR"),
    *("ExponentialLR", "LambdaLR", "LinearLR", "MultiStepLR", "MultiplicativeLR", "OneCycleLR", "PolynomialLR"),
    *("ReduceLROnPlateau", "SequentialLR", "StepLR"),
)


class Schedule(NamedTuple):
    """A config whose schedule DeepSpeed builds, and the schedule's name."""

    config: Config
    name: str

    def has(self, key: str) -> bool:
        """Whether a parameter is written."""
        return self.config.has(f"{PARAMS}/{key}")

    def number(self, key: str) -> Number | None:
        """The number that is written for a parameter."""
        return self.config.number(f"{PARAMS}/{key}")

    def in_params(self, key: str, message: str, hint: str, severity: Severity | None = None) -> Violation:
        """A violation at a parameter, or at all of them."""
        where = self.config.locate(f"{PARAMS}/{key}" if key else PARAMS)
        return Violation(where, message, hint, severity=severity)


@subject("DeepSpeed config")
def schedules(submission: Submission) -> Iterator[Schedule]:
    """The configs that name a schedule, known or not."""
    for config in building(submission):
        name = config.text(TYPE)
        if name is not None:
            yield Schedule(config, name)


def schedules_of(*names: str) -> Subject[Schedule]:
    """The subject of rules on the schedules of these names."""

    @subject("DeepSpeed config")
    def found(submission: Submission) -> Iterator[Schedule]:
        return (schedule for schedule in schedules(submission) if schedule.name in names)

    return found


_known: Final = schedules_of(*_ACCEPTED)
_torchs: Final = schedules_of(*_TORCH)
_cycles: Final = schedules_of("OneCycle")


@building.rule("OPT027", ERROR, "silent", deepspeed_now("runtime/config.py:329"))
def scheduler_has_a_type(config: Config) -> Violations:
    """The scheduler block names its type: without one, DeepSpeed ignores the block.

    Prevents: There is no schedule: the rate silently stays as it is.
    Fix: add "type"
    """
    block = config.block(SCHEDULER)
    if block and block.get("type") is None:
        message = f"scheduler has no type, so DeepSpeed ignores it: {', '.join(list(block)[:4])} with it"
        yield Violation(config.locate_key(SCHEDULER), message, 'add "type": "WarmupDecayLR"')


@schedules.rule("OPT028", ERROR, "init", deepspeed_now("runtime/engine.py:1936"))
def scheduler_has_params(schedule: Schedule) -> Violations:
    """The scheduler block has params, even where they are empty.

    Prevents: `TypeError: argument after ** must be a mapping, not NoneType`
    Fix: add params, at least empty"""
    if schedule.config.value(PARAMS) is None:
        message = f"scheduler {shown(schedule.name)} has no params, and DeepSpeed requires them, even empty"
        yield Violation(schedule.config.locate_key(SCHEDULER), message, 'add "params": {}')


@schedules.rule("OPT009", ERROR, "init", deepspeed_now("runtime/engine.py:1929"))
def schedule_is_known(schedule: Schedule) -> Violations:
    """The schedule is one of DeepSpeed's, or a class of torch.optim.lr_scheduler.

    Prevents: `DeepSpeed does not recognize LR scheduler ...`
    Fix: use a known schedule"""
    known, name = (*_ACCEPTED, *_TORCH), schedule.name
    if name not in known:
        same = [other for other in known if other.lower() == name.lower()]
        message = f"unknown schedule {shown(name)}: neither DeepSpeed nor torch.optim.lr_scheduler has it"
        hint = f"use {same[0]}" if same else suggest(name, known, f"use {listed(_ACCEPTED)}")
        yield violation(schedule.config, TYPE, message, hint)


@_torchs.rule("OPT029", ERROR, "init", deepspeed_now("runtime/engine.py:1885"))
def torch_schedules_drive_torch_optimizers(schedule: Schedule) -> Violations:
    """torch's schedules are used without ZeRO, fp16 and bf16: they refuse the optimizers that wrap torch's.

    Prevents: `TypeError: DeepSpeedZeroOptimizer is not an Optimizer`
    Fix: use a schedule of DeepSpeed"""
    stage, precision = schedule.config.stage, schedule.config.precision
    wrapper = f"ZeRO stage {stage}" if stage else precision if precision in ("fp16", "bf16") else None
    if wrapper:
        message = f"type: {shown(schedule.name)} is torch's, which refuses the wrapped optimizer of {wrapper}"
        hint = f"use {listed(_ACCEPTED)}, or build the schedule in the script"
        yield violation(schedule.config, TYPE, message, hint)


@_known.rule("OPT030", ERROR, "init", deepspeed_now("runtime/lr_schedules.py:313, :414, :703"))
def parameters_are_the_schedules(schedule: Schedule) -> Violations:
    """The schedule's params are ones that its constructor accepts.

    Prevents: `TypeError: __init__() got an unexpected keyword argument`
    Fix: use parameters that the constructor accepts"""
    accepted, config = _ACCEPTED[schedule.name], schedule.config
    for key in (key for key in config.block(PARAMS) if key not in accepted):
        hint = suggest(key, accepted)
        if schedule.name == "WarmupCosineLR" and key in ("warmup_max_lr", "warmup_min_lr"):
            hint = "set the optimizer's lr, the highest rate; warmup_min_ratio and cos_min_ratio are shares of it"
        message = f"unknown parameter {key} of {schedule.name}: its constructor raises"
        yield Violation(config.locate_key(f"{PARAMS}/{escape(key)}"), message, hint)


@_cycles.rule("OPT031", ERROR, "init", deepspeed_now("runtime/lr_schedules.py:471"))
def schedule_is_complete(schedule: Schedule) -> Violations:
    """OneCycle has its two rates.

    Prevents: `TypeError: missing required positional argument: 'cycle_max_lr'`
    Fix: add cycle_min_lr and cycle_max_lr"""
    for key in _CYCLE_RATES if schedule.config.has(PARAMS) else ():
        if not schedule.has(key):
            yield schedule.in_params("", f"OneCycle requires {key}: its constructor raises", f'add "{key}"')
