"""The learning-rate schedule."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Final

from ....documents.document import DsConfig
from ....documents.submission import Submission
from ....findings import Severity
from ....job.source import escape
from ...sources import deepspeed_now
from ..rule import Breach, DocumentRule
from .values import building, ds_rule, given, precision, shown, stage_of

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


def _schedules(submission: Submission, *names: str) -> Iterator[tuple[DsConfig, str]]:
    """The configs with a schedule, of these names if any are given, that DeepSpeed has or might have."""
    for config in building(submission):
        name = given(config, f"{SCHEDULER}/type")
        if isinstance(name, str) and (not names or name in names):
            yield config, name


def scheduler_has_a_type(submission: Submission) -> Iterator[Breach]:
    """The scheduler block names its type: without one, DeepSpeed ignores the block."""
    for config in building(submission):
        block = config.block(SCHEDULER)
        if block and block.get("type") is None:
            message = f"scheduler has no type, so DeepSpeed ignores it: {', '.join(list(block)[:4])} with it"
            yield Breach(where=config.locate_key(SCHEDULER), message=message, hint='"type": "WarmupDecayLR"')


def scheduler_has_params(submission: Submission) -> Iterator[Breach]:
    """The scheduler block has params, even where they are empty."""
    for config, name in _schedules(submission):
        if not config.has(PARAMS) or config.value(PARAMS) is None:
            message = f"scheduler {shown(name)} has no params, and DeepSpeed doesn't take that for empty ones"
            yield Breach(where=config.locate_key(SCHEDULER), message=message, hint='"params": {}')


def schedule_is_known(submission: Submission) -> Iterator[Breach]:
    """The schedule is one of DeepSpeed's, or a class of torch.optim.lr_scheduler."""
    for config, name in _schedules(submission):
        if name in TAKES or name in TORCH_SCHEDULES:
            continue
        known = (*TAKES, *TORCH_SCHEDULES)
        same = [other for other in known if other.lower() == name.lower()]
        close = same or difflib.get_close_matches(name, known, n=1)
        message = f"type: {shown(name)} is neither a schedule of DeepSpeed nor of torch"
        hint = f'"{close[0]}"' if close else f"one of {', '.join(TAKES)}"
        yield Breach(where=config.locate(f"{SCHEDULER}/type"), message=message, hint=hint)


def torch_schedules_drive_torch_optimizers(submission: Submission) -> Iterator[Breach]:
    """A schedule of torch takes torch optimizers, not DeepSpeed's wrappers of ZeRO, fp16 and bf16."""
    for config, name in _schedules(submission, *TORCH_SCHEDULES):
        stage, kind = stage_of(config), precision(config)
        wrapper = f"ZeRO stage {stage}" if stage else kind if kind in ("fp16", "bf16") else None
        if wrapper:
            message = f"type: {shown(name)} is torch's, which refuses the wrapped optimizer of {wrapper}"
            hint = f"one of {', '.join(TAKES)}, or build the schedule in the script"
            yield Breach(where=config.locate(f"{SCHEDULER}/type"), message=message, hint=hint)


def parameters_are_the_schedules(submission: Submission) -> Iterator[Breach]:
    """The schedule's params are ones that its constructor takes."""
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
            yield Breach(where=config.locate_key(f"{PARAMS}/{escape(key)}"), message=message, hint=hint)


def schedule_is_complete(submission: Submission) -> Iterator[Breach]:
    """OneCycle knows its two rates."""
    for config, name in _schedules(submission, "OneCycle"):
        count, taken = TAKES[name]
        for key in taken[:count] if config.has(PARAMS) else ():
            if not config.has(f"{PARAMS}/{key}"):
                message = f"{name} without {key}: its constructor raises"
                yield Breach(where=config.locate(PARAMS), message=message, hint=f'"{key}": ...')


RULES: Final[tuple[DocumentRule, ...]] = (
    ds_rule(
        "OPT027",
        Severity.ERROR,
        "silent",
        scheduler_has_a_type,
        source=deepspeed_now("runtime/config.py:329"),
        prevents="no schedule at all: the rate silently stays as it is",
        fix="name the type",
    ),
    ds_rule(
        "OPT028",
        Severity.ERROR,
        "init",
        scheduler_has_params,
        source=deepspeed_now("runtime/engine.py:1936"),
        prevents="`TypeError: argument after ** must be a mapping, not NoneType`",
        fix="params, at least empty",
    ),
    ds_rule(
        "OPT009",
        Severity.ERROR,
        "init",
        schedule_is_known,
        source=deepspeed_now("runtime/engine.py:1929"),
        prevents="`DeepSpeed does not recognize LR scheduler ...`",
        fix="a known schedule",
    ),
    ds_rule(
        "OPT029",
        Severity.ERROR,
        "init",
        torch_schedules_drive_torch_optimizers,
        source=deepspeed_now("runtime/engine.py:1885"),
        prevents="`TypeError: DeepSpeedZeroOptimizer is not an Optimizer`",
        fix="a schedule of DeepSpeed",
    ),
    ds_rule(
        "OPT030",
        Severity.ERROR,
        "init",
        parameters_are_the_schedules,
        source=deepspeed_now("runtime/lr_schedules.py:313; runtime/lr_schedules.py:414; runtime/lr_schedules.py:703"),
        prevents="`TypeError: __init__() got an unexpected keyword argument`",
        fix="parameters that the constructor takes",
    ),
    ds_rule(
        "OPT031",
        Severity.ERROR,
        "init",
        schedule_is_complete,
        source=deepspeed_now("runtime/lr_schedules.py:471"),
        prevents="`TypeError: missing required positional argument: 'cycle_max_lr'`",
        fix="write it",
    ),
)
