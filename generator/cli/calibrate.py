"""`dsgen calibrate`: fit the time model to a cluster's own runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .findings_text import print_findings
from .loading import DEFAULT_SPEC, stop
from .options import form_option, read_assignments
from .printing import print_json, print_parts
from .writing import write_files

if TYPE_CHECKING:
    from ..documents.runs.measurement import Measurement
    from ..estimate.calibration_report import CalibrationReport, Excluded
    from ..findings import Finding, Location, Severity

# Imports within functions save start-up time.


@click.command(short_help="Fit the model to your own runs.")
@click.argument("runs", nargs=-1, required=True, metavar="RUNS...")
@click.option(
    "--job",
    "specs",
    multiple=True,
    metavar="SPEC",
    help="The job that was run; for several RUNS one for all, or one for each in their order.",
)
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="PATH=VALUE",
    callback=read_assignments,
    help="Any key of the spec, over all of RUNS. Can be repeated.",
)
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
    Megatron-DeepSpeed, DeepSpeed or the Hugging Face Trainer. What they don't say comes from SPEC.

    Use the file with `dsgen plan --calibration FILE`, or as `calibration: FILE` in a job spec.
    """
    if len(specs) not in (0, 1, len(runs)):
        raise click.UsageError(f"{len(specs)} --job for {len(runs)} RUNS; give one, or one for each")
    report, findings = _fit(_measurements(runs, specs), dict(assignments))
    print_findings(findings)
    _write(report, Path(output), force=force)
    if form == "json":
        print_json(report.to_dict())
    else:
        from .calibration_text import report_parts

        print_parts(*report_parts(report))
        click.echo(f"\n{output} written; use it with --calibration {output}, or `calibration:` in the job spec")


def _measurements(paths: tuple[str, ...], specs: tuple[str, ...]) -> list[tuple[Measurement, str | None]]:
    """Every run with the spec that goes with it. Everything that is wrong with the files ends the program."""
    from ..documents.runs.run import read_runs

    found: list[tuple[Measurement, str | None]] = []
    findings: list[Finding] = []
    for index, path in enumerate(paths):
        spec = specs[index if len(specs) > 1 else 0] if specs else None
        read = read_runs(path)
        findings.extend(read.findings)
        found.extend((run, spec) for run in read.runs)
    if findings:
        stop(findings)
    return found


def _fit(
    measurements: list[tuple[Measurement, str | None]], assignments: dict[str, object]
) -> tuple[CalibrationReport, list[Finding]]:
    """The fit, with warnings on runs that it left out. Everything that is wrong with the jobs ends the program."""
    from ..estimate.calibration import MeasuredRun, NoUsableRuns, fit_calibration
    from ..findings import Severity
    from .measured_jobs import assumed, job_of

    runs: list[MeasuredRun] = []
    findings: dict[Finding, None] = {}  # in order, each once: what is wrong with the spec is wrong for every run
    for measurement, spec in measurements:
        run, problems = job_of(measurement, spec or _default_spec(), assignments)
        findings |= dict.fromkeys(problems)
        if run is not None:
            runs.append(run)
    if findings:
        stop(findings)
    for measurement, _ in measurements:
        for note in measurement.notes:
            click.echo(f"{measurement.name}: {note}: {measurement.step_time_s:.4g} s a step", err=True)
    for assumption in assumed([run.job for run in runs]):
        click.echo(assumption, err=True)
    places = {measurement.name: measurement.where for measurement, _ in measurements}
    try:
        report = fit_calibration(runs)
    except NoUsableRuns as problem:
        stop(_left_out(problem.excluded, places, Severity.ERROR))
    return report, _left_out(report.excluded, places, Severity.WARNING)


def _left_out(excluded: Iterable[Excluded], places: Mapping[str, Location], severity: Severity) -> list[Finding]:
    from ..documents.runs.measurement import RUNS_UNUSED

    return [RUNS_UNUSED.at(places[item.name], f"left out: {item.reason}", severity=severity) for item in excluded]


def _default_spec() -> str | None:
    return DEFAULT_SPEC if Path(DEFAULT_SPEC).exists() else None


def _write(report: CalibrationReport, path: Path, *, force: bool) -> None:
    import json

    from ..frameworks.program import RenderedFile

    text = json.dumps(report.to_dict(), indent=2, ensure_ascii=False) + "\n"
    file = RenderedFile(path=path.name, text=text)
    write_files((file,), path.parent, force=force, hint="--force overwrites, -o names another file")
