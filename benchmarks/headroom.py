"""Cost and gain of headroom: runs that ran but would be refused, and runs that died but would be
accepted.

`python -m benchmarks.headroom` prints the trade-off, with the fit rule of the package: the upper
end of the memory band against the capacity less the headroom.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.measured import Run, runs
from benchmarks.pairs import graded
from dsgen.estimate.memory import memory
from dsgen.estimate.uncertainty import memory_shares, required_band

SHARES = tuple(i / 100 for i in range(13))


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Needs of one run, as shares of what its device has; the run fits where `high` plus headroom
    is at most 1.
    """

    run: Run
    estimated: float
    high: float  #: at the upper end of the band
    measured: float | None  #: where it was; of the kind that was measured

    def fits(self, headroom: float) -> bool:
        """The fit rule."""
        return self.high <= 1 - headroom

    @property
    def words(self) -> str:
        """The run and its three shares of the capacity."""
        printed = (
            ""
            if self.measured is None
            else f", measured {self.measured:.0%} ({self.run.peak_memory_kind})"
        )
        return (
            f"{self.run.id}: {self.high:.0%} of the capacity ({self.estimated:.0%} "
            f"estimated{printed})"
        )


def demands(rows: Sequence[Run]) -> list[Demand]:
    """Return the needs of every run of memory quality A and B."""
    return [_demand(run) for run in graded(rows)]


def _demand(run: Run) -> Demand:
    ledger = memory(run.job, run.layout)
    capacity = float(ledger.capacity_bytes)
    peak = run.peak_memory_bytes
    return Demand(
        run=run,
        estimated=float(ledger.required_bytes) / capacity,
        high=float(required_band(ledger).high) / capacity,
        measured=None if peak is None else peak / capacity,
    )


def refused(found: Sequence[Demand], headroom: float) -> list[Demand]:
    """Runs that ran, but that we would refuse."""
    return [
        demand for demand in found if not demand.run.out_of_memory and not demand.fits(headroom)
    ]


def accepted(found: Sequence[Demand], headroom: float) -> list[Demand]:
    """Runs that ran out of memory, but that we would accept."""
    return [demand for demand in found if demand.run.out_of_memory and demand.fits(headroom)]


def table(found: Sequence[Demand]) -> Iterator[str]:
    """Lines: the trade-off."""
    died = sum(demand.run.out_of_memory for demand in found)
    ran = len(found) - died
    yield f"| headroom | refused, of {ran} that ran | accepted, of {died} that ran out of memory |"
    yield "|---|---|---|"
    for share in SHARES:
        wrong = len(refused(found, share))
        yield (
            f"| {share:.0%} | {wrong} ({wrong / max(ran, 1):.1%}) | {len(accepted(found, share))} |"
        )


def listed(found: Sequence[Demand], headroom: float) -> Iterator[str]:
    """Lines: every run on the wrong side."""
    yield f"Headroom {headroom:.0%}:"
    for title, wrong in (
        ("refused", refused(found, headroom)),
        ("accepted", accepted(found, headroom)),
    ):
        yield f"- {title}: {'none' if not wrong else ''}".rstrip()
        yield from (f"  - {demand.words}" for demand in wrong)


def beyond_the_band() -> float:
    """The headroom with which a run would fit even if all that nvidia-smi's readings scatter were
    allocated.
    """
    return 1 - memory_shares("allocated").high / memory_shares("device").high


def main() -> None:
    """Print the trade-off."""
    print("\n".join(table(demands(list(runs())))))
    print(
        f"\n{beyond_the_band():.1%} reaches from the upper end of the allocator's band to "
        "that of nvidia-smi's."
    )


if __name__ == "__main__":
    main()
