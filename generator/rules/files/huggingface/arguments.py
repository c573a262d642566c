"""TrainingArguments by themselves: names, types and values that transformers refuses."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import Final

from ....documents.submission import Submission
from ....documents.training_arguments import TrainingArguments, known_arguments
from ....findings import Severity
from ....job.wording import show
from ...numbers import listed
from ...sources import derived, transformers
from ..rule import Breach, DocumentRule
from .gone import GONE

_SURE: Final = ("4.30", "4.46")  # gone before 4.57; many have a transformers 4 that has the others
_SLIP: Final = 0.9  # how alike a name must be to be a slip; scripts have arguments of their own
_NO_DOT: Final = re.compile(r"([+-]?\d{1,20})[eE]([+-]?\d{1,4})", re.ASCII)
_EXACT: Final = {"int": (int,), "float": (int, float), "bool": (bool,)}
_WORDS: Final = {"int": "a whole number", "float": "a number", "bool": "true or false"}


def names_are_current(submission: Submission) -> Iterator[Breach]:
    """Every argument is one that transformers still has: eval_strategy, not evaluation_strategy."""
    for arguments in submission.training_arguments:
        for name in sorted({*arguments.values, *arguments.places} & GONE.keys()):
            last, instead = GONE[name]
            message = f"{name} is no argument of transformers 5.23; the last release seen with it is {last}"
            severity = None if last in _SURE else Severity.NOTE
            yield Breach(where=arguments.locate(name), message=message, hint=instead, severity=severity)


def names_are_no_slips(submission: Submission) -> Iterator[Breach]:
    """An argument that nearly is one of TrainingArguments is spelled like it."""
    known = known_arguments()
    for arguments in submission.training_arguments:
        for name in sorted({*arguments.values, *arguments.places} - known.keys() - GONE.keys()):
            close = difflib.get_close_matches(name.lower().replace("-", "_"), known, n=1, cutoff=_SLIP)
            if close and not arguments.given(close[0]):
                message = f"{name} is no argument of TrainingArguments"
                yield Breach(where=arguments.locate(name), message=message, hint=f"did you mean {close[0]}?")


def values_have_their_types(submission: Submission) -> Iterator[Breach]:
    """Numbers are numbers, flags true or false, and choices among those that transformers has."""
    for arguments in submission.training_arguments:
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
                    yield Breach(where=where, message=_choice_message(name, value), hint=hint, severity=severity)
            elif types is not None and not _fits(value, types) and name != "include_num_input_tokens_seen":
                message = f"{name} is {show(value)}, not {_WORDS[kind]}" + _why(value, arguments)
                severity = Severity.WARNING if arguments.launch is None and kind != "int" else None
                yield Breach(where=where, message=message, hint=_number_hint(name, value), severity=severity)


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


def one_precision(submission: Submission) -> Iterator[Breach]:
    """At most one of fp16 and bf16 is on, in training and in evaluation."""
    for arguments in submission.training_arguments:
        for first, second in (("fp16", "bf16"), ("fp16_full_eval", "bf16_full_eval")):
            if arguments.value(first) is True and arguments.value(second) is True:
                message = f"{first} and {second} are both on"
                yield Breach(where=arguments.locate(second), message=message, hint=f"{second} alone")


def fsdp_or_deepspeed(submission: Submission) -> Iterator[Breach]:
    """fsdp and deepspeed are not given together."""
    for arguments in submission.training_arguments:
        if arguments.value("fsdp") not in (None, "", False, []) and arguments.value("deepspeed") not in (
            None,
            "",
            False,
        ):
            message = "fsdp and deepspeed are both given"
            yield Breach(where=arguments.locate("fsdp"), message=message, hint="one of them")


def best_model_is_saved_elsewhere(submission: Submission) -> Iterator[Breach]:
    """save_only_model is not used with load_best_model_at_end under DeepSpeed or FSDP."""
    for arguments in submission.training_arguments:
        sharded = arguments.value("deepspeed") or arguments.value("fsdp")
        only, best = arguments.value("save_only_model"), arguments.value("load_best_model_at_end")
        if sharded and only is True and best is True:
            under = "DeepSpeed" if arguments.value("deepspeed") else "FSDP"
            message = f"save_only_model with load_best_model_at_end under {under}"
            yield Breach(where=arguments.locate("save_only_model"), message=message, hint="one of the two")


def steps_or_epochs(submission: Submission) -> Iterator[Breach]:
    """max_steps and num_train_epochs are not given together: the steps win."""
    for arguments in submission.training_arguments:
        steps, epochs = arguments.value("max_steps"), arguments.value("num_train_epochs")
        if _number(steps) and isinstance(steps, int) and steps > 0 and _number(epochs):
            message = f"max_steps {steps} wins over num_train_epochs {epochs}"
            yield Breach(where=arguments.locate("num_train_epochs"), message=message, hint="one of the two")


def batches_have_a_sequence(submission: Submission) -> Iterator[Breach]:
    """per_device_train_batch_size and gradient_accumulation_steps are at least 1."""
    for arguments in submission.training_arguments:
        for name in ("per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps"):
            value = arguments.value(name)
            if isinstance(value, int) and not isinstance(value, bool) and value < 1:
                message = f"{name} is {value}; it is at least 1"
                yield Breach(where=arguments.locate(name), message=message, hint=f"{name} 1")


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_READS: Final = ("training arguments",)
_CHECKED: Final = "src/transformers/training_args.py (TrainingArguments._validate_args)"

RULES: Final[tuple[DocumentRule, ...]] = (
    DocumentRule(
        id="HF023",
        severity=Severity.WARNING,
        when="parse",
        reads=_READS,
        source=transformers("src/transformers/training_args.py") + "; the same file of 4.30 to 5.0",
        prevents="TypeError: unexpected keyword argument, with a transformers that no longer has it.",
        fix="the argument's new name",
        check=names_are_current,
    ),
    DocumentRule(
        id="HF024",
        severity=Severity.WARNING,
        when="parse",
        reads=_READS,
        source=transformers("src/transformers/hf_argparser.py:338-356,382-383"),
        prevents="ValueError: Some keys are not used by the HfArgumentParser; or no error and a default instead.",
        fix="the argument's name",
        check=names_are_no_slips,
    ),
    DocumentRule(
        id="HF025",
        severity=Severity.ERROR,
        when="parse",
        reads=_READS,
        source=transformers(
            "src/transformers/hf_argparser.py:36-46, src/transformers/training_args.py (__post_init__)"
        ),
        prevents="argument --x: invalid int value; 'x' is not a valid IntervalStrategy; text where a number is.",
        fix="a value of the argument's type",
        check=values_have_their_types,
    ),
    DocumentRule(
        id="HF026",
        severity=Severity.ERROR,
        when="init",
        reads=_READS,
        source=transformers(_CHECKED),
        prevents="ValueError: At most one of fp16 and bf16 can be True, but not both",
        fix="bf16 alone",
        check=one_precision,
    ),
    DocumentRule(
        id="HF005",
        severity=Severity.ERROR,
        when="init",
        reads=_READS,
        source=transformers("src/transformers/trainer.py:473-476"),
        prevents="ValueError: Using --fsdp xxx together with --deepspeed is not possible.",
        fix="one of them",
        check=fsdp_or_deepspeed,
    ),
    DocumentRule(
        id="HF027",
        severity=Severity.NOTE,
        when="silent",
        reads=_READS,
        source=transformers("src/transformers/training_args.py (max_steps)"),
        prevents="No error: training ends after max_steps, whatever the epochs say.",
        fix="one of the two",
        check=steps_or_epochs,
    ),
    DocumentRule(
        id="HF028",
        severity=Severity.ERROR,
        when="init",
        reads=_READS,
        source=derived(
            "torch's DataLoader refuses a batch of 0, and steps are counted by dividing by the accumulation"
        ),
        prevents="ValueError: batch_size should be a positive integer value, or ZeroDivisionError.",
        fix="at least 1",
        check=batches_have_a_sequence,
    ),
)
