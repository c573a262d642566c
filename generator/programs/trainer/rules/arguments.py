"""TrainingArguments by themselves: names, types and values that transformers refuses."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any, Final

from ....facts.placeholders import is_left_open
from ....findings import ERROR, NOTE, WARNING, Violations
from ....job.wording import show
from ....rules.sources import derived, transformers
from ....rules.violations import note_if_to_fill, suggest, violation
from ...launching.program_options import is_above
from ...subjects import training_arguments
from ..training_arguments import TrainingArguments, gone_arguments, known_arguments

_PARSER: Final = "src/transformers/hf_argparser.py"
_ARGUMENTS: Final = "src/transformers/training_args.py"
_POSITIVE: Final = derived("torch's DataLoader refuses a batch of 0, and steps are a quotient by the accumulation")
_SURE: Final = ("4.30", "4.46")  # gone before 4.57; many have a transformers 4 that has the others
_MOST_NAMES: Final = 200  # that are compared with all arguments; a script of one's own has fewer
_SLIP: Final = 0.9  # how alike a name must be to be a slip; scripts have arguments of their own
_NO_DOT: Final = re.compile(r"([+-]?\d{1,20})[eE]([+-]?\d{1,4})", re.ASCII)
_TYPES: Final = {"int": (int,), "float": (int, float), "bool": (bool,)}
_NAMES: Final = {"int": "an integer", "float": "a number", "bool": "true or false"}


@training_arguments.rule("HF023", WARNING, "parse", transformers(_ARGUMENTS) + "; the same file of 4.30 to 5.0")
def names_are_current(arguments: TrainingArguments) -> Violations:
    """Every argument is one that transformers still has: eval_strategy, not evaluation_strategy.

    Prevents: TypeError: unexpected keyword argument, with a transformers that no longer has it.
    Fix: use the argument's new name"""
    for name in sorted(arguments.names & gone_arguments().keys()):
        last, instead = gone_arguments()[name]["last"], gone_arguments()[name]["instead"]
        message = f"transformers 5.23 has no argument {name}; the last release seen with it is {last}"
        own = is_above(_ARGUMENTS, arguments.path)  # an example of the transformers that is around it
        severity = None if last in _SURE and not own else NOTE
        hint = instead if instead.startswith("remove") else f"use {instead}"
        yield violation(arguments, name, message, hint, severity=severity)


@training_arguments.rule("HF024", WARNING, "parse", transformers(f"{_PARSER}:338-356,382-383"))
def names_are_no_slips(arguments: TrainingArguments) -> Violations:
    """An argument that nearly is one of TrainingArguments is spelled like it.

    Prevents: ValueError: Some keys are not used by the HfArgumentParser; or no error and a default instead.
    Fix: correct the argument's name"""
    known = known_arguments()
    for name in sorted(arguments.names - known.keys() - gone_arguments().keys())[:_MOST_NAMES]:
        close = difflib.get_close_matches(name.lower().replace("-", "_"), known, n=1, cutoff=_SLIP)
        if close and not arguments.has(close[0]):
            yield violation(arguments, name, f"TrainingArguments has no argument {name}", f"did you mean {close[0]}?")


@training_arguments.rule("HF025", ERROR, "parse", transformers(f"{_PARSER}:36-46, {_ARGUMENTS} (__post_init__)"))
def values_have_their_types(arguments: TrainingArguments) -> Violations:
    """Numbers are numbers, flags true or false, and choices among those that transformers has.

    Prevents: argument --x: invalid int value; 'x' is not a valid IntervalStrategy; text where a number is.
    Fix: use a value of the argument's type"""
    for name, value in arguments.values.items():
        entry = known_arguments().get(name)
        if entry is None or value is None or value == entry.get("default"):
            continue
        if entry["type"] == "choice":
            yield from _not_a_choice(arguments, name, value, entry)
        elif type(value) not in _TYPES.get(entry["type"], (type(value),)) and name != "include_num_input_tokens_seen":
            yield from _not_of_the_type(arguments, name, value, entry["type"])


def _not_a_choice(arguments: TrainingArguments, name: str, value: object, entry: Mapping[str, Any]) -> Violations:
    choices = entry["choices"]
    if isinstance(value, str) and value in choices:
        return
    message = f"{name} is {show(value)}, which transformers doesn't have"
    if isinstance(value, bool) and name.endswith("_strategy"):
        message = f"{name} is {show(value)}: YAML reads no, off, yes and on as false and true"
    close = difflib.get_close_matches(str(value).lower(), choices, n=1, cutoff=0.6)
    hint = f"did you mean {close[0]}?" if close else suggest("", choices[:12])
    hint = "write 'no', in quotes" if value is False and "no" in choices else hint
    to_fill = isinstance(value, str) and is_left_open(value, name)
    severity = NOTE if name == "optim" or to_fill else None  # trainers of others have more
    yield violation(arguments, name, message, hint, severity=severity)


def _not_of_the_type(arguments: TrainingArguments, name: str, value: object, kind: str) -> Violations:
    match = _NO_DOT.fullmatch(value) if isinstance(value, str) else None
    message, hint = f"{name} is {show(value)}, not {_NAMES[kind]}", None
    if match is not None and arguments.launch is None:
        message += ": YAML 1.1 reads a number with an exponent only with a dot, as in 1.0e-5"
    if match is not None:
        hint = f"write {name}: {match[1]}.0e{match[2]}"
    elif isinstance(value, str) and len(value) < 40 and (number := _float(value)) is not None:
        hint = f"write {name}: {number:g}"
    severity = WARNING if arguments.launch is None and kind != "int" else None
    severity = note_if_to_fill(value, name, severity) if kind in ("int", "float") else severity
    yield violation(arguments, name, message, hint, severity=severity)


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


@training_arguments.rule("HF026", ERROR, "init", transformers(f"{_ARGUMENTS} (TrainingArguments._validate_args)"))
def one_precision(arguments: TrainingArguments) -> Violations:
    """At most one of fp16 and bf16 is on, in training and in evaluation.

    Prevents: ValueError: At most one of fp16 and bf16 can be True, but not both
    Fix: use bf16 alone"""
    for first, second in (("fp16", "bf16"), ("fp16_full_eval", "bf16_full_eval")):
        if arguments.is_on(first) and arguments.is_on(second):
            yield violation(arguments, second, f"{first} and {second} are both on", f"use {second} alone")


@training_arguments.rule("HF005", ERROR, "init", transformers("src/transformers/trainer.py:473-476"))
def fsdp_or_deepspeed(arguments: TrainingArguments) -> Violations:
    """fsdp and deepspeed are not given together.

    Prevents: ValueError: Using --fsdp xxx together with --deepspeed is not possible.
    Fix: remove one of them"""
    off = (None, "", False)
    if arguments.value("fsdp") not in (*off, []) and arguments.value("deepspeed") not in off:
        yield violation(arguments, "fsdp", "fsdp and deepspeed are both given", "remove one of them")


@training_arguments.rule("HF027", NOTE, "silent", transformers("src/transformers/training_args.py (max_steps)"))
def steps_or_epochs(arguments: TrainingArguments) -> Violations:
    """max_steps and num_train_epochs are not given together: max_steps overrides the epochs.

    Prevents: No error: training ends after max_steps, whatever num_train_epochs is.
    Fix: remove one of the two"""
    steps, epochs = arguments.integer("max_steps") or 0, arguments.number("num_train_epochs")
    if steps > 0 and epochs is not None:
        message = f"max_steps {steps} overrides num_train_epochs {epochs}"
        yield violation(arguments, "num_train_epochs", message, "remove one of the two")


@training_arguments.rule("HF028", ERROR, "init", _POSITIVE)
def batches_have_a_sequence(arguments: TrainingArguments) -> Violations:
    """per_device_train_batch_size and gradient_accumulation_steps are at least 1.

    Prevents: ValueError: batch_size should be a positive integer value, or ZeroDivisionError.
    Fix: use at least 1"""
    for name in ("per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps"):
        value = arguments.integer(name)
        if value is not None and value < 1:
            yield violation(arguments, name, f"{name} is {value}; it must be at least 1", f"set {name} to 1")
