"""`dsgen calibrate`: fit the time model to a cluster's own runs, each the spec with what the run sets."""

from __future__ import annotations

from pathlib import Path

import click

from ..findings import Flag
from .options import assignment_text, form_option, set_option
from .printing import print_json


@click.command(short_help="Fit the model to your own runs.")
@click.argument("runs", nargs=-1, required=True, metavar="RUNS...")
@click.option("--job", "specs", multiple=True, metavar="SPEC", help="Job spec of all RUNS, or one for each, in order.")
@set_option("Set any key of the spec, for all RUNS. Repeatable.")
@click.option("-o", "--output", metavar="FILE", default="calibration.json", show_default=True, help="File to write.")
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

    RUNS are CSV tables, one run a row: step_time_s, optionally peak_memory_gib and peak_memory_kind, and columns named
    like keys of the job spec (gpus, global_batch, tensor, micro_batch, recompute). Or they are logs of Megatron-LM,
    Megatron-DeepSpeed, DeepSpeed or the Hugging Face Trainer. Other values are read from SPEC.

    Use the file with `dsgen plan --calibration FILE`, or as `calibration: FILE` in a job spec.
    """
    from .findings_text import print_findings  # here, to save start-up time
    from .measured_jobs import fit, rendered, report_parts
    from .tables import print_parts
    from .writing import write_files

    if len(specs) not in (0, 1, len(runs)):
        raise click.UsageError(f"{len(specs)} --job for {len(runs)} RUNS; use one, or one for each")
    report, findings = fit(
        runs, specs, {path: Flag(text, f"--set {assignment_text(path, text)}") for path, text in assignments}
    )
    print_findings(findings)
    path = Path(output)
    hint = "use --force to overwrite, or -o for another file"
    write_files([rendered(report, path.name)], path.parent, force=force, hint=hint)
    if form == "json":
        print_json(report.to_dict())
    else:
        use = f"{output} written; use it with --calibration {output}, or `calibration:` in the job spec"
        print_parts(*report_parts(report), "", use)
