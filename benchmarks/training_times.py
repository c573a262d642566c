"""Whole runs whose length was published, beside what we estimate of them; no constant is fitted to
these.

`python -m benchmarks.training_times [NAME …]` prints the table of RESULTS.md. Time estimates are of
one run with the published layout, as far as it is known, and of the failures that are assumed of
any cluster.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import dsgen
from benchmarks.published import layout_text
from dsgen.search.plan import Plan, Run
from dsgen.units import DAY

DATA = Path(__file__).parent / "data" / "training_times.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One whole run: what was published, and the plan of each phase."""

    name: str
    row: Mapping[str, Any]
    plans: tuple[Plan, ...]

    @property
    def runs(self) -> list[Run]:
        """The run of each phase."""
        return [run for plan in self.plans if (run := plan.run) is not None]

    @property
    def days(self) -> float:
        """Days as estimated, of what was published."""
        return sum(self._days)

    @property
    def _days(self) -> list[float]:
        steps_alone = self.row["published"]["of"] == "steps"
        return [(run.duration_s if steps_alone else run.wall_s) / DAY for run in self.runs]

    @property
    def band(self) -> tuple[float, float]:
        """The same at both ends of the bands of the step times."""
        low, high = (
            sum(days * share for days, share in self._shares(end)) for end in ("low", "high")
        )
        return low, high

    def _shares(self, end: str) -> Iterator[tuple[float, float]]:
        """Days of each phase, and one end of its step time's band over the middle."""
        for plan, days in zip(self.plans, self._days, strict=True):
            yield (
                days,
                float(getattr(plan.uncertainty.step_time, end)) / float(plan.step_time.total_s),
            )

    @property
    def error(self) -> float:
        """Estimated over published, less one."""
        return float(self.days / self.row["published"]["days"] - 1)


def read(names: Iterable[str] = ()) -> list[Published]:
    """Every run, or those that are named."""
    rows = yaml.safe_load(DATA.read_text())
    chosen = {name: rows[name] for name in names or rows}
    return [
        Published(name=name, row=row, plans=tuple(map(_plan, row["phases"])))
        for name, row in chosen.items()
    ]


def _plan(spec: Mapping[str, Any]) -> Plan:
    """The best completion of a phase's layout, without a margin of memory; without one that fits,
    as it is.
    """
    known = {"name": "published", "launch": {"script": "train.py"}, "memory": {"headroom": 0}}
    job = dsgen.load_job({**known, **spec})
    found = dsgen.search(job, top=1)
    return found.plans[0] if found.plans else dsgen.estimate(job)


def table(found: Iterable[Published]) -> Iterator[str]:
    """Every run with its parts."""
    yield (
        "| run | layout | published, days | estimated | | steps | saving, failures, "
        "evaluation | failures |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for each in found:
        published, (low, high) = each.row["published"], each.band
        inside = "" if low <= published["days"] <= high else ", outside"
        steps = sum(run.steps for run in each.runs)
        failures = sum(run.failures for run in each.runs)
        lost = sum(run.wall_s - run.duration_s for run in each.runs) / sum(
            run.wall_s for run in each.runs
        )
        layouts = "; ".join(dict.fromkeys(layout_text(plan) for plan in each.plans))
        days = f"{each.days:.3g} ({low:.3g} to {high:.3g}{inside})"
        cells = (
            each.name,
            layouts,
            f"{published['days']:.3g} of {published['of']}",
            days,
            f"{each.error:+.1%}",
        )
        yield (
            f"| {' | '.join(cells)} | {steps:,} | {lost:.1%} | "
            f"{failures:,.{0 if failures >= 1 else 2}f} |"
        )


def main() -> None:
    """Print the table and the sources."""
    found = read(sys.argv[1:])
    print("\n".join(table(found)), end="\n\n")
    print("\n".join(f"- {each.name}: {each.row['source']}. {each.row['notes']}." for each in found))


if __name__ == "__main__":
    main()
