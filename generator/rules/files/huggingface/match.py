"""What TrainingArguments and the DeepSpeed config both say."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ....documents.deepspeed_config import Config
from ....documents.hjson.edits import replace_value
from ....documents.links import ds_config_of
from ....documents.submission import Submission
from ....documents.training_arguments import TrainingArguments, known_arguments
from ....findings import ERROR, Edit, Severity, Violation, Violations
from ...rule import submissions
from ...sources import transformers

#: DeepSpeed keys that must be what an argument says, or "auto". Source: integrations/deepspeed.py:136-184.
_PAIRS: Final = (
    ("/train_micro_batch_size_per_gpu", "per_device_train_batch_size"),
    ("/gradient_accumulation_steps", "gradient_accumulation_steps"),
    ("/gradient_clipping", "max_grad_norm"),
    ("/optimizer/params/lr", "learning_rate"),
    ("/optimizer/params/eps", "adam_epsilon"),
    ("/optimizer/params/weight_decay", "weight_decay"),
    ("/scheduler/params/warmup_max_lr", "learning_rate"),
)
_DTYPES: Final = (("/fp16/enabled", ("fp16", "fp16_full_eval")), ("/bf16/enabled", ("bf16", "bf16_full_eval")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """An argument's value, and whether it is written or the default."""

    value: object
    written: bool
    words: str  #: `learning_rate 1e-05`, with `(the default)`


def stated(arguments: TrainingArguments, name: str) -> Stated | None:
    """What an argument is, by default too; None where it can't be known or isn't of its type."""
    entry = known_arguments()[name]
    if arguments.given(name):
        value = arguments.value(name)
        fits = isinstance(value, bool) if entry["type"] == "bool" else isinstance(value, (int, float, str))
        number = entry["type"] not in ("int", "float") or isinstance(value, (int, float))
        return Stated(value=value, written=True, words=f"{name} {value}") if fits and number else None
    if not arguments.complete or "default" not in entry:
        return None
    return Stated(value=entry["default"], written=False, words=f"{name} {entry['default']} (the default)")


def pairs(submission: Submission) -> Iterator[tuple[TrainingArguments, Config]]:
    """TrainingArguments, each with the DeepSpeed config that transformers reads beside them."""
    named = any(
        config.source.has("/deepspeed_config/deepspeed_config_file") for config in submission.accelerate_configs
    )
    named = named or any(
        call.program == "accelerate" and call.options.has("--deepspeed_config_file")
        for launch in submission.launches
        for call in launch.calls
    )
    for arguments in submission.training_arguments:
        config = ds_config_of(submission, arguments)
        if config is None and named and not arguments.given("deepspeed"):
            config = submission.config
        if config is not None:
            yield arguments, config


def _differs(ours: object, theirs: object) -> bool:
    """Whether transformers takes a DeepSpeed value for another than the argument's, as Python compares them."""
    return ours is not None and ours != "auto" and ours != theirs


@submissions.rule(
    "HF001",
    ERROR,
    "init",
    transformers("src/transformers/integrations/deepspeed.py:109-184,258-263"),
    reads=("training arguments", "DeepSpeed config"),
)
def config_says_what_the_arguments_say(submission: Submission) -> Violations:
    """What TrainingArguments and the DeepSpeed config both say is the same in both, or "auto" in the config.

    Prevents: ValueError: Please correct the following DeepSpeed config values that mismatch TrainingArguments
    values, after the model is loaded. With a default of TrainingArguments, as far as the script keeps it.
    Fix: "auto" in the DeepSpeed config
    """
    for arguments, config in pairs(submission):
        free = arguments.value("auto_find_batch_size") is True
        for pointer, name in _PAIRS:
            said = stated(arguments, name)
            if said is not None and not (free and "batch" in name):
                yield from _mismatch(config, arguments, pointer, name, said)
        yield from _betas(config, arguments)
        yield from _dtypes(config, arguments)


def _mismatch(config: Config, arguments: TrainingArguments, pointer: str, name: str, said: Stated) -> Violations:
    value = config.value(pointer)
    if _differs(value, said.value):
        key = pointer[1:].replace("/", ".")
        message = f"{key}: {value!r} here, {said.words} in TrainingArguments"
        yield Violation(
            where=config.locate(pointer),
            message=message
            + (f" ({arguments.locate(name).path})" if arguments.path != config.path and said.written else ""),
            hint=f'"{key.rpartition(".")[2]}": "auto", or {name} {value}',
            severity=None if said.written else Severity.WARNING,
        )


def _betas(config: Config, arguments: TrainingArguments) -> Violations:
    first, second = stated(arguments, "adam_beta1"), stated(arguments, "adam_beta2")
    value = config.value("/optimizer/params/betas")
    if first is not None and second is not None and _differs(value, [first.value, second.value]):
        written = first.written or second.written
        both = f"adam_beta1 {first.value} and adam_beta2 {second.value}"
        message = f"optimizer.params.betas: {value} here, {both} in TrainingArguments"
        severity = None if written else Severity.WARNING
        where = config.locate("/optimizer/params/betas")
        yield Violation(where=where, message=message, hint='"betas": "auto"', severity=severity)


def _dtypes(config: Config, arguments: TrainingArguments) -> Violations:
    for pointer, names in _DTYPES:
        said = [stated(arguments, name) for name in names]
        known = [item for item in said if item is not None]
        if len(known) < len(said):
            continue
        on = any(item.value is True for item in known)
        value = config.value(pointer)
        if _differs(value, on):
            written = arguments.given(names[0]) or arguments.given(names[1])
            how = "" if written else ", as neither is given"
            key = pointer[1:].replace("/", ".")
            message = f"{key}: {_shown(value)} here, {names[0]} {_shown(on)} in TrainingArguments{how}"
            severity = None if written else Severity.WARNING
            hint = f'"enabled": "auto", or {names[0]} {_shown(value)}'
            yield Violation(where=config.locate(pointer), message=message, hint=hint, severity=severity)


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


@submissions.rule(
    "HF039",
    ERROR,
    "init",
    transformers("src/transformers/integrations/deepspeed.py:155-160"),
    reads=("training arguments", "DeepSpeed config"),
)
def batch_is_the_arguments_product(submission: Submission) -> Violations:
    """train_batch_size is per_device_train_batch_size × gradient_accumulation_steps × the processes, or "auto".

    Prevents: ValueError: Please correct the following DeepSpeed config values that mismatch TrainingArguments
    values.
    Fix: "train_batch_size": "auto"
    """
    gpus = submission.world.gpus
    for arguments, config in pairs(submission) if gpus is not None else ():
        micro, steps = (
            stated(arguments, name) for name in ("per_device_train_batch_size", "gradient_accumulation_steps")
        )
        value = config.value("/train_batch_size")
        whole = isinstance(value, int) and not isinstance(value, bool)
        if micro is None or steps is None or not whole or arguments.value("auto_find_batch_size") is True:
            continue
        if isinstance(micro.value, int) and isinstance(steps.value, int) and gpus is not None:
            product = micro.value * steps.value * gpus
            if value != product:
                message = (
                    f"train_batch_size: {value} is not {micro.words} × {steps.words} × {gpus} processes = {product}"
                )
                severity = None if micro.written and steps.written else Severity.WARNING
                where = config.locate("/train_batch_size")
                hint = f'"train_batch_size": "auto", or {product}'
                edits = _made_auto(config, "/train_batch_size")
                yield Violation(where=where, message=message, hint=hint, severity=severity, edits=edits)


def _made_auto(config: Config, pointer: str) -> tuple[Edit, ...]:
    """The edit that leaves a value to transformers, which works it out from the arguments."""
    return () if config.embedded else replace_value(config.json, pointer, "auto")


@submissions.rule(
    "HF002",
    ERROR,
    "init",
    transformers("src/transformers/integrations/deepspeed.py:244-263"),
    reads=("training arguments", "DeepSpeed config"),
)
def schedule_says_what_the_arguments_say(submission: Submission) -> Violations:
    """The scheduler's total_num_steps and warmup_num_steps are max_steps and warmup_steps, or "auto".

    Prevents: ValueError: Please correct the following DeepSpeed config values that mismatch TrainingArguments
    values, after the model is loaded.
    Fix: "auto" in the DeepSpeed config
    """
    for arguments, config in pairs(submission):
        steps = arguments.value("max_steps")
        total = steps if isinstance(steps, int) and not isinstance(steps, bool) and steps > 0 else None
        warmup = stated(arguments, "warmup_steps")
        wanted = []
        if total is not None:
            wanted.append(("total_num_steps", f"max_steps {total}", total, True))
        if warmup is not None and (number := _warmup(warmup.value, total)) is not None:
            wanted.append(("warmup_num_steps", warmup.words, number, warmup.written))
        for key, words, number, written in wanted:
            value = config.value(f"/scheduler/params/{key}")
            if _differs(value, number):
                makes = "" if words.endswith(f" {number}") else f", which makes {number}"
                message = f"scheduler.params.{key}: {value!r} here, {words} in TrainingArguments{makes}"
                pointer = f"/scheduler/params/{key}"
                yield Violation(
                    where=config.locate(pointer),
                    message=message,
                    hint=f'"{key}": "auto", or {number}',
                    severity=None if written else Severity.WARNING,
                    edits=_made_auto(config, pointer),
                )


def _warmup(value: object, total: int | None) -> int | None:
    """The steps that transformers warms up for, at least 1; None where they hang on the length of the run."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < _MANY:
        return None
    if 0 < value < 1:
        return math.ceil(total * value) if total is not None else None
    return max(1, int(value))


_MANY: Final = 1e12  # steps; no run has more
_BOTH: Final = ("training arguments", "DeepSpeed config")
_MISMATCH: Final = (
    "ValueError: Please correct the following DeepSpeed config values that mismatch TrainingArguments values"
)
