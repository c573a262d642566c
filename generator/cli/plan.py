"""`dsgen plan`: ranked plans, and what was ruled out and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .loading import load
from .options import Request, form_option, job_options
from .printing import print_json, print_obstacle, print_parts

if TYPE_CHECKING:
    from ..search.plan import Plan, SearchResult

# Imports within functions save start-up time.


@click.command(short_help="Rank the layouts of a job; write nothing.")
@job_options
@click.option("--top", type=click.IntRange(min=1), default=10, show_default=True, help="Plans to list.")
@form_option("table", "json", "csv")
def plan(request: Request, top: int, form: str) -> None:
    """Rank the layouts of the job in SPEC; write nothing."""
    from ..search import search
    from ..search.plan import Infeasible

    job, _ = load(request)
    answer = search(job, top=top)
    if isinstance(answer, Infeasible):
        print_obstacle(answer, form)
    elif form == "json":
        print_json(answer.to_dict())
    elif form == "csv":
        click.echo(_csv(answer.plans), nl=False)
    else:
        _print_table(answer, top)


def _print_table(answer: SearchResult, top: int) -> None:
    from .answers import brackets, considered, plans_table, ruled_out

    print_parts(considered(answer), "", plans_table(answer, top), brackets(answer))
    if answer.rejected_by:
        print_parts("", "Ruled out, by rule:", ruled_out(answer.rejected_by))


def _csv(plans: tuple[Plan, ...]) -> str:
    """One line per plan: layout, memory in bytes, step time in seconds, throughput."""
    import csv
    import io

    rows = [{"rank": rank, **p.layout.to_dict(), **_numbers(p)} for rank, p in enumerate(plans, start=1)]
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _numbers(plan: Plan) -> dict[str, object]:
    return {
        **plan.memory.to_dict(),
        **plan.step_time.to_dict(),
        **plan.uncertainty.to_dict(),
        **plan.throughput.to_dict(),
    }
