"""What TRL's online trainers check of completions: whole groups of each prompt in every batch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from ....findings import ERROR, WARNING, Violation, Violations
from ....numerals import read_whole
from ....rules.violations import divisors, violation
from ....submission.launches import Launch
from ....submission.repository import program_of
from ....submission.subjects import subject
from ....submission.submission import Submission
from ....submission.world import world_of
from ...launching.parsed_classes import parses_a
from ...python_around import release_for
from ..training_arguments import TrainingArguments

_TRL: Final = "huggingface/trl trl/trainer/grpo_config.py @ 1.9.0"
_VLLM: Final = "huggingface/trl trl/generation/vllm_generation.py:318 @ f2cd5771"
_GROUP: Final = "num_generations"
_CLASSES: Final = ("GRPOConfig", "RLOOConfig")  #: of the trainers that have it
_BATCH: Final = "generation_batch_size"
_STEPS: Final = "steps_per_generation"
_MICRO: Final = "per_device_train_batch_size"
_NO_SEARCH: Final = (1, 10)  #: the first release that refuses auto_find_batch_size


class Generating(NamedTuple):
    """TrainingArguments of a run that generates, and its processes."""

    arguments: TrainingArguments
    processes: int | None

    def number(self, name: str) -> int | None:
        """A whole number that an argument is; None where it isn't written or known."""
        return read_whole(str(self.arguments.value(name)))

    def over_processes(self, name: str) -> tuple[int, str] | None:
        """An argument's sequences of each process, times the processes, and the product as text."""
        each = self.number(name)
        if not each or not self.processes:
            return None
        return each * self.processes, f"{name} {each} × {self.processes} GPUs"


@subject("training arguments")
def generating(submission: Submission) -> Iterator[Generating]:
    """The arguments of TRL's online trainers, which share each prompt's completions out."""
    for arguments in submission.of(TrainingArguments):
        is_grouped = arguments.has(_GROUP) and not arguments.is_on_front_end
        if is_grouped and _are_parsed(arguments, submission):
            yield Generating(arguments, world_of(submission).gpus)


def _are_parsed(arguments: TrainingArguments, submission: Submission) -> bool:
    """Whether a program that reads arguments may parse them by a class of TRL's online trainers.

    One whose parser has other classes has other checks, whatever their fields are called.
    """
    launches = arguments.launches or _launches_with(arguments.path, submission)
    programs = set(filter(None, map(program_of, launches)))
    return not programs or any(parses_a(program, _CLASSES) is not False for program in programs)


def _launches_with(path: str, submission: Submission) -> list[Launch]:
    """The launch lines that name a file of arguments."""
    name = PurePosixPath(path).name
    return [
        launch
        for launch in submission.launches
        if any(_names(word.value, name) for word in launch.arguments)
    ]


def _names(text: str | None, file: str) -> bool:
    """Whether a word is the path of a file of this name, behind an option or not."""
    return text is not None and PurePosixPath(text.rpartition("=")[2]).name == file


@generating.rule("HF046", ERROR, "init", f"{_TRL}:1060-1116")
def generations_divide_the_batch(run: Generating) -> Violations:
    """The completions of a generation are a whole number of prompts' groups, in evaluations too.
    Prevents: ValueError: generation_batch_size must be divisible by num_generations
    Fix: use processes × per_device_train_batch_size × steps that num_generations divides
    """
    arguments, group = run.arguments, run.number(_GROUP)
    if group is None:
        return
    if group < 2:
        message = f"{_GROUP} {group}: completions of one prompt are compared, at least two"
        yield violation(arguments, _GROUP, message, f"use {_GROUP} 2 or more")
        return
    yield from _searched_batch(run)
    yield from _given_batch(run, group)
    yield from _batch_of_steps(run, group)

    evaluated = run.over_processes("per_device_eval_batch_size")
    evaluates = arguments.value("eval_strategy", "no") not in ("no", None)
    if evaluates and evaluated and not arguments.has("num_generations_eval"):
        count, text = evaluated
        if count % group:
            message = f"{text} = {count} is no multiple of {_GROUP} {group}"
            name = "per_device_eval_batch_size"
            wanted = group // math.gcd(run.processes or 1, group)
            yield violation(arguments, name, message, f"use {name} {wanted}")


def _searched_batch(run: Generating) -> Violations:
    """A violation where a newer release refuses a batch that is halved until it fits."""
    arguments, name = run.arguments, "auto_find_batch_size"
    release = release_for("trl", arguments.path, arguments.launches)
    if arguments.is_on(name) and release.certain(lambda version: version >= _NO_SEARCH):
        message = f"{name} with {_GROUP}: a smaller batch would cut groups"
        severity = None if release.where else WARNING
        yield violation(arguments, name, message, "remove it", severity=severity)


def _given_batch(run: Generating, group: int) -> Violations:
    """A violation where a written generation_batch_size doesn't hold whole groups."""
    arguments, batch = run.arguments, run.number(_BATCH)
    if not batch:
        return
    if arguments.has(_STEPS):
        yield violation(arguments, _STEPS, f"{_STEPS} with {_BATCH}", "remove one of the two")
        return
    of_pass, text = run.over_processes(_MICRO) or (1, "")
    if batch % of_pass:
        message = f"{_BATCH} {batch} is no multiple of {text} = {of_pass}"
        hint = f"use {_BATCH} {_next_multiple(batch, math.lcm(of_pass, group))}"
        yield violation(arguments, _BATCH, message, hint)
    elif batch % group:
        message = f"{_BATCH} {batch} is no multiple of {_GROUP} {group}"
        hint = f"use {_BATCH} {_next_multiple(batch, group)}"
        yield violation(arguments, _GROUP, message, hint)


def _next_multiple(number: int, divisor: int) -> int:
    """The least multiple that is at least a number."""
    return -(-number // divisor) * divisor


def _batch_of_steps(run: Generating, group: int) -> Violations:
    """A violation where no batch is written, and the one that the steps make cuts groups."""
    arguments, processes = run.arguments, run.processes
    steps = _STEPS if arguments.has(_STEPS) else "gradient_accumulation_steps"
    if not processes or arguments.has(_BATCH):
        return
    if not arguments.has(_MICRO) or not arguments.has(steps):
        return
    micro, passes = run.number(_MICRO), run.number(steps)
    if not micro or not passes:
        return
    batch = micro * processes * passes
    if batch % group:
        product = f"{_MICRO} {micro} × {processes} GPUs × {steps} {passes}"
        message = f"{product} = {batch} is no multiple of {_GROUP} {group}"
        wanted = group // math.gcd(micro * processes, group)
        yield violation(arguments, _GROUP, message, f"use {steps} {wanted}")


@generating.rule("HF050", ERROR, "init", _VLLM)
def engines_divide_the_processes(run: Generating) -> Violations:
    """The ranks of a colocated engine for generation divide the processes.
    Prevents: ValueError: vllm_tensor_parallel_size must divide world size
    Fix: use a vllm_tensor_parallel_size that divides the number of processes
    """
    arguments, ranks = run.arguments, run.number("vllm_tensor_parallel_size")
    is_colocated = arguments.value("vllm_mode") == "colocate"  # releases differ in the default
    uses_vllm = str(arguments.value("use_vllm")).lower() == "true"
    if not uses_vllm or not is_colocated or not ranks or not run.processes:
        return
    if run.processes % ranks:
        name = "vllm_tensor_parallel_size"
        message = f"{name} {ranks} does not divide {run.processes} processes"
        hint = f"use {name} {divisors(run.processes, ranks)[-1]}"
        yield Violation(arguments.locate(name), message, hint)
