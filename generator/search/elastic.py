"""Elastic jobs: a plan for each number of GPUs that a job may get.

All plans of a job have the same global batch and can load one another's checkpoints. So they share
tensor, pipeline, context and expert parallelism, the ZeRO stage and whatever else a checkpoint is
cut by. The number of replicas, the micro-batch, the accumulation and the recomputation differ.

Spares are the other question here: on how many nodes fewer one plan can go on.

**Source**: Megatron-LM's distributed checkpoints keep model parallelism unless saved with
`--dist-ckpt-optim-fully-reshardable`, and take any number of replicas
(docs/api-guide/core/dist_checkpointing.md @ core_v0.16.1). ZeRO's are refused by another number of
replicas unless made universal (DeepSpeed, runtime/engine.py:4750 @ 0.19.8).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from ..dataclass import dataclass
from ..estimate.layout import Layout
from ..findings import Finding, Severity
from ..job.records import Job, Pins
from .choice import ranking
from .feasible import Feasible, feasible_layouts, make_plan
from .plan import Infeasible, Plan, SearchResult
from .refine import refined
from .search import obstacle, search

#: Spares are listed down to this share of a plan's nodes. Where there are none, the largest number
#: of nodes below it is.
SMALLEST_SHARE = 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class Spare:
    """A smaller number of nodes with the same global batch and the same layout of each replica."""

    plan: Plan
    #: Where `lost_from` to `lost_to` nodes are lost, this is the largest number that works. Where
    #: `lost_to` are, no node is idle.
    lost_from: int
    lost_to: int
    throughput: float  #: as a share of the whole plan's

    def to_dict(self) -> dict[str, object]:
        """The spare as plain values, for JSON."""
        layout, job = self.plan.layout, self.plan.job
        return {
            "nodes": job.nodes,
            "gpus": job.gpus,
            "data": layout.data,
            "gradient_accumulation": layout.gradient_accumulation,
            "nodes_lost_from": self.lost_from,
            "nodes_lost_to": self.lost_to,
            "step_time_s": float(self.plan.step_time.total_s),
            "throughput_fraction": self.throughput,
            "required_bytes": round(float(self.plan.memory.required_bytes)),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Spares:
    """The smaller numbers of nodes on which a plan can go on, largest first."""

    plan: Plan
    counts: tuple[Spare, ...]
    #: numbers of nodes that GPUs and batch divide into, each with the rule that it breaks
    refused: tuple[tuple[int, Finding], ...]

    def to_dict(self) -> dict[str, object]:
        """A part of `dsgen plan --format json`, described by `schemas/plan.schema.json`."""
        refused = [{"nodes": nodes, "rule": finding.rule} for nodes, finding in self.refused]
        return {
            "nodes": self.plan.job.nodes,
            "counts": [count.to_dict() for count in self.counts],
            "refused": refused,
        }


def spare_nodes(plan: Plan) -> Spares:
    """The smaller numbers of nodes that keep a plan's batch and the layout of each replica."""
    job, layout = plan.job, plan.layout
    counts: list[Spare] = []
    refused: list[tuple[int, Finding]] = []
    micro_batches = job.training.global_batch // layout.micro_batch
    gpus_per_replica = layout.world // layout.data
    next_larger_nodes = job.nodes

    for data in range(layout.data - 1, 0, -1):
        gpus = data * gpus_per_replica
        if gpus % job.cluster.accelerators_per_node or micro_batches % data:
            continue
        fewer_replicas = replace(layout, data=data, gradient_accumulation=micro_batches // data)
        smaller = make_plan(replace(job, gpus=gpus), fewer_replicas)
        nodes = smaller.job.nodes
        if nodes < SMALLEST_SHARE * job.nodes and counts:
            break

        errors = (f for f in smaller.findings if f.severity is Severity.ERROR)
        error = next(errors, None)
        if error is not None:
            refused.append((nodes, error))
            continue
        counts.append(
            Spare(
                plan=smaller,
                lost_from=job.nodes - next_larger_nodes + 1,
                lost_to=job.nodes - nodes,
                throughput=float(plan.step_time.total_s) / float(smaller.step_time.total_s),
            )
        )
        next_larger_nodes = nodes
    return Spares(plan=plan, counts=tuple(counts), refused=tuple(refused))


#: Fields that the files of every checkpoint are cut by.
_CHECKPOINT_FIELDS: Final = (
    "tensor",
    "pipeline",
    "virtual_pipeline",
    "context",
    "expert",
    "zero_stage",
)
#: Fields that the files are cut by where a plan doesn't have their default.
_OPTIONAL_CHECKPOINT_FIELDS: Final = (
    "expert_tensor",
    "first_stage_layers",
    "last_stage_layers",
    "zero_copies",
    "zero_hpz",
)
#: The shared layout is chosen of so many of the best plans on the most GPUs.
_CANDIDATES: Final = 60
#: None of them takes longer than so many times the best.
_SLOWEST: Final = 1.1
#: How far another global batch may be, as a share of the job's, to be suggested.
_NEARBY: Final = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Elastic:
    """The plans of an elastic job, most GPUs first, and the numbers of GPUs without a plan."""

    answer: SearchResult  #: the search on the most GPUs
    plans: tuple[Plan, ...]
    left_out: Mapping[int, str]  #: numbers of GPUs without a plan, and why

    @property
    def better_batch(self) -> tuple[int, tuple[int, ...]] | None:
        """A global batch nearby that divides on more numbers of GPUs, and these numbers.

        None where the job's own batch is as good. Whether the plans would fit isn't looked at.
        """
        batch, layout = self.plans[0].job.training.global_batch, self.plans[0].layout
        gpus_per_replica = layout.world // layout.data
        every_count = (*(plan.job.gpus for plan in self.plans), *self.left_out)
        whole_replicas = sorted(
            (gpus for gpus in every_count if gpus % gpus_per_replica == 0), reverse=True
        )

        nearby = range(math.ceil(batch * (1 - _NEARBY)), int(batch * (1 + _NEARBY)) + 1)
        counts_by_batch = {
            other: tuple(gpus for gpus in whole_replicas if other % (gpus // gpus_per_replica) == 0)
            for other in nearby
        }
        best = max(
            nearby, key=lambda other: (len(counts_by_batch[other]), -abs(other - batch), other)
        )
        is_better = len(counts_by_batch[best]) > len(counts_by_batch[batch])
        return (best, counts_by_batch[best]) if is_better else None

    def to_dict(self) -> dict[str, object]:
        """A part of `dsgen generate --format json`."""
        return {
            "gpus": [plan.job.gpus for plan in self.plans],
            "left_out": [{"gpus": gpus, "why": why} for gpus, why in self.left_out.items()],
        }


def plan_counts(
    job: Job, *, top: int = 10, bold: bool = False, explain: bool = True
) -> Elastic | Infeasible:
    """The plans of an elastic job, whose layout is chosen on the most GPUs that have a plan.

    Where no number of GPUs has one, the answer is the search's `Infeasible` on the most.
    """
    left_out: dict[int, str] = {}
    for gpus in reversed(job.elastic):
        largest = replace(job, gpus=gpus, elastic=())
        feasible = feasible_layouts(largest)
        if len(feasible.layouts):
            break
        left_out[gpus] = _obstacle_in_words(largest, feasible)
    else:
        answer = search(replace(job, elastic=()), top=1, bold=bold, explain=False)
        if isinstance(answer, Infeasible):
            return answer
        raise AssertionError("a count without a layout has a plan")

    layout = _shared_layout(largest, feasible, job.elastic, bold)
    shared = replace(largest, pins=_shared_pins(job.pins, layout))
    answer = search(shared, top=top, bold=bold, explain=explain)
    if isinstance(answer, Infeasible):
        return answer

    plans = [answer.plans[0]]
    for gpus in reversed(job.elastic):
        if gpus >= shared.gpus:
            continue
        smaller = replace(shared, gpus=gpus)
        why_not = _why_unsuited(smaller, layout, gpus)
        if why_not is None:
            # Asked before the search, which would spend long on explaining why nothing fits.
            feasible = feasible_layouts(smaller)
            if len(feasible.layouts):
                plans += search(smaller, top=1, bold=bold, explain=False).plans
                continue
            why_not = _obstacle_in_words(smaller, feasible)
        left_out[gpus] = why_not
    return Elastic(answer=answer, plans=tuple(plans), left_out=left_out)


def _shared_pins(pins: Pins, layout: Layout) -> Pins:
    """The pins with which every plan has the checkpoint of a layout; the replicas are free."""
    default = Layout(data=1)
    shared: dict[str, Any] = {name: getattr(layout, name) for name in _CHECKPOINT_FIELDS}
    for name in _OPTIONAL_CHECKPOINT_FIELDS:
        if getattr(layout, name) != getattr(default, name):
            shared[name] = getattr(layout, name)
    return replace(pins, data=None, **shared, offload=layout.offload.label)


def _shared_layout(job: Job, feasible: Feasible, counts: tuple[int, ...], bold: bool) -> Layout:
    """Of the layouts about as fast as the best, the one that works on the most numbers of GPUs."""
    candidates = refined(job, feasible, top=_CANDIDATES, bold=bold)
    rows = ranking(candidates, _CANDIDATES, bold=bold)
    slowest_s = _SLOWEST * candidates.total_s[rows[0]]
    layouts = [candidates.layouts[row] for row in rows if candidates.total_s[row] <= slowest_s]
    return max(
        layouts,
        key=lambda layout: sum(_why_unsuited(job, layout, gpus) is None for gpus in counts),
    )


def _why_unsuited(job: Job, layout: Layout, gpus: int) -> str | None:
    """Why a layout's replicas and the batch can't be divided over `gpus`; None where they can."""
    gpus_per_replica, batch = layout.world // layout.data, job.training.global_batch
    if gpus % gpus_per_replica:
        return f"not whole replicas of {gpus_per_replica} GPUs"
    if batch % (gpus // gpus_per_replica):
        return (
            f"the number of replicas, of {gpus_per_replica} GPUs each, does not divide the "
            f"global batch of {batch:,}"
        )
    return None


def _obstacle_in_words(job: Job, feasible: Feasible) -> str:
    """The rule that leaves no plan, with its message where it names one layout."""
    rule, message = obstacle(job, feasible)
    return rule if message is None else f"{message} [{rule}]"
