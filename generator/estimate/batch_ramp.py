"""Batch ramp-up: how many steps a run makes with each global batch."""

from __future__ import annotations

from ..job.records import BatchRamp


def ramp_steps(ramp: BatchRamp, global_batch: int, samples: int) -> list[tuple[int, int]]:
    """Global batches with how many steps they are used for, until `samples` sequences are trained on.

    **Source**: Megatron-LM core_v0.16.1, core/num_microbatches_calculator.py,
    RampupBatchsizeNumMicroBatchesCalculator.update: the batch grows by one increment each time as many samples are
    consumed as the ramp's are divided by its increments; steps are whole.
    """
    increments = (global_batch - ramp.start) // ramp.increment
    each = ramp.samples / increments if increments > 0 else 0.0
    stages: list[tuple[int, int]] = []
    consumed = 0
    while each and consumed < samples and consumed <= ramp.samples:
        grown = min(int(consumed / each), increments)
        batch = ramp.start + grown * ramp.increment
        until = min((grown + 1) * each, samples) if grown < increments else ramp.samples + 1
        steps = max(1, _steps(until - consumed, batch))
        stages.append((batch, steps))
        consumed += steps * batch
    if consumed < samples:
        stages.append((global_batch, _steps(samples - consumed, global_batch)))
    return stages


def _steps(samples: float, batch: int) -> int:
    """Steps that consume at least so many."""
    return int(-(-samples // batch))
