"""Answers as plain data: what `plan.json` and `dsgen plan --format json` hold, described by `plan.schema.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import PurePath

from ..estimate.model_size import parameter_count
from ..findings import Finding
from ..job.records import Calibration, Cluster, Job
from ..version import __version__
from .plan import Infeasible, Plan, SearchResult

MFU_CONVENTION = "model FLOPs count causal attention as half and no recomputation; over the dense datasheet peak"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The whole run, from its length in tokens and the estimated step time; without restarts or evaluation."""

    tokens: float
    steps: int
    duration_s: float
    gpu_hours: float
    cost: float | None  #: in the currency of the cluster's price; `None` when that isn't known


def run_of(plan: Plan) -> Run | None:
    """How long `plan` trains and what it costs; `None` when the job doesn't say how many tokens."""
    job, tokens = plan.job, plan.job.training.duration_tokens
    if tokens is None:
        return None
    steps = -(-round(tokens) // job.training.tokens_per_step)
    hours = steps * float(plan.step_time.total_s) / 3600
    price = job.cluster.price_per_node_hour
    return Run(
        tokens=tokens,
        steps=steps,
        duration_s=hours * 3600,
        gpu_hours=hours * job.gpus,
        cost=None if price is None else hours * price * job.nodes,
    )


def plan_document(plan: Plan) -> dict[str, object]:
    """One plan, whole: the job as it was resolved, the layout, the estimates and the reasons."""
    run = run_of(plan)
    return {
        "dsgen_version": __version__,
        "job": _job(plan.job),
        "layout": plan.layout.to_dict(),
        "batch": _batch(plan),
        "memory": {**plan.memory.to_dict(), "headroom_fraction": plan.job.headroom},
        "step_time": plan.step_time.to_dict(),
        "uncertainty": plan.uncertainty.to_dict(),
        "calibration": _calibration(plan.job.calibration),
        "throughput": {**plan.throughput.to_dict(), "mfu_convention": MFU_CONVENTION},
        "run": None if run is None else {f.name: getattr(run, f.name) for f in fields(run)},
        "reasons": list(plan.reasons),
        "findings": [_finding(finding) for finding in plan.findings],
    }


def search_document(answer: SearchResult | Infeasible) -> dict[str, object]:
    """The answer of a search: ranked plans, or why there is none and what would bring one."""
    counts: dict[str, object] = {"considered": answer.considered, "rejected_by": _by_count(answer.rejected_by)}
    if isinstance(answer, Infeasible):
        return {"infeasible": {**counts, **_obstacle(answer)}}
    return {
        **counts,
        "feasible": answer.feasible,
        "plans": [plan_document(plan) for plan in answer.plans],
        "alternatives": {name: plan_document(plan) for name, plan in answer.alternatives.items()},
    }


def _calibration(calibration: Calibration) -> dict[str, object] | None:
    """The calibration in use, by its file's name alone; `None` where the shipped constants hold."""
    if not calibration.source:
        return None
    return {
        "file": PurePath(calibration.source).name,
        "runs": calibration.runs,
        "factors": dict(calibration.factors),
        "memory_factor": calibration.memory_factor,
    }


def _finding(finding: Finding) -> dict[str, object]:
    """A finding with its file's name alone: the folder is no part of the plan."""
    return {**finding.to_dict(), "path": PurePath(finding.where.path).name}


def _obstacle(answer: Infeasible) -> dict[str, object]:
    return {
        "binding_rule": answer.binding_rule,
        "nearest": None if answer.nearest is None else plan_document(answer.nearest),
        "suggestions": [
            {"path": s.path, "value": s.value, "text": s.text, "plan": plan_document(s.plan)}
            for s in answer.suggestions
        ],
    }


def _by_count(rejected_by: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(rejected_by.items(), key=lambda item: (-item[1], item[0])))


def _batch(plan: Plan) -> dict[str, object]:
    """Both product identities, with their factors."""
    layout = plan.layout
    return {
        "global_batch": layout.global_batch,
        "micro_batch": layout.micro_batch,
        "gradient_accumulation": layout.gradient_accumulation,
        "data": layout.data,
        "world": layout.world,
        "tokens_per_step": layout.global_batch * plan.job.training.sequence_length,
    }


def _job(job: Job) -> dict[str, object]:
    training = job.training
    return {
        "name": job.name,
        "framework": job.framework.name,
        "deepspeed_version": ".".join(map(str, job.deepspeed_version)),
        "gpus": job.gpus,
        "nodes": job.nodes,
        "target": job.launch.target,
        "model": {
            "name": job.model.name,
            "family": job.model.family,
            "parameters": parameter_count(job.model),
            "layers": job.model.layers,
            "hidden": job.model.hidden,
            "heads": job.model.heads,
            "vocab": job.model.vocab,
        },
        "cluster": _cluster(job.cluster),
        "training": {f.name: getattr(training, f.name) for f in fields(training)},
        "pinned": {f.name: value for f in fields(job.pins) if (value := getattr(job.pins, f.name)) is not None},
    }


def _cluster(cluster: Cluster) -> dict[str, object]:
    return {
        "name": cluster.name,
        "accelerator": cluster.accelerator.name,
        "accelerators_per_node": cluster.accelerators_per_node,
        "network": cluster.network,
        "network_bytes_per_s_per_node": cluster.network_bytes_per_s_per_node,
        "price_per_node_hour": cluster.price_per_node_hour,
        "source": cluster.source,
    }
