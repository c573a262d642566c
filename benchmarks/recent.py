"""Hold estimates against runs of 2026 that no fit saw, as specs with the layout that was run:
`python -m benchmarks.recent`.

`data/recent_specs.yaml` has the spec of each, with its source. Runs of quality B are benchmarks; of
C the timing is a by-product, or the layout was inferred, so that these say little of the estimate.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

import dsgen

SPECS: Final = Path(__file__).parent / "data" / "recent_specs.yaml"


class Outcome(NamedTuple):
    """A run beside its estimate."""

    id: str
    model: str
    quality: str
    estimated: float
    measured: float

    @property
    def error(self) -> float:
        """Return by how much the estimate is over the measured time, as a share of this."""
        return self.estimated / self.measured - 1


def outcomes() -> list[Outcome]:
    """Every run, in the order of the file."""
    return [_outcome(row) for row in yaml.safe_load(SPECS.read_text(encoding="utf-8"))]


def _outcome(row: dict[str, Any]) -> Outcome:
    job = dsgen.load_job(row["spec"])
    estimated = float(dsgen.estimate(job).step_time.total_s)
    return Outcome(row["id"], job.model.name, row["quality"], estimated, row["step_time_s"])


def main() -> None:
    """Print each run's error, and the mean of each quality."""
    found = outcomes()
    for run in found:
        print(
            f"{run.id}: {run.model}, quality {run.quality}: estimated {run.estimated:.3g} s, "
            f"measured {run.measured:.3g} s, {run.error:+.1%}"
        )
    for quality in sorted({run.quality for run in found}):
        errors = [run.error for run in found if run.quality == quality]
        mean = sum(map(abs, errors)) / len(errors)
        print(f"quality {quality}: {len(errors)} runs, {mean:.1%} in the mean")


if __name__ == "__main__":
    main()
