"""The tables of `benchmarks.accuracy`, as lines of Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.measured import Run
from benchmarks.pairs import Pair, by_source
from dsgen.estimate.layout import FIELDS, Layout, Recompute
from dsgen.estimate.ledgers import StepTime
from dsgen.estimate.step_time import step_time
from dsgen.estimate.uncertainty import COVERAGE, Band, time_regime

#: Steps shorter than this are bound by launches, starts of kernels and the host.
SMALL_STEP_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Errors of a set of estimates."""

    mean: float  #: absolute
    median: float  #: absolute
    bias: float

    def cells(self) -> str:
        """Three cells."""
        return f"{self.mean:.1%} | {self.median:.1%} | {self.bias:+.1%}"


def errors(pairs: Sequence[Pair]) -> Errors:
    """Return the result over all pairs alike."""
    off = [pair.error for pair in pairs]
    size = [abs(error) for error in off]
    return Errors(
        mean=statistics.mean(size), median=statistics.median(size), bias=statistics.mean(off)
    )


def mean_of_sources(pairs: Sequence[Pair]) -> float:
    """Mean absolute error, each source counted once."""
    return statistics.mean(errors(group).mean for group in by_source(pairs).values())


def run_table(pairs: Sequence[Pair]) -> Iterator[str]:
    """One row a run, and the errors of all."""
    yield "| run | estimated | measured | error |"
    yield "|---|---|---|---|"
    for pair in pairs:
        name = f"{pair.run.id}: {pair.run.job.model.name}, {pair.run.job.cluster.accelerator.name}"
        yield f"| {name} | {pair.estimated:.4g} | {pair.measured:.4g} | {pair.error:+.1%} |"
    found = errors(pairs)
    yield f"| mean of {len(pairs)} | | | {found.mean:.1%}, bias {found.bias:+.1%} |"


def source_table(named: dict[str, Sequence[Pair]]) -> Iterator[str]:
    """One row a source; three columns for each way of estimating."""
    heads = "".join(f" {name}: mean error | median | bias |" for name in named)
    yield f"| source | n |{heads}"
    yield "|---|---|" + "---|---|---|" * len(named)
    grouped = [by_source(pairs) for pairs in named.values()]
    for source, group in grouped[0].items():
        cells = " | ".join(errors(groups[source]).cells() for groups in grouped)
        yield f"| {source} | {len(group)} | {cells} |"
    whole = " | ".join(
        f"{mean_of_sources(pairs):.1%} | {errors(pairs).median:.1%} (of rows) | "
        for pairs in named.values()
    )
    yield f"| mean of sources | {sum(map(len, grouped[0].values()))} | {whole} |"


def worst_table(pairs: Sequence[Pair], each: int) -> Iterator[str]:
    """The rows of each source that are furthest off, with what the estimate is made of."""
    yield "| run | what | measured | estimated | error | largest parts |"
    yield "|---|---|---|---|---|---|"
    for group in by_source(pairs).values():
        for pair in sorted(group, key=lambda pair: -abs(pair.log_ratio))[:each]:
            run = pair.run
            yield (
                f"| {run.id} | {run_words(run)} | {pair.measured:.3g} | {pair.estimated:.3g} | "
                f"{pair.error:+.0%} |"
                f" {_largest_parts(step_time(run.job, run.layout))} |"
            )


def _largest_parts(time: StepTime) -> str:
    """Causes that make a tenth of the step or more."""
    shares = {
        name.removesuffix("_s"): value / time.total_s for name, value in time.to_dict().items()
    }
    large = sorted(
        ((share, name) for name, share in shares.items() if share >= 0.1 and name != "total"),
        reverse=True,
    )
    return ", ".join(f"{name} {share:.0%}" for share, name in large)


def run_words(run: Run) -> str:
    """A run in a table cell: model, GPUs, precision and what its layout sets."""
    job = run.job
    parts = (job.model.name, f"{job.gpus} {job.cluster.accelerator.name}", job.training.precision)
    return ", ".join((*parts, layout_words(run.layout)))


def layout_words(layout: Layout) -> str:
    """The decisions that are not at their defaults; the accumulation follows from the others."""
    defaults = Layout(data=1).to_dict()
    values = layout.to_dict()
    set_ = [
        name
        for name in FIELDS
        if values[name] != defaults[name] and name != "gradient_accumulation"
    ]
    return " ".join(f"{name} {values[name]}" for name in set_) or "one GPU"


def regime_table(named: dict[str, Sequence[Pair]]) -> Iterator[str]:
    """Errors of the runs that have something in common."""
    heads = "".join(f" {name}: mean of sources | median row | bias |" for name in named)
    yield f"| regime | n | sources |{heads}"
    yield "|---|---|---|" + "---|---|---|" * len(named)
    first = next(iter(named.values()))
    for label, belongs in regimes(first):
        chosen = {
            name: [pair for pair in pairs if belongs(pair.run)] for name, pairs in named.items()
        }
        own = next(iter(chosen.values()))
        if not own:
            continue
        cells = " | ".join(
            f"{mean_of_sources(pairs):.1%} | {errors(pairs).median:.1%} | {errors(pairs).bias:+.1%}"
            for pairs in chosen.values()
        )
        yield f"| {label} | {len(own)} | {len(by_source(own))} | {cells} |"


def regimes(pairs: Sequence[Pair]) -> list[tuple[str, Callable[[Run], bool]]]:
    """Return what runs may have in common, by name."""
    fixed: list[tuple[str, Callable[[Run], bool]]] = [
        ("dense", lambda run: not run.job.model.experts),
        ("mixture of experts", lambda run: run.job.model.experts > 0),
        ("one node", lambda run: run.job.nodes == 1),
        ("several nodes", lambda run: run.job.nodes > 1),
        ("full sharding, one node", lambda run: run.layout.zero_stage >= 3 and run.job.nodes == 1),
        (
            "full sharding, several nodes",
            lambda run: run.layout.zero_stage >= 3 and run.job.nodes > 1,
        ),
        ("tensor parallel", lambda run: run.layout.tensor > 1),
        ("pipeline", lambda run: run.layout.pipeline > 1),
        ("interleaved pipeline", lambda run: run.layout.virtual_pipeline > 1),
        ("context parallel", lambda run: run.layout.context > 1),
        ("full recomputation", lambda run: run.layout.recompute == Recompute.FULL),
        ("unfused attention", lambda run: run.job.training.attention == "unfused"),
        (f"steps under {SMALL_STEP_S:g} s", lambda run: (run.step_time_s or 0) < SMALL_STEP_S),
    ]
    precisions = sorted({pair.run.job.training.precision for pair in pairs})
    generations = sorted({pair.run.job.cluster.accelerator.generation.name for pair in pairs})
    frameworks = sorted({pair.run.job.framework.name for pair in pairs})
    return [
        *fixed,
        *((p, lambda run, p=p: run.job.training.precision == p) for p in precisions),
        *(
            (g, lambda run, g=g: run.job.cluster.accelerator.generation.name == g)
            for g in generations
        ),
        *((f, lambda run, f=f: run.job.framework.name == f) for f in frameworks),
    ]


def coverage_table(
    pairs: Sequence[Pair], bands: Callable[[Run], Band], regime: Callable[[Run], str]
) -> Iterator[str]:
    """Return how many runs are inside their band, by regime; every source of a regime counts
    once.
    """
    yield (
        "| regime | band: measured over estimated | n | sources | inside (aim "
        f"{COVERAGE:.0%}) | least covered |"
    )
    yield "|---|---|---|---|---|---|"
    for name in sorted({regime(pair.run) for pair in pairs}):
        own = [pair for pair in pairs if regime(pair.run) == name]
        shares = {source: _inside(group, bands) for source, group in by_source(own).items()}
        least = min(shares, key=lambda source: shares[source])
        band = bands(own[0].run)
        yield (
            f"| {name} | {band.low:.2f} to {band.high:.2f} | {len(own)} | {len(shares)} |"
            f" {statistics.mean(shares.values()):.0%} | {least} {shares[least]:.0%} |"
        )


def _inside(pairs: Sequence[Pair], bands: Callable[[Run], Band]) -> float:
    return statistics.mean(
        bands(pair.run).around(pair.estimated).holds(pair.measured) for pair in pairs
    )


def regime_of_time(run: Run) -> str:
    """The regime whose band a run's step time has."""
    return time_regime(run.job, run.layout)
