"""`dsgen tune`: the best plans as measured trials; `dsgen calibrate`: a fit to own runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from ..findings import Flag
from .options import (
    Request,
    assignment_text,
    bold_option,
    folder_option,
    form_option,
    job_options,
    set_option,
    top_option,
)
from .printing import print_json


@click.command(short_help="Run the best plans as short trials, and rank them by measured time.")
@job_options
@folder_option("Folder for the trials.  [default: NAME-Ngpus-tune]")
@top_option(5, "Plans to try.")
@click.option(
    "--steps",
    type=click.IntRange(3, 10_000),
    default=30,
    show_default=True,
    help="Steps of a trial.",
)
@bold_option
@click.option("--force", is_flag=True, help="Overwrite files that differ.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Ask the scheduler whether it would take the job; start nothing.",
)
@click.option("--no-wait", is_flag=True, help="Submit and return; read the logs later with --read.")
@click.option(
    "--read", "only_read", is_flag=True, help="Submit nothing; read the logs of the trials in DIR."
)
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
    """Run the best plans of the job in SPEC as short trials, one after another, and rank them by
    measured time.

    A trial has the plan's own files, but saves and loads nothing. The trials are an array on Slurm,
    a sweep on AzureML, and a loop on plain machines. DIR gets the measured runs as runs.csv, and
    calibration.json, which `dsgen plan --calibration` takes.
    """
    from .loading import JobLoader, placed, planned, say_range  # here, to save start-up time
    from .tables import file_name
    from .trials import MOST_TRIALS, report, started, unmeasured, written

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
        submitted = started(
            launcher, plans, steps, file, yes=yes, dry_run=dry_run, wait=not no_wait
        )
        if dry_run or no_wait:
            if form == "json":
                print_json(unmeasured(plans, submitted))
            return
    report(loader, folder, form)


@click.command(short_help="Fit the model to your own runs.")
@click.argument("runs", nargs=-1, required=True, metavar="RUNS...")
@click.option(
    "--job",
    "specs",
    multiple=True,
    metavar="SPEC",
    help="Job spec of all RUNS, or one for each, in order.",
)
@set_option("Set any key of the spec, for all RUNS. Repeatable.")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    default="calibration.json",
    show_default=True,
    help="File to write; - prints it.",
)
@click.option("--force", is_flag=True, help="Overwrite a file that differs.")
@form_option("table", "json")
def calibrate(
    runs: tuple[str, ...],
    specs: tuple[str, ...],
    assignments: tuple[tuple[str, str], ...],
    output: str,
    force: bool,
    form: str,
) -> None:
    """Fit the model to measured RUNS of one cluster and framework, and write a calibration file.

    RUNS are CSV tables, one run a row: step_time_s, optionally peak_memory_gib and
    peak_memory_kind, and columns named like keys of the job spec (gpus, global_batch, tensor,
    micro_batch, recompute). Or they are logs of Megatron-LM, Megatron-DeepSpeed, DeepSpeed or the
    Hugging Face Trainer. Other values are read from SPEC.

    Use the file with `dsgen plan --calibration FILE`, or as `calibration: FILE` in a job spec.
    """
    from .findings_text import print_findings  # here, to save start-up time
    from .measured_jobs import fit, rendered, report_parts
    from .tables import print_parts
    from .writing import write_file

    if len(specs) not in (0, 1, len(runs)):
        raise click.UsageError(f"{len(specs)} --job for {len(runs)} RUNS; use one, or one for each")
    report, findings = fit(
        runs,
        specs,
        {path: Flag(text, f"--set {assignment_text(path, text)}") for path, text in assignments},
    )
    print_findings(findings)
    change = write_file(rendered(report), output, force=force)
    if form == "json":
        if change is not None:  # else it is printed already
            print_json(report.to_dict())
        return
    use = f"{output} written; use it with --calibration {output}, or `calibration:` in the job spec"
    parts = (*report_parts(report), *(("", use) if change else ()))
    print_parts(*parts, err=change is None)
