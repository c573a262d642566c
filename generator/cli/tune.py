"""`dsgen tune`: run the best plans as short trials, and rank them by what was measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from .options import Request, bold_option, form_option, job_options, top_option


@click.command(short_help="Run the best plans as short trials, and rank them by measured time.")
@job_options
@click.option("-o", "--output", metavar="DIR", help="Folder for the trials.  [default: NAME-Ngpus-tune]")
@top_option(5, "Plans to try.")
@click.option("--steps", type=click.IntRange(3, 10_000), default=30, show_default=True, help="Steps of a trial.")
@bold_option
@click.option("--force", is_flag=True, help="Overwrite files that differ.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@click.option("--dry-run", is_flag=True, help="Ask the scheduler whether it would take the job; start nothing.")
@click.option("--no-wait", is_flag=True, help="Submit and return; read the logs later with --read.")
@click.option("--read", "only_read", is_flag=True, help="Submit nothing; read the logs of the trials in DIR.")
@form_option("text", "json")
def tune(
    request: Request,
    output: str | None,
    top: int,
    steps: int,
    bold: bool,
    force: bool,
    yes: bool,
    dry_run: bool,
    no_wait: bool,
    only_read: bool,
    form: str,
) -> None:
    """Run the best plans of the job in SPEC as short trials, one after another, and rank them by measured time.

    A trial has the plan's own files, but saves and loads nothing. The trials are an array on Slurm, a sweep on AzureML,
    and a loop on plain machines. DIR gets the measured runs as runs.csv, and calibration.json, which `dsgen plan
    --calibration` takes.
    """
    from .loading import JobLoader, placed, planned, say_range  # here, to save start-up time
    from .tables import file_name
    from .trials import MOST_TRIALS, report, started, written

    if top > MOST_TRIALS:
        raise click.UsageError(f"--top {top} is more than {MOST_TRIALS} trials")
    loader = JobLoader(request)
    job = loader.unchecked({}) if only_read else loader.reported()[0]
    folder = Path(output or f"{file_name(job.name)}-{job.gpus}gpus-tune")
    if not only_read:
        say_range(job)
        plans = planned(replace(job, elastic=()), form, top, bold, explain=False)[0].plans[:top]
        plans = tuple(replace(plan, job=placed(plan.job, request, folder)) for plan in plans)
        launcher, file = written(plans, steps, folder, request, force=force, dry_run=dry_run)
        started(launcher, plans, steps, file, yes=yes, dry_run=dry_run, wait=not no_wait)
        if dry_run or no_wait:
            return
    report(loader, folder, form)
