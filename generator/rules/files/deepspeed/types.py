"""Values of a type or range that DeepSpeed's parser refuses, and `"auto"` where nobody fills it in."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Final

from ....documents.document import DsConfig
from ....documents.hjson.edits import replace_value
from ....documents.submission import Submission
from ....findings import Severity
from ...sources import deepspeed
from ..rule import Breach, DocumentRule
from .mend import mended, written
from .problem import named, shown
from .running import is_endless
from .settings import COMPUTED_LATER, batch_values, readable, stage_of
from .templates import is_variable
from .walk import problems
from .wrong_value import number_in


def _of(submission: Submission, rule: str) -> Iterator[Breach]:
    return (problem.breach(config) for config, problem in problems(submission) if problem.rule == rule)


def numbers_are_no_text(submission: Submission) -> Iterator[Breach]:
    """A number is written as a number."""
    yield from _of(submission, "PARSE009")
    for config, key, value in batch_values(submission):
        if isinstance(value, str) and value != "auto" and not is_variable(value):
            message = f"`{key}` is the text {shown(value)}; DeepSpeed computes with it, and fails"
            yield _in_quotes(config, f"/{key}", value, message, "1")
    for config, schema in readable(submission):
        yield from _texts_of_the_engine(config, stage_of(config, schema))


def _texts_of_the_engine(config: DsConfig, stage: int) -> Iterator[Breach]:
    """Texts in place of numbers that the parser takes, and training stops at."""
    for pointer, (stages, error) in COMPUTED_LATER.items():
        value = config.value(pointer)
        endless = pointer == "/steps_per_print" and is_endless(config)
        if not isinstance(value, str) or value == "auto" or is_variable(value) or stage not in stages or endless:
            continue
        message = f"{named(pointer)} is the text {shown(value)}; training stops: {error}"
        yield _in_quotes(config, pointer, value, message, "a number without quotes")


def _in_quotes(config: DsConfig, pointer: str, value: str, message: str, otherwise: str) -> Breach:
    """A breach by a text in place of a number; the number that the text writes is its one answer."""
    plain = number_in(value)
    edits = replace_value(config.json, pointer, json.loads(plain)) if plain and not config.embedded else ()
    return Breach(where=config.locate(pointer), message=message, hint=plain or otherwise, edits=edits)


def whole_numbers_are_whole(submission: Submission) -> Iterator[Breach]:
    """A whole number has no fraction."""
    yield from _of(submission, "PARSE010")
    for config, key, value in batch_values(submission):
        if isinstance(value, float) and math.isfinite(value) and not value.is_integer():
            message = f"`{key}` is {shown(value)}: DeepSpeed computes with it, but a batch is of whole samples"
            hint, where = f"{max(1, math.floor(value))}", config.locate(f"/{key}")
            yield Breach(where=where, message=message, hint=hint, severity=Severity.WARNING)


def blocks_are_objects(submission: Submission) -> Iterator[Breach]:
    """A block is an object, and so is the whole."""
    return _of(submission, "PARSE011")


def values_have_their_type(submission: Submission) -> Iterator[Breach]:
    """A value has the type and range that its key takes."""
    yield from _of(submission, "PARSE017")
    for config, key, value in batch_values(submission):
        if isinstance(value, list | dict):
            message = f"`{key}` takes a whole number; this is {shown(value)}"
            yield Breach(where=config.locate(f"/{key}"), message=message, hint="1")
    for config, _ in readable(submission):
        for pointer in COMPUTED_LATER:
            value = config.value(pointer)
            null = value is None and pointer == "/gradient_clipping" and config.has(pointer)
            if null or isinstance(value, list | dict):
                message = f"{named(pointer)} takes a number; this is {shown(value)}, and training stops: TypeError"
                yield Breach(where=config.locate(pointer), message=message, hint="0 for none" if null else "1")


def blocks_have_what_they_need(submission: Submission) -> Iterator[Breach]:
    """A block has the keys that DeepSpeed fails without."""
    return _of(submission, "PARSE018")


def stage_is_known(submission: Submission) -> Iterator[Breach]:
    """The ZeRO stage is 0, 1, 2 or 3."""
    return _of(submission, "ZERO001")


def stage_is_written(submission: Submission) -> Iterator[Breach]:
    """zero_optimization is an object, not the true or false of old."""
    for config, _ in readable(submission):
        value = config.value("/zero_optimization")
        if isinstance(value, bool):
            message = f"`zero_optimization: {shown(value)}` is deprecated; DeepSpeed reads it as stage {int(value)}"
            stage = {"stage": int(value)}
            yield Breach(
                where=config.locate("/zero_optimization"),
                message=message,
                hint=json.dumps(stage),
                edits=mended(config, written("/zero_optimization", stage)),
            )


def offload_device_is_known(submission: Submission) -> Iterator[Breach]:
    """Offloading goes to cpu or nvme, or to none."""
    return _of(submission, "ZERO007")


def buckets_are_positive(submission: Submission) -> Iterator[Breach]:
    """Bucket sizes are greater than 0."""
    return _of(submission, "ZERO025")


def loss_scale_is_a_number(submission: Submission) -> Iterator[Breach]:
    """fp16's loss scale is a number of at least 0."""
    return _of(submission, "PREC005")


RULES: Final[tuple[DocumentRule, ...]] = (
    DocumentRule(
        id="PARSE009",
        severity=Severity.ERROR,
        when="parse",
        reads=("DeepSpeed config",),
        source=deepspeed("runtime/config.py:937, runtime/zero/config.py:113, runtime/engine.py:3506, :3554"),
        prevents="ValidationError: Input should be a valid integer, unable to parse; or a TypeError at the first step",
        fix="Write the number without quotes.",
        check=numbers_are_no_text,
    ),
    DocumentRule(
        id="PARSE010",
        severity=Severity.ERROR,
        when="parse",
        reads=("DeepSpeed config",),
        source=deepspeed("runtime/zero/config.py:113"),
        prevents="ValidationError: Input should be a valid integer, got a number with a fractional part",
        fix="Round it.",
        check=whole_numbers_are_whole,
    ),
    DocumentRule(
        id="PARSE011",
        severity=Severity.ERROR,
        when="parse",
        reads=("DeepSpeed config",),
        source=deepspeed("runtime/zero/config.py:60-80, runtime/precision_config.py:20-50"),
        prevents="TypeError, or ValidationError: Input should be a valid dictionary",
        fix="Write an object, or leave the block out.",
        check=blocks_are_objects,
    ),
    DocumentRule(
        id="PARSE017",
        severity=Severity.ERROR,
        when="parse",
        reads=("DeepSpeed config",),
        source=deepspeed("runtime/config_utils.py:105-113"),
        prevents="ValidationError: Input should be a valid ...",
        fix="Write a value of the type that the message names.",
        check=values_have_their_type,
    ),
    DocumentRule(
        id="PARSE018",
        severity=Severity.ERROR,
        when="parse",
        reads=("DeepSpeed config",),
        source="deepspeedai/DeepSpeed deepspeed/runtime/config.py:152-158 @ 0.16.9",
        prevents="KeyError: 'enabled'",
        fix="Add the key, or take the block out.",
        check=blocks_have_what_they_need,
    ),
    DocumentRule(
        id="ZERO001",
        severity=Severity.ERROR,
        when="parse",
        reads=("DeepSpeed config",),
        source=deepspeed("runtime/zero/config.py:81-95"),
        prevents="ValidationError: Input should be 0, 1, 2 or 3",
        fix="Write 0, 1, 2 or 3.",
        check=stage_is_known,
    ),
    DocumentRule(
        id="ZERO002",
        severity=Severity.WARNING,
        when="silent",
        reads=("DeepSpeed config",),
        source=deepspeed("runtime/zero/config.py:60-75"),
        prevents="A warning in the log: this format of ZeRO optimization setup is deprecated",
        fix='Write {"stage": 1}.',
        check=stage_is_written,
    ),
    DocumentRule(
        id="ZERO007",
        severity=Severity.ERROR,
        when="parse",
        reads=("DeepSpeed config",),
        source=deepspeed("runtime/zero/offload_config.py:14-24"),
        prevents="ValidationError: Input should be 'none', 'cpu' or 'nvme'",
        fix='Write "cpu" or "nvme".',
        check=offload_device_is_known,
    ),
    DocumentRule(
        id="ZERO025",
        severity=Severity.ERROR,
        when="parse",
        reads=("DeepSpeed config",),
        source=deepspeed("runtime/zero/config.py:113"),
        prevents="ValidationError: Input should be greater than 0",
        fix="Write a size in elements, such as 500000000.",
        check=buckets_are_positive,
    ),
    DocumentRule(
        id="PREC005",
        severity=Severity.ERROR,
        when="parse",
        reads=("DeepSpeed config",),
        source=deepspeed("runtime/precision_config.py:120-132"),
        prevents="ValidationError: fp16.loss_scale must be a number",
        fix="Write 0 for dynamic loss scaling.",
        check=loss_scale_is_a_number,
    ),
)
