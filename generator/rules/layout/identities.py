"""The two products that every layout satisfies: the world's size and the global batch.

The search meets them by construction; a layout that the user pinned may not.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import lcm, prod

from ...dataclass import dataclass
from ...estimate.layout import LayoutLike
from ...facts.facts import knows
from ...findings import ERROR
from ...job.records import Job
from ...job.wording import Vocabulary
from ...rule import InFiles, Rule
from ..planned import NO_RAMP_UP, Judgement, autotp_layouts, lm_layouts, mds_layouts
from ..violations import deepspeed, divisors, megatron_deepspeed, megatron_lm, nearest, neighbours
from .tensor import tensor_values

WORLD_FACTORS = ("data", "tensor", "pipeline", "context")
BATCH_FACTORS = ("micro_batch", "gradient_accumulation", "data")


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """Factors and what they multiply to. Partial: the known factors must divide the total."""

    factors: dict[str, int]  #: by layout key, in the order of a message
    total: int
    key: str  #: the job's key for the total
    step: int = 1  #: totals come in multiples of this (whole nodes)
    data_divides: int  #: the other product's total: `data` is a factor of both
    tensors: tuple[int, ...] = ()  #: sizes of `tensor` that all other rules allow; empty: not known
    vocabulary: Vocabulary

    @property
    def known(self) -> int:
        """The product of the factors."""
        return prod(self.factors.values())

    def describe(self) -> str:
        """`data: 3 × tensor: 8 = 24`, or `data: 3` for one factor."""
        terms = " × ".join(self.vocabulary.says(name, value) for name, value in self.factors.items())
        return terms if len(self.factors) == 1 else f"{terms} = {self.known}"

    def hint(self, whole: bool) -> str:
        """Values of one factor, and of the total, that pass; `whole` when the factors must make the total exactly."""
        totals = [self.known] if whole else neighbours(lcm(self.known, self.step), self.total)
        keeps = not self.tensors or self.factors.get("tensor", 1) in self.tensors  # else no total helps
        choices = [self._factors(whole), self.vocabulary.says(self.key, *totals) if keeps else None]
        return f"use {', or '.join(choice for choice in choices if choice)}"

    def explain(self, *, whole: bool) -> tuple[str, str]:
        """Message and hint, where the product is not the total, or where its known factors don't divide it."""
        relation = "is not" if whole else "does not divide"
        return f"{self.describe()} {relation} {self.vocabulary.says(self.key, self.total)}", self.hint(whole)

    def _factors(self, whole: bool) -> str | None:
        """Return the first factor that can be changed alone, with the nearest values that pass."""
        for name, value in self.factors.items():
            rest = self.known // value
            if self.total % rest == 0:
                room = self.total // rest
                passing = [room] if whole else divisors(room)
                if name == "data":
                    passing = [size for size in passing if self.data_divides % size == 0]
                allowed = [size for size in passing if size in self.tensors] if name == "tensor" else []
                if passing:
                    return self.vocabulary.says(name, *(allowed or nearest(passing, value, 3)))
        return None


def world_product(job: Job, values: Mapping[str, int]) -> Product:
    """The factors of the world that `values` holds, against `gpus`."""
    node = job.cluster.accelerators_per_node if knows(job, "accelerators_per_node") else job.gpus
    return Product(
        factors={name: values[name] for name in WORLD_FACTORS if name in values},
        total=job.gpus,
        key="gpus",
        step=node if job.gpus > node else 1,
        data_divides=job.training.global_batch if knows(job, "global_batch") else 0,
        tensors=tuple(tensor_values(job)),
        vocabulary=job.origin.vocabulary,
    )


def batch_product(job: Job, values: Mapping[str, int]) -> Product:
    """The factors of the batch that `values` holds, against `global_batch`."""
    return Product(
        factors={name: values[name] for name in BATCH_FACTORS if name in values},
        total=job.training.global_batch,
        key="global_batch",
        data_divides=job.gpus,
        vocabulary=job.origin.vocabulary,
    )


def _factors(layout: LayoutLike, names: tuple[str, ...]) -> dict[str, int]:
    return {name: getattr(layout, name) for name in names}


_NO_BATCH_SCHEDULE = InFiles(
    unless=("--decrease-batch-size-if-needed", "--rampup-batch-size", "--step-batch-size-schedule")
)


@lm_layouts().rule("MLM001", ERROR, "init", megatron_lm("training/arguments.py:432"), InFiles(cut=True))
@mds_layouts().rule("MDS002", ERROR, "init", megatron_deepspeed("megatron/arguments.py:104"), InFiles(cut=True))
@autotp_layouts(*WORLD_FACTORS).rule("TP002", ERROR, "init", deepspeed("utils/groups.py:105"))
def world_is_product(job: Job, layout: LayoutLike) -> Judgement:
    """The product data × tensor × pipeline × context is the number of GPUs.
    Prevents: The framework stops at start: the world size is not divisible by the product of the parallel sizes.
    Fix: leave out one of data, tensor, pipeline and context, which then follows from the others"""
    yield layout.data * layout.tensor * layout.pipeline * layout.context == job.gpus
    yield world_product(job, _factors(layout, WORLD_FACTORS)).explain(whole=True)


@lm_layouts().rule("MLM002", ERROR, "init", megatron_lm("core/num_microbatches_calculator.py:381"), _NO_BATCH_SCHEDULE)
@mds_layouts().rule("MDS008", ERROR, "init", megatron_deepspeed("megatron/microbatches.py:64"), NO_RAMP_UP)
@autotp_layouts(*BATCH_FACTORS).rule("BATCH001", ERROR, "parse", deepspeed("runtime/config.py:937"))
def batch_is_product(job: Job, layout: LayoutLike) -> Judgement:
    """The product micro_batch × gradient_accumulation × data is the global batch.
    Prevents: Megatron stops at start: the global batch size is not divisible by micro batch size times data parallel
    size; DeepSpeed: train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size.
    Fix: leave out gradient_accumulation, which then follows from the others; micro_batch × data divides global_batch"""
    yield layout.micro_batch * layout.gradient_accumulation * layout.data == job.training.global_batch
    yield batch_product(job, _factors(layout, BATCH_FACTORS)).explain(whole=True)


WORLD_RULES: tuple[Rule, ...] = (world_is_product, *world_is_product.also)
BATCH_RULES: tuple[Rule, ...] = (batch_is_product, *batch_is_product.also)
