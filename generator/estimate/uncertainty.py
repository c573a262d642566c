"""The uncertainty of estimates: a band around each, and its words.

A band holds four of five published runs from sources that the estimate's constants weren't fitted
to. `python -m benchmarks.uncertainty --write` makes the numbers, which are in `uncertainty.yaml`:
it leaves out each source in turn, fits the constants to the others, and compares. Each source
counts once, however many runs it has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from math import exp, hypot, log
from typing import Any, Final

import numpy as np

from ..catalog.records import read_yaml
from ..dataclass import dataclass
from ..job.records import Job
from ..resources import read_text
from ..units import DAY, HOUR, MINUTE, count, gib, seconds, three_digits
from .evidence import Evidence, evidence, unmeasured
from .layout import Layout, LayoutLike
from .ledgers import Memory, StepTime
from .rates import constants
from .states import host_factor

#: The share of runs that a band holds.
COVERAGE = 0.8

#: A normal distribution has this share within so many standard deviations of its mean.
DEVIATIONS = 1.2816

#: Regimes of the step time, each with a band of its own. A job is in the first that applies.
#: `unknown`: the accelerator's generation has no fitted constants. `moe`: the load and dispatch of
#: experts differ from run to run. `recent`: accelerators with fp8 (Hopper and later), in any
#: precision, since their clocks follow the power that a run draws. `sharded`: ZeRO stage 3 between
#: nodes, which gathers the parameters of every layer. `dense`: all other runs.
TIME_REGIMES = ("unknown", "moe", "recent", "sharded", "dense")

#: Measures of memory: the allocator's peak of allocated bytes, and what nvidia-smi shows, which
#: includes the allocator's cache.
MEMORY_KINDS = ("allocated", "device")


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """A range: in the unit of an estimate, or as shares of one (measured over estimated)."""

    low: Any
    high: Any

    def around(self, estimate: Any) -> Band:
        """The range that these shares of `estimate` span, in its unit."""
        return Band(low=self.low * estimate, high=self.high * estimate)

    def holds(self, value: float) -> bool:
        """Tell whether `value` is inside."""
        return bool(self.low <= value <= self.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncertainty:
    """The bands of one plan's estimates.

    Memory is in bytes: of a GPU in the fullest pipeline stage, and of a node for `host`.
    """

    coverage: float  #: the share of runs that is inside of a band: `COVERAGE`
    regime: str  #: which runs the time's band comes from: one of `TIME_REGIMES`, or `calibrated`
    #: measured runs that are like this one; without any, the time's band is wider
    evidence: Evidence
    step_time: Band  #: seconds
    allocated: Band
    #: what has to fit: allocated bytes, the CUDA context and NCCL's buffers
    required: Band
    device: Band  #: what nvidia-smi shows
    host: Band  #: from offloaded states counted once to the same in pinned buffers

    def to_dict(self) -> dict[str, Any]:
        """The bands as plain values, for JSON."""
        document = {"coverage": self.coverage, "regime": self.regime, **self.evidence.to_dict()}
        document |= {
            "step_time_low_s": float(self.step_time.low),
            "step_time_high_s": float(self.step_time.high),
        }
        for name in ("allocated", "required", "device"):
            band: Band = getattr(self, name)
            document |= {
                f"{name}_low_bytes": round(float(band.low)),
                f"{name}_high_bytes": round(float(band.high)),
            }
        document |= {
            "host_low_bytes_per_node": round(float(self.host.low)),
            "host_high_bytes_per_node": round(float(self.host.high)),
        }
        return document


@cache
def bands(quantity: str) -> Mapping[str, Band]:
    """The bands of `step_time`, by regime, or of `memory`, by kind: measured over estimated."""
    return {name: _within_factor(float(value)) for name, value in _document()[quantity].items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Probit:
    """A chance that is the normal distribution's function of a share's logarithm."""

    middle: float  #: the natural logarithm of the share for which the chance is a half
    deviation: float  #: the standard deviation, of the logarithm


@cache
def out_of_memory() -> Probit:
    """The chance that a run dies out of memory, by the share of the card that it needs."""
    return Probit(**_document()["out_of_memory"])


@cache
def unmeasured_factor() -> float:
    """Factor on a step time for each thing of a layout that no measured run had.

    It is one standard deviation. Two measured layouts of a job may differ in kinds of parallelism,
    sharding or overlap: each kind more adds so much to the error of the ratio of their times.
    """
    return exp(float(_document()["extrapolation"]["per_difference"]))


def ordering_band() -> float:
    """The relative difference of two step times below which their order is not certain."""
    return float(_document()["ordering"]["band"])


@cache
def _document() -> dict[str, Any]:
    """What `uncertainty.yaml` holds."""
    return read_yaml(__package__, "uncertainty.yaml")


def _within_factor(factor: float) -> Band:
    """From one over the factor to the factor."""
    return Band(low=1 / factor, high=factor)


def time_regime(job: Job, layout: Layout) -> str:
    """The regime of a step time: one of `TIME_REGIMES`, where each is described."""
    if job.cluster.accelerator.generation.name not in constants()["product_fraction"].by_key:
        return "unknown"
    if job.model.experts:
        return "moe"
    if job.cluster.accelerator.supports("fp8"):
        return "recent"
    return "sharded" if layout.zero_stage >= 3 and job.nodes > 1 else "dense"


def time_shares(job: Job, layout: LayoutLike) -> Band:
    """The band of a step time, measured over estimated, for one layout or columns.

    With a calibration it is the spread that the calibration left between the user's own runs.
    Otherwise it is the band of the regime, which depends on the layout by its ZeRO stage alone.
    """
    spread = job.calibration.spread
    if spread is not None:
        return _within_factor(exp(DEVIATIONS * spread))
    by_regime = bands("step_time")
    replicated = by_regime[time_regime(job, Layout(data=1, zero_stage=0))]
    sharded = by_regime[time_regime(job, Layout(data=1, zero_stage=3))]
    is_sharded = layout.zero_stage >= 3
    return Band(
        low=np.where(is_sharded, sharded.low, replicated.low),
        high=np.where(is_sharded, sharded.high, replicated.high),
    )


def memory_shares(kind: str) -> Band:
    """The band of a memory, measured over estimated; `kind` is one of `MEMORY_KINDS`."""
    return bands("memory")[kind]


def uncertainty(job: Job, layout: Layout, memory: Memory, step_time: StepTime) -> Uncertainty:
    """The bands of one layout's estimates."""
    likeness = evidence(job, layout)

    # Far from the measured runs the errors of extrapolation come on top. They are taken as
    # independent of the error among measured runs, so the logarithms are added in quadrature. What
    # no run had counts as in the expected time of a step, which has to lie in the band.
    per_octave = float(_document()["extrapolation"]["per_octave"])
    extrapolated = DEVIATIONS * per_octave * likeness.octaves
    doubted = DEVIATIONS * log(unmeasured_factor()) * float(unmeasured(job, layout))
    usual = log(time_shares(job, layout).high)
    time = _within_factor(exp(hypot(usual, extrapolated, doubted)))
    required = required_band(memory)
    device = memory_shares("device").around(memory.device_bytes)
    return Uncertainty(
        coverage=COVERAGE,
        regime=time_regime(job, layout) if job.calibration.spread is None else "calibrated",
        evidence=likeness,
        step_time=time.around(step_time.total_s),
        allocated=memory_shares("allocated").around(memory.allocated_bytes),
        required=required,
        # what a run needs is shown as used, and what the allocator keeps beside it
        device=Band(low=max(device.low, required.low), high=max(device.high, required.high)),
        host=host_band(job, memory),
    )


def required_band(memory: Memory) -> Band:
    """The band of the device memory that a run needs, in bytes; for one ledger or columns.

    Only the allocated part is uncertain: the CUDA context and NCCL's buffers are taken as known.
    """
    allocated = memory_shares("allocated").around(memory.allocated_bytes)
    certain = memory.required_bytes - memory.allocated_bytes
    return Band(low=certain + allocated.low, high=certain + allocated.high)


def host_band(job: Job, memory: Memory) -> Band:
    """The band of a node's host memory, in bytes; for one ledger or columns.

    The upper end has the offloaded states in pinned buffers, the lower end has them once, as
    without these.
    """
    high = memory.host_bytes_per_node
    return Band(low=high / host_factor(job), high=high)


@cache
def accuracy_by_source() -> Sequence[Mapping[str, Any]]:
    """How well the measured runs of each source are estimated: one row a source, by name.

    A row has `source` (its key in the collection of runs), `accelerators`, `regimes` (of
    `TIME_REGIMES`), `runs` (how many), `error` (the mean of |estimated / measured - 1|) and `bias`
    (the mean of estimated / measured - 1).
    """
    rows: list[dict[str, Any]] = json.loads(read_text(__package__, "accuracy.json"))
    return rows


#: How MFU is counted, wherever it is shown.
MFU_NOTE: Final = "MFU: of the dense peak; causal attention counts half, recomputation not"

#: Prefixes of bytes for the suffixes of `count` that differ from them: a billion bytes is a GB.
_PREFIXES: Final[Mapping[str, str]] = {"B": "G", "quadrillion": "P"}


def sized(size_bytes: float) -> str:
    """Bytes in decimal units, as files and rates are given: `2.44 TB`, `285 kB`."""
    number, _, letter = count(size_bytes).partition(" ")
    return f"{number} {_PREFIXES.get(letter, letter)}B"


def percent(fraction: Any) -> str:
    """A fraction as a percentage with one decimal."""
    return f"{100 * float(fraction):.1f}%"


def seconds_with_band(duration_s: float, band_s: Band) -> str:
    """A short time with the band around it, in one unit: `18.2 s (16.9-20.1)`."""
    shown = seconds(duration_s)
    return f"{shown} ({time_range(shown, band_s)})"


def time_range(shown: str, band_s: Band) -> str:
    """The band around a time, in the unit that the time is `shown` in: `16.9-20.1`."""
    seconds_by_unit = {"ms": 1e-3, "s": 1.0, "minutes": MINUTE, "hours": HOUR, "days": DAY}
    unit_s = seconds_by_unit[shown.split()[-1]]
    return f"{three_digits(band_s.low / unit_s)}-{three_digits(band_s.high / unit_s)}"


def gib_with_band(size_bytes: float, band_bytes: Band) -> str:
    """Bytes in GiB with the band around them: `52.1 GiB (49.9-54.0)`."""
    return f"{gib(size_bytes)} GiB ({gib(band_bytes.low)}-{gib(band_bytes.high)})"


def band_note(uncertainty: Uncertainty) -> str:
    """What the ranges beside estimates are: the share of runs inside, and of which runs."""
    runs = (
        "the runs of your calibration" if uncertainty.regime == "calibrated" else "published runs"
    )
    return f"{COVERAGE:.0%} intervals, from {runs}"


def evidence_note(likeness: Evidence) -> str:
    """How many measured runs are comparable with an estimate, in words."""
    if likeness.beyond:
        return "no comparable measurement"
    text = f"{likeness.runs:,} comparable measurement{'s' if likeness.runs != 1 else ''}"
    return text if likeness.here else f"{text}, none on this generation of accelerators"
