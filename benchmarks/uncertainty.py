"""How wide the bands of the estimates have to be: `python -m benchmarks.uncertainty` prints, `--write` puts them into
`generator/estimate/uncertainty.yaml`.

A band is the 10th and the 90th percentile of measured over estimated, by regime, with step times of constants that
never saw the source. Sources count equally; to a regime the other regimes count as one more source, so that a thin one
is not more certain than it can know. All bands are then widened by one factor, until four of five runs of a source are
inside bands that were made without it.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp
from pathlib import Path

import numpy as np

from benchmarks.measured import Run, runs
from benchmarks.ordering import ordering
from benchmarks.pairs import Pair, Seconds, left_out_seconds, memory_pairs, shipped_seconds, time_pairs
from benchmarks.regret import groups
from dsgen.estimate import uncertainty as shipped
from dsgen.estimate.uncertainty import COVERAGE, MEMORY_REGIMES, TIME_REGIMES, Band, memory_regime, time_regime

FILE = Path(shipped.__file__).with_name("uncertainty.yaml")
_WIDENINGS = np.arange(1, 3.001, 0.01)
#: The regime no run belongs to: generations nobody measured are as uncertain as the worst known regime.
_UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """Logarithm of measured over estimated of one run."""

    source: str
    regime: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bands:
    """Bands by regime, as logarithms of measured over estimated."""

    by_regime: dict[str, Band]
    widening: float
    coverage: float  #: of sources left out, each counted once


def time_residuals(rows: Iterable[Run], seconds: Seconds) -> list[Residual]:
    """Of every timed run."""
    return [_residual(pair, time_regime(pair.run.job, pair.run.layout)) for pair in time_pairs(rows, seconds)]


def memory_residuals(rows: Iterable[Run]) -> list[Residual]:
    """Of every run with a graded peak."""
    return [_residual(pair, memory_regime(pair.run.job)) for pair in memory_pairs(rows)]


def _residual(pair: Pair, regime: str) -> Residual:
    return Residual(source=pair.run.source, regime=regime, value=pair.log_ratio)


def make_bands(found: Sequence[Residual], regimes: Sequence[str]) -> Bands:
    """Percentiles by regime, widened until sources that were left out are covered."""
    sources = sorted({r.source for r in found})
    without = {s: _percentiles([r for r in found if r.source != s], regimes) for s in sources}
    coverages = [float(np.mean([_covered(found, s, without[s], w) for s in sources])) for w in _WIDENINGS]
    enough = next((i for i, coverage in enumerate(coverages) if coverage >= COVERAGE), len(coverages) - 1)
    widening = float(_WIDENINGS[enough])
    plain = _percentiles(found, regimes)
    wide = {name: Band(low=band.low * widening, high=band.high * widening) for name, band in plain.items()}
    return Bands(by_regime=wide, widening=widening, coverage=coverages[enough])


def _percentiles(found: Sequence[Residual], regimes: Sequence[str]) -> dict[str, Band]:
    known = {name: _percentile_band(found, name) for name in regimes if name != _UNKNOWN}
    if _UNKNOWN in regimes:
        known[_UNKNOWN] = Band(low=min(b.low for b in known.values()), high=max(b.high for b in known.values()))
    return known


def _percentile_band(found: Sequence[Residual], regime: str) -> Band:
    """The band of one regime; what is estimated lies inside."""
    inside = [r for r in found if r.regime == regime]
    others = [r for r in found if r.regime != regime]
    counts, rest = Counter(r.source for r in inside), Counter(r.source for r in others)
    values = np.array([r.value for r in (*inside, *others)])
    own = [1 / counts[r.source] for r in inside]
    borrowed = [1 / (rest[r.source] * len(rest)) for r in others]
    weights = np.array([*own, *borrowed])
    tail = (1 - COVERAGE) / 2
    low, high = (weighted_quantile(values, weights, share) for share in (tail, 1 - tail))
    return Band(low=min(low, 0.0), high=max(high, 0.0))


def weighted_quantile(values: np.ndarray, weights: np.ndarray, share: float) -> float:
    """The value below which `share` of the weight lies, interpolated between the middles of the weights."""
    order = np.argsort(values)
    heaped = np.cumsum(weights[order]) - weights[order] / 2
    return float(np.interp(share * weights.sum(), heaped, values[order]))


def _covered(found: Sequence[Residual], source: str, bands: dict[str, Band], widening: float) -> float:
    """Share of a source's runs inside."""
    mine = [r for r in found if r.source == source]
    inside = sum(bands[r.regime].low * widening <= r.value <= bands[r.regime].high * widening for r in mine)
    return inside / len(mine)


def document(rows: Sequence[Run], seconds: Seconds) -> str:
    """The text of `uncertainty.yaml`."""
    timed, sized = time_residuals(rows, seconds), memory_residuals(rows)
    return "\n".join(
        (
            "# Written by `python -m benchmarks.uncertainty --write` from the published runs of benchmarks/data.",
            "# low, high: measured over estimated, 10th and 90th percentile, widened until 80 % of the runs of sources",
            "# that were left out are inside. unknown: generations without runs, as wide as the widest.",
            *_section("step_time", make_bands(timed, TIME_REGIMES), timed),
            *_section("memory", make_bands(sized, MEMORY_REGIMES), sized),
            "# band: estimates of two layouts of one job that are closer than this can't be told apart.",
            f"ordering: {ordering(groups(rows, seconds)).to_yaml()}",
            "",
        )
    )


def _section(name: str, bands: Bands, found: Sequence[Residual]) -> list[str]:
    lines = [f"{name}: # widened {bands.widening:.2f} times; holds {bands.coverage:.0%} of runs of sources left out"]
    for regime, band in bands.by_regime.items():
        inside = [r for r in found if r.regime == regime]
        counts = f"{len(inside)} runs of {len({r.source for r in inside})} sources"
        lines.append(f"  {regime}: {{low: {exp(band.low):.3f}, high: {exp(band.high):.3f}}} # {counts}")
    return lines


def main() -> None:
    """Print the file, or write it."""
    seconds = left_out_seconds()
    if seconds is None:
        print(
            "no left-out estimates yet (python -m benchmarks.fit --write): shipped constants instead", file=sys.stderr
        )
    text = document(list(runs()), seconds or shipped_seconds)
    if "--write" in sys.argv:
        FILE.write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
