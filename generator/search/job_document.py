"""What a plan repeats of its job, as plain data: part of `plan.json`, described by `plan.schema.json`."""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import PurePath
from typing import Final

from ..estimate.model_size import parameter_count
from ..findings import Finding
from ..job.records import Calibration, Cluster, Job

#: The run has these in its own terms.
_NOT_SHOWN: Final = ("duration_steps", "duration_epochs")


def job_document(job: Job) -> dict[str, object]:
    """The job as it was resolved."""
    training = job.training
    return {
        "name": job.name,
        "framework": job.framework.name,
        "deepspeed_version": ".".join(map(str, job.deepspeed_version)),
        "gpus": job.gpus,
        "nodes": job.nodes,
        "target": job.launch.target,
        "script": job.launch.script,
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
        "training": {
            **{f.name: getattr(training, f.name) for f in fields(training) if f.name not in _NOT_SHOWN},
            "lora": asdict(training.lora) if training.lora else None,
            "batch_ramp": asdict(training.batch_ramp) if training.batch_ramp else None,
        },
        "data": {**asdict(job.data), "path": list(job.data.path)},
        "output": asdict(job.output),
        "reliability": asdict(job.reliability),
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


def calibration_document(calibration: Calibration) -> dict[str, object] | None:
    """The calibration in use, by the name of its file; `None` where the shipped constants hold."""
    if not calibration.source:
        return None
    return {
        "file": PurePath(calibration.source).name,
        "runs": calibration.runs,
        "factors": dict(calibration.factors),
        "memory_factor": calibration.memory_factor,
    }


def finding_document(finding: Finding) -> dict[str, object]:
    """A finding with the name of its file: the folder is no part of the plan."""
    return {**finding.to_dict(), "path": PurePath(finding.where.path).name}
