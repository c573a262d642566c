"""The batches of a ramp-up against micro-batches and replicas."""

from __future__ import annotations

from math import gcd
from typing import Any, Final

import numpy as np

from ...estimate.layout import LayoutLike
from ...findings import ERROR
from ...job.records import Job
from ..planned import Judgement, megatron_layouts
from ..sources import megatron_lm

_SOURCE: Final = megatron_lm("core/num_microbatches_calculator.py (RampupBatchsizeNumMicroBatchesCalculator.update)")
_ramped = megatron_layouts(
    "micro_batch", "data", "pipeline", "virtual_pipeline", applies=lambda job: job.training.batch_ramp is not None
)


def _step(job: Job, layout: LayoutLike) -> Any:
    """What every batch is a multiple of: with interleaved chunks, micro-batches come in groups of the stages."""
    grouped = job.framework.runs("Megatron-LM")
    groups = np.where(layout.virtual_pipeline > 1, layout.pipeline, 1) if grouped else 1
    return layout.micro_batch * layout.data * groups


@_ramped.rule("BATCH025", ERROR, "training", _SOURCE)
def ramped_batches_divide(job: Job, layout: LayoutLike) -> Judgement:
    """Each global batch of a ramp-up is a multiple of micro_batch × data, with interleaving times the stages.

    Prevents: Megatron stops in the middle of the ramp: the current global batch is not divisible by micro-batch-size
    times data parallel size.
    Fix: start and grow by multiples of micro_batch × data"""
    ramp, step = job.training.batch_ramp, _step(job, layout)
    if ramp is None:
        yield step >= 0
        return
    common = gcd(ramp.start, ramp.increment)
    yield common % step == 0
    wrong = ramp.start if ramp.start % step else ramp.start + ramp.increment
    factors = [job.says("micro_batch", layout.micro_batch), job.says("data", layout.data)]
    factors += [job.says("pipeline", layout.pipeline)] if step > layout.micro_batch * layout.data else []
    message = f"a batch of {wrong} in the ramp-up is not a multiple of {' × '.join(factors)} = {int(step)}"
    fitting = [max(1, round(size / step)) * int(step) for size in (ramp.start, ramp.increment)]
    hint = f"ramp up from {fitting[0]} by {fitting[1]}, or use a product that divides {common}"
    yield message, hint
