"""A Kubernetes job's own options."""

from __future__ import annotations

from ...findings import WARNING, Violations
from ...job.records import Job
from ...rules.planned import jobs
from ...rules.violations import violation
from .kinds import OF_RUNTIME


@jobs.rule(
    "KUB036",
    WARNING,
    "silent",
    "kubeflow/trainer pkg/apis/trainer/v1alpha1/trainjob_types.go (TrainJobSpec, Trainer) @ v2.3.0",
)
def runtime_has_the_fields_of_pods(job: Job) -> Violations:
    """What a TrainJob has no field for is set in its runtime.
    Prevents: No error: pods run without it.
    Fix: set it in the ClusterTrainingRuntime, or use launch.kubernetes.kind: PyTorchJob"""
    options, target = job.launch.options, job.launch.target
    if target != "kubernetes" or options.get("kind") != "TrainJob":
        return
    for key in OF_RUNTIME:
        if options.get(key):
            message = f"launch.kubernetes.{key} has no field in a TrainJob and isn't written"
            hint = "set it in the ClusterTrainingRuntime, or use kind: PyTorchJob"
            yield violation(job, f"/launch/{target}/{key}", message, hint)
