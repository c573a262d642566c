"""Rules on the global batches of a ramp-up: what each of them has to be a multiple of."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import gcd
from typing import Any, Final

from ...estimate.layout import LayoutLike
from ...findings import ERROR
from ...job.records import Job
from ..planned import Judgement, has_parallel_layers, layouts
from ..violations import megatron_lm

_CALCULATOR: Final = (
    "core/num_microbatches_calculator.py (RampupBatchsizeNumMicroBatchesCalculator.update)"
)

# The layouts that these rules judge: those of jobs with a ramp-up, by the fields that each reads.
_ramped = partial(layouts, applies=lambda job: job.training.batch_ramp is not None)
_replicated = _ramped("micro_batch", "data", of=has_parallel_layers)
_interleaved = _ramped(
    "virtual_pipeline", "micro_batch", "data", "pipeline", detail="virtual_pipeline"
)


def _common_divisor(job: Job) -> int:
    """The greatest common divisor of all batches of the ramp-up; 0 without a ramp-up.

    A number divides every batch if it divides this one.
    """
    ramp = job.training.batch_ramp
    return gcd(ramp.start, ramp.increment) if ramp is not None else 0


def _message_and_hint(job: Job, product: int, factors: Mapping[str, Any]) -> tuple[str, str]:
    """The message and the hint for a ramp-up with a batch that isn't a multiple of `product`.

    The message names the `factors` of the product, the hint the nearest ramp-up that passes.
    """
    ramp = job.training.batch_ramp
    if ramp is None:
        return "", ""
    wrong = ramp.start if ramp.start % product else ramp.start + ramp.increment
    written = " × ".join(job.says(name, value) for name, value in factors.items())
    message = f"a batch of {wrong} in the ramp-up is not a multiple of {written} = {product}"

    start, increment = (
        max(1, round(size / product)) * product for size in (ramp.start, ramp.increment)
    )
    divisor = _common_divisor(job)
    return (
        message,
        f"ramp up from {start} by {increment}, or use a product that divides {divisor}",
    )


@_replicated.rule("BATCH025", ERROR, "training", megatron_lm(_CALCULATOR))
def ramped_batches_divide(job: Job, layout: LayoutLike) -> Judgement:
    """Each global batch of a ramp-up is a multiple of micro_batch × data.
    Prevents: Megatron stops in the middle of the ramp: the current global batch is not divisible by
    micro-batch-size times data parallel size.
    Fix: start and grow by multiples of micro_batch × data
    """
    product = layout.micro_batch * layout.data
    yield _common_divisor(job) % product == 0
    factors = {"micro_batch": layout.micro_batch, "data": layout.data}
    yield _message_and_hint(job, int(product), factors)


@_interleaved.rule(
    "BATCH027", ERROR, "training", megatron_lm("core/pipeline_parallel/schedules.py:1160")
)
def ramped_batches_fill_stages(job: Job, layout: LayoutLike) -> Judgement:
    """With interleaving, each global batch of a ramp-up is a multiple of micro_batch × data ×
    pipeline.
    Prevents: A step of the ramp fails: micro-batches are scheduled in groups of the pipeline size.
    Fix: start and grow by multiples of micro_batch × data × pipeline, or set virtual_pipeline to 1
    """
    product = layout.micro_batch * layout.data * layout.pipeline
    yield (layout.virtual_pipeline == 1) | (_common_divisor(job) % product == 0)
    factors = {"micro_batch": layout.micro_batch, "data": layout.data, "pipeline": layout.pipeline}
    message, hint = _message_and_hint(job, int(product), factors)
    yield message, f"{hint}, or {job.says('virtual_pipeline', 1)}"
