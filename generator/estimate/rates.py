"""The constants of the estimates that hold for one job.

They are calibrated to its cluster where that was measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import SimpleNamespace

from ..catalog.records import read_yaml
from ..dataclass import dataclass
from ..job.records import Job

#: A share or fraction never exceeds what it is a share of.
_AT_MOST_ONE = ("_fraction", "_share", "_overlap")
#: Constants whose `default` is a share of the part's own best measured product.
_OF_ACHIEVABLE = ("product_fraction", "product_fp8_fraction")


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """One constant under one key."""

    value: float
    prior: float
    spread: float  #: standard deviation of the prior's logarithm; 0 = not fitted
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A constant with all its keys."""

    by: str  #: any | generation | fabric | network | framework | kernels | attention
    says: str
    by_key: Mapping[str, Constant]

    def pick(self, key: str) -> tuple[str, Constant]:
        """The entry that holds for `key`, and the key it is listed under."""
        listed = key if key in self.by_key else "default"
        return listed, self.by_key[listed]


@cache
def constants() -> Mapping[str, Family]:
    """All constants of the package by name."""
    return {
        name: Family(
            by=entry["by"],
            says=entry["says"],
            by_key={
                key: Constant(**value) for key, value in entry.items() if key not in ("by", "says")
            },
        )
        for name, entry in read_yaml(__package__, "constants.yaml").items()
    }


def selectors(job: Job) -> dict[str, str]:
    """The key that a constant is picked by, for each `Family.by`."""
    cluster = job.cluster
    generation, attention = cluster.accelerator.generation.name, job.framework.attention_kernels
    has_switches = cluster.intra_node == "nvswitch"
    return {
        "any": "default",
        "generation": generation,
        # Links through switches differ by generation.
        "fabric": f"nvswitch-{generation}" if has_switches else cluster.intra_node,
        "network": cluster.network,
        "framework": job.framework.name,
        "kernels": "fused" if job.fuses_kernels else "eager",
        # cuDNN's are each generation's own.
        "attention": attention if attention == "cudnn" else f"{attention}-{generation}",
    }


#: The job that was last asked for, and its constants: every formula asks, mostly for the same one.
_latest: tuple[Job | None, SimpleNamespace] = (None, SimpleNamespace())


def rates(job: Job) -> SimpleNamespace:
    """The constants of `job`, times its calibration's factors.

    They are floats by their names in `constants.yaml`.
    """
    global _latest
    if _latest[0] is not job:
        chosen, factors = selectors(job), dict(job.calibration.factors)
        achievable = job.cluster.accelerator.achievable_fraction
        if achievable is None:
            achievable = constants()["usual_achievable_fraction"].by_key["default"].value
        values: dict[str, float] = {}
        for name, family in constants().items():
            key, constant = family.pick(chosen[family.by])
            value = constant.value * factors.get(name, 1.0)
            if name in _OF_ACHIEVABLE and key == "default":
                value *= achievable
            values[name] = min(value, 1.0) if name.endswith(_AT_MOST_ONE) else value
        _latest = (job, SimpleNamespace(**values))
    return _latest[1]
