"""The two products that every layout satisfies: the world's size and the global batch.

The search meets them by construction; a layout that the user pinned may not.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm, prod
from typing import Any

from ...estimate.layout import Layout, LayoutLike
from ...findings import ERROR
from ...job.records import Job
from ...rule import Arguments, Rule
from ..numbers import divisors, listed, nearest, neighbours
from ..planned import layout_rule
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


def _explain_world(job: Job, layout: Layout) -> tuple[str, str]:
    product = world_product(job, layout.to_dict())
    return f"{product.describe()} is not gpus: {job.gpus}", product.hint(whole=True)


@layout_rule(
    "MLM001", ERROR, "init", megatron_lm("training/arguments.py:432"), of=("Megatron-LM",), arguments=Arguments()
)
@layout_rule(
    "MDS002",
    ERROR,
    "init",
    megatron_deepspeed("megatron/arguments.py:104"),
    of=("Megatron-DeepSpeed",),
    arguments=Arguments(),
)
@layout_rule("TP002", ERROR, "init", deepspeed("utils/groups.py:105"), WORLD_FACTORS, _explain_world, of=("AutoTP",))
def world_is_product(job: Job, layout: LayoutLike) -> Any:
    """The product data × tensor × pipeline × context is the number of GPUs.

    Prevents: The framework stops at start: the world size is not divisible by the product of the parallel sizes.
    Fix: leave out one of data, tensor, pipeline and context, which then follows from the others
    """
    return layout.data * layout.tensor * layout.pipeline * layout.context == job.gpus


def _explain_batch(job: Job, layout: Layout) -> tuple[str, str]:
    product = batch_product(job, layout.to_dict())
    return f"{product.describe()} is not global_batch: {job.training.global_batch}", product.hint(whole=True)


@layout_rule(
    "MLM002",
    ERROR,
    "init",
    megatron_lm("core/num_microbatches_calculator.py:381"),
    of=("Megatron-LM",),
    arguments=Arguments(
        unless=("--decrease-batch-size-if-needed", "--rampup-batch-size", "--step-batch-size-schedule")
    ),
)
@layout_rule(
    "MDS008",
    ERROR,
    "init",
    megatron_deepspeed("megatron/microbatches.py:64"),
    of=("Megatron-DeepSpeed",),
    arguments=Arguments(unless=("--rampup-batch-size",)),
)
@layout_rule(
    "BATCH001", ERROR, "parse", deepspeed("runtime/config.py:937"), BATCH_FACTORS, _explain_batch, of=("AutoTP",)
)
def batch_is_product(job: Job, layout: LayoutLike) -> Any:
    """The product micro_batch × gradient_accumulation × data is the global batch.

    Prevents: Megatron stops at start: the global batch size is not divisible by micro batch size times data parallel
    size; DeepSpeed: train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size.
    Fix: leave out gradient_accumulation, which then follows from the others; micro_batch × data divides global_batch
    """
    return layout.micro_batch * layout.gradient_accumulation * layout.data == job.training.global_batch


WORLD_RULES: tuple[Rule, ...] = (world_is_product, *world_is_product.also)
BATCH_RULES: tuple[Rule, ...] = (batch_is_product, *batch_is_product.also)
