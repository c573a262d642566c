"""The two products that every layout satisfies: the world's size and the global batch.

The search meets them by construction; a layout that the user pinned may not.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm, prod
from typing import Any

from ...estimate.layout import Layout, LayoutLike
from ...findings import Severity
from ...job.framework import Software
from ...job.records import Job
from ..numbers import divisors, listed, nearest, neighbours
from ..planning_rule import LayoutRule
from ..sources import deepspeed, megatron_deepspeed, megatron_lm

WORLD_FACTORS = ("data", "tensor", "pipeline", "context")
BATCH_FACTORS = ("micro_batch", "gradient_accumulation", "data")


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """Factors and what they multiply to. Partial: the known factors must divide the total."""

    factors: dict[str, int]  #: by layout key, in the order of a message
    total: int
    key: str  #: the job's key for the total, as written in a spec
    step: int = 1  #: totals come in multiples of this (whole nodes)
    data_divides: int  #: the other product's total: `data` is a factor of both

    @property
    def known(self) -> int:
        """The product of the factors."""
        return prod(self.factors.values())

    def describe(self) -> str:
        """`data: 3 × tensor: 8 = 24`, or `data: 3` for one factor."""
        terms = " × ".join(f"{name}: {value}" for name, value in self.factors.items())
        return terms if len(self.factors) == 1 else f"{terms} = {self.known}"

    def hint(self, whole: bool) -> str:
        """Values of one factor, and of the total, that pass; `whole` when the factors must make the total exactly."""
        choices = [self._factor_hint(whole), f"{self.key}: {self._total_hint(whole)}"]
        return ", or ".join(choice for choice in choices if choice)

    def _total_hint(self, whole: bool) -> str:
        return str(self.known) if whole else listed(neighbours(lcm(self.known, self.step), self.total))

    def _factor_hint(self, whole: bool) -> str | None:
        """The first factor that can be changed alone, with the nearest values that pass."""
        for name, value in self.factors.items():
            rest = self.known // value
            if self.total % rest == 0:
                room = self.total // rest
                passing = [room] if whole else divisors(room)
                if name == "data":
                    passing = [size for size in passing if self.data_divides % size == 0]
                if passing:
                    return f"{name}: {listed(nearest(passing, value, 3))}"
        return None


def world_product(job: Job, values: dict[str, Any]) -> Product:
    """The factors of the world that `values` holds, against `gpus`."""
    node = job.cluster.accelerators_per_node
    factors = {name: values[name] for name in WORLD_FACTORS if name in values}
    step = node if job.gpus > node else 1
    batch = job.training.global_batch
    return Product(factors=factors, total=job.gpus, key="gpus", step=step, data_divides=batch)


def batch_product(job: Job, values: dict[str, Any]) -> Product:
    """The factors of the batch that `values` holds, against `global_batch`."""
    factors = {name: values[name] for name in BATCH_FACTORS if name in values}
    total = job.training.global_batch
    return Product(factors=factors, total=total, key="global_batch", data_divides=job.gpus)


def world_is_product(job: Job, layout: LayoutLike) -> Any:
    """The product data × tensor × pipeline × context is the number of GPUs."""
    return layout.data * layout.tensor * layout.pipeline * layout.context == job.gpus


def batch_is_product(job: Job, layout: LayoutLike) -> Any:
    """The product micro_batch × gradient_accumulation × data is the global batch."""
    return layout.micro_batch * layout.gradient_accumulation * layout.data == job.training.global_batch


def _explain_world(job: Job, layout: Layout) -> tuple[str, str]:
    product = world_product(job, layout.to_dict())
    return f"{product.describe()} is not gpus: {job.gpus}", product.hint(whole=True)


def _explain_batch(job: Job, layout: Layout) -> tuple[str, str]:
    product = batch_product(job, layout.to_dict())
    return f"{product.describe()} is not global_batch: {job.training.global_batch}", product.hint(whole=True)


def _world_rule(name: str, source: str, of: tuple[Software, ...]) -> LayoutRule:
    return LayoutRule(
        id=name,
        severity=Severity.ERROR,
        source=source,
        variables=WORLD_FACTORS,
        holds=world_is_product,
        explain=_explain_world,
        of=of,
    )


def _batch_rule(name: str, source: str, of: tuple[Software, ...]) -> LayoutRule:
    return LayoutRule(
        id=name,
        severity=Severity.ERROR,
        source=source,
        variables=BATCH_FACTORS,
        holds=batch_is_product,
        explain=_explain_batch,
        of=of,
    )


WORLD_RULES: tuple[LayoutRule, ...] = (
    _world_rule("MLM001", megatron_lm("training/arguments.py:432"), ("Megatron-LM",)),
    _world_rule("MDS002", megatron_deepspeed("megatron/arguments.py:104"), ("Megatron-DeepSpeed",)),
    _world_rule("TP002", deepspeed("utils/groups.py:105"), ("AutoTP",)),
)

BATCH_RULES: tuple[LayoutRule, ...] = (
    _batch_rule("MLM002", megatron_lm("core/num_microbatches_calculator.py:381"), ("Megatron-LM",)),
    _batch_rule("MDS008", megatron_deepspeed("megatron/microbatches.py:64"), ("Megatron-DeepSpeed",)),
    _batch_rule("BATCH001", deepspeed("runtime/config.py:937"), ("AutoTP",)),
)

IDENTITY_RULES: tuple[LayoutRule, ...] = (*WORLD_RULES, *BATCH_RULES)
