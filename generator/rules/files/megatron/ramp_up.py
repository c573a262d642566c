"""Ramp-ups of the batch in Megatron arguments."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ....documents.megatron_arguments import MegatronArguments
from ....documents.submission import Submission
from ....findings import ERROR, WARNING, Severity, Violation, Violations
from ...numbers import divisors, listed, nearest, neighbours
from ...sources import megatron_deepspeed, megatron_lm
from .rule import GLOBAL, MICRO, Run, lm_runs, mds_runs, replicas_of, sized

_RAMP_UP: Final = "--rampup-batch-size"
_SCHEDULE: Final = "--step-batch-size-schedule"


@mds_runs.rule("MDS009", ERROR, "init", megatron_deepspeed("megatron/microbatches.py:21-137"))
def ramp_up_is_whole(run: Run) -> Violations:
    """A ramp-up is a start, an increment that divides the way to the global batch, and a number of samples.

    Prevents: AssertionError: expected the following format ...
    Fix: make every batch of the ramp-up whole
    """
    arguments, submission = run
    if not arguments.has(_RAMP_UP):
        return
    numbers, where = _numbers(arguments), arguments.locate(_RAMP_UP)
    if numbers is None:
        return
    if len(numbers) != 3:
        message = f"{_RAMP_UP} has {len(numbers)} values, not 3: start, increment, samples"
        yield Violation(where=where, message=message, hint=f"{_RAMP_UP} 16 8 300000")
        return
    start, step, samples = numbers
    if min(start, step, samples) < 1:
        message = f"{_RAMP_UP} {start} {step} {samples}: start, increment and samples are at least 1"
        yield Violation(where=where, message=message, hint=f"{_RAMP_UP} 16 8 300000")
        return
    final = sized(arguments, GLOBAL)
    if final is None:
        return
    way = final - start
    if way == 0:
        message = f"{_RAMP_UP} starts at {start}, which is {GLOBAL} already: its steps are divided by 0"
        yield Violation(where=where, message=message, hint=f"a start below {final}, or no {_RAMP_UP}")
        return
    if way < 0 or way % step:
        fitting = divisors(way) if way > 0 else []
        message = f"{_RAMP_UP} {start} {step}: the way from {start} to {GLOBAL} {final} is {way}, no multiple of {step}"
        hint = f"an increment of {listed(nearest(fitting, step, 3))}" if fitting else f"a start below {final}"
        yield Violation(where=where, message=message, hint=hint)
        return
    yield from _steps_of_ramp_up(arguments, submission, start, step)


def _numbers(arguments: MegatronArguments) -> list[int] | None:
    values = arguments.value(_RAMP_UP)
    if not isinstance(values, tuple):
        return None
    texts = [str(value) for value in values]
    return (
        [int(text) for text in texts]
        if all(text.isascii() and text.isdigit() and len(text) < 16 for text in texts)
        else None
    )


def _steps_of_ramp_up(arguments: MegatronArguments, submission: Submission, start: int, step: int) -> Violations:
    """Every batch on the way is whole micro-batches of all replicas."""
    micro, replicas = sized(arguments, MICRO), replicas_of(submission, arguments)
    if not micro or not replicas or micro < 1 or arguments.has("--decrease-batch-size-if-needed"):
        return
    unit = micro * replicas
    for value, what in ((start, "start"), (step, "increment")):
        if value % unit:
            message = (
                f"{_RAMP_UP}: the {what} of {value} is no multiple of {MICRO} {micro} × {replicas} replicas = {unit}"
            )
            hint = f"{what}: {listed(neighbours(unit, value))}"
            yield Violation(where=arguments.locate(_RAMP_UP), message=message, hint=hint)


@lm_runs.rule(
    "MLM029",
    WARNING,
    "init",
    "NVIDIA/Megatron-LM megatron/core/num_microbatches_calculator.py:398-433 @ core_v0.16.1; "
    + megatron_lm("core/num_microbatches_calculator.py:102, training/arguments.py:698"),
)
def lm_ramp_up(run: Run) -> Violations:
    """A ramp-up of the batch is whole, and newer versions have --step-batch-size-schedule instead.

    Prevents: AssertionError, or ValueError; in newer versions a batch that is never ramped up
    Fix: --step-batch-size-schedule; in older versions make every batch of the ramp-up whole
    """
    arguments = run.arguments
    for violation in ramp_up_is_whole.check(run):
        yield replace(violation, severity=Severity.ERROR)
    if arguments.has(_RAMP_UP):
        message = f"{_RAMP_UP} is deprecated: newer versions of Megatron-LM ignore it, and have {_SCHEDULE}"
        yield Violation(where=arguments.locate(_RAMP_UP), message=message, hint=_as_schedule(arguments))
    if arguments.has(_SCHEDULE) and arguments.has(GLOBAL):
        message = f"{GLOBAL} {arguments.value(GLOBAL)} is given beside {_SCHEDULE}, which has the batches"
        yield Violation(where=arguments.locate(GLOBAL), message=message, hint=f"no {GLOBAL}", severity=Severity.ERROR)


def _as_schedule(arguments: MegatronArguments) -> str:
    """The ramp-up as a schedule, which counts in tokens: its first batch and its last, where its numbers are known."""
    numbers, final, tokens = _numbers(arguments), sized(arguments, GLOBAL), sized(arguments, "--seq-length")
    if numbers is None or len(numbers) != 3 or not final or not tokens:
        return f'{_SCHEDULE} "0:16 1B:32", without {GLOBAL}'
    start, _, samples = numbers
    return f'{_SCHEDULE} "0:{start} {samples * tokens}:{final}", without {GLOBAL}'
