"""Uncertainty of estimates, as bands, and how they are said.

A band holds four of five runs of sources that the model never saw.

The numbers are in `uncertainty.yaml`, which `python -m benchmarks.uncertainty --write` makes from
published runs: each source is estimated with constants fitted without it, and counts once.
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
from ..units import DAY, HOUR, MINUTE, count, gib, seconds
from .evidence import Evidence, evidence
from .layout import Layout, LayoutLike
from .ledgers import Memory, StepTime
from .rates import constants
from .states import host_factor

#: Share of runs that a band holds, in words too, and the standard deviations of a normal
#: distribution with as many.
COVERAGE = 0.8
DEVIATIONS = 1.2816
#: Regimes of the step time, the first that holds counts. `unknown`: a generation without constants
#: of its own. `moe`: experts, whose load and dispatch differ from run to run. `recent`: parts with
#: fp8 (Hopper and later), in whatever precision: their clocks follow the power that a run draws.
#: `sharded`: gathers of every layer between nodes.
TIME_REGIMES = ("unknown", "moe", "recent", "sharded", "dense")
#: Measures of memory: the allocator's own peak, or what nvidia-smi shows, which holds its cache as
#: well.
MEMORY_KINDS = ("allocated", "device")


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """A range, in the unit of its estimate."""

    low: Any
    high: Any

    def around(self, estimate: Any) -> Band:
        """These shares of `estimate`."""
        return Band(low=self.low * estimate, high=self.high * estimate)

    def holds(self, value: float) -> bool:
        """Tell whether `value` is inside."""
        return bool(self.low <= value <= self.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncertainty:
    """The bands of one plan's estimates: seconds of a step, bytes of a GPU in the fullest stage."""

    coverage: float  #: share of runs of sources the model never saw that are inside
    regime: str  #: which runs the time's band comes from: one of `TIME_REGIMES`, or `calibrated`
    #: measured runs that are like this one; without any, the time's band is wider
    evidence: Evidence
    step_time: Band
    allocated: Band
    required: Band  #: allocated, which is uncertain, with context and NCCL: what has to fit
    device: Band
    host: Band  #: bytes of a node's memory: what is offloaded counted once, and in pinned buffers

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
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
def bands(of: str) -> Mapping[str, Band]:
    """Measured over estimated at both ends of each band.

    The bands of `step_time` are by regime, those of `memory` by what is measured.
    """
    return {name: _within(float(factor)) for name, factor in _document()[of].items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Probit:
    """A chance that grows with the logarithm of a share as the normal distribution does."""

    middle: float  #: of the share's logarithm: where the chance is a half
    deviation: float


@cache
def out_of_memory() -> Probit:
    """The chance that a run dies of its memory, by the share of the card that it needs."""
    return Probit(**_document()["out_of_memory"])


def ordering_band() -> float:
    """Two layouts of one job whose estimates are closer than this fraction can't be told apart."""
    return float(_document()["ordering"]["band"])


@cache
def _document() -> dict[str, Any]:
    return read_yaml(__package__, "uncertainty.yaml")


def _within(factor: float) -> Band:
    """Return a band as far up as down, as factors go."""
    return Band(low=1 / factor, high=factor)


def time_regime(job: Job, layout: Layout) -> str:
    """The regime of a step time, by that about the job which is known least."""
    if job.cluster.accelerator.generation.name not in constants()["product_fraction"].by_key:
        return "unknown"
    if job.model.experts:
        return "moe"
    if job.cluster.accelerator.supports("fp8"):
        return "recent"
    return "sharded" if layout.zero_stage >= 3 and job.nodes > 1 else "dense"


def time_shares(job: Job, layout: LayoutLike) -> Band:
    """Measured over estimated step time.

    It is that of the regime, or what the job's calibration left between runs.
    """
    spread = job.calibration.spread
    if spread is not None:
        return _within(exp(DEVIATIONS * spread))
    whole, sharded = (
        bands("step_time")[time_regime(job, Layout(data=1, zero_stage=stage))] for stage in (0, 3)
    )
    cut = layout.zero_stage >= 3
    return Band(
        low=np.where(cut, sharded.low, whole.low), high=np.where(cut, sharded.high, whole.high)
    )


def memory_shares(kind: str) -> Band:
    """Measured over estimated memory of one kind, one of `MEMORY_KINDS`."""
    return bands("memory")[kind]


def uncertainty(job: Job, layout: Layout, memory: Memory, step_time: StepTime) -> Uncertainty:
    """The bands of one layout's estimates."""
    of_layout = evidence(job, layout)
    # Of layouts that are far from the measured ones both doubts are independent.
    doubt = DEVIATIONS * float(_document()["extrapolation"]["per_octave"]) * of_layout.octaves
    time = _within(exp(hypot(log(time_shares(job, layout).high), doubt)))
    return Uncertainty(
        coverage=COVERAGE,
        regime=time_regime(job, layout) if job.calibration.spread is None else "calibrated",
        evidence=of_layout,
        step_time=time.around(step_time.total_s),
        allocated=memory_shares("allocated").around(memory.allocated_bytes),
        required=required_band(memory),
        device=memory_shares("device").around(memory.device_bytes),
        host=host_band(job, memory),
    )


def required_band(memory: Memory) -> Band:
    """Device memory that must be there, in bytes: the band is that of what is allocated.

    One ledger or columns.
    """
    allocated = memory_shares("allocated").around(memory.allocated_bytes)
    beside_allocated = memory.required_bytes - memory.allocated_bytes
    return Band(low=beside_allocated + allocated.low, high=beside_allocated + allocated.high)


def host_band(job: Job, memory: Memory) -> Band:
    """Host memory of a node, in bytes: what is offloaded, counted once, and in pinned buffers.

    The lower end is what the run needs with `pin_memory: false`. One ledger or columns.
    """
    high = memory.host_bytes_per_node
    return Band(low=high / host_factor(job), high=high)


@cache
def accuracy_by_source() -> Sequence[Mapping[str, Any]]:
    """The measured runs of each source beside their estimates, by name.

    `source`: its key in the collection; `accelerators`; `regimes`, of `TIME_REGIMES`; `runs`;
    `error`, the mean of
    |estimated / measured - 1|; `bias`, the mean of estimated / measured - 1.
    """
    rows: list[dict[str, Any]] = json.loads(read_text(__package__, "accuracy.json"))
    return rows


#: How MFU is counted, wherever it is shown.
MFU_NOTE: Final = "MFU: of the dense peak; causal attention counts half, recomputation not"

#: Of bytes, where a count says them otherwise.
_PREFIXES: Final[Mapping[str, str]] = {"B": "G", "quadrillion": "P"}


def sized(size_bytes: float) -> str:
    """Bytes as of files and rates, decimal: `2.44 TB`, `285 kB`."""
    number, _, letter = count(size_bytes).partition(" ")
    return f"{number} {_PREFIXES.get(letter, letter)}B"


def percent(fraction: Any) -> str:
    """A fraction as a percentage with one decimal."""
    return f"{100 * float(fraction):.1f}%"


def seconds_with_band(duration_s: float, band_s: Band) -> str:
    """A short time with the band around it, in one unit: `18.2 s (16.9-20.1)`."""
    return f"{seconds(duration_s)} ({time_range(duration_s, band_s)})"


def time_range(duration_s: float, band_s: Band) -> str:
    """The band around a time, in the unit that the time is shown in: `16.9-20.1`."""
    unit_s = {"ms": 1e-3, "s": 1.0, "minutes": MINUTE, "hours": HOUR, "days": DAY}[
        seconds(duration_s).split()[-1]
    ]
    return f"{_three_digits(band_s.low / unit_s)}-{_three_digits(band_s.high / unit_s)}"


def gib_with_band(size_bytes: float, band_bytes: Band) -> str:
    """Bytes in GiB with the band around them: `52.1 GiB (49.9-54.0)`."""
    return f"{gib(size_bytes)} GiB ({gib(band_bytes.low)}-{gib(band_bytes.high)})"


def band_note(uncertainty: Uncertainty) -> str:
    """Say what share of which runs the ranges hold."""
    of = "the runs of your calibration" if uncertainty.regime == "calibrated" else "published runs"
    return f"{COVERAGE:.0%} intervals, from {of}"


def evidence_note(likeness: Evidence) -> str:
    """Say how many measured runs are comparable with an estimate."""
    if likeness.beyond:
        return "no comparable measurement"
    return f"{likeness.runs:,} comparable measurement{'s' if likeness.runs != 1 else ''}"


def _three_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:#.3g}"
