"""Hold estimates against runs that no constant was fitted to, and against what an option changed:
`python -m benchmarks.knobs`.

`data/recent.csv` has runs of MLPerf Training 5.1, in the columns of `data/measured.csv`; the layout
of those of quality C was inferred. Of that table the rows in NVFP4 are left out of every fit, too.

`data/knobs.csv` has options of Megatron-Bridge's recipes by row of it: a pair is two rows of one
model, machine and precision from successive containers, whose options or layout differ, and whose
tokens per second differ by more than the noise of containers without such a change. GPT-OSS in
container 26.06.01 is left out: it ran at 0.6 of the speed of the containers before and after it.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from benchmarks.measured import DATA, KNOBS, Run, run_of, runs
from benchmarks.memory_reading import Row, with_shape
from benchmarks.pairs import Pair, left_out_seconds, shipped_seconds, time_pairs
from benchmarks.tables import errors, run_table
from dsgen.estimate.layout import Modules, Recompute

RECENT: Final = DATA.with_name("recent.csv")
#: Ratios of successive containers with the same options: nine in ten of 105 pairs are within.
NOISE: Final = (0.971, 1.058)
#: Columns that say what a container's recipe changed.
OPTIONS: Final = (
    "dispatcher",
    "expert_overlap",
    "recompute_modules",
    "graphs",
    "fp8_attention",
    "paged_stash",
)
_LAYOUT: Final = ("tp", "pp", "vpp", "cp", "ep", "micro_batch")
_GROUP: Final = ("model_name", "gpu_norm", "num_gpus", "precision")
_SLOW: Final = ("GPT OSS 120B", "26.06.01")


class Change(NamedTuple):
    """Two runs with other options, and what these made of the tokens per second."""

    before: Run
    after: Run
    options: str
    measured: float
    estimated: float

    @property
    def has_sign(self) -> bool:
        """Return whether the estimate changes in the direction that the measurement did."""
        return (self.measured > 1) == (self.estimated > 1)


def _rows(path: Path) -> Iterator[Row]:
    with path.open(newline="") as file:
        yield from csv.DictReader(file)


def unfitted() -> list[Pair]:
    """Estimates of runs that no fit saw: those of MLPerf, and those in NVFP4."""
    rows = [*_rows(RECENT), *(row for row in _rows(DATA) if "fp4" in row["precision"])]
    runs = [run for row in rows if (run := run_of(with_shape(row))) is not None and run.step_time_s]
    return [
        Pair(run=run, estimated=shipped_seconds(run), measured=float(run.step_time_s or 0))
        for run in runs
    ]


def changes() -> list[Change]:
    """Pairs that change an option or the layout, and the time by more than the noise."""
    rows = {row["id"]: with_shape(row) for row in _rows(DATA)}
    groups: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for knobs in _rows(KNOBS):
        row = rows[knobs["id"]]
        if (row["model_name"], knobs["container"]) != _SLOW:
            knobs = {f"recipe {name}": value for name, value in knobs.items()}
            groups[tuple(row[key] for key in _GROUP)].append({**row, **knobs})
    found = []
    for group in groups.values():
        ordered = sorted(group, key=lambda row: row["recipe container"])
        found += [change for pair in pairwise(ordered) if (change := _change(*pair))]
    return found


def by_knob() -> dict[str, list[Pair]]:
    """Fitted runs with their cluster left out, by dispatcher and by graphs."""
    known = {row["id"] for row in _rows(KNOBS)}
    groups: dict[str, list[Pair]] = defaultdict(list)
    for pair in time_pairs(runs(), left_out_seconds() or shipped_seconds):
        training = pair.run.job.training
        if pair.run.job.model.experts:
            groups[f"dispatcher {training.dispatcher}"].append(pair)
        if pair.run.id in known:
            groups[f"graphs {training.cuda_graphs}"].append(pair)
    return dict(sorted(groups.items()))


def _change(before: Row, after: Row) -> Change | None:
    names = [name for name in OPTIONS if before[f"recipe {name}"] != after[f"recipe {name}"]]
    if any(before[name] != after[name] for name in _LAYOUT):
        names.append("layout")
    runs = _run(before), _run(after)
    if not names or runs[0] is None or runs[1] is None:
        return None
    measured, estimated = (
        _tokens_per_s(runs[1], seconds[1]) / _tokens_per_s(runs[0], seconds[0])
        for seconds in (
            [float(run.step_time_s or 0) for run in runs if run],
            [shipped_seconds(run) for run in runs if run],
        )
    )
    if NOISE[0] <= measured <= NOISE[1]:
        return None
    return Change(runs[0], runs[1], ", ".join(names), measured, estimated)


def _run(row: Row) -> Run | None:
    """The run of a row with the modules that its recipe computes again."""
    run = run_of(row)
    if run is None or not run.step_time_s:
        return None
    if not (names := row["recipe recompute_modules"].split()):
        return run
    modules = int(Modules.of(tuple(names)))
    again = replace(run.layout, recompute=Recompute.SELECTIVE, recompute_modules=modules)
    return replace(run, layout=again)


def _tokens_per_s(run: Run, seconds: float) -> float:
    return run.job.training.tokens_per_step / seconds


def main() -> None:
    """Print the tables, and how often the sign is right and how far the size is off."""
    pairs = unfitted()
    print("\n".join(run_table(pairs)))
    of_mlperf = [pair for pair in pairs if pair.run.source == "mlperf51"]
    for name, some in (
        ("NVFP4", [pair for pair in pairs if pair.run.job.training.precision == "nvfp4"]),
        ("MLPerf", [pair for pair in of_mlperf if pair.run.quality != "C"]),
        ("MLPerf, inferred", [pair for pair in of_mlperf if pair.run.quality == "C"]),
    ):
        print(f"{name}: {len(some)} rows, mean, median, bias {errors(some).cells()}")

    found = changes()
    for change in found:
        print(
            f"{change.before.id} to {change.after.id} ({change.options}): "
            f"{change.measured - 1:+.0%} measured, {change.estimated - 1:+.0%} estimated"
        )
    signs = sum(change.has_sign for change in found)
    size = median(abs(change.estimated - change.measured) for change in found)
    print(f"{len(found)} changes: sign right in {signs}, size off by {size:.1%} in the median")

    for name, some in by_knob().items():
        print(f"{name}: {len(some)} rows, mean, median, bias {errors(some).cells()}")


if __name__ == "__main__":
    main()
