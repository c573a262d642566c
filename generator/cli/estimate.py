"""`dsgen estimate`: one pinned layout, without a search."""

from __future__ import annotations

import click

from .options import Request, explain_option, form_option, job_options


@click.command(short_help="Estimate one layout, without a search.")
@job_options
@explain_option
@form_option("table", "json")
def estimate(request: Request, explain: bool, form: str) -> None:
    """Estimate one layout of the job in SPEC: memory, step time, duration, cost.

    Layout keys that SPEC leaves open use the framework's defaults.
    Rules that the layout breaks are reported, not enforced.
    """
    from ..search import estimate as estimate_layout  # here, to save start-up time
    from .findings_text import print_findings
    from .loading import load, say_range
    from .printing import print_json, print_parts

    job, findings = load(request, check_pins=False)
    say_range(job, "estimated")
    plan = estimate_layout(job)
    print_findings(finding for finding in plan.findings if finding not in findings)
    if form == "json":
        print_json(plan.to_dict())
    else:
        from .answers import explained
        from .summary import plan_summary

        print_parts(*plan_summary(plan), *(explained(plan) if explain else ()))
