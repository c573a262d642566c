"""`dsgen plan`: ranked plans, and why other layouts were removed."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from .options import Request, form_option, job_options, top_option

if TYPE_CHECKING:
    from ..search.plan import Plan


@click.command(short_help="Rank the layouts of a job; write nothing.")
@job_options
@top_option(10, "Plans to list.")
@form_option("table", "json", "csv")
def plan(request: Request, top: int, form: str) -> None:
    """Rank the layouts of the job in SPEC; write nothing."""
    from .loading import searched  # here, to save start-up time
    from .printing import print_json, print_parts

    answer, _ = searched(request, form, top)
    if form == "json":
        print_json(answer.to_dict())
    elif form == "csv":
        _print_csv(answer.plans)
    else:
        from .answers import ranking

        print_parts(*ranking(answer, top))


def _print_csv(plans: Iterable[Plan]) -> None:
    """One line per plan: layout, memory in bytes, step time in seconds, throughput."""
    import csv

    rows = [
        {"rank": rank, **plan.layout.to_dict(), **plan.memory.to_dict(), **plan.step_time.to_dict()}
        | {**plan.uncertainty.to_dict(), **plan.throughput.to_dict()}
        for rank, plan in enumerate(plans, start=1)
    ]
    writer = csv.DictWriter(sys.stdout, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
