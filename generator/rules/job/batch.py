"""The sizes of micro-batches that are searched."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...findings import NOTE, Violations
from ...job.records import Job
from ..numbers import divisors
from ..planned import jobs, violation
from ..sources import derived

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
