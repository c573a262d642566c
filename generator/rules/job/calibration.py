"""The job's calibration against the model that it is for."""

from __future__ import annotations

from ...catalog import closest
from ...estimate.rates import NAMES
from ...findings import ERROR, Violations
from ...job.records import Job
from ..planned import jobs, violation
from ..sources import derived


@jobs.rule("CAL001", ERROR, "silent", derived("a factor of a constant that isn't there would be lost"))
def calibration_names_constants(job: Job) -> Violations:
    """A calibration's factors are of constants that the time model has.

    Prevents: The factor would be lost, and the estimate with it: the model has renamed or dropped the constant since.
    Fix: run dsgen calibrate with the same runs and this version"""
    unknown = [name for name, _ in job.calibration.factors if name not in NAMES]
    if unknown:
        near = closest(unknown[0], NAMES)
        message = f"unknown constant {unknown[0]} in the calibration {job.calibration.source}"
        hint = f"did you mean `{near}`? or run `dsgen calibrate` again" if near else "run `dsgen calibrate` again"
        yield violation(job, "/calibration", message, hint)
