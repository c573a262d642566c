"""How the best plan changes with the network's rate, the memory of the card, and the batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from ..job.records import Job
from .feasible import feasible_layouts
from .plan import Plan
from .suggestions import best_plan

#: The factors by which each quantity is multiplied, one at a time.
_NETWORK_FACTORS, _MEMORY_FACTORS, _BATCH_FACTORS = (0.5, 2.0), (0.75, 1.5), (0.5, 2.0)


class AfterChange(NamedTuple):
    """The best plan after one change of the job; None where nothing fits."""

    change: str  #: such as `network × 2`
    plan: Plan | None


def sensitivity(job: Job, *, bold: bool = False) -> Iterator[AfterChange]:
    """Plan the job again after each change of the network's rate, the memory and the batch.

    A job on one node has no network to change, and a batch with a ramp-up stays as it is.
    """
    for change, changed_job in _changed_jobs(job):
        feasible = feasible_layouts(changed_job)
        yield AfterChange(change, best_plan(changed_job, feasible, bold=bold))


def _changed_jobs(job: Job) -> Iterator[tuple[str, Job]]:
    """The job with one quantity changed, and the change in words."""
    cluster = job.cluster
    rate = cluster.network_bytes_per_s_per_node
    if job.nodes > 1 and rate:
        for factor in _NETWORK_FACTORS:
            changed_cluster = replace(cluster, network_bytes_per_s_per_node=rate * factor)
            yield f"network × {factor:g}", replace(job, cluster=changed_cluster)

    card = cluster.accelerator
    for factor in _MEMORY_FACTORS:
        resized = replace(card, memory_bytes=card.memory_bytes * factor)
        changed_cluster = replace(cluster, accelerator=resized)
        yield f"memory of the card × {factor:g}", replace(job, cluster=changed_cluster)

    training = job.training
    if training.batch_ramp is not None:
        return
    for factor in _BATCH_FACTORS:
        batch = training.global_batch * factor
        if batch == int(batch) >= 1:
            other_batch = replace(training, global_batch=int(batch))
            yield f"batch × {factor:g}", replace(job, training=other_batch)
