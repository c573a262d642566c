"""`dsgen calibrate`: the jobs of measured runs, the fit to them, and its report.

The job of a run is the spec with the keys that the run sets.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from .. import InvalidJob, estimate, load_job
from ..check.runs import read_runs
from ..estimate.calibration import (
    CalibrationReport,
    Excluded,
    MeasuredRun,
    NoUsableRuns,
    fit_calibration,
)
from ..estimate.layout import Layout
from ..estimate.posterior import LEAST_RUNS
from ..estimate.uncertainty import percent
from ..facts.measurement import (
    RUNS_OTHER_MODEL,
    RUNS_UNUSED,
    RUNS_VALUE,
    RUNS_ZERO_STAGE,
    Measurement,
)
from ..findings import Finding, Location, Severity
from ..job.records import Job
from ..units import seconds
from .findings_text import stop
from .options import DEFAULT_SPEC
from .printing import BOLD, echo
from .tables import Part, Table, Text, numbers, whole

_RUNS_SHOWN, _FACTORS_SHOWN = 20, 8
_LEAST_MOVED = 0.02  #: a factor that differs less from 1 is as good as 1


def fit(
    paths: Sequence[str], specs: Sequence[str], assignments: Mapping[str, object]
) -> tuple[CalibrationReport, list[Finding]]:
    """The fit, with warnings on runs that it doesn't use.

    Everything that is wrong with the jobs ends the program.
    """
    measurements = _measurements(paths, specs)
    runs: list[MeasuredRun] = []
    # In order, each once: what is wrong with the spec is wrong for every run.
    findings: dict[Finding, None] = {}
    for measurement, spec in measurements:
        run, problems = _job_of(measurement, spec, assignments)
        findings |= dict.fromkeys(problems)
        if run is not None:
            runs.append(run)
    if findings:
        stop(findings)

    for measurement, _ in measurements:
        for note in measurement.notes:
            echo(f"{measurement.name}: {note}: {measurement.step_time_s:.4g} s per step", err=True)
    for note in _notes_on_defaults([run.job for run in runs]):
        echo(note, err=True)
    places = {measurement.name: measurement.where for measurement, _ in measurements}
    try:
        report = fit_calibration(runs)
    except NoUsableRuns as problem:
        stop(_findings_on_excluded(problem.excluded, places, Severity.ERROR))
    return report, _findings_on_excluded(report.excluded, places, Severity.WARNING)


def rendered(report: CalibrationReport) -> str:
    """Return the text of the calibration file."""
    return json.dumps(report.to_dict(), indent=2, ensure_ascii=False) + "\n"


def _measurements(
    paths: Sequence[str], specs: Sequence[str]
) -> list[tuple[Measurement, str | None]]:
    """Every run with its spec. Everything that is wrong with the files ends the program."""
    specs = specs or ([DEFAULT_SPEC] if Path(DEFAULT_SPEC).exists() else [])
    measurements: list[tuple[Measurement, str | None]] = []
    findings: list[Finding] = []
    for index, path in enumerate(paths):
        spec = None
        if specs:
            spec = specs[index] if len(specs) > 1 else specs[0]  # one spec may be for all files
        read = read_runs(path)
        findings.extend(read.findings)
        measurements.extend((run, spec) for run in read.runs)
    if findings:
        stop(findings)
    return measurements


def _findings_on_excluded(
    excluded: Iterable[Excluded], places: Mapping[str, Location], severity: Severity
) -> list[Finding]:
    return [
        RUNS_UNUSED.at(places[run.name], f"left out: {run.reason}", severity=severity)
        for run in excluded
    ]


def _job_of(
    run: Measurement, spec: str | None, assignments: Mapping[str, object]
) -> tuple[MeasuredRun | None, tuple[Finding, ...]]:
    """The run as the fit uses it, or everything that is wrong with its job.

    `spec` is a path, or None where the run has all keys itself. `assignments` override spec and
    run.
    """
    # A fit starts from the shipped constants, not from a calibration that the spec names.
    overrides = {**run.keys, "calibration": None, **assignments}
    try:
        job = load_job(spec if spec is not None else {}, overrides=overrides)
    except InvalidJob as invalid:
        return None, tuple(_at_run(run, assignments, finding) for finding in invalid.findings)
    layout = estimate(job).layout
    problems = tuple(_problems(run, job, layout))
    if problems:
        return None, problems
    measured_run = MeasuredRun(
        name=run.name,
        job=job,
        layout=layout,
        step_time_s=run.step_time_s,
        peak_bytes=run.peak_bytes,
        peak_kind=run.peak_kind,
    )
    return measured_run, ()


def _notes_on_defaults(jobs: Sequence[Job]) -> Iterator[str]:
    """Notes on the defaults that matter most, where neither the runs nor their specs set a value.

    Either of micro_batch and gradient_accumulation gives the other.
    """
    without_recompute = [job for job in jobs if job.pins.recompute is None]
    without_batch = [
        job
        for job in jobs
        if job.pins.micro_batch is None and job.pins.gradient_accumulation is None
    ]
    for key, value, without in (
        ("recompute", "none", without_recompute),
        ("micro_batch", "1", without_batch),
    ):
        if without:
            yield f"note: {key} is not set for {len(without)} of {len(jobs)} runs; assuming {value}"


def _at_run(run: Measurement, assignments: Mapping[str, object], finding: Finding) -> Finding:
    """A finding on a value of a run, placed there.

    A finding on the spec or a flag stays where it is.
    """
    path = finding.where.pointer.strip("/").replace("/", ".")
    if path in assignments or finding.where.path not in ("<flags>", "<mapping>"):
        return finding
    place = run.places.get(path, run.where)
    return replace(finding, where=replace(place, pointer=finding.where.pointer))


def _problems(run: Measurement, job: Job, layout: Layout) -> Iterator[Finding]:
    """Where a run contradicts its job: in the model's shape, the GPUs, the batch or the stage."""
    for field, size in run.shape.items():
        of_job = getattr(job.model, field)
        if size != of_job:
            theirs = f"the log's model has {field} {size}"
            message = f"{theirs}; the job's, {job.model.name}, has {of_job}"
            yield RUNS_OTHER_MODEL.at(
                run.where, message, "use --job with the spec of the job that wrote the log"
            )
    if layout.world != job.gpus:
        message = (
            f"data {layout.data} × tensor {layout.tensor} × pipeline {layout.pipeline} × "
            f"context {layout.context} = {layout.world}; the run has {job.gpus} GPUs"
        )
        yield RUNS_VALUE.at(
            run.where, message, "correct gpus or the layout, here or in the job spec"
        )
    elif layout.global_batch != job.training.global_batch:
        message = (
            f"micro_batch {layout.micro_batch} × gradient_accumulation "
            f"{layout.gradient_accumulation} × data {layout.data} = {layout.global_batch}; the "
            f"run's global batch is {job.training.global_batch}"
        )
        hint = "correct global_batch, micro_batch or gradient_accumulation, here or in the job spec"
        yield RUNS_VALUE.at(run.where, message, hint)
    # The ZeRO stage decides most on communication and memory: with a wrong guess, the fit would
    # bend constants to make up for it.
    if job.pins.zero_stage is None and layout.data * layout.context > 1:
        message = (
            "neither the run nor its job says which ZeRO stage its "
            f"{layout.data * layout.context} replicas had"
        )
        hint = (
            "add --set layout.zero_stage=N, the key to the spec of --job, or a column "
            "zero_stage to the table"
        )
        yield RUNS_ZERO_STAGE.at(
            run.where, message, f"{hint} (Megatron's distributed optimizer is 1)"
        )


def report_parts(report: CalibrationReport) -> Iterator[Part]:
    """What is printed of a calibration."""
    cluster, *parts = report.machine.values()
    count = len(report.runs)
    fitted = f"{count} run{'s' if count > 1 else ''} on {cluster}"
    yield Text(f"Calibration from {fitted} ({', '.join(parts)})", style=BOLD)
    yield ""
    yield _error_table(report)
    yield ""
    yield from _factors(report)
    yield ""
    yield _run_table(report)
    if count > _RUNS_SHOWN:
        yield f"and {count - _RUNS_SHOWN} more, in the file"


def _error_table(report: CalibrationReport) -> Table:
    """The errors of estimates with the shipped constants, and with the fitted ones."""
    table = Table(
        whole("error of estimates"), *map(numbers, ("shipped", "calibrated", "a run left out"))
    )
    for name, errors in (("step time", report.time), ("peak memory", report.memory)):
        if errors is None:
            continue
        for kind in ("mean", "median"):
            columns = [f"{column}_{kind}" for column in ("before", "after", "left_out")]
            values = [getattr(errors, column) for column in columns]
            cells = ["-" if value is None else percent(value) for value in values]
            table.add_row(f"{name}, {kind}", *cells)
    return table


def _factors(report: CalibrationReport) -> Iterator[str]:
    """What the fit changes, or why it changes nothing; and how near estimates should be."""
    if len(report.runs) < LEAST_RUNS:
        yield (
            f"A fit needs at least {LEAST_RUNS} runs, of different layouts or sizes: the "
            "shipped constants are kept."
        )
    elif not report.helps:
        yield (
            "No factors predict a run left out better than the shipped constants "
            "do, so these are kept."
        )
    moved = [item for item in report.factors if abs(item.factor - 1) >= _LEAST_MOVED]
    shown = moved[:_FACTORS_SHOWN]
    for item in shown:
        yield f"{item.name}: {item.text}"
    rest = len(report.factors) - len(shown)
    if report.helps and rest:
        yield f"{rest} others changed less, or not at all."
    if report.memory is not None:
        yield f"memory other than model states: {report.memory_factor:.2f} of the estimate"
    yield f"Two of three further runs should be within {percent(report.spread)} of their estimate."


def _run_table(report: CalibrationReport) -> Table:
    """The time of each run, and how far estimates are off it."""
    table = Table(whole("run"), *map(numbers, ("measured", "shipped", "calibrated", "left out")))
    for run in report.runs[:_RUNS_SHOWN]:
        estimates = (run.before_s, run.after_s, run.left_out_s)
        errors = [
            "-" if value is None else f"{100 * (value / run.measured_s - 1):+.1f}%"
            for value in estimates
        ]
        table.add_row(run.name, seconds(run.measured_s), *errors)
    return table
