"""Cost of a choice: of the measured layouts of one job, the one that dsgen picks against the best.

`python -m benchmarks.regret` prints every group, with the shipped constants and with those that
never saw its cluster.
"""

from __future__ import annotations

import csv
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import log

import numpy as np

from benchmarks.measured import DATA, Run, runs
from benchmarks.pairs import Seconds, left_out_seconds, shipped_seconds, timed
from dsgen.estimate.expected_time import expected_s
from dsgen.estimate.layout import FIELDS, Layout, Layouts
from dsgen.estimate.memory import memory
from dsgen.job.records import Job
from dsgen.rules.run import FIT_RULES
from dsgen.search.choice import ranking
from dsgen.search.feasible import Estimates

#: Columns of `measured.csv` that are decided with the layout, measured, or about the row itself.
#: Runs that agree in every other column are the same job. Over how many ranks ZeRO shards is one of
#: these: InternEvo, the one program that tried several, sums gradients by all-reduce and broadcasts
#: parameters, as none of ours does.
DECIDED = {
    "dp",
    "tp",
    "pp",
    "vpp",
    "cp",
    "ep",
    "sequence_parallel",
    "zero_stage",
    "offload",
    "recompute",
    "micro_batch",
    "grad_accum",
    "expert_overlap",
    "tensor_overlap",
}
MEASURED = {
    "id",
    "step_time_s",
    "step_time_derived_s",
    "tflops_per_gpu",
    "flops_convention",
    "peak_mem_gib",
    "peak_mem_kind",
    "oom",
    "quality",
    "memory_quality",
}
FEWEST = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One layout of a job: runs with the same layout are one choice, with the median of what was
    measured.
    """

    runs: tuple[Run, ...]
    layout: Layout
    measured_s: float
    estimated_s: float

    @property
    def log_ratio(self) -> float:
        """Logarithm of measured over estimated."""
        return log(self.measured_s / self.estimated_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """At least three layouts of one job."""

    source: str
    job: Job
    choices: tuple[Choice, ...]

    @property
    def best(self) -> Choice:
        """The fastest as measured."""
        return min(self.choices, key=lambda choice: choice.measured_s)

    @property
    def fastest(self) -> Choice:
        """The fastest as estimated."""
        return min(self.choices, key=lambda choice: choice.estimated_s)

    @property
    def chosen(self) -> Choice:
        """The one that the search would choose of these: of those that fit, the least expected
        time.
        """
        columns = {
            name: np.array([getattr(c.layout, name) for c in self.choices]) for name in FIELDS
        }
        layouts = Layouts(**columns)
        seconds = np.array([choice.estimated_s for choice in self.choices])
        ledger = memory(self.job, layouts)
        count = len(seconds)
        sizes = {
            name: np.broadcast_to(getattr(ledger, name), count)
            for name in ("required_bytes", "device_bytes")
        }
        fits = np.all(
            [
                np.broadcast_to(rule.columns.holds(self.job, layouts, ledger), count)
                for rule in FIT_RULES
            ],
            axis=0,
        )
        # All of them ran: where none fits by the rule, the number decides among all.
        rows = np.flatnonzero(fits if fits.any() else np.ones(count, np.bool_))
        ran = Estimates(
            layouts=layouts,
            total_s=seconds,
            savable={},
            expected_s=expected_s(self.job, layouts, seconds, **sizes),
            **sizes,
        )
        return self.choices[rows[ranking(ran.take(rows), 1)[0]]]

    def regret(self, pick: Choice) -> float:
        """Return what `pick` loses against the best, as a fraction."""
        return pick.measured_s / self.best.measured_s - 1


def groups(rows: Iterable[Run], seconds: Seconds = shipped_seconds) -> list[Group]:
    """Every job with at least three different layouts among `rows`, of quality A and B."""
    same_job: dict[tuple[str, ...], list[Run]] = defaultdict(list)
    keys = _keys()
    for run in timed(rows):
        # whose recipe has graphs and attention in fp8, or not
        training = run.job.training
        recipe = (training.cuda_graphs, str(training.fp8_attention))
        same_job[(*keys[run.id], *recipe)].append(run)
    found = (group(members, seconds) for members in same_job.values())
    return [g for g in found if len(g.choices) >= FEWEST]


def group(members: list[Run], seconds: Seconds) -> Group:
    """Runs of one job with identical layouts merged."""
    merged: dict[Layout, list[Run]] = defaultdict(list)
    for run in members:
        merged[run.layout].append(run)
    choices = tuple(_choice(layout, same, seconds) for layout, same in merged.items())
    return Group(source=members[0].source, job=members[0].job, choices=choices)


def _choice(layout: Layout, same: list[Run], seconds: Seconds) -> Choice:
    return Choice(
        runs=tuple(same),
        layout=layout,
        measured_s=statistics.median(float(run.step_time_s or 0) for run in same),
        estimated_s=statistics.median(map(seconds, same)),
    )


def _keys() -> dict[str, tuple[str, ...]]:
    """By run, what it has to agree in with another to be the same job."""
    with DATA.open(newline="") as file:
        return {
            row["id"]: tuple(value for name, value in row.items() if name not in DECIDED | MEASURED)
            for row in csv.DictReader(file)
        }


def table(found: list[Group]) -> Iterator[str]:
    """Lines: every group with pick and best, then mean and worst."""
    yield "| group | layouts | best | s | fastest by estimate | s | regret | chosen | regret |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for g in sorted(found, key=lambda g: -g.regret(g.fastest)):
        chosen = g.chosen
        yield (
            f"| {g.choices[0].runs[0].id} {g.job.model.name}, {g.job.gpus} GPUs "
            f"| {len(g.choices)} |"
            f" {_cells(g, g.best)} | {_cells(g, g.fastest)} | {g.regret(g.fastest):.1%} |"
            f" {_words(g, chosen)} | {g.regret(chosen):.1%} |"
        )
    yield ""
    yield summary(found)


def _cells(g: Group, choice: Choice) -> str:
    return f"{_words(g, choice)} | {choice.measured_s:.4g}"


def _words(g: Group, choice: Choice) -> str:
    """The decisions in which the group's layouts differ; the accumulation follows from the
    others.
    """
    differ = (name for name in FIELDS if len({getattr(c.layout, name) for c in g.choices}) > 1)
    values = choice.layout.to_dict()
    return ", ".join(f"{name} {values[name]}" for name in differ if name != "gradient_accumulation")


def summary(found: list[Group]) -> str:
    """Mean and worst in one line."""
    if not found:
        return "No group of three layouts."
    plain = [g.regret(g.fastest) for g in found]
    chosen = [g.regret(g.chosen) for g in found]
    return (
        f"Regret over {len(found)} groups: fastest by estimate mean {statistics.mean(plain):.1%},"
        f" worst {max(plain):.1%}; chosen mean {statistics.mean(chosen):.1%}, "
        f"worst {max(chosen):.1%}."
    )


def main() -> None:
    """Print the groups, both ways."""
    rows = list(runs())
    for title, seconds in (
        ("Shipped constants", shipped_seconds),
        ("Cluster left out", left_out_seconds()),
    ):
        print(f"### Plan choice: {title.lower()}\n")
        if seconds is None:
            print("`python -m benchmarks.fit` has not written its estimates yet.\n")
            continue
        print("\n".join(table(groups(rows, seconds))), end="\n\n")


if __name__ == "__main__":
    main()
