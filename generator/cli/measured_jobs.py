"""A measured run's job: the spec with what the run's own document says over it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..documents.runs.measurement import Measurement
    from ..estimate.calibration import MeasuredRun
    from ..estimate.layout import Layout
    from ..findings import Finding
    from ..job.records import Job

# Imports within functions save start-up time.


def job_of(
    run: Measurement, spec: str | None, assignments: Mapping[str, object]
) -> tuple[MeasuredRun | None, tuple[Finding, ...]]:
    """The run as the fit takes it, or everything that is wrong with its job.

    `spec`: a path, or None when the run says everything. `assignments`: dotted paths that go over spec and run.
    """
    from .. import InvalidJob, estimate, load_job
    from ..estimate.calibration import MeasuredRun

    overrides = {**run.keys, "calibration": None, **assignments}
    try:
        job = load_job(spec if spec is not None else {}, overrides=overrides)
    except InvalidJob as invalid:
        return None, tuple(_at_run(run, assignments, finding) for finding in invalid.findings)
    layout = estimate(job).layout
    problems = (*_other_model(run, job), *_contradictions(run, job, layout))
    if problems:
        return None, problems
    measured = MeasuredRun(
        name=run.name,
        job=job,
        layout=layout,
        step_time_s=run.step_time_s,
        peak_bytes=run.peak_bytes,
        peak_kind=run.peak_kind,
    )
    return measured, ()


def assumed(jobs: Sequence[Job]) -> Iterator[str]:
    """What neither the runs nor their jobs say, and what is taken instead: of the keys that matter most."""
    taken = {"zero_stage": "0", "recompute": "none", "micro_batch": "1"}
    for key, value in taken.items():
        open_keys = [job for job in jobs if getattr(job.pins, key) is None]
        if key == "micro_batch":
            open_keys = [job for job in open_keys if job.pins.gradient_accumulation is None]
        if open_keys:
            yield f"note: {key} isn't given for {len(open_keys)} of {len(jobs)} runs; it is taken as {value}"


def _at_run(run: Measurement, assignments: Mapping[str, object], finding: Finding) -> Finding:
    """A finding on what the run says, placed where it says it; those on the spec or a flag stay where they are."""
    path = finding.where.pointer.strip("/").replace("/", ".")
    if path in assignments or finding.where.path not in ("<flags>", "<mapping>"):
        return finding
    place = run.places.get(path, run.where)
    return replace(finding, where=replace(place, pointer=finding.where.pointer))


def _other_model(run: Measurement, job: Job) -> Iterator[Finding]:
    """What a log says of its model, against the job's."""
    from ..documents.runs.measurement import RUNS_OTHER_MODEL, error

    for field, size in run.shape.items():
        ours = getattr(job.model, field)
        if size != ours:
            message = f"the log's model has {field} {size}; the job's, {job.model.name}, has {ours}"
            yield error(RUNS_OTHER_MODEL, run.where, message, "give the spec of the job that wrote the log with --job")


def _contradictions(run: Measurement, job: Job, layout: Layout) -> Iterator[Finding]:
    """Both identities: a run has as many GPUs, and as many sequences a step, as its layout says."""
    from ..documents.runs.measurement import RUNS_VALUE, error

    if layout.world != job.gpus:
        message = (
            f"data {layout.data} × tensor {layout.tensor} × pipeline {layout.pipeline} × context {layout.context}"
            f" = {layout.world}; the run has {job.gpus} GPUs"
        )
        yield error(RUNS_VALUE, run.where, message, "correct gpus or the layout, here or in the job spec")
    elif layout.global_batch != job.training.global_batch:
        message = (
            f"micro_batch {layout.micro_batch} × gradient_accumulation {layout.gradient_accumulation} × data"
            f" {layout.data} = {layout.global_batch}; the run's global batch is {job.training.global_batch}"
        )
        hint = "correct global_batch, micro_batch or gradient_accumulation, here or in the job spec"
        yield error(RUNS_VALUE, run.where, message, hint)
