"""Trials as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.table import Column

from .tables import headed, numbers
from .text import choices, degrees, gib, seconds, seconds_with_band
from .tried import Tried


def table_of(tried: Sequence[Tried]) -> RenderableType:
    """One row a trial: what was estimated and measured, how far off that is, and what ran out of memory."""
    table = headed(
        numbers("trial"), Column("layout", ratio=1), *map(numbers, ("estimated", "measured", "off", "memory"))
    )
    for one in tried:
        plan, time_s = one.plan, one.step_time_s
        estimated = seconds_with_band(float(plan.step_time.total_s), plan.uncertainty.step_time)
        table.add_row(
            str(one.number),
            f"{degrees(plan.layout)}; {', '.join(choices(plan.layout))}",
            estimated,
            one.state if time_s is None else seconds(time_s),
            "" if time_s is None else f"{time_s / float(plan.step_time.total_s) - 1:+.0%}",
            "" if one.peak_bytes is None else f"{gib(one.peak_bytes)} GiB",
        )
    return table
