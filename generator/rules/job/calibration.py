"""The job's calibration against the model that it is for."""

from __future__ import annotations

from ...catalog import closest
from ...estimate.rates import NAMES
from ...findings import Severity
from ...job.records import Job
from ..planning_rule import JobRule
from ..sources import derived


def calibration_names_constants(job: Job) -> tuple[tuple[str, str, str | None], ...]:
    """A calibration's factors are of constants that the time model has."""
    unknown = [name for name, _ in job.calibration.factors if name not in NAMES]
    if not unknown:
        return ()
    near = closest(unknown[0], NAMES)
    message = (
        f"the calibration {job.calibration.source} has a factor of {unknown[0]}, which is no constant of the model"
    )
    hint = f"did you mean `{near}`? or run `dsgen calibrate` again" if near else "run `dsgen calibrate` again"
    return (("/calibration", message, hint),)


CALIBRATION_RULES: tuple[JobRule, ...] = (
    JobRule(
        id="CAL001",
        severity=Severity.ERROR,
        source=derived("a factor of a constant that isn't there would be lost"),
        check=calibration_names_constants,
    ),
)
