"""Trials as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from ..estimate.layout import short_layout, short_legend
from .colours import ASIDE
from .tables import Table, numbers, words
from .text import gib, seconds, seconds_with_band
from .tried import Tried


def table_of(tried: Sequence[Tried]) -> tuple[RenderableType, ...]:
    """One row a trial: what was estimated and measured, how far off that is, and what ran out of memory."""
    columns = (numbers("estimated"), numbers("measured"), numbers("off"), numbers("memory", drop=1))
    table = Table(numbers("trial"), words("layout", least=22), *columns)
    for one in tried:
        plan, time_s = one.plan, one.step_time_s
        estimated = seconds_with_band(float(plan.step_time.total_s), plan.uncertainty.step_time)
        table.add_row(
            str(one.number),
            short_layout(plan.layout),
            estimated,
            one.state if time_s is None else seconds(time_s),
            "" if time_s is None else f"{time_s / float(plan.step_time.total_s) - 1:+.0%}",
            "" if one.peak_bytes is None else f"{gib(one.peak_bytes)} GiB",
        )
    return table, Text(short_legend(one.plan.layout for one in tried), ASIDE)
