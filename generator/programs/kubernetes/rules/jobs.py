"""Kubernetes jobs against the custom resource definitions and the checks of their controllers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ....findings import ERROR, WARNING, Violation, Violations
from ....job.wording import show
from ....rules.sources import derived, training_operator
from ....rules.violations import suggest, violation
from ...cluster_jobs import Difference, differences_of, to_fill
from ...rule import subject
from ...submission import Submission
from ..job import KubernetesJob

_SCHEMAS: Final = (
    "kubeflow/trainer manifests/base/crds @ v1.9.4 and v2.3.0; kubernetes-sigs/jobset config/components/crd @ v0.12.0"
)
_ROLES: Final = ("Master", "Worker")
_LABEL: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_LONGEST: Final = 63


@subject("Kubernetes job")
def jobs(submission: Submission) -> Iterator[KubernetesJob]:
    """The jobs of a submission."""
    return iter(submission.kubernetes_jobs)


@subject("Kubernetes job")
def _differences(submission: Submission) -> Iterator[Difference]:
    for job in jobs(submission):
        yield from differences_of(job, "kubernetes", job.kind_of_job, f"a {job.kind_of_job}", "kubectl")


@_differences.rule("KUB001", ERROR, "submit", _SCHEMAS)
def keys_are_known(difference: Difference) -> Violations:
    """Every key of a job is one that its kind has, at every level.

    Prevents: strict decoding error: unknown field. A warning where another release may have it.
    Fix: correct the key, or remove it"""
    if difference.is_key:
        yield difference.violation()


@_differences.rule("KUB002", ERROR, "submit", _SCHEMAS)
def values_have_their_types(difference: Difference) -> Violations:
    """Values have the types of the custom resource definition, and what it requires is there.

    Prevents: Invalid value: "integer": spec.nprocPerNode in body must be of type string. A warning for a name that
    another release may have.
    Fix: put numbers and truth values in quotes where text is expected"""
    if not difference.is_key:
        yield difference.violation()


@jobs.rule("KUB003", ERROR, "submit", training_operator("webhooks/pytorch/pytorchjob_webhook.go:79"))
def name_is_a_label(job: KubernetesJob) -> Violations:
    """A job's name is a label as of DNS: small letters, digits and dashes, a letter first, at most 63.

    Prevents: metadata.name: Invalid value: should match: a DNS-1035 label.
    Fix: write the name in small letters, with dashes"""
    value = job.text("metadata/name")
    if value is not None and not to_fill(value) and not (_LABEL.fullmatch(value) and len(value) <= _LONGEST):
        message = f"metadata.name is {show(value)}, not a label of small letters, digits and dashes"
        plain = re.sub(r"[^a-z0-9]+", "-", value.lower()).strip("-")[:_LONGEST]
        plain = plain if plain[:1].isalpha() else f"job-{plain}".rstrip("-")
        yield violation(job, "metadata/name", message, f"set name to {plain}")


@jobs.rule("KUB004", ERROR, "submit", training_operator("webhooks/pytorch/pytorchjob_webhook.go:130"))
def roles_are_known(job: KubernetesJob) -> Violations:
    """A PyTorchJob has one Master at most, and Workers.

    Prevents: Unsupported value; or Forbidden: must be 1.
    Fix: use Master with replicas: 1, and Worker for the other nodes"""
    for role in job.roles if job.kind_of_job == "PyTorchJob" else ():
        known = next((name for name in _ROLES if name.lower() == role.name.lower()), None)
        if known is None:
            message = f"pytorchReplicaSpecs has {show(role.name)}; a PyTorchJob has Master and Worker"
            yield Violation(job.locate_key(role.at), message, suggest(role.name, _ROLES))
        elif role.count is not None and (role.count < 1 or (known == "Master" and role.count > 1)):
            right = "1" if known == "Master" else "at least 1"
            message = f"{role.name} has replicas: {role.count}; it must be {right}"
            hint = "set replicas to 1, and add the others to Worker" if role.count > 1 else "set replicas to 1"
            yield violation(job, role.count_at, message, hint if known == "Master" or role.count < 1 else None)


_POLICIES: Final = {
    "PyTorchJob": ("Always", "OnFailure", "Never", "ExitCode"),
    "JobSet": ("OnFailure", "Never"),
}


@jobs.rule("KUB005", ERROR, "launcher", derived("the controller makes pods with it, and the API server refuses them"))
def restart_policy_is_known(job: KubernetesJob) -> Violations:
    """restartPolicy is Always, OnFailure, Never or ExitCode in a PyTorchJob, and OnFailure or Never in a JobSet.

    Prevents: No pod is created: Unsupported value: supported values: "OnFailure", "Never".
    Fix: use OnFailure or Never"""
    for role in job.roles:
        at = f"{role.at if job.kind_of_job == 'PyTorchJob' else role.pod}/restartPolicy"
        value, known = job.text(at), _POLICIES.get(job.kind_of_job, ())
        if known and value and not to_fill(value) and value not in known:
            message = f"restartPolicy is {show(value)}; a {job.kind_of_job} takes {', '.join(known)}"
            yield violation(job, at, message, suggest(value, known))


@jobs.rule("KUB006", WARNING, "silent", training_operator("apis/kubeflow.org/v1/common_types.go:167"))
def clean_pod_policy_is_known(job: KubernetesJob) -> Violations:
    """runPolicy.cleanPodPolicy is Running, All or None.

    Prevents: No error: the pods of a finished job keep their GPUs.
    Fix: use Running"""
    value = job.value("spec/runPolicy/cleanPodPolicy")
    if isinstance(value, str) and value not in ("Running", "All", "None", "") and not to_fill(value):
        message = f"cleanPodPolicy is {show(value)}, which the controller does not know"
        yield violation(job, "spec/runPolicy/cleanPodPolicy", message, suggest(value, ("Running", "All", "None")))


@jobs.rule("KUB007", ERROR, "submit", training_operator("core/job.go:82 (PastActiveDeadline)"))
def deadline_is_positive(job: KubernetesJob) -> Violations:
    """A deadline is a number of seconds above 0, and backoffLimit is not negative.

    Prevents: Invalid value: must be greater than or equal to 0; or a job that ends as soon as it starts.
    Fix: write seconds"""
    for name in ("spec/runPolicy/activeDeadlineSeconds", "spec/activeDeadlineSeconds", "spec/runPolicy/backoffLimit"):
        value, least = job.integer(name), 0 if name.endswith("backoffLimit") else 1
        if value is not None and value < least:
            key = name.rpartition("/")[2]
            yield violation(job, name, f"{key} is {value}; the least is {least}", f"set {key} to {least} or more")
