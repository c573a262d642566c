"""The text of a DeepSpeed config, and its keys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ....documents.hjson.edits import to_strict
from ....documents.submission import Submission
from ....findings import Severity
from ....job.wording import printable
from ...sources import deepspeed
from ..rule import Breach, DocumentRule
from .mend import mended
from .settings import is_empty
from .templates import leftover
from .walk import problems


def _of(submission: Submission, rule: str) -> Iterator[Breach]:
    return (problem.breach(config) for config, problem in problems(submission) if problem.rule == rule)


def keys_are_once(submission: Submission) -> Iterator[Breach]:
    """An object of the config has each key once."""
    for config in submission.ds_configs:
        for duplicate in config.json.duplicates:
            key = printable(duplicate.pointer.rpartition("/")[2])[:80]
            line = config.json.locate_offset(duplicate.first).line
            where = config.json.locate_offset(duplicate.second, duplicate.pointer)
            message = f"`{key}` was there before, in line {line}; DeepSpeed refuses a key twice"
            severity = None
            if submission.consumer != "deepspeed":
                message = f"`{key}` was there before, in line {line}; the last one counts, without a word"
                severity = Severity.WARNING
            yield Breach(where=where, message=message, hint="keep one of them", severity=severity)


def text_is_json(submission: Submission) -> Iterator[Breach]:
    """The config is JSON, which every program that may read it understands."""
    for config in submission.ds_configs:
        if config.json.broken is not None or not config.json.deviations or is_empty(config):
            continue
        first = config.json.deviations[0]
        more = len(config.json.deviations) - 1
        others = f", and {more} more such place{'s' if more > 1 else ''}" if more else ""
        message = f"{first.what} is HJSON, not JSON{others}: DeepSpeed reads it, Transformers, accelerate and "
        message += "Megatron-DeepSpeed don't"
        strict = submission.consumer != "deepspeed"
        yield Breach(
            where=config.json.locate_offset(first.offset),
            message=message,
            hint="write strict JSON: double quotes, commas between members only, no comments",
            severity=Severity.ERROR if strict else Severity.WARNING,
            edits=() if any(d.what == "a comment" for d in config.json.deviations) else mended(config, to_strict),
        )


def text_can_be_read(submission: Submission) -> Iterator[Breach]:
    """The config is well-formed for who reads it."""
    for config in submission.ds_configs:
        broken = config.json.hjson_broken if submission.consumer == "deepspeed" else config.json.broken
        if is_empty(config):
            hint = '{"train_batch_size": 256, "bf16": {"enabled": true}}'
            yield Breach(where=config.locate(""), message="the file is empty: there is no config in it", hint=hint)
        elif broken is not None and leftover(config, submission.consumer) is None:
            where = config.json.locate_offset(broken.offset)
            message = f"the config can't be read: {broken.message}"
            yield Breach(where=where, message=message, hint=_mended(broken.message))


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


def top_level_keys_are_known(submission: Submission) -> Iterator[Breach]:
    """DeepSpeed knows every key of the top level."""
    return _of(submission, "PARSE004")


def keys_of_models_are_known(submission: Submission) -> Iterator[Breach]:
    """DeepSpeed knows every key of a block that it checks."""
    return _of(submission, "PARSE005")


def keys_of_mappings_are_known(submission: Submission) -> Iterator[Breach]:
    """DeepSpeed knows every key of a block that it doesn't check."""
    return _of(submission, "PARSE006")


def keys_have_one_name(submission: Submission) -> Iterator[Breach]:
    """A key is given by one of its two names."""
    return _of(submission, "PARSE012")


def deprecated_keys_are_alone(submission: Submission) -> Iterator[Breach]:
    """A deprecated key is not given together with what replaces it."""
    return _of(submission, "PARSE013")


def bf16_has_no_loss_scale(submission: Submission) -> Iterator[Breach]:
    """The bf16 block has none of fp16's keys: bf16 needs no loss scaling."""
    return _of(submission, "PREC003")


def fp16_has_no_apex_keys(submission: Submission) -> Iterator[Breach]:
    """The fp16 block has neither Apex's opt_level nor gpt-neox's type."""
    return _of(submission, "PREC004")


def parameters_are_offloaded_by_name(submission: Submission) -> Iterator[Breach]:
    """Parameters are offloaded by offload_param; there never was a cpu_offload_params."""
    return _of(submission, "ZERO005")


def aio_is_at_the_top(submission: Submission) -> Iterator[Breach]:
    """The aio block stands at the top level, not within zero_optimization."""
    return _of(submission, "ZERO014")


RULES: Final[tuple[DocumentRule, ...]] = (
    DocumentRule(
        id="PARSE001",
        severity=Severity.ERROR,
        when="parse",
        reads=("DeepSpeed config",),
        source=deepspeed("runtime/config_utils.py:205-211"),
        prevents="ValueError: Duplicate keys in DeepSpeed config",
        fix="Keep one of the two.",
        check=keys_are_once,
    ),
    DocumentRule(
        id="PARSE002",
        severity=Severity.WARNING,
        when="parse",
        reads=("DeepSpeed config",),
        source=deepspeed("runtime/config.py:699"),
        prevents="json.JSONDecodeError in Transformers, accelerate and Megatron-DeepSpeed, which read strict JSON",
        fix="Write strict JSON.",
        check=text_is_json,
    ),
    DocumentRule(
        id="PARSE004",
        severity=Severity.WARNING,
        when="silent",
        reads=("DeepSpeed config",),
        source=deepspeed("runtime/config.py:796-923"),
        prevents="The setting is ignored without a word.",
        fix="Correct the key, or move it to where it belongs.",
        check=top_level_keys_are_known,
    ),
    DocumentRule(
        id="PARSE005",
        severity=Severity.ERROR,
        when="parse",
        reads=("DeepSpeed config",),
        source=deepspeed("runtime/config_utils.py:105-113"),
        prevents="ValidationError: Extra inputs are not permitted",
        fix="Correct the key, or take it out.",
        check=keys_of_models_are_known,
    ),
    DocumentRule(
        id="PARSE006",
        severity=Severity.WARNING,
        when="silent",
        reads=("DeepSpeed config",),
        source=deepspeed("runtime/config.py:428-456"),
        prevents="The setting is ignored without a word.",
        fix="Correct the key, or take it out.",
        check=keys_of_mappings_are_known,
    ),
    DocumentRule(
        id="PARSE012",
        severity=Severity.ERROR,
        when="parse",
        reads=("DeepSpeed config",),
        source=deepspeed("runtime/zero/config.py:215, runtime/config_utils.py:110"),
        prevents="ValidationError: Extra inputs are not permitted",
        fix="Keep the name that starts with stage3_.",
        check=keys_have_one_name,
    ),
    DocumentRule(
        id="PARSE013",
        severity=Severity.ERROR,
        when="parse",
        reads=("DeepSpeed config",),
        source=deepspeed("runtime/config_utils.py:89-91"),
        prevents="AssertionError: Cannot provide deprecated parameter ... and replacing parameter ... together",
        fix="Take the deprecated one out.",
        check=deprecated_keys_are_alone,
    ),
    DocumentRule(
        id="PARSE016",
        severity=Severity.ERROR,
        when="parse",
        reads=("DeepSpeed config",),
        source=deepspeed("runtime/config.py:699"),
        prevents="HjsonDecodeError, or json.JSONDecodeError",
        fix="Mend the text at the place named.",
        check=text_can_be_read,
    ),
    DocumentRule(
        id="PREC003",
        severity=Severity.ERROR,
        when="parse",
        reads=("DeepSpeed config",),
        source=deepspeed("runtime/precision_config.py:41-75"),
        prevents="ValidationError: Extra inputs are not permitted",
        fix="Take the key out; it belongs to fp16.",
        check=bf16_has_no_loss_scale,
    ),
    DocumentRule(
        id="PREC004",
        severity=Severity.ERROR,
        when="parse",
        reads=("DeepSpeed config",),
        source=deepspeed("runtime/precision_config.py:100-170"),
        prevents="ValidationError: Extra inputs are not permitted",
        fix="Take the key out.",
        check=fp16_has_no_apex_keys,
    ),
    DocumentRule(
        id="ZERO005",
        severity=Severity.ERROR,
        when="parse",
        reads=("DeepSpeed config",),
        source=deepspeed("runtime/config_utils.py:110"),
        prevents="ValidationError: Extra inputs are not permitted",
        fix='Write "offload_param": {"device": "cpu"}.',
        check=parameters_are_offloaded_by_name,
    ),
    DocumentRule(
        id="ZERO014",
        severity=Severity.ERROR,
        when="parse",
        reads=("DeepSpeed config",),
        source=deepspeed("runtime/config_utils.py:110"),
        prevents="ValidationError: Extra inputs are not permitted",
        fix="Move the block to the top level.",
        check=aio_is_at_the_top,
    ),
)
