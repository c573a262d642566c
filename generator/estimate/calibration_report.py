"""What a calibration found, as a record and as the document that is written to a file."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..job.records import Calibration
from ..version import __version__
from .shrinkage import Fit

FORM = 1  #: of the calibration file; schemas/calibration.schema.json describes it
_LITTLE = 0.02  #: a factor this close to 1 says that the shipped constant holds


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a calibration holds for: factors of one network's rate say nothing of another's."""

    cluster: str
    accelerator: str
    network: str
    framework: str

    @property
    def parts(self) -> tuple[str, str, str]:
        """What has to be the same for two runs to say something of each other."""
        return self.accelerator, self.network, self.framework


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """One constant of the time model: what its shipped value is multiplied with."""

    name: str
    factor: float
    shipped: float
    says: str  #: what the constant is

    @property
    def text(self) -> str:
        """The factor as a sentence."""
        if abs(self.factor - 1) < _LITTLE:
            return f"as shipped: {self.says}"
        return f"{self.factor:.2f} of what is shipped, {self.shipped * self.factor:.3g}: {self.says}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Absolute errors of the estimates as fractions of what was measured: with shipped constants, with the factors, and
    of each run with factors fitted to the others. The last one is what a new run may expect."""

    runs: int
    before_mean: float
    before_median: float
    after_mean: float
    after_median: float
    left_out_mean: float | None  #: None with a single run
    left_out_median: float | None

    @classmethod
    def of(cls, fit: Fit) -> Errors:
        """Those of a fit."""
        values: dict[str, Any] = {"left_out_mean": None, "left_out_median": None}
        for name, part in (("before", fit.before), ("after", fit.after), ("left_out", fit.left_out)):
            if part is not None:
                sizes = np.abs(np.expm1(part))
                values |= {f"{name}_mean": float(sizes.mean()), f"{name}_median": float(np.median(sizes))}
        return cls(runs=len(fit.before), **values)

    def to_dict(self) -> dict[str, float | int | None]:
        """Plain numbers, four digits."""
        return {name: value if value is None else round(value, 4) for name, value in asdict(self).items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Excluded:
    """A run that was left out, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """Seconds of one run's step: measured, and estimated three ways."""

    name: str
    measured_s: float
    before_s: float
    after_s: float
    left_out_s: float | None

    def to_dict(self) -> dict[str, str | float | None]:
        """Plain values, four digits."""
        values = asdict(self)
        return {name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in values.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationReport:
    """The factors, and how much better they predict."""

    machine: Machine
    factors: tuple[Factor, ...]  #: those that moved most first
    time: Errors
    spread: float  #: standard deviation of log(measured / estimated) to expect of a further run
    memory_factor: float  #: of allocated memory that isn't model states
    memory: Errors | None  #: None when no run has a peak
    runs: tuple[RunResult, ...]
    excluded: tuple[Excluded, ...]

    @property
    def helps(self) -> bool:
        """Whether any factor differs from 1."""
        return any(item.factor != 1 for item in self.factors)

    def calibration(self, source: str = "") -> Calibration:
        """What a job takes."""
        return Calibration(
            factors=tuple((item.name, item.factor) for item in self.factors if item.factor != 1),
            spread=round(self.spread, 4),
            runs=len(self.runs),
            source=source,
            memory_factor=round(self.memory_factor, 4),
        )

    def to_dict(self) -> dict[str, object]:
        """The calibration file, described by `schemas/calibration.schema.json`."""
        return {
            "version": FORM,
            "dsgen_version": __version__,
            **asdict(self.machine),
            "factors": {item.name: item.factor for item in sorted(self.factors, key=lambda item: item.name)},
            "memory_factor": round(self.memory_factor, 4),
            "spread": round(self.spread, 4),
            "errors": {
                "step_time": self.time.to_dict(),
                "memory": None if self.memory is None else self.memory.to_dict(),
            },
            "runs": [run.to_dict() for run in self.runs],
            "left_out": [asdict(item) for item in self.excluded],
        }
