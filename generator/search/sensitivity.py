"""How the best plan moves with the network, the memory of the card, and the batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from ..job.records import Job
from .feasible import feasible_layouts
from .plan import Plan
from .suggestions import best_plan

#: By which factors a quantity changes.
_NETWORK, _MEMORY, _BATCH = (0.5, 2.0), (0.75, 1.5), (0.5, 2.0)


class Moved(NamedTuple):
    """The best plan where one thing is otherwise; `None` where nothing fits."""

    change: str  #: `network × 2`
    plan: Plan | None


def sensitivity(job: Job, *, bold: bool = False) -> Iterator[Moved]:
    """Plan the job again with other rates of the network, other memory and other batches.

    What the job doesn't have, a network of a single node, isn't changed.
    """
    for change, other in _changed(job):
        found = feasible_layouts(other)
        yield Moved(change, best_plan(other, found, bold=bold))


def _changed(job: Job) -> Iterator[tuple[str, Job]]:
    cluster = job.cluster
    rate = cluster.network_bytes_per_s_per_node
    for factor in _NETWORK if job.nodes > 1 and rate else ():
        other = replace(cluster, network_bytes_per_s_per_node=rate * factor)
        yield f"network × {factor:g}", replace(job, cluster=other)

    card = cluster.accelerator
    for factor in _MEMORY:
        larger = replace(card, memory_bytes=card.memory_bytes * factor)
        other = replace(cluster, accelerator=larger)
        yield f"memory of the card × {factor:g}", replace(job, cluster=other)

    training = job.training
    for factor in _BATCH if training.batch_ramp is None else ():
        batch = training.global_batch * factor
        if batch == int(batch) >= 1:
            fewer = replace(training, global_batch=int(batch))
            yield f"batch × {factor:g}", replace(job, training=fewer)
