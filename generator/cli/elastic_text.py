"""The plans of an elastic job as a table, and the counts that have none."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from ..estimate.layout import short_layout
from ..job.wording import counted
from ..programs.launching.call import across_counts
from ..search.elastic import Elastic
from .colours import ASIDE, BOLD
from .tables import Table, numbers, words
from .text import seconds

_SHOWN = 8  #: reasons for which counts are left out


def counts_report(elastic: Elastic) -> Iterator[RenderableType]:
    """One row per count, then the others with why they are left out, those of one reason together."""
    first = elastic.plans[0]
    batch = f"{first.layout.global_batch:,} sequences a step"
    yield Text(
        f"{counted(len(elastic.plans), 'count')}, {batch} on each (planned in {seconds(elastic.took_s)}):",
        style=BOLD,
    )
    yield _table(elastic)
    reasons = dict.fromkeys(each.why for each in elastic.left_out)
    for why in [*reasons][:_SHOWN]:
        counts = ", ".join(f"{each.gpus:,}" for each in elastic.left_out if each.why == why)
        yield Text(f"  left out: {counts}: {why}", style=ASIDE)
    if len(reasons) > _SHOWN:
        yield Text(f"  left out for {len(reasons) - _SHOWN} other reasons (--format json has all)", style=ASIDE)
    better = elastic.better_batch
    if better is not None:
        counts = ", ".join(f"{gpus:,}" for gpus in better[1])
        yield f"  a global batch of {better[0]:,} is whole on {len(better[1])} of the counts: {counts}"
    yield across_counts(first)


def _table(elastic: Elastic) -> Table:
    table = Table(numbers("GPUs"), numbers("nodes"), words("layout", least=22), numbers("step"), numbers("tokens/s"))
    for plan in elastic.plans:
        table.add_row(
            f"{plan.job.gpus:,}",
            f"{plan.job.nodes:,}",
            short_layout(plan.layout),
            seconds(float(plan.step_time.total_s)),
            f"{plan.throughput.tokens_per_s:,.0f}",
        )
    return table
