"""The learning-rate schedule."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Final

from ....documents.deepspeed_config import Config
from ....documents.submission import Submission
from ....findings import ERROR, Violation, Violations
from ....job.source import escape
from ...rule import submissions
from ...sources import deepspeed_now
from .subjects import building
from .values import shown

SCHEDULER: Final = "/scheduler"
PARAMS: Final = "/scheduler/params"

_WARMUP: Final = ("warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type", "last_batch_iteration")
#: What each schedule of DeepSpeed takes; the first so many of them must be given.
TAKES: Final = {
    "WarmupLR": (0, _WARMUP),
    "WarmupDecayLR": (1, ("total_num_steps", *_WARMUP)),
    "WarmupCosineLR": (
        1,
        ("total_num_steps", "warmup_min_ratio", "warmup_num_steps", "cos_min_ratio", "warmup_type", _WARMUP[-1]),
    ),
    "LRRangeTest": (
        0,
        (
            *("lr_range_test_min_lr", "lr_range_test_step_size", "lr_range_test_step_rate", "lr_range_test_staircase"),
            _WARMUP[-1],
        ),
    ),
    "OneCycle": (
        2,
        (
            *("cycle_min_lr", "cycle_max_lr", "decay_lr_rate", "cycle_first_step_size", "cycle_second_step_size"),
            *("cycle_first_stair_count", "cycle_second_stair_count", "decay_step_size", "cycle_momentum"),
            *("cycle_min_mom", "cycle_max_mom", "decay_mom_rate", "last_batch_iteration"),
        ),
    ),
}
#: Classes of torch.optim.lr_scheduler in torch 2.13.
TORCH_SCHEDULES: Final = (
    *("ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR"),
    *("ExponentialLR", "LambdaLR", "LinearLR", "MultiStepLR", "MultiplicativeLR", "OneCycleLR", "PolynomialLR"),
    *("ReduceLROnPlateau", "SequentialLR", "StepLR"),
)


def _schedules(submission: Submission, *names: str) -> Iterator[tuple[Config, str]]:
    """The configs with a schedule, of these names if any are given, that DeepSpeed has or might have."""
    for config in building(submission):
        name = config.read(f"{SCHEDULER}/type")
        if isinstance(name, str) and (not names or name in names):
            yield config, name


@building.rule("OPT027", ERROR, "silent", deepspeed_now("runtime/config.py:329"))
def scheduler_has_a_type(config: Config) -> Violations:
    """The scheduler block names its type: without one, DeepSpeed ignores the block.

    Prevents: no schedule at all: the rate silently stays as it is
    Fix: name the type
    """
    block = config.block(SCHEDULER)
    if block and block.get("type") is None:
        message = f"scheduler has no type, so DeepSpeed ignores it: {', '.join(list(block)[:4])} with it"
        yield Violation(where=config.locate_key(SCHEDULER), message=message, hint='"type": "WarmupDecayLR"')


@submissions.rule("OPT028", ERROR, "init", deepspeed_now("runtime/engine.py:1936"), reads=("DeepSpeed config",))
def scheduler_has_params(submission: Submission) -> Violations:
    """The scheduler block has params, even where they are empty.

    Prevents: `TypeError: argument after ** must be a mapping, not NoneType`
    Fix: params, at least empty
    """
    for config, name in _schedules(submission):
        if not config.has(PARAMS) or config.value(PARAMS) is None:
            message = f"scheduler {shown(name)} has no params, and DeepSpeed doesn't take that for empty ones"
            yield Violation(where=config.locate_key(SCHEDULER), message=message, hint='"params": {}')


@submissions.rule("OPT009", ERROR, "init", deepspeed_now("runtime/engine.py:1929"), reads=("DeepSpeed config",))
def schedule_is_known(submission: Submission) -> Violations:
    """The schedule is one of DeepSpeed's, or a class of torch.optim.lr_scheduler.

    Prevents: `DeepSpeed does not recognize LR scheduler ...`
    Fix: a known schedule
    """
    for config, name in _schedules(submission):
        if name in TAKES or name in TORCH_SCHEDULES:
            continue
        known = (*TAKES, *TORCH_SCHEDULES)
        same = [other for other in known if other.lower() == name.lower()]
        close = same or difflib.get_close_matches(name, known, n=1)
        message = f"type: {shown(name)} is neither a schedule of DeepSpeed nor of torch"
        hint = f'"{close[0]}"' if close else f"one of {', '.join(TAKES)}"
        yield Violation(where=config.locate(f"{SCHEDULER}/type"), message=message, hint=hint)


@submissions.rule("OPT029", ERROR, "init", deepspeed_now("runtime/engine.py:1885"), reads=("DeepSpeed config",))
def torch_schedules_drive_torch_optimizers(submission: Submission) -> Violations:
    """A schedule of torch takes torch optimizers, not DeepSpeed's wrappers of ZeRO, fp16 and bf16.

    Prevents: `TypeError: DeepSpeedZeroOptimizer is not an Optimizer`
    Fix: a schedule of DeepSpeed
    """
    for config, name in _schedules(submission, *TORCH_SCHEDULES):
        stage, kind = config.stage, config.precision
        wrapper = f"ZeRO stage {stage}" if stage else kind if kind in ("fp16", "bf16") else None
        if wrapper:
            message = f"type: {shown(name)} is torch's, which refuses the wrapped optimizer of {wrapper}"
            hint = f"one of {', '.join(TAKES)}, or build the schedule in the script"
            yield Violation(where=config.locate(f"{SCHEDULER}/type"), message=message, hint=hint)


@submissions.rule(
    "OPT030",
    ERROR,
    "init",
    deepspeed_now("runtime/lr_schedules.py:313; runtime/lr_schedules.py:414; runtime/lr_schedules.py:703"),
    reads=("DeepSpeed config",),
)
def parameters_are_the_schedules(submission: Submission) -> Violations:
    """The schedule's params are ones that its constructor takes.

    Prevents: `TypeError: __init__() got an unexpected keyword argument`
    Fix: parameters that the constructor takes
    """
    for config, name in _schedules(submission, *TAKES):
        taken = TAKES[name][1]
        for key in config.block(PARAMS):
            if key in taken:
                continue
            close = difflib.get_close_matches(key, taken, n=1)
            message = f"{key} is no parameter of {name}: its constructor raises"
            hint = f"did you mean {close[0]}?" if close else f"one of {', '.join(taken[:-1])}"
            if name == "WarmupCosineLR" and key in ("warmup_max_lr", "warmup_min_lr"):
                hint = "the optimizer's lr is the highest rate; warmup_min_ratio and cos_min_ratio are shares of it"
            yield Violation(where=config.locate_key(f"{PARAMS}/{escape(key)}"), message=message, hint=hint)


@submissions.rule("OPT031", ERROR, "init", deepspeed_now("runtime/lr_schedules.py:471"), reads=("DeepSpeed config",))
def schedule_is_complete(submission: Submission) -> Violations:
    """OneCycle knows its two rates.

    Prevents: `TypeError: missing required positional argument: 'cycle_max_lr'`
    Fix: write it
    """
    for config, name in _schedules(submission, "OneCycle"):
        count, taken = TAKES[name]
        for key in taken[:count] if config.has(PARAMS) else ():
            if not config.has(f"{PARAMS}/{key}"):
                message = f"{name} without {key}: its constructor raises"
                yield Violation(where=config.locate(PARAMS), message=message, hint=f'"{key}": ...')
