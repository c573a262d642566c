"""Ramp-ups of the batch in Megatron arguments."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ....documents.megatron_run import GLOBAL, MICRO, MegatronRun
from ....findings import ERROR, WARNING, Severity, Violations
from ...numbers import divisors, listed, nearest, neighbours
from ...sources import megatron_deepspeed, megatron_lm
from .rule import at, lm_runs, mds_runs

_RAMP_UP: Final = "--rampup-batch-size"
_SCHEDULE: Final = "--step-batch-size-schedule"
_EXAMPLE: Final = f"use {_RAMP_UP} 16 8 300000"


@mds_runs.rule("MDS009", ERROR, "init", megatron_deepspeed("megatron/microbatches.py:21-137"))
def ramp_up_is_whole(run: MegatronRun) -> Violations:
    """A ramp-up is a start, an increment that divides the way to the global batch, and a number of samples.

    Prevents: AssertionError: expected the following format ...
    Fix: make every batch of the ramp-up whole
    """
    numbers, final = _numbers(run), run.global_batch
    if numbers is None:
        return
    if len(numbers) != 3:
        message = f"{_RAMP_UP} has {len(numbers)} values, not 3: start, increment, samples"
        yield at(run, _RAMP_UP, message, _EXAMPLE)
        return
    start, step, samples = numbers
    if min(numbers) < 1:
        message = f"{_RAMP_UP} {start} {step} {samples}: start, increment and samples must be at least 1"
        yield at(run, _RAMP_UP, message, _EXAMPLE)
    elif final == start:
        message = f"{_RAMP_UP} starts at {start}, which is {GLOBAL} already: its steps are divided by 0"
        yield at(run, _RAMP_UP, message, f"use a start below {final}, or remove {_RAMP_UP}")
    elif final is not None and final < start:
        message = f"{_RAMP_UP} {start} {step}: {start} is more than {GLOBAL} {final}"
        yield at(run, _RAMP_UP, message, f"use a start below {final}")
    elif final is not None and (way := final - start) % step:
        message = f"{_RAMP_UP} {start} {step}: {final} − {start} = {way} is not a multiple of {step}"
        yield at(run, _RAMP_UP, message, f"use an increment of {listed(nearest(divisors(way), step, 3))}")
    elif final is not None:
        yield from _steps_of_ramp_up(run, start, step)


def _numbers(run: MegatronRun) -> list[int] | None:
    """The ramp-up's numbers; None where they can't be known."""
    values = run.value(_RAMP_UP)
    texts = [str(value) for value in values] if isinstance(values, tuple) else [""]
    known = all(text.isascii() and text.isdigit() and len(text) < 16 for text in texts)
    return [int(text) for text in texts] if known else None


def _steps_of_ramp_up(run: MegatronRun, start: int, step: int) -> Violations:
    """Every batch on the way is whole micro-batches of all replicas."""
    if not run.micro_batch or not run.replicas or run.has("--decrease-batch-size-if-needed"):
        return
    unit = run.micro_batch * run.replicas
    product = f"{MICRO} {run.micro_batch} × {run.replicas} replicas = {unit}"
    for value, what in ((start, "start"), (step, "increment")):
        if value % unit:
            message = f"{_RAMP_UP}: the {what} of {value} is not a multiple of {product}"
            article = "a" if what == "start" else "an"
            yield at(run, _RAMP_UP, message, f"use {article} {what} of {listed(neighbours(unit, value))}")


@lm_runs.rule(
    "MLM029",
    WARNING,
    "init",
    "NVIDIA/Megatron-LM megatron/core/num_microbatches_calculator.py:398-433 @ core_v0.16.1; "
    + megatron_lm("core/num_microbatches_calculator.py:102, training/arguments.py:698"),
)
def lm_ramp_up(run: MegatronRun) -> Violations:
    """A ramp-up of the batch is whole, and newer versions have --step-batch-size-schedule instead.

    Prevents: AssertionError, or ValueError; in newer versions a batch that is never ramped up
    Fix: use --step-batch-size-schedule; in older versions make every batch of the ramp-up whole
    """
    for violation in ramp_up_is_whole.check(run):
        yield replace(violation, severity=Severity.ERROR)
    if run.has(_RAMP_UP):
        message = f"{_RAMP_UP} is deprecated: newer versions of Megatron-LM ignore it, and have {_SCHEDULE}"
        yield at(run, _RAMP_UP, message, f"use {_SCHEDULE} {_as_schedule(run)}, without {GLOBAL}")
    if run.has(_SCHEDULE) and run.has(GLOBAL):
        message = f"{run.shown(GLOBAL)} is given with {_SCHEDULE}, which has the batches"
        yield at(run, GLOBAL, message, f"remove {GLOBAL}", Severity.ERROR)


def _as_schedule(run: MegatronRun) -> str:
    """The ramp-up as a schedule, which counts in tokens: its first batch and its last, where its numbers are known."""
    numbers, final, tokens = _numbers(run), run.global_batch, run.size("--seq-length")
    if numbers is None or len(numbers) != 3 or not final or not tokens:
        return '"0:16 1B:32"'
    start, _, samples = numbers
    return f'"0:{start} {samples * tokens}:{final}"'
