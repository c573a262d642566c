"""Width that the bands of the estimates need: `python -m benchmarks.uncertainty` prints, `--write`
puts them into `generator/estimate/uncertainty.yaml`.

A band is a factor either way that four of five runs stay within, by regime, with step times of
constants that never saw the source. Sources count equally; to a regime the other regimes count as
one more source, so that a thin one is not more certain than it can know. All bands are then widened
by one factor, until four of five runs of a source are inside bands that were made without it.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import exp
from pathlib import Path

import numpy as np

from benchmarks.clusters import cluster
from benchmarks.measured import Run, runs
from benchmarks.ordering import ordering
from benchmarks.pairs import (
    Pair,
    Seconds,
    graded,
    left_out_seconds,
    memory_pairs,
    shipped_seconds,
    time_pairs,
    timed,
)
from benchmarks.regret import Group, groups
from dsgen.estimate import uncertainty as shipped
from dsgen.estimate.evidence import TRAITS, differences, kind, octaves_beyond, traits
from dsgen.estimate.expected_time import card_share
from dsgen.estimate.layout import Layout
from dsgen.estimate.memory import memory
from dsgen.estimate.uncertainty import COVERAGE, MEMORY_KINDS, TIME_REGIMES, Probit, time_regime
from dsgen.job.records import Job

FILE = Path(shipped.__file__).with_name("uncertainty.yaml")
EVIDENCE = FILE.with_name("evidence.json")
ACCURACY = FILE.with_name("accuracy.json")
#: Residuals beyond this are slips of a table or something that no formula holds.
_OUTLIER = 0.5
_WIDENINGS = np.arange(1, 3.001, 0.01)
#: Standard deviation of the logarithm of how much estimates of memory scatter, before any run is
#: looked at.
_DEVIATION_DOUBT = 0.5
#: The regime no run belongs to: generations nobody measured are as uncertain as the worst known
#: regime.
_UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """Logarithm of measured over estimated of one run."""

    source: str
    regime: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bands:
    """By regime, how far the logarithm of measured over estimated goes either way."""

    by_regime: dict[str, float]
    widening: float
    coverage: float  #: of sources left out, each counted once


def time_residuals(rows: Iterable[Run], seconds: Seconds) -> list[Residual]:
    """Return the residuals of every timed run."""
    return [
        _residual(pair, time_regime(pair.run.job, pair.run.layout))
        for pair in time_pairs(rows, seconds)
    ]


def memory_residuals(rows: Iterable[Run]) -> list[Residual]:
    """Return the residuals of every run with a graded peak, by kind of measurement."""
    return [_residual(pair, memory_kind(pair.run)) for pair in memory_pairs(rows)]


def memory_kind(run: Run) -> str:
    """Return the kind of measured peak: the allocator's reservation holds its cache, as what
    nvidia-smi shows does.
    """
    return "allocated" if run.peak_memory_kind == "allocated" else "device"


def _residual(pair: Pair, regime: str) -> Residual:
    return Residual(source=pair.run.source, regime=regime, value=pair.log_ratio)


def make_bands(found: Sequence[Residual], regimes: Sequence[str]) -> Bands:
    """Widths by regime, widened until sources that were left out are covered."""
    sources = sorted({r.source for r in found})
    without = {s: _widths([r for r in found if r.source != s], regimes) for s in sources}
    coverages = [
        float(np.mean([_covered(found, s, without[s], w) for s in sources])) for w in _WIDENINGS
    ]
    enough = next(
        (i for i, coverage in enumerate(coverages) if coverage >= COVERAGE), len(coverages) - 1
    )
    widening = float(_WIDENINGS[enough])
    wide = {name: width * widening for name, width in _widths(found, regimes).items()}
    return Bands(by_regime=wide, widening=widening, coverage=coverages[enough])


def _widths(found: Sequence[Residual], regimes: Sequence[str]) -> dict[str, float]:
    known = {name: _width(found, name) for name in regimes if name != _UNKNOWN}
    return {_UNKNOWN: max(known.values()), **known} if _UNKNOWN in regimes else known


def _width(found: Sequence[Residual], regime: str) -> float:
    """Return what four of five residuals of one regime are smaller than."""
    inside = [r for r in found if r.regime == regime]
    others = [r for r in found if r.regime != regime]
    counts, rest = Counter(r.source for r in inside), Counter(r.source for r in others)
    own = [1 / counts[r.source] for r in inside]
    borrowed = [1 / (rest[r.source] * len(rest)) for r in others]
    sizes = np.array([abs(r.value) for r in (*inside, *others)])
    return weighted_quantile(sizes, np.array([*own, *borrowed]), COVERAGE)


def weighted_quantile(values: np.ndarray, weights: np.ndarray, share: float) -> float:
    """The value below which `share` of the weight lies, interpolated between the middles of the
    weights.
    """
    order = np.argsort(values)
    heaped = np.cumsum(weights[order]) - weights[order] / 2
    return float(np.interp(share * weights.sum(), heaped, values[order]))


def _covered(
    found: Sequence[Residual], source: str, widths: dict[str, float], widening: float
) -> float:
    """Share of a source's runs inside."""
    mine = [r for r in found if r.source == source]
    return sum(abs(r.value) <= widths[r.regime] * widening for r in mine) / len(mine)


def evidence_document(rows: Iterable[Run]) -> str:
    """The text of `evidence.json`: kind and traits of every timed run, as logarithms, and how many
    runs share them, by the generation of their accelerators.
    """
    found = defaultdict[tuple[int, tuple[float | None, ...]], Counter[str]](Counter)
    for run in timed(rows):  # those of another program tell of their kind alone
        generation = run.job.cluster.accelerator.generation.name
        found[int(kind(run.job, run.layout)), _traits_of(run)][generation] += run.is_ours
    lines = [
        json.dumps([dict(sorted(counts.items())), of, list(values)])
        for (of, values), counts in sorted(found.items(), key=str)
    ]
    return '{"traits": ' + json.dumps(list(TRAITS)) + ', "runs": [\n' + ",\n".join(lines) + "\n]}\n"


def accuracy_document(rows: Iterable[Run], seconds: Seconds) -> str:
    """The text of `accuracy.json`: by source, how far estimates are off with its cluster left
    out.
    """
    by_source: dict[str, list[Pair]] = defaultdict(list)
    for pair in time_pairs(rows, seconds):
        by_source[pair.run.source].append(pair)
    lines = [json.dumps(_accuracy_of(source, pairs)) for source, pairs in sorted(by_source.items())]
    return "[\n" + ",\n".join(lines) + "\n]\n"


def _accuracy_of(source: str, pairs: Sequence[Pair]) -> dict[str, object]:
    return {
        "source": source,
        "accelerators": sorted({pair.run.job.cluster.accelerator.name for pair in pairs}),
        "regimes": sorted({time_regime(pair.run.job, pair.run.layout) for pair in pairs}),
        "runs": len(pairs),
        "error": round(float(np.mean([abs(pair.error) for pair in pairs])), 4),
        "bias": round(float(np.mean([pair.error for pair in pairs])), 4),
    }


def _traits_of(run: Run) -> tuple[float | None, ...]:
    values = traits(run.job, run.layout, 1)[0]
    return tuple(None if np.isnan(value) else round(float(value) * 2) / 2 for value in values)


def per_octave(rows: Iterable[Run], seconds: Seconds) -> float:
    """Standard deviation of log(measured / estimated) that an octave beyond the runs of all other
    clusters adds.

    The squares of the residuals are fitted by a constant and by the square of the distance; sources
    count equally. Few runs are far from all other clusters, so that the slope is uncertain: what is
    returned is one standard error above it, or above zero where it is negative, clusters being the
    independent units (White's sandwich).
    """
    found = time_pairs(rows, seconds)
    own = np.array([traits(pair.run.job, pair.run.layout, 1)[0] for pair in found])
    sources, clusters = (
        np.array(names)
        for names in zip(*((p.run.source, cluster(p.run)) for p in found), strict=True)
    )
    others = (own[clusters != name] for name in clusters)
    far = np.array(
        [
            octaves_beyond(row[None], runs).sum(axis=2).min()
            for row, runs in zip(own, others, strict=True)
        ]
    )
    squares = np.array([min(abs(pair.log_ratio), _OUTLIER) for pair in found]) ** 2
    weight = np.sqrt([1 / np.sum(sources == source) for source in sources])
    terms = np.stack([np.ones_like(far), far**2], axis=1) * weight[:, None]
    fitted, *_ = np.linalg.lstsq(terms, squares * weight, rcond=None)
    left = terms * (squares * weight - terms @ fitted)[:, None]
    sums = np.array([left[clusters == name].sum(axis=0) for name in sorted(set(clusters))])
    inverse = np.linalg.inv(terms.T @ terms)
    error = np.sqrt((inverse @ sums.T @ sums @ inverse)[1, 1])
    return float(np.sqrt(max(fitted[1], 0.0) + error))


def per_difference(found: Sequence[Group]) -> float:
    """Standard deviation that each difference adds to the error of two layouts' ratio: of the
    logarithm of measured over estimated.

    The squares of these errors, over all pairs of layouts of one job, are fitted by a constant and
    by the number of differences. Jobs count equally.
    """
    pairs = [
        (_differences(g.job, one.layout, other.layout), one.log_ratio - other.log_ratio, g)
        for g in found
        for one, other in combinations(g.choices, 2)
    ]
    of_job = Counter(id(g) for *_, g in pairs)
    weight = np.sqrt([1 / of_job[id(g)] for *_, g in pairs])
    terms = np.array([(1, differences) for differences, *_ in pairs]) * weight[:, None]
    squares = np.array([error**2 for _, error, _ in pairs])
    fitted, *_ = np.linalg.lstsq(terms, squares * weight, rcond=None)
    return float(np.sqrt(max(fitted[1], 0.0)))


def _differences(job: Job, one: Layout, other: Layout) -> int:
    """Kinds of parallelism, sharding and overlap in which two layouts of a job differ."""
    overlaps = (one.tensor_overlap != other.tensor_overlap) + (
        one.expert_overlap != other.expert_overlap
    )
    return differences(int(kind(job, one)), int(kind(job, other))) + overlaps


def out_of_memory(rows: Sequence[Run]) -> Probit:
    """The most probable probit through runs that ran and that died, by the logarithm of their need
    over the card.

    The prior says that a run is as likely to die as not where it needs the whole card, and that
    estimates scatter as those of what nvidia-smi shows do; the doubt on either is as large as that
    scatter, and half an e-fold. Five runs died, so that the prior matters.
    """
    graded_runs = graded(rows)
    ledgers = [memory(run.job, run.layout) for run in graded_runs]
    shares = [
        float(card_share(run.job, ledger.required_bytes, ledger.device_bytes))
        for run, ledger in zip(graded_runs, ledgers, strict=True)
    ]
    logs, died = np.log(shares), np.array([run.out_of_memory for run in graded_runs])
    scatter = math.log(shipped.memory_shares("device").high) / shipped.DEVIATIONS

    def log_probability(probit: Probit) -> float:
        chance = np.array(
            [statistics.NormalDist(probit.middle, probit.deviation).cdf(value) for value in logs]
        )
        likely = np.log(np.clip(np.where(died, chance, 1 - chance), 1e-12, 1)).sum()
        middle = (probit.middle / scatter) ** 2
        deviation = (math.log(probit.deviation / scatter) / _DEVIATION_DOUBT) ** 2
        return float(likely - (middle + deviation) / 2)

    tried = (
        Probit(middle=middle / 1000, deviation=deviation / 1000)
        for middle in range(-50, 151, 5)
        for deviation in range(10, 201, 5)
    )
    return max(tried, key=log_probability)


def document(rows: Sequence[Run], seconds: Seconds) -> str:
    """The text of `uncertainty.yaml`."""
    timed, sized = time_residuals(rows, seconds), memory_residuals(rows)
    probit, jobs = out_of_memory(rows), groups(rows, seconds)
    return "\n".join(
        (
            "# Written by `python -m benchmarks.uncertainty --write` from the published runs "
            "of benchmarks/data.",
            "# Factors either way that four of five runs of sources left out stay within. "
            "unknown: generations without",
            "# runs, as wide as the widest. Memory: the allocator's peak, and "
            "what nvidia-smi shows.",
            *_section("step_time", make_bands(timed, TIME_REGIMES), timed),
            *_section("memory", make_bands(sized, MEMORY_KINDS), sized),
            "# band: estimates of two layouts of one job that are closer than this "
            "can't be told apart.",
            f"ordering: {ordering(jobs).to_yaml()}",
            "# Chance that a run dies of its memory: the normal distribution of the logarithm of "
            "its need over the card,",
            "# through the runs that ran and that died.",
            f"out_of_memory: {{middle: {probit.middle:.3f}, deviation: {probit.deviation:.3f}}}",
            "# per_octave: standard deviation of a time's logarithm that each factor of two "
            "beyond measured runs adds,",
            "# one standard error above what runs of clusters left out show.",
            "# per_difference: the same of the ratio of two layouts of one job, that each kind of "
            "parallelism, sharding or overlap",
            "# in which they differ adds.",
            f"extrapolation: {{per_octave: {per_octave(rows, seconds):.3f}, "
            f"per_difference: {per_difference(jobs):.3f}}}",
            "",
        )
    )


def _section(name: str, bands: Bands, found: Sequence[Residual]) -> list[str]:
    lines = [
        f"{name}: # widened {bands.widening:.2f} times; holds {bands.coverage:.0%} of runs "
        "of sources left out"
    ]
    for regime, width in bands.by_regime.items():
        inside = [r for r in found if r.regime == regime]
        counts = f"{len(inside)} runs of {len({r.source for r in inside})} sources"
        lines.append(f"  {regime}: {exp(width):.3f} # {counts}")
    return lines


def main() -> None:
    """Print the file, or write it."""
    seconds = left_out_seconds()
    if seconds is None:
        print(
            "no left-out estimates yet (python -m benchmarks.fit --write): "
            "shipped constants instead",
            file=sys.stderr,
        )
    text = document(list(runs()), seconds or shipped_seconds)
    if "--write" in sys.argv:
        FILE.write_text(text)
        EVIDENCE.write_text(evidence_document(runs()))
        ACCURACY.write_text(accuracy_document(runs(), seconds or shipped_seconds))
    print(text, end="")


if __name__ == "__main__":
    main()
