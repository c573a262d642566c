"""The same plan in other number formats: what the hardware's other rates would make of its step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ..estimate.layout import Layout
from ..estimate.step_time import step_time
from ..job.records import Job
from ..rules.run import check_job

_COMPARED: Final = ("bf16", "fp16", "fp8")


def other_precisions(job: Job, layout: Layout) -> Mapping[str, float]:
    """Seconds of a step of the same layout in the other formats that accelerator and framework have.

    **Assumes** the same layout, and says nothing of memory: its states may need more, or less.
    """
    known = {finding.rule for finding in check_job(job)}
    others = (_with(job, precision) for precision in _COMPARED if precision != job.training.precision)
    return {
        other.training.precision: float(step_time(other, layout).total_s)
        for other in others
        if other.cluster.accelerator.supports(other.training.precision)
        and {finding.rule for finding in check_job(other)} <= known
    }


def _with(job: Job, precision: str) -> Job:
    """The job in another format, where gradients are summed as is usual for it."""
    return replace(job, training=replace(job.training, precision=precision, gradient_dtype=None, fp8_parameters=False))
