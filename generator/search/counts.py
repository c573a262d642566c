"""Numbers of GPUs worth trying: whole nodes, few to a doubling, on which some layout is legal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..job.records import Job
from ..rules.numbers import divisors
from .enumerate import Enumeration


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Counts of GPUs, or of nodes, of one job."""

    job: Job
    unit: int  #: counts are multiples of it: the GPUs of a node, or one node
    gpus: int  #: GPUs that each count stands for

    @classmethod
    def of_gpus(cls, job: Job) -> Counts:
        """In GPUs, by whole nodes."""
        return cls(job=job, unit=job.cluster.accelerators_per_node, gpus=1)

    @classmethod
    def of_nodes(cls, job: Job) -> Counts:
        """In nodes."""
        return cls(job=job, unit=1, gpus=job.cluster.accelerators_per_node)

    def between(self, low: int, high: int) -> Iterator[int]:
        """The counts from `low` to `high`, both included, on which some layout breaks no rule; none need fit."""
        first = max(-(-low // self.unit), 1) * self.unit
        for count in range(first, high + 1, self.unit):
            if any(True for _ in Enumeration(replace(self.job, gpus=count * self.gpus))):
                yield count

    def grid(self, low: int, high: int) -> tuple[int, ...]:
        """From `low` to `high`: parts of one node, then whole nodes, up to eight counts to a doubling.

        Of each eighth, the first count on which some layout is legal; where there is none, the first.
        """
        parts = [part for part in divisors(self.unit) if low <= part <= high and part < self.unit]
        found, nodes = [], max(-(-low // self.unit), 1)
        while nodes * self.unit <= high:
            step = 1 << max(nodes.bit_length() - 4, 0)
            following = nodes // step * step + step
            legal = self.between(nodes * self.unit, min(following * self.unit - 1, high))
            found.append(next(legal, nodes * self.unit))
            nodes = following
        return (*parts, *found)
