"""The text of a DeepSpeed config, and its keys."""

from __future__ import annotations

import re

from ....documents.hjson.edits import to_strict
from ....documents.submission import Submission
from ....findings import ERROR, WARNING, Severity, Violation, Violations
from ....job.wording import printable
from ...rule import submissions
from ...sources import deepspeed
from .mend import mended
from .templates import leftover
from .walk import problems


def _of(submission: Submission, rule: str) -> Violations:
    return (problem.violation(config) for config, problem in problems(submission) if problem.rule == rule)


@submissions.rule("PARSE001", ERROR, "parse", deepspeed("runtime/config_utils.py:205-211"), reads=("DeepSpeed config",))
def keys_are_once(submission: Submission) -> Violations:
    """An object of the config has each key once.

    Prevents: ValueError: Duplicate keys in DeepSpeed config
    Fix: Keep one of the two.
    """
    for config in submission.configs:
        for duplicate in config.json.duplicates:
            key = printable(duplicate.pointer.rpartition("/")[2])[:80]
            line = config.json.locate_offset(duplicate.first).line
            where = config.json.locate_offset(duplicate.second, duplicate.pointer)
            message = f"`{key}` was there before, in line {line}; DeepSpeed refuses a key twice"
            severity = None
            if submission.consumer != "deepspeed":
                message = f"`{key}` was there before, in line {line}; the last one counts, without a word"
                severity = Severity.WARNING
            yield Violation(where=where, message=message, hint="keep one of them", severity=severity)


@submissions.rule("PARSE002", WARNING, "parse", deepspeed("runtime/config.py:699"), reads=("DeepSpeed config",))
def text_is_json(submission: Submission) -> Violations:
    """The config is JSON, which every program that may read it understands.

    Prevents: json.JSONDecodeError in Transformers, accelerate and Megatron-DeepSpeed, which read strict JSON
    Fix: Write strict JSON.
    """
    for config in submission.configs:
        if config.json.broken is not None or not config.json.deviations or config.is_empty:
            continue
        first = config.json.deviations[0]
        more = len(config.json.deviations) - 1
        others = f", and {more} more such place{'s' if more > 1 else ''}" if more else ""
        message = f"{first.what} is HJSON, not JSON{others}: DeepSpeed reads it, Transformers, accelerate and "
        message += "Megatron-DeepSpeed don't"
        strict = submission.consumer != "deepspeed"
        yield Violation(
            where=config.json.locate_offset(first.offset),
            message=message,
            hint="write strict JSON: double quotes, commas between members only, no comments",
            severity=Severity.ERROR if strict else Severity.WARNING,
            edits=() if any(d.what == "a comment" for d in config.json.deviations) else mended(config, to_strict),
        )


@submissions.rule("PARSE016", ERROR, "parse", deepspeed("runtime/config.py:699"), reads=("DeepSpeed config",))
def text_can_be_read(submission: Submission) -> Violations:
    """The config is well-formed for who reads it.

    Prevents: HjsonDecodeError, or json.JSONDecodeError
    Fix: Mend the text at the place named.
    """
    for config in submission.configs:
        broken = config.json.hjson_broken if submission.consumer == "deepspeed" else config.json.broken
        if config.is_empty:
            hint = '{"train_batch_size": 256, "bf16": {"enabled": true}}'
            yield Violation(where=config.locate(""), message="the file is empty: there is no config in it", hint=hint)
        elif broken is not None and leftover(config, submission.consumer) is None:
            where = config.json.locate_offset(broken.offset)
            message = f"the config can't be read: {broken.message}"
            yield Violation(where=where, message=message, hint=_mended(broken.message))


def _mended(message: str) -> str:
    """What would let the text be read."""
    opened = re.search(r"the `([{\[])` in line \d+ is not closed", message)
    if opened:
        return f"write the `{'}' if opened[1] == '{' else ']'}` that is missing"
    if "quote is missing" in message:
        return 'write the `"` that is missing'
    if message.startswith("`,` stands"):
        return "take a comma out: there is one too many"
    return "mend it there: quotes around texts, `:` after a key, one comma between two members, brackets in pairs"


@submissions.rule("PARSE004", WARNING, "silent", deepspeed("runtime/config.py:796-923"), reads=("DeepSpeed config",))
def top_level_keys_are_known(submission: Submission) -> Violations:
    """DeepSpeed knows every key of the top level.

    Prevents: The setting is ignored without a word.
    Fix: Correct the key, or move it to where it belongs.
    """
    return _of(submission, "PARSE004")


@submissions.rule("PARSE005", ERROR, "parse", deepspeed("runtime/config_utils.py:105-113"), reads=("DeepSpeed config",))
def keys_of_models_are_known(submission: Submission) -> Violations:
    """DeepSpeed knows every key of a block that it checks.

    Prevents: ValidationError: Extra inputs are not permitted
    Fix: Correct the key, or take it out.
    """
    return _of(submission, "PARSE005")


@submissions.rule("PARSE006", WARNING, "silent", deepspeed("runtime/config.py:428-456"), reads=("DeepSpeed config",))
def keys_of_mappings_are_known(submission: Submission) -> Violations:
    """DeepSpeed knows every key of a block that it doesn't check.

    Prevents: The setting is ignored without a word.
    Fix: Correct the key, or take it out.
    """
    return _of(submission, "PARSE006")


@submissions.rule(
    "PARSE012",
    ERROR,
    "parse",
    deepspeed("runtime/zero/config.py:215, runtime/config_utils.py:110"),
    reads=("DeepSpeed config",),
)
def keys_have_one_name(submission: Submission) -> Violations:
    """A key is given by one of its two names.

    Prevents: ValidationError: Extra inputs are not permitted
    Fix: Keep the name that starts with stage3_.
    """
    return _of(submission, "PARSE012")


@submissions.rule("PARSE013", ERROR, "parse", deepspeed("runtime/config_utils.py:89-91"), reads=("DeepSpeed config",))
def deprecated_keys_are_alone(submission: Submission) -> Violations:
    """A deprecated key is not given together with what replaces it.

    Prevents: AssertionError: Cannot provide deprecated parameter ... and replacing parameter ... together
    Fix: Take the deprecated one out.
    """
    return _of(submission, "PARSE013")


@submissions.rule(
    "PREC003", ERROR, "parse", deepspeed("runtime/precision_config.py:41-75"), reads=("DeepSpeed config",)
)
def bf16_has_no_loss_scale(submission: Submission) -> Violations:
    """The bf16 block has none of fp16's keys: bf16 needs no loss scaling.

    Prevents: ValidationError: Extra inputs are not permitted
    Fix: Take the key out; it belongs to fp16.
    """
    return _of(submission, "PREC003")


@submissions.rule(
    "PREC004", ERROR, "parse", deepspeed("runtime/precision_config.py:100-170"), reads=("DeepSpeed config",)
)
def fp16_has_no_apex_keys(submission: Submission) -> Violations:
    """The fp16 block has neither Apex's opt_level nor gpt-neox's type.

    Prevents: ValidationError: Extra inputs are not permitted
    Fix: Take the key out.
    """
    return _of(submission, "PREC004")


@submissions.rule("ZERO005", ERROR, "parse", deepspeed("runtime/config_utils.py:110"), reads=("DeepSpeed config",))
def parameters_are_offloaded_by_name(submission: Submission) -> Violations:
    """Parameters are offloaded by offload_param; there never was a cpu_offload_params.

    Prevents: ValidationError: Extra inputs are not permitted
    Fix: Write "offload_param": {"device": "cpu"}.
    """
    return _of(submission, "ZERO005")


@submissions.rule("ZERO014", ERROR, "parse", deepspeed("runtime/config_utils.py:110"), reads=("DeepSpeed config",))
def aio_is_at_the_top(submission: Submission) -> Violations:
    """The aio block stands at the top level, not within zero_optimization.

    Prevents: ValidationError: Extra inputs are not permitted
    Fix: Move the block to the top level.
    """
    return _of(submission, "ZERO014")
