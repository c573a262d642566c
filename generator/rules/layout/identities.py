"""The two products that every layout satisfies, the world and the global batch; and what is known
of a layout before the search.

The search meets the products by construction; a layout that the user pinned may not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from math import lcm, prod
from typing import Any

from ...dataclass import dataclass
from ...estimate.layout import DEFAULTS, FIELDS, Layout, LayoutLike, Modules, Offload, Recompute
from ...facts.facts import UNKNOWN, knows, partial
from ...findings import ERROR
from ...job.records import Job, Pins
from ...rule import InFiles, Rule
from ...text.wording import Vocabulary
from ..planned import NO_RAMP_UP, Judgement, composed_layouts, fixed_layouts, ordinary_layouts
from ..violations import deepspeed, divisors, megatron_deepspeed, megatron_lm, nearest, neighbours
from .sequence import exchanges_heads_only
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
    #: the other product's total, which `data` has to divide too; 0, which all divide, if not known
    data_divides: int
    tensors: tuple[int, ...] = ()  #: sizes of `tensor` that all other rules allow; empty: not known
    vocabulary: Vocabulary

    @property
    def known(self) -> int:
        """The product of the factors."""
        return prod(self.factors.values())

    def explain(self, *, whole: bool) -> tuple[str, str | None]:
        """Message and hint on factors that are wrong.

        All factors are known where they are `whole`, and their product isn't the total. Else it
        doesn't divide the total.
        """
        terms = " × ".join(
            self.vocabulary.says(name, value) for name, value in self.factors.items()
        )
        product = terms if len(self.factors) == 1 else f"{terms} = {self.known}"
        relation = "is not" if whole else "does not divide"
        choices = [self._passing_factor(whole)]
        # With a tensor size that another rule refuses, another total doesn't help.
        if not self.tensors or self.factors.get("tensor", 1) in self.tensors:
            totals = [self.known] if whole else neighbours(lcm(self.known, self.step), self.total)
            choices.append(self.vocabulary.says(self.key, *totals))
        use = ", or ".join(filter(None, choices))
        return (
            f"{product} {relation} {self.vocabulary.says(self.key, self.total)}",
            f"use {use}" if use else None,
        )

    def _passing_factor(self, whole: bool) -> str | None:
        """Return the first factor that can be changed alone, with the nearest values that pass."""
        for name, value in self.factors.items():
            others = self.known // value
            if self.total % others:
                continue
            room = self.total // others
            passing = [room] if whole else divisors(room)
            if name == "data":
                passing = [size for size in passing if self.data_divides % size == 0]
            if not passing:
                continue
            values = nearest(passing, value, 3)
            if name == "tensor":
                values = [size for size in passing if size in self.tensors] or values
            return self.vocabulary.says(name, *values)
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


@composed_layouts().rule(
    "MLM001", ERROR, "init", megatron_lm("training/arguments.py:432"), InFiles(cut=True)
)
@fixed_layouts().rule(
    "MDS002", ERROR, "init", megatron_deepspeed("megatron/arguments.py:104"), InFiles(cut=True)
)
@ordinary_layouts(*WORLD_FACTORS).rule("TP002", ERROR, "init", deepspeed("utils/groups.py:105"))
def world_is_product(job: Job, layout: LayoutLike) -> Judgement:
    """The product data × tensor × pipeline × context is the number of GPUs.
    Prevents: The framework stops at start: the world size is not divisible by the product of the
    parallel sizes.
    Fix: leave out one of data, tensor, pipeline and context, which then follows from the others
    """
    yield layout.data * layout.tensor * layout.pipeline * layout.context == job.gpus
    yield world_product(job, _factors(layout, WORLD_FACTORS)).explain(whole=True)


@composed_layouts().rule(
    "MLM002",
    ERROR,
    "init",
    megatron_lm("core/num_microbatches_calculator.py:381"),
    _NO_BATCH_SCHEDULE,
)
@fixed_layouts().rule(
    "MDS008", ERROR, "init", megatron_deepspeed("megatron/microbatches.py:64"), NO_RAMP_UP
)
@ordinary_layouts(*BATCH_FACTORS, "global_batch").rule(
    "BATCH001", ERROR, "parse", deepspeed("runtime/config.py:937")
)
def batch_is_product(job: Job, layout: LayoutLike) -> Judgement:
    """The product micro_batch × gradient_accumulation × data is the global batch.
    Prevents: Megatron stops at start: the global batch size is not divisible by micro batch size
    times data parallel size; DeepSpeed: train_batch_size is not equal to micro_batch_per_gpu *
    gradient_acc_step * world_size.
    Fix: leave out gradient_accumulation, which then follows from the others; micro_batch × data
    divides global_batch
    """
    yield (
        layout.micro_batch * layout.gradient_accumulation * layout.data == job.training.global_batch
    )
    yield batch_product(job, _factors(layout, BATCH_FACTORS)).explain(whole=True)


WORLD_RULES: tuple[Rule, ...] = (world_is_product, *world_is_product.also)
BATCH_RULES: tuple[Rule, ...] = (batch_is_product, *batch_is_product.also)


RECOMPUTE = {choice.label: choice for choice in Recompute}
OFFLOAD = {choice.label: choice for choice in Offload}

#: How full or selective recomputation is done.
RECOMPUTE_DETAILS = ("recompute_layers", "recompute_group", "recompute_modules")


def pinned_values(pins: Pins) -> dict[str, Any]:
    """The keys that the user fixed, in the values of a `Layout`."""
    values = {
        f.name: getattr(pins, f.name) for f in fields(pins) if getattr(pins, f.name) is not None
    }
    for name, choices in (("recompute", RECOMPUTE), ("offload", OFFLOAD)):
        if name in values:
            values[name] = choices[values[name]]
    modules = values.pop("recompute_modules", ())
    if modules:
        values["recompute_modules"] = Modules.of(modules)
    # What is left open, but follows from a detail that is fixed.
    follows = {
        "recompute_layers": ("recompute", Recompute.FULL),
        "recompute_group": ("recompute", Recompute.FULL),
        "recompute_modules": ("recompute", Recompute.SELECTIVE),
        "offload_fraction": ("offload", Offload.OPTIMIZER),
    }
    fixed = [name for name in follows if values.get(name, DEFAULTS[name]) != DEFAULTS[name]]
    return {**dict(follows[name] for name in fixed), **values}


def implied_values(job: Job) -> dict[str, Any]:
    """The keys that leave no choice for this job, whatever is pinned."""
    implied: dict[str, Any] = {"first_stage_layers": 0, "last_stage_layers": 0}  # never searched
    if job.gpus == 1:
        implied.update(
            dict.fromkeys(
                ("data", "tensor", "pipeline", "context", "expert", "virtual_pipeline"), 1
            )
        )
    if not job.engine.has_parallel_layers:
        implied.update(pipeline=1, expert=1, sequence_parallel=False)
    if not job.engine.has("virtual_pipeline"):
        implied["virtual_pipeline"] = 1
    if not job.model.experts:
        implied.update(expert=1, expert_tensor=1)
    return implied


def known_values(job: Job) -> dict[str, Any]:
    """Return implied values, overruled by pins.

    The last factor of the world is filled in when the others are known.
    """
    known = {**implied_values(job), **pinned_values(job.pins)}
    missing = [name for name in WORLD_FACTORS if name not in known]
    if "tensor" in known and not job.engine.has("expert_tensor"):
        known.setdefault("expert_tensor", known["tensor"])
    # Who sets one of these details wants the defaults of the others.
    if any(name in known for name in RECOMPUTE_DETAILS):
        known = {**{name: DEFAULTS[name] for name in RECOMPUTE_DETAILS}, **known}
    rest = prod(known[name] for name in WORLD_FACTORS if name in known)
    if len(missing) == 1 and job.gpus % rest == 0:
        known[missing[0]] = job.gpus // rest
    if "context" in known and exchanges_heads_only(job):
        known.setdefault("context_heads", known["context"])
    return known


def whole_layout(values: dict[str, Any]) -> Layout | None:
    """Return the layout with `values`, when they leave no choice but details that have a default.

    Otherwise it returns None.
    """
    known = {**DEFAULTS, **values}
    return Layout(**known) if known.keys() >= {*FIELDS} else None


def layout_of(values: dict[str, Any]) -> Layout:
    """A layout of which no more than `values` is known."""
    return partial(Layout, **{**dict.fromkeys(FIELDS, UNKNOWN), **values})
