"""What is left of a plan after nodes are lost: the smaller GPU counts that keep its batch and its model's layout.

Only the number of replicas changes, and with it the accumulation; a checkpoint of the one continues on the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..findings import Finding, Severity
from .feasible import make_plan
from .plan import Plan

#: The share of the nodes down to which counts are listed; below it, only the next one, where there is none above.
SMALLEST_SHARE = 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class Spare:
    """A smaller count of nodes with the same batch and the same layout of each replica."""

    plan: Plan
    lost_from: int  #: with so many nodes lost, and up to `lost_to`, this is the largest count that works
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
class Refused:
    """A smaller count that keeps both products, and breaks a rule or doesn't fit."""

    nodes: int
    finding: Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Spares:
    """The smaller counts of a plan, largest first."""

    plan: Plan
    counts: tuple[Spare, ...]
    refused: tuple[Refused, ...]

    def to_dict(self) -> dict[str, object]:
        """A part of `dsgen plan --format json`, described by `schemas/plan.schema.json`."""
        refused = [{"nodes": each.nodes, "rule": each.finding.rule} for each in self.refused]
        return {
            "nodes": self.plan.job.nodes,
            "counts": [count.to_dict() for count in self.counts],
            "refused": refused,
        }


def spare_nodes(plan: Plan) -> Spares:
    """The counts of nodes, from one less than the plan's, that keep its batch and each replica's layout."""
    counts: list[Spare] = []
    refused: list[Refused] = []
    nodes, larger = plan.job.nodes, plan.job.nodes
    for smaller in _with_fewer_replicas(plan):
        left = smaller.job.nodes
        if left < SMALLEST_SHARE * nodes and counts:
            break
        broken = next((finding for finding in smaller.findings if finding.severity is Severity.ERROR), None)
        if broken is not None:
            refused.append(Refused(nodes=left, finding=broken))
            continue
        rate = float(plan.step_time.total_s) / float(smaller.step_time.total_s)
        counts.append(Spare(plan=smaller, lost_from=nodes - larger + 1, lost_to=nodes - left, throughput=rate))
        larger = left
    return Spares(plan=plan, counts=tuple(counts), refused=tuple(refused))


def _with_fewer_replicas(plan: Plan) -> Iterator[Plan]:
    """The plan on fewer whole nodes, where the replicas divide the batch, largest first; rules may be broken."""
    job, layout = plan.job, plan.layout
    node, replica = job.cluster.accelerators_per_node, layout.world // layout.data
    passes = job.training.global_batch // layout.micro_batch
    for data in range(layout.data - 1, 0, -1):
        if data * replica % node == 0 and passes % data == 0:
            smaller = replace(layout, data=data, gradient_accumulation=passes // data)
            yield make_plan(replace(job, gpus=data * replica), smaller)
