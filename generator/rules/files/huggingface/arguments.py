"""TrainingArguments by themselves: names, types and values that transformers refuses."""

from __future__ import annotations

import difflib
import re
from typing import Final

from ....documents.submission import Submission
from ....documents.training_arguments import TrainingArguments, known_arguments
from ....findings import ERROR, NOTE, WARNING, Severity, Violation, Violations
from ....job.wording import show
from ...numbers import listed
from ...rule import submissions
from ...sources import derived, transformers
from ..subjects import training_arguments
from .gone import GONE

_CHECKED: Final = "src/transformers/training_args.py (TrainingArguments._validate_args)"

_SURE: Final = ("4.30", "4.46")  # gone before 4.57; many have a transformers 4 that has the others
_SLIP: Final = 0.9  # how alike a name must be to be a slip; scripts have arguments of their own
_NO_DOT: Final = re.compile(r"([+-]?\d{1,20})[eE]([+-]?\d{1,4})", re.ASCII)
_EXACT: Final = {"int": (int,), "float": (int, float), "bool": (bool,)}
_WORDS: Final = {"int": "a whole number", "float": "a number", "bool": "true or false"}


@training_arguments.rule(
    "HF023", WARNING, "parse", transformers("src/transformers/training_args.py") + "; the same file of 4.30 to 5.0"
)
def names_are_current(arguments: TrainingArguments) -> Violations:
    """Every argument is one that transformers still has: eval_strategy, not evaluation_strategy.

    Prevents: TypeError: unexpected keyword argument, with a transformers that no longer has it.
    Fix: the argument's new name
    """
    for name in sorted({*arguments.values, *arguments.places} & GONE.keys()):
        last, instead = GONE[name]
        message = f"{name} is no argument of transformers 5.23; the last release seen with it is {last}"
        severity = None if last in _SURE else Severity.NOTE
        yield Violation(where=arguments.locate(name), message=message, hint=instead, severity=severity)


@submissions.rule(
    "HF024",
    WARNING,
    "parse",
    transformers("src/transformers/hf_argparser.py:338-356,382-383"),
    reads=("training arguments",),
)
def names_are_no_slips(submission: Submission) -> Violations:
    """An argument that nearly is one of TrainingArguments is spelled like it.

    Prevents: ValueError: Some keys are not used by the HfArgumentParser; or no error and a default instead.
    Fix: the argument's name
    """
    known = known_arguments()
    for arguments in submission.training_arguments:
        for name in sorted({*arguments.values, *arguments.places} - known.keys() - GONE.keys()):
            close = difflib.get_close_matches(name.lower().replace("-", "_"), known, n=1, cutoff=_SLIP)
            if close and not arguments.given(close[0]):
                message = f"{name} is no argument of TrainingArguments"
                yield Violation(where=arguments.locate(name), message=message, hint=f"did you mean {close[0]}?")


@training_arguments.rule(
    "HF025",
    ERROR,
    "parse",
    transformers("src/transformers/hf_argparser.py:36-46, src/transformers/training_args.py (__post_init__)"),
)
def values_have_their_types(arguments: TrainingArguments) -> Violations:
    """Numbers are numbers, flags true or false, and choices among those that transformers has.

    Prevents: argument --x: invalid int value; 'x' is not a valid IntervalStrategy; text where a number is.
    Fix: a value of the argument's type
    """
    for name, value in arguments.values.items():
        entry = known_arguments().get(name)
        if entry is None or value is None or value == entry.get("default"):
            continue
        kind, where = entry["type"], arguments.locate(name)
        types = _EXACT.get(kind)
        if kind == "choice":
            if not isinstance(value, str) or value not in entry["choices"]:
                hint = _choice_hint(value, entry["choices"])
                severity = Severity.WARNING if name == "optim" else None  # trainers of others have more
                yield Violation(where=where, message=_choice_message(name, value), hint=hint, severity=severity)
        elif types is not None and not _fits(value, types) and name != "include_num_input_tokens_seen":
            message = f"{name} is {show(value)}, not {_WORDS[kind]}" + _why(value, arguments)
            severity = Severity.WARNING if arguments.launch is None and kind != "int" else None
            yield Violation(where=where, message=message, hint=_number_hint(name, value), severity=severity)


def _fits(value: object, types: tuple[type, ...]) -> bool:
    return type(value) in types


def _choice_message(name: str, value: object) -> str:
    if isinstance(value, bool) and name.endswith("_strategy"):
        return f"{name} is {show(value)}: YAML reads no, off, yes and on as false and true"
    return f"{name} is {show(value)}, which transformers doesn't have"


def _choice_hint(value: object, choices: list[str]) -> str:
    if value is False and "no" in choices:
        return "'no', in quotes"
    close = difflib.get_close_matches(str(value).lower(), choices, n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else listed(choices[:12])


def _why(value: object, arguments: TrainingArguments) -> str:
    if isinstance(value, str) and arguments.launch is None and _NO_DOT.fullmatch(value):
        return ": YAML 1.1 takes a number with an exponent only with a dot, as in 1.0e-5"
    return ""


def _number_hint(name: str, value: object) -> str | None:
    try:
        number = float(value) if isinstance(value, str) and len(value) < 40 else None
    except ValueError:
        return None
    if isinstance(value, str) and (match := _NO_DOT.fullmatch(value)):
        return f"{name}: {match[1]}.0e{match[2]}"
    return f"{name}: {number:g}" if number is not None else None


@training_arguments.rule("HF026", ERROR, "init", transformers(_CHECKED))
def one_precision(arguments: TrainingArguments) -> Violations:
    """At most one of fp16 and bf16 is on, in training and in evaluation.

    Prevents: ValueError: At most one of fp16 and bf16 can be True, but not both
    Fix: bf16 alone
    """
    for first, second in (("fp16", "bf16"), ("fp16_full_eval", "bf16_full_eval")):
        if arguments.value(first) is True and arguments.value(second) is True:
            message = f"{first} and {second} are both on"
            yield Violation(where=arguments.locate(second), message=message, hint=f"{second} alone")


@training_arguments.rule("HF005", ERROR, "init", transformers("src/transformers/trainer.py:473-476"))
def fsdp_or_deepspeed(arguments: TrainingArguments) -> Violations:
    """fsdp and deepspeed are not given together.

    Prevents: ValueError: Using --fsdp xxx together with --deepspeed is not possible.
    Fix: one of them
    """
    if arguments.value("fsdp") not in (None, "", False, []) and arguments.value("deepspeed") not in (
        None,
        "",
        False,
    ):
        message = "fsdp and deepspeed are both given"
        yield Violation(where=arguments.locate("fsdp"), message=message, hint="one of them")


def best_model_is_saved_elsewhere(submission: Submission) -> Violations:
    """save_only_model is not used with load_best_model_at_end under DeepSpeed or FSDP."""
    for arguments in submission.training_arguments:
        sharded = arguments.value("deepspeed") or arguments.value("fsdp")
        only, best = arguments.value("save_only_model"), arguments.value("load_best_model_at_end")
        if sharded and only is True and best is True:
            under = "DeepSpeed" if arguments.value("deepspeed") else "FSDP"
            message = f"save_only_model with load_best_model_at_end under {under}"
            yield Violation(where=arguments.locate("save_only_model"), message=message, hint="one of the two")


@training_arguments.rule("HF027", NOTE, "silent", transformers("src/transformers/training_args.py (max_steps)"))
def steps_or_epochs(arguments: TrainingArguments) -> Violations:
    """max_steps and num_train_epochs are not given together: the steps win.

    Prevents: No error: training ends after max_steps, whatever the epochs say.
    Fix: one of the two
    """
    steps, epochs = arguments.value("max_steps"), arguments.value("num_train_epochs")
    if _number(steps) and isinstance(steps, int) and steps > 0 and _number(epochs):
        message = f"max_steps {steps} wins over num_train_epochs {epochs}"
        yield Violation(where=arguments.locate("num_train_epochs"), message=message, hint="one of the two")


@training_arguments.rule(
    "HF028",
    ERROR,
    "init",
    derived("torch's DataLoader refuses a batch of 0, and steps are counted by dividing by the accumulation"),
)
def batches_have_a_sequence(arguments: TrainingArguments) -> Violations:
    """per_device_train_batch_size and gradient_accumulation_steps are at least 1.

    Prevents: ValueError: batch_size should be a positive integer value, or ZeroDivisionError.
    Fix: at least 1
    """
    for name in ("per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps"):
        value = arguments.value(name)
        if isinstance(value, int) and not isinstance(value, bool) and value < 1:
            message = f"{name} is {value}; it is at least 1"
            yield Violation(where=arguments.locate(name), message=message, hint=f"{name} 1")


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_READS: Final = ("training arguments",)
