"""`dsgen plan`: ranked plans, and why other layouts were removed."""

from __future__ import annotations

import click

from .options import Request, form_option, job_options, top_option


@click.command(short_help="Rank the layouts of a job; write nothing.")
@job_options
@top_option(10, "Plans to list.")
@form_option("table", "json", "csv")
def plan(request: Request, top: int, form: str) -> None:
    """Rank the layouts of the job in SPEC; write nothing."""
    from .answers import plans_csv, ranking, searched  # here, to save start-up time
    from .printing import print_json, print_parts

    answer, _ = searched(request, form, top)
    if form == "json":
        print_json(answer.to_dict())
    elif form == "csv":
        click.echo(plans_csv(answer.plans), nl=False)
    else:
        print_parts(*ranking(answer, top))
