"""Measure how right the estimates are, on published runs.

`python -m benchmarks.accuracy` prints the tables of RESULTS.md; `--rows` adds every run, `--figure
FILE.svg` draws predicted against measured.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import fsdp2, headroom, hybrid, ordering, regret
from benchmarks.figure import draw
from benchmarks.measured import Run, runs
from benchmarks.pairs import Pair, left_out_seconds, memory_pairs, shipped_seconds, time_pairs
from benchmarks.tables import (
    coverage_table,
    regime_of_time,
    regime_table,
    run_table,
    source_table,
    worst_table,
)
from benchmarks.uncertainty import memory_kind
from dsgen.estimate.uncertainty import memory_shares, time_shares
from dsgen.job.resolve import DEFAULT_HEADROOM

SHIPPED, LEFT_OUT = "shipped", "cluster left out"
WORST = 2  #: rows shown of each source


def report(rows: Sequence[Run]) -> Iterator[str]:
    """The whole report, line by line."""
    seconds = {SHIPPED: shipped_seconds}
    left_out = left_out_seconds()
    if left_out is None:
        yield (
            "No step times with the cluster left out: `python -m benchmarks.fit "
            "--write` makes them.\n"
        )
    else:
        seconds[LEFT_OUT] = left_out
    times = {name: time_pairs(rows, estimate) for name, estimate in seconds.items()}
    unseen = times.get(LEFT_OUT, times[SHIPPED])
    sizes = memory_pairs(rows)
    yield from _part("Step time, by source", source_table(dict(times)))
    yield from _part("Step time, worst rows of each source", worst_table(unseen, WORST))
    yield from _part("Step time, by regime", regime_table(dict(times)))
    yield from _part(
        "Step time, coverage of the band",
        coverage_table(unseen, lambda run: time_shares(run.job, run.layout), regime_of_time),
    )
    yield from _part("Memory, by source", source_table({"estimate": sizes}))
    yield from _part(
        "Memory, coverage of the band",
        coverage_table(sizes, lambda run: memory_shares(memory_kind(run)), memory_kind),
    )
    for what, unfitted in zip(("Step time", "Reserved memory"), fsdp2.pairs(), strict=True):
        title = f"{what} of FSDP2, with constants that never saw it"
        yield from _part(title, run_table(unfitted))
    title = "Step time of models with Mamba-2, each machine left out"
    yield from _part(title, run_table(list(hybrid.pairs())))
    demands = headroom.demands(rows)
    yield from _part("Fit, by headroom", headroom.table(demands))
    yield from _part("Fit, without headroom", headroom.listed(demands, 0))
    yield from _part("Fit, with the default headroom", headroom.listed(demands, DEFAULT_HEADROOM))
    for name, estimate in seconds.items():
        yield from _part(f"Plan choice, {name}", regret.table(regret.groups(rows, estimate)))
    found = regret.groups(rows, seconds.get(LEFT_OUT, shipped_seconds))
    yield from _part("Plans that can't be told apart", ordering.table(found))


def _part(title: str, lines: Iterator[str]) -> Iterator[str]:
    yield f"### {title}\n"
    yield from lines
    yield ""


def _every_row(rows: Sequence[Run]) -> Iterator[str]:
    pairs: list[Pair] = [
        *time_pairs(rows, left_out_seconds() or shipped_seconds),
        *memory_pairs(rows),
    ]
    for pair in pairs:
        yield f"{pair.run.id},{pair.estimated:.4g},{pair.measured:.4g},{pair.error:+.1%}"


def main() -> None:
    """Print the report, or draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", action="store_true", help="print every run as well")
    parser.add_argument(
        "--figure", metavar="FILE.svg", type=Path, help="draw predicted against measured, and stop"
    )
    arguments = parser.parse_args()
    rows = list(runs())
    if arguments.figure:
        arguments.figure.write_text(
            draw(time_pairs(rows, left_out_seconds() or shipped_seconds), memory_pairs(rows))
        )
        return
    print("\n".join(report(rows)))
    if arguments.rows:
        print("\n".join(_every_row(rows)))


if __name__ == "__main__":
    main()
