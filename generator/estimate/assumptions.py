"""What the estimate of a whole run assumes where the job says nothing: `run.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from math import exp
from typing import NamedTuple

from ..catalog.loader import read_yaml


class Assumption(NamedTuple):
    """One figure with where it comes from."""

    value: float
    spread: float  #: standard deviation of its logarithm between the sources
    says: str
    source: str
    unverified: tuple[str, ...] = ()  #: figures of the source that were not read in it again

    @property
    def range(self) -> tuple[float, float]:
        """One standard deviation down and up."""
        return self.value / exp(self.spread), self.value * exp(self.spread)


@cache
def assumptions() -> Mapping[str, Assumption]:
    """All of them by name, which ends in the unit."""
    entries = read_yaml(__package__, "run.yaml").items()
    return {name: Assumption(**{**entry, "unverified": tuple(entry.get("unverified", ()))}) for name, entry in entries}


def assumed(name: str) -> float:
    """The value of one assumption."""
    return assumptions()[name].value
