"""The batches of a ramp-up against micro-batches, replicas and stages."""

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
_ramped = partial(layouts, applies=lambda job: job.training.batch_ramp is not None)
_divided = _ramped("micro_batch", "data", of=has_parallel_layers)
_interleaved = _ramped(
    "virtual_pipeline", "micro_batch", "data", "pipeline", detail="virtual_pipeline"
)


def _common(job: Job) -> int:
    """Return the greatest common divisor of the ramp-up's batches."""
    ramp = job.training.batch_ramp
    return gcd(ramp.start, ramp.increment) if ramp is not None else 0


def _explained(job: Job, step: Any, factors: Mapping[str, Any]) -> tuple[str, str]:
    """Return which batch is no multiple of the product of these factors, and a ramp-up without such
    a batch.
    """
    ramp, product = job.training.batch_ramp, int(step)
    if ramp is None:
        return "", ""
    wrong = ramp.start if ramp.start % product else ramp.start + ramp.increment
    said = " × ".join(job.says(name, value) for name, value in factors.items())
    fitting = [max(1, round(size / product)) * product for size in (ramp.start, ramp.increment)]
    message = f"a batch of {wrong} in the ramp-up is not a multiple of {said} = {product}"
    return (
        message,
        f"ramp up from {fitting[0]} by {fitting[1]}, or use a product that divides {_common(job)}",
    )


@_divided.rule("BATCH025", ERROR, "training", megatron_lm(_CALCULATOR))
def ramped_batches_divide(job: Job, layout: LayoutLike) -> Judgement:
    """Each global batch of a ramp-up is a multiple of micro_batch × data.
    Prevents: Megatron stops in the middle of the ramp: the current global batch is not divisible by
    micro-batch-size times data parallel size.
    Fix: start and grow by multiples of micro_batch × data
    """
    step = layout.micro_batch * layout.data
    yield _common(job) % step == 0
    yield _explained(job, step, {"micro_batch": layout.micro_batch, "data": layout.data})


@_interleaved.rule(
    "BATCH027", ERROR, "training", megatron_lm("core/pipeline_parallel/schedules.py:1160")
)
def ramped_batches_fill_stages(job: Job, layout: LayoutLike) -> Judgement:
    """With interleaving, each global batch of a ramp-up is a multiple of micro_batch × data ×
    pipeline.
    Prevents: A step of the ramp fails: micro-batches are scheduled in groups of the pipeline size.
    Fix: start and grow by multiples of micro_batch × data × pipeline, or set virtual_pipeline to 1
    """
    step = layout.micro_batch * layout.data * layout.pipeline
    yield (layout.virtual_pipeline == 1) | (_common(job) % step == 0)
    factors = {"micro_batch": layout.micro_batch, "data": layout.data, "pipeline": layout.pipeline}
    message, hint = _explained(job, step, factors)
    yield message, f"{hint}, or {job.says('virtual_pipeline', 1)}"
