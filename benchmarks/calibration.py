"""Gain of `dsgen calibrate`: ten of a source's runs are given, the others are predicted before and
after.

`python -m benchmarks.calibration` prints the table. Nothing was fitted to the source: the constants
to start from are those of a fit without it. A source of several machines is calibrated one machine
(accelerator, network, framework) at a time, as its user would; machines with fewer than fourteen
runs are left out.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.clusters import cluster
from benchmarks.fit import Fit, fit, usable
from benchmarks.measured import Run
from dsgen.estimate.calibration import MeasuredRun, fit_calibration
from dsgen.estimate.rates import constants, selectors
from dsgen.estimate.step_time import step_time
from dsgen.job.records import Calibration, Job

GIVEN = 10  #: runs that are given to the calibration
LEAST = 14  #: runs that a machine must have, so that some are left to predict
DRAWS = 5
SEED = 20260101


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Mean absolute errors of the runs that weren't given, over the draws."""

    source: str
    machine: str
    runs: int
    before: float
    after: float
    worst_draw: float
    median_after: float
    left_out: float  #: what the calibration itself said to expect


def machines(rows: Sequence[Run]) -> dict[tuple[str, str], list[Run]]:
    """Runs by source and machine, those with enough."""
    groups: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in rows:
        machine = run.job.cluster
        groups[
            run.source, f"{machine.accelerator.name}, {machine.network}, {run.job.framework}"
        ].append(run)
    return {key: group for key, group in groups.items() if len(group) >= LEAST}


def draws(count: int) -> Iterator[tuple[list[int], list[int]]]:
    """Places of the runs given and of the others: one given run from each tenth of the source, at
    random.
    """
    generator = np.random.default_rng(SEED)
    for _ in range(DRAWS):
        given = [int(generator.choice(part)) for part in np.array_split(np.arange(count), GIVEN)]
        yield given, [i for i in range(count) if i not in given]


def starting(run: Run, found: Fit) -> Job:
    """The run's job with the constants of a fit that never saw its cluster."""
    chosen = selectors(run.job)
    moved = {
        (p.name, p.key): x for p, x in zip(found.moved, found.without[cluster(run)], strict=True)
    }
    factors = {}
    for name, family in constants().items():
        key, constant = family.pick(chosen[family.by])
        if constant.value:
            factors[name] = constant.prior / constant.value * math.exp(moved.get((name, key), 0.0))
    return replace(run.job, calibration=Calibration(factors=tuple(factors.items())))


def _error(job: Job, run: Run) -> float:
    return abs(float(step_time(job, run.layout).total_s) / float(run.step_time_s or 1) - 1)


def _measured(job: Job, run: Run) -> MeasuredRun:
    return MeasuredRun(
        name=run.id, job=job, layout=run.layout, step_time_s=float(run.step_time_s or 0)
    )


def _with(job: Job, factors: tuple[tuple[str, float], ...]) -> Job:
    whole = dict(job.calibration.factors)
    for name, factor in factors:
        whole[name] = whole.get(name, 1.0) * factor
    return replace(job, calibration=Calibration(factors=tuple(whole.items())))


def calibrated(group: Sequence[Run], found: Fit) -> Result:
    """One machine's errors, averaged over the draws."""
    jobs = [starting(run, found) for run in group]
    before, after, rows, expected = [], [], [], []
    for given, others in draws(len(group)):
        report = fit_calibration([_measured(jobs[i], group[i]) for i in given])
        factors = report.calibration().factors
        errors = [_error(_with(jobs[i], factors), group[i]) for i in others]
        before.append(statistics.mean(_error(jobs[i], group[i]) for i in others))
        after.append(statistics.mean(errors))
        rows.extend(errors)
        expected.append(report.time.left_out_mean or 0.0)
    return Result(
        source=group[0].source,
        machine=group[0].job.cluster.accelerator.name,
        runs=len(group),
        before=statistics.mean(before),
        after=statistics.mean(after),
        worst_draw=max(after),
        median_after=statistics.median(rows),
        left_out=statistics.mean(expected),
    )


def print_results(results: Sequence[Result]) -> None:
    """A line a machine, and the mean in which every source counts once."""
    print(f"### After calibrating with {GIVEN} runs of a source: error on its other runs\n")
    print("| source | machine | runs | before | after | worst draw | median row | it said |")
    print("|---|---|---|---|---|---|---|---|")
    for r in results:
        shares = (r.before, r.after, r.worst_draw, r.median_after, r.left_out)
        print(
            f"| {r.source} | {r.machine} | {r.runs} | "
            + " | ".join(f"{share:.1%}" for share in shares)
            + " |"
        )
    by_source: dict[str, list[Result]] = defaultdict(list)
    for r in results:
        by_source[r.source].append(r)
    before, after, median = (
        statistics.mean(
            statistics.mean(getattr(r, name) for r in group) for group in by_source.values()
        )
        for name in ("before", "after", "median_after")
    )
    print(f"| mean of sources | | | {before:.1%} | {after:.1%} | | {median:.1%} | |\n")


def main() -> None:
    """Fit without each source, calibrate with ten of its runs, print."""
    found = fit()
    print_results([calibrated(group, found) for _, group in sorted(machines(usable()).items())])


if __name__ == "__main__":
    main()
