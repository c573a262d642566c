"""The smaller counts of a plan as a table."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from ..search.elastic import SMALLEST_SHARE, Spare, Spares
from .colours import BOLD
from .tables import Table, numbers, whole, words
from .text import gib, seconds


def spares_report(spares: Spares) -> Iterator[RenderableType]:
    """What a run continues with after nodes are lost: a row per count, and why other counts don't do."""
    job, layout = spares.plan.job, spares.plan.layout
    replica = layout.world // layout.data
    yield Text(
        f"After losing some of {job.nodes:,} nodes, with the same batch and {replica:,} GPUs a replica:", style=BOLD
    )
    if spares.counts:
        yield ""
        yield _table(spares.counts)
    else:
        yield f"No smaller count of nodes works: {layout.data} replicas share a batch of {layout.global_batch:,}."
    for refused in spares.refused:
        yield f"{refused.nodes:,} nodes: {refused.finding.message} [{refused.finding.rule}]"
    if spares.counts and spares.counts[-1].plan.job.nodes > SMALLEST_SHARE * job.nodes:
        yield f"Counts below {SMALLEST_SHARE:.0%} of the nodes are not listed."


def _table(counts: tuple[Spare, ...]) -> Table:
    columns = {"idle nodes": 3, "data": 0, "accumulation": 2, "memory": 1, "step": 0, "throughput": 0}
    heads = (numbers(name, drop=drop) for name, drop in columns.items())
    table = Table(whole("nodes lost"), words("continue on"), *heads)
    for count in counts:
        layout, job = count.plan.layout, count.plan.job
        table.add_row(
            _range(count.lost_from, count.lost_to),
            f"{job.nodes:,} nodes ({job.gpus:,} GPUs)",
            _range(0, count.lost_to - count.lost_from),
            f"{layout.data:,}",
            f"{layout.gradient_accumulation:,}",
            f"{gib(count.plan.memory.required_bytes)} GiB",
            seconds(count.plan.step_time.total_s),
            f"{count.throughput:.0%}",
        )
    return table


def _range(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,}-{high:,}"
