"""An elastic job: one plan for each count of GPUs that it may get, with the same batch and the same
checkpoint.

Tensor, pipeline, context and expert parallelism, the ZeRO stage and what else a checkpoint is cut
by are those of one plan; only the replicas, the micro batch, the accumulation and what is
recomputed change from count to count.

**Source**: Megatron-LM's distributed checkpoints keep model parallelism unless saved with
`--dist-ckpt-optim-fully-reshardable`, and take any number of replicas
(docs/api-guide/core/dist_checkpointing.md @ core_v0.16.1); ZeRO's are refused by another number of
replicas unless made universal (DeepSpeed, runtime/engine.py:4750 @ 0.19.8). Spares are the smaller
counts of nodes on which one plan's replicas go on so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from ..dataclass import dataclass
from ..estimate.layout import Layout
from ..findings import Finding, Severity
from ..job.records import Job
from .choice import ranking
from .feasible import Feasible, feasible_layouts, make_plan
from .plan import Infeasible, Plan, SearchResult
from .refine import refined
from .search import obstacle, search

#: The share of the nodes down to which counts are listed; below it, only the next one, where there
#: is none above.
SMALLEST_SHARE = 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class Spare:
    """A smaller count of nodes with the same batch and the same layout of each replica."""

    plan: Plan
    #: with so many nodes lost, and up to `lost_to`, this is the largest count that works
    lost_from: int
    lost_to: int  #: with so many nodes lost none is idle
    throughput: float  #: as a share of the whole plan's

    def to_dict(self) -> dict[str, object]:
        """Plain data."""
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
    """The smaller counts of a plan, largest first."""

    plan: Plan
    counts: tuple[Spare, ...]
    #: counts that keep both products, and break a rule or don't fit
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
    """The counts of nodes, from one less than the plan's, that keep its batch and each replica's
    layout.
    """
    job, layout = plan.job, plan.layout
    counts: list[Spare] = []
    refused: list[tuple[int, Finding]] = []
    larger, passes = job.nodes, job.training.global_batch // layout.micro_batch
    replica = layout.world // layout.data
    for data in range(layout.data - 1, 0, -1):
        if data * replica % job.cluster.accelerators_per_node or passes % data:
            continue
        fewer = replace(layout, data=data, gradient_accumulation=passes // data)
        smaller = make_plan(replace(job, gpus=data * replica), fewer)
        left = smaller.job.nodes
        if left < SMALLEST_SHARE * job.nodes and counts:
            break
        broken = next(
            (finding for finding in smaller.findings if finding.severity is Severity.ERROR), None
        )
        if broken is not None:
            refused.append((left, broken))
            continue
        rate = float(plan.step_time.total_s) / float(smaller.step_time.total_s)
        lost = {"lost_from": job.nodes - larger + 1, "lost_to": job.nodes - left}
        counts.append(Spare(plan=smaller, **lost, throughput=rate))
        larger = left
    return Spares(plan=plan, counts=tuple(counts), refused=tuple(refused))


#: Fields that the files of a checkpoint are cut by; the second part only where the plan uses it.
_CUT_BY: Final = ("tensor", "pipeline", "virtual_pipeline", "context", "expert", "zero_stage")
_CUT_BY_TOO: Final = (
    "expert_tensor",
    "first_stage_layers",
    "last_stage_layers",
    "zero_copies",
    "zero_hpz",
)
_CANDIDATES: Final = 60  #: of the best plans on the most GPUs
#: Step time over the best, on the most GPUs, of a plan that works on more counts.
_SLOWER: Final = 1.1
#: Distance to another batch that suits more counts, as a share of the batch.
_NEARBY: Final = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Elastic:
    """The plans of an elastic job, most GPUs first, and the counts that have none."""

    answer: SearchResult  #: on the most GPUs
    plans: tuple[Plan, ...]
    left_out: Mapping[int, str]  #: counts without a plan, and why

    @property
    def better_batch(self) -> tuple[int, tuple[int, ...]] | None:
        """The batch nearby that is divided on the most counts, and these, where they are more; they
        need not fit.
        """
        batch, layout = self.plans[0].job.training.global_batch, self.plans[0].layout
        replica = layout.world // layout.data
        every = (*(plan.job.gpus for plan in self.plans), *self.left_out)
        whole = sorted((gpus for gpus in every if gpus % replica == 0), reverse=True)
        near = range(math.ceil(batch * (1 - _NEARBY)), int(batch * (1 + _NEARBY)) + 1)
        suited = {b: tuple(gpus for gpus in whole if b % (gpus // replica) == 0) for b in near}
        best = max(suited, key=lambda b: (len(suited[b]), -abs(b - batch), b))
        return (best, suited[best]) if len(suited[best]) > len(suited[batch]) else None

    def to_dict(self) -> dict[str, object]:
        """A part of `dsgen generate --format json`."""
        return {
            "gpus": [plan.job.gpus for plan in self.plans],
            "left_out": [{"gpus": gpus, "why": why} for gpus, why in self.left_out.items()],
        }


def plan_counts(
    job: Job, *, top: int = 10, bold: bool = False, explain: bool = True
) -> Elastic | Infeasible:
    """The plans of an elastic job; of `Infeasible` the one on the most GPUs, when no count has a
    plan.
    """
    left_out: dict[int, str] = {}
    for gpus in reversed(job.elastic):
        most = replace(job, gpus=gpus, elastic=())
        found = feasible_layouts(most)
        if len(found.layouts):
            break
        left_out[gpus] = _obstacle(most, found)
    else:
        answer = search(replace(job, elastic=()), top=1, bold=bold, explain=False)
        if isinstance(answer, Infeasible):
            return answer
        raise AssertionError("a count without a layout has a plan")
    layout = _shared_layout(most, found, job.elastic, bold)
    cut: dict[str, Any] = {name: getattr(layout, name) for name in _CUT_BY}
    cut |= {
        n: getattr(layout, n)
        for n in _CUT_BY_TOO
        if getattr(layout, n) != getattr(Layout(data=1), n)
    }
    shared = replace(most, pins=replace(job.pins, data=None, **cut, offload=layout.offload.label))
    answer = search(shared, top=top, bold=bold, explain=explain)
    if isinstance(answer, Infeasible):
        return answer
    plans = [answer.plans[0]]
    for fewer in (
        replace(shared, gpus=gpus) for gpus in reversed(job.elastic) if gpus < shared.gpus
    ):
        if (why := _unsuited(fewer, layout, fewer.gpus)) is None:
            # Looked at before it is searched: why there is no plan costs much to explain.
            found = feasible_layouts(fewer)
            if len(found.layouts):
                plans += search(fewer, top=1, bold=bold, explain=False).plans
                continue
            why = _obstacle(fewer, found)
        left_out[fewer.gpus] = why
    return Elastic(answer=answer, plans=tuple(plans), left_out=left_out)


def _shared_layout(job: Job, found: Feasible, counts: tuple[int, ...], bold: bool) -> Layout:
    """The layout of a plan hardly slower than the best whose replicas and batch suit the most
    counts.
    """
    found = refined(job, found, top=_CANDIDATES, bold=bold)
    rows = ranking(found, _CANDIDATES, bold=bold)
    near = [row for row in rows if found.total_s[row] <= _SLOWER * found.total_s[rows[0]]]
    layouts = [found.layouts[row] for row in near]
    return max(layouts, key=lambda each: sum(_unsuited(job, each, gpus) is None for gpus in counts))


def _unsuited(job: Job, layout: Layout, gpus: int) -> str | None:
    """The reason why the replicas of `layout` can't be on `gpus`, with the batch; `None` where they
    can.
    """
    replica, batch = layout.world // layout.data, job.training.global_batch
    if gpus % replica:
        return f"not whole replicas of {replica} GPUs"
    if batch % (gpus // replica):
        return (
            f"the number of replicas, of {replica} GPUs each, does not divide the "
            f"global batch of {batch:,}"
        )
    return None


def _obstacle(job: Job, found: Feasible) -> str:
    """The rule that leaves no plan, with its numbers where it names one layout."""
    rule, said = obstacle(job, found)
    return rule if said is None else f"{said} [{rule}]"
