"""Order of layouts of one job by the estimates: what two of them share doesn't matter, only what is
left.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import exp, log, sqrt

from benchmarks.regret import Group

BANDS = tuple(i / 200 for i in range(21))  #: 0 to 10 % in half percents
#: Two layouts can be told apart where the odds that the one estimated faster is faster are two to
#: one.
APART = 2 / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Duel:
    """Two layouts of one job."""

    apart: float  #: logarithm of the slower estimate over the faster, 0 or more
    right: bool  #: whether the one estimated faster was
    weight: float  #: so that every group counts once


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordering:
    """Values of `uncertainty.yaml` on order."""

    #: standard deviation of log(measured / estimated) within a group, median of groups
    spread: float
    band: float
    groups: int

    def to_yaml(self) -> str:
        """One line."""
        return f"{{band: {self.band:.3f}, spread: {self.spread:.3f}, groups: {self.groups}}}"


def duels(found: Sequence[Group]) -> Iterator[Duel]:
    """Every pair of layouts of every group."""
    for g in found:
        pairs = list(combinations(g.choices, 2))
        for a, b in pairs:
            estimated, measured = (
                log(a.estimated_s / b.estimated_s),
                log(a.measured_s / b.measured_s),
            )
            yield Duel(apart=abs(estimated), right=estimated * measured > 0, weight=1 / len(pairs))


def spread(g: Group) -> float:
    """Standard deviation of log(measured / estimated) within one group."""
    return statistics.stdev(choice.log_ratio for choice in g.choices)


def share_right(found: Sequence[Group], below: float, above: float = 0.0) -> float | None:
    """Share of pairs ordered rightly among those estimated between `above` and `below` apart;
    `None` without pairs.
    """
    close = [duel for duel in duels(found) if log(1 + above) <= duel.apart <= log(1 + below)]
    total = sum(duel.weight for duel in close)
    return sum(duel.weight for duel in close if duel.right) / total if total else None


def ordering(found: Sequence[Group]) -> Ordering:
    """The spread, and the difference of two estimates at which their order becomes reliable.

    **Assumes** normal residuals, independent within a group: of two estimates that differ by x (as
    a logarithm), the smaller belongs to the faster with probability Phi(x / (sqrt(2) spread)).
    """
    within = statistics.median(spread(g) for g in found)
    apart = sqrt(2) * within * statistics.NormalDist().inv_cdf(APART)
    return Ordering(spread=within, band=exp(apart) - 1, groups=len(found))


def table(found: Sequence[Group]) -> Iterator[str]:
    """Lines: by band, how many of the pairs inside are ordered rightly."""
    yield "| band | pairs inside in the right order |"
    yield "|---|---|"
    for band in BANDS[::2]:
        share = share_right(found, band)
        yield f"| {band:.0%} | {'–' if share is None else f'{share:.0%}'} |"


def main() -> None:
    """Print the table."""
    from benchmarks.measured import runs
    from benchmarks.pairs import left_out_seconds, shipped_seconds
    from benchmarks.regret import groups

    found = groups(list(runs()), left_out_seconds() or shipped_seconds)
    print("\n".join(table(found)))
    print(f"\n{ordering(found).to_yaml()}")


if __name__ == "__main__":
    main()
