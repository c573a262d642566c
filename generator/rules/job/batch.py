"""The sizes of micro-batches that are searched."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...findings import ERROR, NOTE, Violations
from ...job.records import Job
from ..numbers import divisors, nearest
from ..planned import jobs, jobs_of, violation
from ..sources import derived, megatron_lm

#: The smallest divisors of a batch that are tried: all, of a batch up to 45,360. No batch has more than 100 divisors up
#: to 100, so what is left out are micro-batches of more than 100 sequences.
MOST_MICRO_BATCHES: Final = 100
_SOURCE: Final = derived("activations grow with the micro-batch, and multiplications gain little beyond some sequences")


@lru_cache(maxsize=64)
def micro_batches(batch: int) -> NDArray[np.int64]:
    """The micro-batches that a global batch may be divided into: its smallest divisors."""
    return np.array(divisors(batch)[:MOST_MICRO_BATCHES], np.int64)


@jobs.rule("BATCH023", NOTE, "silent", _SOURCE)
def micro_batches_are_searched(job: Job) -> Violations:
    """The global batch has at most 100 divisors, so that every micro-batch is searched.

    Prevents: No error: micro-batches above the hundredth divisor are not tried unless one is pinned.
    Fix: pin layout.micro_batch, or use a batch with fewer divisors"""
    sizes, batch = divisors(job.training.global_batch), job.training.global_batch
    if len(sizes) > MOST_MICRO_BATCHES and job.pins.micro_batch is None:
        message = f"a global batch of {batch:,} has {len(sizes):,} divisors; the {MOST_MICRO_BATCHES} smallest are"
        message += f" searched as micro-batches, up to {sizes[MOST_MICRO_BATCHES - 1]}"
        yield violation(job, "/training/global_batch", message, "pin layout.micro_batch to try a larger one")


_RAMP: Final = "/training/batch_ramp"


@jobs.rule("BATCH024", ERROR, "init", megatron_lm("core/num_microbatches_calculator.py (RampupBatchsizeNum...)"))
def ramp_reaches_the_batch(job: Job) -> Violations:
    """A batch ramp-up starts below the global batch and reaches it in whole increments.

    Prevents: Megatron stops at start: expected global batch size interval to be divisible by the increment.
    Fix: use an increment that divides global_batch - start"""
    ramp, batch = job.training.batch_ramp, job.training.global_batch
    if ramp is None:
        return
    if ramp.start >= batch:
        message = f"the ramp-up starts at {ramp.start}, which is not below global_batch: {batch}"
        yield violation(job, f"{_RAMP}/start", message, f"use start: {max(1, batch // 2)}, or leave batch_ramp out")
    elif (batch - ramp.start) % ramp.increment:
        message = f"increment: {ramp.increment} does not divide {batch} - {ramp.start} = {batch - ramp.start}"
        fitting = nearest(divisors(batch - ramp.start), ramp.increment, 2)
        yield violation(job, f"{_RAMP}/increment", message, f"use increment: {' or '.join(map(str, fitting))}")


@jobs_of("own script", "Trainer").rule("BATCH026", ERROR, "silent", derived("only Megatron has --rampup-batch-size"))
def ramps_need_megatron(job: Job) -> Violations:
    """A batch ramp-up needs Megatron.

    Prevents: No error: the global batch is the same from the first step on.
    Fix: remove training.batch_ramp, or use framework: megatron-lm"""
    if job.training.batch_ramp is not None:
        message = f"batch_ramp is not available with {job.says('framework', job.framework)}"
        yield violation(job, _RAMP, message, f"remove it, or use {job.says('framework', 'megatron-lm')}")
