"""What TrainingArguments and the DeepSpeed config both set."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ....facts.hjson.edits import replace_value
from ....findings import ERROR, Edit, Severity, Violations
from ....job.pointer import whole_number
from ....rules.sources import transformers
from ....rules.violations import violation
from ...deepspeed.config import Config
from ...launching.launch_line import Call
from ...links import ds_config_of, used_accelerate_config, used_config
from ...rule import subject
from ...submission import Submission
from ...world import world_of
from ..accelerate import AccelerateConfig, number_of_text
from ..table import ROWS
from ..training_arguments import TrainingArguments
from .accelerated import accelerate_launches

_DTYPES: Final = (("/fp16/enabled", "fp16", "fp16_full_eval"), ("/bf16/enabled", "bf16", "bf16_full_eval"))
_CLIPPING: Final = ("gradient_clipping", "max_grad_norm")
_FILL: Final = transformers("src/transformers/integrations/deepspeed.py")
_MANY: Final = 1e12  # steps; no run has more


@dataclass(frozen=True, slots=True)
class Pair:
    """TrainingArguments with the DeepSpeed config that transformers reads with them."""

    arguments: TrainingArguments
    config: Config
    gpus: int | None


@subject("training arguments", "DeepSpeed config")
def pairs(submission: Submission) -> Iterator[Pair]:
    """TrainingArguments that have a DeepSpeed config: their own, else the one that accelerate is started with."""
    option = "--deepspeed_config_file"
    named = any(config.has(f"deepspeed_config/{option[2:]}") for config in submission.accelerate_configs)
    named = named or any(line.call.options.has(option) for line in accelerate_launches(submission))
    for arguments in submission.training_arguments:
        config = ds_config_of(submission, arguments)
        if config is None and named and not arguments.has("deepspeed"):
            config = used_config(submission)
        if config is not None:
            yield Pair(arguments, config, world_of(submission).gpus)


@dataclass(frozen=True, slots=True)
class _Expected:
    """What a key of the DeepSpeed config must be, unless it is "auto"."""

    pointer: str
    value: object
    text: str  #: the arguments that require it
    written: bool
    other: str = ""  #: the argument to change instead; empty where the key has to change


def _expected(arguments: TrainingArguments) -> Iterator[_Expected]:
    for row in ROWS:
        stated = arguments.stated(row.name) if row.pointers else None
        if stated is not None and not (arguments.is_on("auto_find_batch_size") and "batch" in row.name):
            for pointer in row.pointers:
                yield _Expected(pointer, stated.value, stated.text, stated.written, row.name)
    first, second = arguments.stated("adam_beta1"), arguments.stated("adam_beta2")
    if first is not None and second is not None:
        text, written = f"{first.text} and {second.text}", first.written or second.written
        yield _Expected("/optimizer/params/betas", [first.value, second.value], text, written)
    for pointer, *names in _DTYPES:
        known = [stated for name in names if (stated := arguments.stated(name)) is not None]
        if len(known) == len(names):
            on, written = any(stated.value is True for stated in known), any(stated.written for stated in known)
            text = f"{names[0]} {_shown(on)}" + ("" if written else " (the default)")
            yield _Expected(pointer, on, text, written, names[0])


def _mismatches(pair: Pair, expected: _Expected, *, fixable: bool = False) -> Violations:
    """Where a DeepSpeed value differs from the argument's, by the comparison that transformers makes in Python."""
    config, value = pair.config, pair.config.value(expected.pointer)
    if value is None or value == "auto" or value == expected.value:
        return
    name = expected.pointer[1:].replace("/", ".")
    file = f" ({pair.arguments.path})" if pair.arguments.path != config.path and expected.written else ""
    message = f"{name}: {_shown(value)} here, {expected.text} in TrainingArguments{file}"
    other = f"or {expected.other} to {_shown(value)}" if expected.other else f"or to {_shown(expected.value)}"
    hint = f'set "{name.rpartition(".")[2]}" to "auto", {other}'
    severity = None if expected.written else Severity.WARNING
    edits = _made_auto(config, expected.pointer) if fixable else ()
    yield violation(config, expected.pointer, message, hint, severity=severity, edits=edits)


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _made_auto(config: Config, pointer: str) -> tuple[Edit, ...]:
    """The edit that leaves a value to transformers, which computes it from the arguments."""
    return () if config.embedded else replace_value(config.json, pointer, "auto")


@pairs.rule("HF001", ERROR, "init", transformers("src/transformers/integrations/deepspeed.py:109-184,258-263"))
def config_equals_the_arguments(pair: Pair) -> Violations:
    """What TrainingArguments and the DeepSpeed config both set is the same in both, or "auto" in the config.

    Prevents: ValueError: Please correct the following DeepSpeed config values that mismatch TrainingArguments
    values, after the model is loaded. With a default of TrainingArguments, as far as the script keeps it.
    Fix: set it to "auto" in the DeepSpeed config"""
    for expected in _expected(pair.arguments):
        yield from _mismatches(pair, expected)


@dataclass(frozen=True, slots=True)
class _Accelerated:
    """The arguments of a program that `accelerate launch` starts with settings of DeepSpeed in its own config."""

    arguments: TrainingArguments
    call: Call
    config: AccelerateConfig
    named: bool  #: whether the launch line names the config


@subject("training arguments", "accelerate config", "launch script")
def _accelerated(submission: Submission) -> Iterator[_Accelerated]:
    config = used_accelerate_config(submission)
    if config is None or not config.uses_deepspeed or config.config_file:
        return
    for arguments in submission.training_arguments:
        call = arguments.launch.call("accelerate") if arguments.launch is not None else None
        if call is not None and not arguments.has("deepspeed"):
            yield _Accelerated(arguments, call, config, call.options.has("--config_file"))


@_accelerated.rule("HF042", ERROR, "init", f"{_FILL}:109-184; accelerate accelerator.py (_prepare_deepspeed) @ 1.15.0")
def accelerate_equals_the_arguments(run: _Accelerated) -> Violations:
    """Accumulation and clipping in accelerate's deepspeed_config are those of the training arguments.

    Prevents: ValueError: Please correct the following DeepSpeed config values that mismatch TrainingArguments values;
    in programs without the Trainer, no error: DeepSpeed's value is used.
    Fix: write the same value in both"""
    for key, name in (("gradient_accumulation_steps", "gradient_accumulation_steps"), _CLIPPING):
        theirs, ours = run.config.deepspeed.get(key), run.arguments.number(name)
        value = number_of_text(theirs)
        if value is None or ours is None or value == ours or run.call.options.has(f"--{key}"):
            continue
        message = f"deepspeed_config.{key}: {theirs} here, {name} {ours} in the arguments ({run.arguments.path})"
        severity = None if run.named else Severity.WARNING
        yield violation(run.config, f"deepspeed_config/{key}", message, f"write {ours} in both", severity=severity)


@pairs.rule("HF039", ERROR, "init", transformers("src/transformers/integrations/deepspeed.py:155-160"))
def batch_is_the_arguments_product(pair: Pair) -> Violations:
    """train_batch_size is per_device_train_batch_size × gradient_accumulation_steps × the processes, or "auto".

    Prevents: ValueError: Please correct the following DeepSpeed config values that mismatch TrainingArguments
    values.
    Fix: set "train_batch_size" to "auto"
    """
    batch, value, config = pair.arguments.batch, whole_number(pair.config.value("/train_batch_size")), pair.config
    if batch is None or value is None or pair.gpus is None:
        return
    product = batch.sequences * pair.gpus
    if value != product:
        message = f"train_batch_size: {value} is not {batch.text} × {pair.gpus} processes = {product}"
        severity = None if batch.written else Severity.WARNING
        hint, edits = f'set "train_batch_size" to "auto", or to {product}', _made_auto(config, "/train_batch_size")
        yield violation(config, "/train_batch_size", message, hint, severity=severity, edits=edits)


@pairs.rule("HF002", ERROR, "init", transformers("src/transformers/integrations/deepspeed.py:244-263"))
def schedule_equals_the_arguments(pair: Pair) -> Violations:
    """The scheduler's total_num_steps and warmup_num_steps are max_steps and warmup_steps, or "auto".

    Prevents: ValueError: Please correct the following DeepSpeed config values that mismatch TrainingArguments
    values, after the model is loaded.
    Fix: set it to "auto" in the DeepSpeed config"""
    steps, warmup = pair.arguments.integer("max_steps"), pair.arguments.stated("warmup_steps")
    total = steps if steps is not None and steps > 0 else None
    if total is not None:
        expected = _Expected("/scheduler/params/total_num_steps", total, f"max_steps {total}", True)
        yield from _mismatches(pair, expected, fixable=True)
    number = _warmup(warmup.value, total) if warmup is not None else None
    if warmup is not None and number is not None:
        text = warmup.text if warmup.text.endswith(f" {number}") else f"{warmup.text}, which is {number} steps,"
        expected = _Expected("/scheduler/params/warmup_num_steps", number, text, warmup.written)
        yield from _mismatches(pair, expected, fixable=True)


def _warmup(value: object, total: int | None) -> int | None:
    """The steps that transformers warms up for, at least 1; None where they depend on the length of the run."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < _MANY:
        return None
    if 0 < value < 1:
        return math.ceil(total * value) if total is not None else None
    return max(1, int(value))
