"""How right the estimates are, source by source, on published runs.

`python -m benchmarks.accuracy` prints the tables of RESULTS.md; `--rows` adds every run.
"""

from __future__ import annotations

import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable

from benchmarks.measured import Run, runs
from dsgen.estimate.memory import memory
from dsgen.estimate.step_time import step_time

Pair = tuple[Run, float, float]  #: run, estimated, measured


def time_pairs(rows: Iterable[Run]) -> list[Pair]:
    """Step times of runs of quality A and B, in seconds."""
    return [
        (run, float(step_time(run.job, run.layout).total_s), run.step_time_s)
        for run in rows
        if run.step_time_s is not None and run.quality in ("A", "B")
    ]


def memory_pairs(rows: Iterable[Run]) -> list[Pair]:
    """Peaks of runs of memory quality A and B whose recomputation is known, in bytes, of the kind that was measured."""
    pairs = []
    for run in rows:
        if run.peak_memory_bytes is None or run.memory_quality not in ("A", "B") or not run.recompute_known:
            continue
        ledger = memory(run.job, run.layout)
        estimated = float(getattr(ledger, f"{run.peak_memory_kind}_bytes"))
        pairs.append((run, estimated, run.peak_memory_bytes))
    return pairs


def print_by_source(title: str, pairs: list[Pair]) -> None:
    """A table: n, mean and median absolute percentage error, bias; each source counts once in the mean."""
    print(f"### {title}\n")
    print("| source | n | mean error | median error | bias |")
    print("|---|---|---|---|---|")
    groups: dict[str, list[float]] = defaultdict(list)
    for run, estimated, measured in pairs:
        groups[run.source].append(estimated / measured - 1)
    for source, errors in sorted(groups.items()):
        print(
            f"| {source} | {len(errors)} | {_percent(_mean_abs, errors)} | {_percent(_median_abs, errors)} |"
            f" {statistics.mean(errors):+.1%} |"
        )
    whole = [abs(estimated / measured - 1) for _, estimated, measured in pairs]
    mean = statistics.mean(_mean_abs(errors) for errors in groups.values())
    print(f"| mean of sources | {len(whole)} | {mean:.1%} | {statistics.median(whole):.1%} (of rows) | |\n")


def _mean_abs(errors: list[float]) -> float:
    return statistics.mean(abs(error) for error in errors)


def _median_abs(errors: list[float]) -> float:
    return statistics.median(abs(error) for error in errors)


def _percent(measure: Callable[[list[float]], float], errors: list[float]) -> str:
    return f"{measure(errors):.1%}"


def print_fit(rows: list[Run]) -> None:
    """Runs that ran but would be refused, and runs that ran out of memory but would be accepted; no headroom."""
    graded = [run for run in rows if run.memory_quality in ("A", "B") and run.recompute_known]
    refused = [run.id for run in graded if not run.out_of_memory and not _fits(run)]
    accepted = [run.id for run in graded if run.out_of_memory and _fits(run)]
    ran = sum(not run.out_of_memory for run in graded)
    print("### Fit, without headroom\n")
    print(f"{len(refused)} of {ran} runs that ran would be refused: {', '.join(refused) or 'none'}.")
    print(
        f"{len(accepted)} of {len(graded) - ran} runs that ran out of memory would be accepted: "
        f"{', '.join(accepted) or 'none'}.\n"
    )


def _fits(run: Run) -> bool:
    ledger = memory(run.job, run.layout)
    return bool(ledger.required_bytes <= ledger.capacity_bytes)


def main() -> None:
    """Print the tables."""
    rows = list(runs())
    print_by_source("Step time", time_pairs(rows))
    print_by_source("Memory", memory_pairs(rows))
    print_fit(rows)
    if "--rows" in sys.argv:
        for run, estimated, measured in [*time_pairs(rows), *memory_pairs(rows)]:
            print(f"{run.id},{estimated:.4g},{measured:.4g},{estimated / measured - 1:+.1%}")


if __name__ == "__main__":
    main()
