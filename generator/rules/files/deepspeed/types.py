"""Values of a type or range that DeepSpeed's parser refuses, and `"auto"` where nobody fills it in."""

from __future__ import annotations

import json
import math

from ....documents.deepspeed_config import Config
from ....documents.hjson.edits import replace_value
from ....documents.submission import Submission
from ....findings import ERROR, WARNING, Severity, Violation, Violations
from ...rule import submissions
from ...sources import deepspeed
from .mend import mended, written
from .problem import named, shown
from .running import is_endless
from .subjects import configs
from .templates import COMPUTED_LATER, batch_values, is_variable
from .walk import problems
from .wrong_value import number_in


def _of(submission: Submission, rule: str) -> Violations:
    return (problem.violation(config) for config, problem in problems(submission) if problem.rule == rule)


@submissions.rule(
    "PARSE009",
    ERROR,
    "parse",
    deepspeed("runtime/config.py:937, runtime/zero/config.py:113, runtime/engine.py:3506, :3554"),
    reads=("DeepSpeed config",),
)
def numbers_are_no_text(submission: Submission) -> Violations:
    """A number is written as a number.

    Prevents: ValidationError: Input should be a valid integer, unable to parse; or a TypeError at the first step
    Fix: Write the number without quotes.
    """
    yield from _of(submission, "PARSE009")
    for config, key, value in batch_values(submission):
        if isinstance(value, str) and value != "auto" and not is_variable(value):
            message = f"`{key}` is the text {shown(value)}; DeepSpeed computes with it, and fails"
            yield _in_quotes(config, f"/{key}", value, message, "1")
    for config in configs(submission):
        yield from _texts_of_the_engine(config)


def _texts_of_the_engine(config: Config) -> Violations:
    """Texts in place of numbers that the parser takes, and training stops at."""
    for pointer, (stages, error) in COMPUTED_LATER.items():
        value = config.value(pointer)
        endless = pointer == "/steps_per_print" and is_endless(config)
        if (
            not isinstance(value, str)
            or value == "auto"
            or is_variable(value)
            or (config.stage or 0) not in stages
            or endless
        ):
            continue
        message = f"{named(pointer)} is the text {shown(value)}; training stops: {error}"
        yield _in_quotes(config, pointer, value, message, "a number without quotes")


def _in_quotes(config: Config, pointer: str, value: str, message: str, otherwise: str) -> Violation:
    """A violation by a text in place of a number; the number that the text writes is its one answer."""
    plain = number_in(value)
    edits = replace_value(config.json, pointer, json.loads(plain)) if plain and not config.embedded else ()
    return Violation(where=config.locate(pointer), message=message, hint=plain or otherwise, edits=edits)


@submissions.rule("PARSE010", ERROR, "parse", deepspeed("runtime/zero/config.py:113"), reads=("DeepSpeed config",))
def whole_numbers_are_whole(submission: Submission) -> Violations:
    """A whole number has no fraction.

    Prevents: ValidationError: Input should be a valid integer, got a number with a fractional part
    Fix: Round it.
    """
    yield from _of(submission, "PARSE010")
    for config, key, value in batch_values(submission):
        if isinstance(value, float) and math.isfinite(value) and not value.is_integer():
            message = f"`{key}` is {shown(value)}: DeepSpeed computes with it, but a batch is of whole samples"
            hint, where = f"{max(1, math.floor(value))}", config.locate(f"/{key}")
            yield Violation(where=where, message=message, hint=hint, severity=Severity.WARNING)


@submissions.rule(
    "PARSE011",
    ERROR,
    "parse",
    deepspeed("runtime/zero/config.py:60-80, runtime/precision_config.py:20-50"),
    reads=("DeepSpeed config",),
)
def blocks_are_objects(submission: Submission) -> Violations:
    """A block is an object, and so is the whole.

    Prevents: TypeError, or ValidationError: Input should be a valid dictionary
    Fix: Write an object, or leave the block out.
    """
    return _of(submission, "PARSE011")


@submissions.rule("PARSE017", ERROR, "parse", deepspeed("runtime/config_utils.py:105-113"), reads=("DeepSpeed config",))
def values_have_their_type(submission: Submission) -> Violations:
    """A value has the type and range that its key takes.

    Prevents: ValidationError: Input should be a valid ...
    Fix: Write a value of the type that the message names.
    """
    yield from _of(submission, "PARSE017")
    for config, key, value in batch_values(submission):
        if isinstance(value, list | dict):
            message = f"`{key}` takes a whole number; this is {shown(value)}"
            yield Violation(where=config.locate(f"/{key}"), message=message, hint="1")
    for config in configs(submission):
        for pointer in COMPUTED_LATER:
            value = config.value(pointer)
            null = value is None and pointer == "/gradient_clipping" and config.has(pointer)
            if null or isinstance(value, list | dict):
                message = f"{named(pointer)} takes a number; this is {shown(value)}, and training stops: TypeError"
                yield Violation(where=config.locate(pointer), message=message, hint="0 for none" if null else "1")


@submissions.rule(
    "PARSE018",
    ERROR,
    "parse",
    "deepspeedai/DeepSpeed deepspeed/runtime/config.py:152-158 @ 0.16.9",
    reads=("DeepSpeed config",),
)
def blocks_have_what_they_need(submission: Submission) -> Violations:
    """A block has the keys that DeepSpeed fails without.

    Prevents: KeyError: 'enabled'
    Fix: Add the key, or take the block out.
    """
    return _of(submission, "PARSE018")


@submissions.rule("ZERO001", ERROR, "parse", deepspeed("runtime/zero/config.py:81-95"), reads=("DeepSpeed config",))
def stage_is_known(submission: Submission) -> Violations:
    """The ZeRO stage is 0, 1, 2 or 3.

    Prevents: ValidationError: Input should be 0, 1, 2 or 3
    Fix: Write 0, 1, 2 or 3.
    """
    return _of(submission, "ZERO001")


@submissions.rule("ZERO002", WARNING, "silent", deepspeed("runtime/zero/config.py:60-75"), reads=("DeepSpeed config",))
def stage_is_written(submission: Submission) -> Violations:
    """zero_optimization is an object, not the true or false of old.

    Prevents: A warning in the log: this format of ZeRO optimization setup is deprecated
    Fix: Write {"stage": 1}.
    """
    for config in configs(submission):
        value = config.value("/zero_optimization")
        if isinstance(value, bool):
            message = f"`zero_optimization: {shown(value)}` is deprecated; DeepSpeed reads it as stage {int(value)}"
            stage = {"stage": int(value)}
            yield Violation(
                where=config.locate("/zero_optimization"),
                message=message,
                hint=json.dumps(stage),
                edits=mended(config, written("/zero_optimization", stage)),
            )


@submissions.rule(
    "ZERO007", ERROR, "parse", deepspeed("runtime/zero/offload_config.py:14-24"), reads=("DeepSpeed config",)
)
def offload_device_is_known(submission: Submission) -> Violations:
    """Offloading goes to cpu or nvme, or to none.

    Prevents: ValidationError: Input should be 'none', 'cpu' or 'nvme'
    Fix: Write "cpu" or "nvme".
    """
    return _of(submission, "ZERO007")


@submissions.rule("ZERO025", ERROR, "parse", deepspeed("runtime/zero/config.py:113"), reads=("DeepSpeed config",))
def buckets_are_positive(submission: Submission) -> Violations:
    """Bucket sizes are greater than 0.

    Prevents: ValidationError: Input should be greater than 0
    Fix: Write a size in elements, such as 500000000.
    """
    return _of(submission, "ZERO025")


@submissions.rule(
    "PREC005", ERROR, "parse", deepspeed("runtime/precision_config.py:120-132"), reads=("DeepSpeed config",)
)
def loss_scale_is_a_number(submission: Submission) -> Violations:
    """fp16's loss scale is a number of at least 0.

    Prevents: ValidationError: fp16.loss_scale must be a number
    Fix: Write 0 for dynamic loss scaling.
    """
    return _of(submission, "PREC005")
