"""Fits the constants of the time model to a cluster's own runs, held back by what was known before.

Few runs move little: every factor has the prior of its constant (`spread` in constants.yaml), and
how far the priors may be left is chosen by leaving each run, and each model, out once. When no fit
predicts what is left out better than the shipped constants do, the answer is the shipped constants.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from ..dataclass import dataclass
from ..job.records import Calibration, Job
from ..numerals import significant
from ..units import GIB
from ..version import __version__
from .layout import Layout
from .memory import memory
from .posterior import Fit, Residuals, Vector, jacobian, shrunken
from .rates import constants, rates, selectors
from .step_time import step_time
from .uncertainty import DEVIATIONS, time_shares

FORM = 1  #: of the calibration file; schemas/calibration.schema.json describes it
_LITTLE = 0.02  #: a factor this close to 1 says that the shipped constant holds


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """One constant of the time model, and the factor on its shipped value."""

    name: str
    factor: float
    shipped: float
    says: str  #: what the constant is

    @property
    def text(self) -> str:
        """The factor as a sentence."""
        if abs(self.factor - 1) < _LITTLE:
            return f"as shipped: {self.says}"
        return (
            f"{self.shipped * self.factor:.3g}, {self.factor:.2f} of the shipped value: {self.says}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Absolute errors of the estimates as fractions of what was measured.

    They are those with shipped constants, those with the factors, and those of each run with
    factors fitted to the others. The last ones are what a new run may expect.
    """

    runs: int
    before_mean: float
    before_median: float
    after_mean: float
    after_median: float
    left_out_mean: float | None  #: None with a single run
    left_out_median: float | None

    @classmethod
    def of(cls, fit: Fit) -> Errors:
        """Return the errors of a fit."""
        values: dict[str, Any] = {"left_out_mean": None, "left_out_median": None}
        for name, part in (
            ("before", fit.before),
            ("after", fit.after),
            ("left_out", fit.left_out),
        ):
            if part is not None:
                sizes = np.abs(np.expm1(part))
                values |= {
                    f"{name}_mean": float(sizes.mean()),
                    f"{name}_median": float(np.median(sizes)),
                }
        return cls(runs=len(fit.before), **values)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationReport:
    """The factors, and how much better they predict."""

    #: cluster, accelerator, network, framework: a network's factors say nothing of another
    machine: Mapping[str, str]
    factors: tuple[Factor, ...]  #: those that moved most first
    time: Errors
    spread: float  #: standard deviation of log(measured / estimated) to expect of a further run
    memory_factor: float  #: of allocated memory that isn't model states
    memory: Errors | None  #: None when no run has a peak
    runs: tuple[RunResult, ...]
    excluded: tuple[Excluded, ...]

    @property
    def helps(self) -> bool:
        """Tell whether any factor differs from 1."""
        return any(item.factor != 1 for item in self.factors)

    def calibration(self, source: str = "") -> Calibration:
        """The factors in the form that a job takes."""
        return Calibration(
            factors=tuple((item.name, item.factor) for item in self.factors if item.factor != 1),
            spread=round(self.spread, 4),
            runs=len(self.runs),
            source=source,
            memory_factor=round(self.memory_factor, 4),
        )

    def to_dict(self) -> dict[str, object]:
        """The calibration file, described by `schemas/calibration.schema.json`."""

        def rounded(errors: Errors | None) -> dict[str, float | None] | None:
            values = {} if errors is None else asdict(errors)
            return {
                name: value if value is None else round(value, 4) for name, value in values.items()
            } or None

        runs = [asdict(run).items() for run in self.runs]
        return {
            "version": FORM,
            "dsgen_version": __version__,
            **self.machine,
            "factors": {
                item.name: item.factor for item in sorted(self.factors, key=lambda item: item.name)
            },
            "memory_factor": round(self.memory_factor, 4),
            "spread": round(self.spread, 4),
            "errors": {"step_time": rounded(self.time), "memory": rounded(self.memory)},
            "runs": [
                {n: significant(v, 4) if isinstance(v, float) else v for n, v in run}
                for run in runs
            ],
            "left_out": [asdict(item) for item in self.excluded],
        }


#: The widest prior of a factor. Some constants are known to the order of magnitude only, but what
#: the runs hardly depend on would then go anywhere, and spoil the jobs that depend on it.
_WIDEST = 0.2
#: Estimates farther off than this are a wrong unit or another job, not a cluster's constants:
#: assumed.
_FARTHEST = 2.5
_CAUSES = (
    "possible causes: the unit, another GPU count, batch or model, a layout key such as "
    "zero_stage, recompute or micro_batch, unfused kernels, or a slow node or link"
)
#: Prior spread of the memory factor: frameworks' versions differ by about a fifth in what they keep
#: besides the states.
_MEMORY_SPREAD = 0.2
#: The shipped band counts as so many runs when the spread that is left is estimated: of three runs
#: one can't be sure.
_PRIOR_RUNS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """One run of the user's: what was run, and what it took."""

    name: str
    job: Job
    layout: Layout
    step_time_s: float
    peak_bytes: float | None = None
    peak_kind: str = "allocated"  #: allocated | reserved | device


class NoUsableRuns(Exception):
    """Every run was left out; `excluded` says why."""

    def __init__(self, excluded: tuple[Excluded, ...]) -> None:
        self.excluded = excluded
        super().__init__(
            "; ".join(f"{item.name}: {item.reason}" for item in excluded) or "there are no runs"
        )


def fit_calibration(runs: Sequence[MeasuredRun]) -> CalibrationReport:
    """The most probable constants of the machine that `runs` are from.

    The report has the errors before and after.

    Runs on another accelerator, network or framework than most, and runs that are off by more than
    a factor of 2.5, are left out and named. Raises `NoUsableRuns` when none is left.
    """
    used, excluded = _usable(runs)
    if not used:
        raise NoUsableRuns(excluded)
    names, spreads = _parameters(used)
    models = [run.job.model.name for run in used]
    time_fit = shrunken(_time_residuals(used, names), spreads, models)
    with_peaks, excluded_peaks = _peaks(used)
    memory_fit = None
    if with_peaks:
        memory_fit = shrunken(_memory_residuals(with_peaks), np.array([_MEMORY_SPREAD]))

    left_out = time_fit.left_out
    left_out_shares = [None] * len(used) if left_out is None else np.exp(left_out).tolist()
    results = (
        RunResult(
            name=run.name,
            measured_s=run.step_time_s,
            before_s=run.step_time_s * math.exp(before),
            after_s=run.step_time_s * math.exp(after),
            left_out_s=None if share is None else run.step_time_s * share,
        )
        for run, before, after, share in zip(
            used, time_fit.before, time_fit.after, left_out_shares, strict=True
        )
    )
    return CalibrationReport(
        machine={"cluster": used[0].job.cluster.name, **_machine(used[0].job)},
        factors=_factors(used[0].job, names, time_fit.x),
        time=Errors.of(time_fit),
        spread=_spread(used, time_fit),
        memory_factor=1.0 if memory_fit is None else float(np.exp(memory_fit.x[0])),
        memory=None if memory_fit is None else Errors.of(memory_fit),
        runs=tuple(results),
        excluded=(*excluded, *excluded_peaks),
    )


def _machine(job: Job) -> dict[str, str]:
    """The names that are the same where two runs say something of each other."""
    cluster = job.cluster
    return {
        "accelerator": cluster.accelerator.name,
        "network": cluster.network,
        "framework": job.framework.name,
    }


def _usable(runs: Sequence[MeasuredRun]) -> tuple[list[MeasuredRun], tuple[Excluded, ...]]:
    """The runs of the most frequent machine that are near their estimate.

    The others come with the reason for which they are left out.
    """
    if not runs:
        return [], ()
    used: list[MeasuredRun] = []
    excluded: list[Excluded] = []
    machines = Counter(tuple(_machine(run.job).values()) for run in runs)
    [(usual_machine, _)] = machines.most_common(1)
    for run in runs:
        machine, estimated = tuple(_machine(run.job).values()), _seconds(run)
        if machine != usual_machine:
            reason = f"it ran on {', '.join(machine)}; most ran on {', '.join(usual_machine)}"
        elif not 1 / _FARTHEST < run.step_time_s / estimated < _FARTHEST:
            off = f"{estimated / run.step_time_s - 1:+.0%} off its {run.step_time_s:.4g} s a step"
            reason = f"the estimate of {estimated:.4g} s is {off}; {_CAUSES}"
        else:
            used.append(run)
            continue
        excluded.append(Excluded(name=run.name, reason=reason))
    return used, tuple(excluded)


def _peaks(runs: Sequence[MeasuredRun]) -> tuple[list[MeasuredRun], tuple[Excluded, ...]]:
    """The runs whose peak is near its estimate, and the others with the reason."""
    near: list[MeasuredRun] = []
    far: list[Excluded] = []
    for run in runs:
        if run.peak_bytes is None:
            continue
        estimated = float(getattr(memory(run.job, run.layout), f"{run.peak_kind}_bytes"))
        if 1 / _FARTHEST < run.peak_bytes / estimated < _FARTHEST:
            near.append(run)
        else:
            both = f"{run.peak_bytes / GIB:.4g} GiB and {estimated / GIB:.4g} GiB are estimated"
            far.append(
                Excluded(name=run.name, reason=f"its peak is {both}; only its step time is used")
            )
    return near, tuple(far)


def _seconds(run: MeasuredRun, factors: tuple[tuple[str, float], ...] = ()) -> float:
    """Estimated seconds of a step with `factors`, over those with the job's own calibration."""
    whole, job = dict(run.job.calibration.factors), run.job
    for name, factor in factors:
        whole[name] = whole.get(name, 1.0) * factor
    if factors:
        job = replace(job, calibration=Calibration(factors=tuple(whole.items())))
    return float(step_time(job, run.layout).total_s)


def _parameters(runs: Sequence[MeasuredRun]) -> tuple[tuple[str, ...], Vector]:
    """The constants that act on any of the runs and may differ between clusters.

    They come with the spreads of their priors.
    """
    chosen = [selectors(run.job) for run in runs]
    spreads = {
        name: max(family.pick(keys[family.by])[1].spread for keys in chosen)
        for name, family in constants().items()
    }
    names = tuple(name for name, spread in spreads.items() if spread > 0)
    residuals, unchanged = _time_residuals(runs, names), np.zeros(len(names))
    acts = np.abs(jacobian(residuals, unchanged, residuals(unchanged))).sum(axis=0) > 0
    names = tuple(name for name, act in zip(names, acts, strict=True) if act)
    return names, np.array([min(spreads[name], _WIDEST) for name in names])


def _time_residuals(runs: Sequence[MeasuredRun], names: tuple[str, ...]) -> Residuals:
    measured = np.array([run.step_time_s for run in runs])

    def residuals(x: Vector, only: int | None = None) -> Vector:
        factors = tuple((name, math.exp(value)) for name, value in zip(names, x, strict=True))
        rows = slice(None) if only is None else slice(only, only + 1)
        return np.asarray(
            np.log(np.array([_seconds(run, factors) for run in runs[rows]]) / measured[rows])
        )

    return residuals


def _memory_residuals(runs: Sequence[MeasuredRun]) -> Residuals:
    measured = np.array([run.peak_bytes for run in runs], dtype=float)
    neutral = [
        replace(run.job, calibration=replace(run.job.calibration, memory_factor=1.0))
        for run in runs
    ]
    ledgers = [memory(job, run.layout) for job, run in zip(neutral, runs, strict=True)]

    def residuals(x: Vector, only: int | None = None) -> Vector:
        corrected = [ledger.corrected(float(np.exp(x[0]))) for ledger in ledgers]
        peaks = [
            float(getattr(memory, f"{run.peak_kind}_bytes"))
            for memory, run in zip(corrected, runs, strict=True)
        ]
        logarithms: Vector = np.log(np.array(peaks) / measured)
        return logarithms if only is None else logarithms[only : only + 1]

    return residuals


def _factors(job: Job, names: tuple[str, ...], x: Vector) -> tuple[Factor, ...]:
    """Every fitted constant, those that moved most first; shares end at one."""
    corrections = tuple((name, math.exp(value)) for name, value in zip(names, x, strict=True))
    shipped = rates(replace(job, calibration=Calibration()))
    fitted = rates(replace(job, calibration=Calibration(factors=corrections)))
    factors = []
    for name, factor in corrections:
        before, after = getattr(shipped, name), getattr(fitted, name)
        whole = after / before if before else factor
        factors.append(
            Factor(name=name, factor=round(whole, 4), shipped=before, says=constants()[name].says)
        )
    return tuple(sorted(factors, key=lambda item: (-abs(math.log(item.factor)), item.name)))


def _spread(runs: Sequence[MeasuredRun], fit: Fit) -> float:
    """Standard deviation of log(measured / estimated) to expect of a further run.

    It follows from the errors of runs that were left out, and from the shipped band, which counts
    as `_PRIOR_RUNS` runs. Half of the band's width is `DEVIATIONS` standard deviations of the
    logarithm.
    """
    errors = fit.before if fit.left_out is None else fit.left_out
    bands = (time_shares(replace(run.job, calibration=Calibration()), run.layout) for run in runs)
    shipped = [math.log(band.high / band.low) / (2 * DEVIATIONS) for band in bands]
    squares = float((errors**2).sum()) + _PRIOR_RUNS * float(np.mean(np.square(shipped)))
    return math.sqrt(squares / (len(errors) + _PRIOR_RUNS))
