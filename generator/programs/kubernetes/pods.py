"""The pods of a Kubernetes job: which there are, how many, and what each asks for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ...facts.yaml_document import YamlDocument

#: API version of each kind that is read, as of the schemas that are carried.
API_VERSIONS: Final = {
    "PyTorchJob": "kubeflow.org/v1",
    "TrainJob": "trainer.kubeflow.org/v1alpha1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
}
#: Resources of which a process each is started; not network devices.
GPU_RESOURCE: Final = re.compile(r"(?:nvidia\.com/(?:gpu|mig-.+)|amd\.com/gpu|habana\.ai/gaudi\d?|gpu\.intel\.com/.+)")
_CONTAINER: Final = "pytorch"  # the one that a PyTorchJob's controller looks for


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """Pods that are alike."""

    name: str
    at: str  #: where they are described
    count_at: str  #: where their number is written
    count: int | None
    pod: str  #: where their specification is; of a TrainJob, where the trainer's is
    container: str  #: where the container that trains is
    resources: str  #: where its resources are
    gpus: int | None  #: of one pod; None where nothing is written, or no number


def roles_of(job: YamlDocument, kind: str) -> tuple[Role, ...]:
    """The pods of a job."""
    return tuple({"PyTorchJob": _of_pytorch_job, "TrainJob": _of_train_job, "JobSet": _of_job_set}[kind](job))


def trainers_of(roles: tuple[Role, ...], kind: str) -> tuple[Role, ...]:
    """The pods that are one training; of a JobSet, whose jobs may do different things, those with most GPUs."""
    return (max(roles, key=lambda role: role.gpus or 0),) if kind == "JobSet" and roles else roles


def containers_of(job: YamlDocument, pod: str, *lists: str) -> Iterator[tuple[str, dict[str, object]]]:
    """Each container of a pod's specification, with its place."""
    for name in lists or ("containers",):
        items = job.value(f"{pod}/{name}")
        for index, item in enumerate(items if isinstance(items, list) else ()):
            if isinstance(item, dict):
                yield f"{pod}/{name}/{index}", item


def _of_pytorch_job(job: YamlDocument) -> Iterator[Role]:
    for name, at, value in job.entries("spec/pytorchReplicaSpecs"):
        if isinstance(value, dict):
            pod = f"{at}/template/spec"
            found = list(containers_of(job, pod))
            named = [place for place, container in found if container.get("name") == _CONTAINER]
            container = next(iter(named or [place for place, _ in found]), f"{pod}/containers/0")
            yield _role(job, str(name), at, f"{at}/replicas", _count(job, f"{at}/replicas"), pod, container)


def _of_train_job(job: YamlDocument) -> Iterator[Role]:
    at = "spec/trainer"
    count = job.integer(f"{at}/numNodes")  # else the runtime's
    resources = f"{at}/resourcesPerNode"
    yield Role(
        name="trainer",
        at=at,
        count_at=f"{at}/numNodes",
        count=count,
        pod=at,
        container=at,
        resources=resources,
        gpus=_gpus(job, resources),
    )


def _of_job_set(job: YamlDocument) -> Iterator[Role]:
    items = job.value("spec/replicatedJobs")
    for index, item in enumerate(items if isinstance(items, list) else ()):
        at = f"spec/replicatedJobs/{index}"
        pod, pods = f"{at}/template/spec/template/spec", f"{at}/template/spec/parallelism"
        jobs, each = _count(job, f"{at}/replicas"), _count(job, pods)
        count = jobs * each if jobs is not None and each is not None else None
        name = str(item.get("name")) if isinstance(item, dict) else str(index)
        found = [place for place, _ in containers_of(job, pod)]
        with_gpus = [place for place in found if _gpus(job, f"{place}/resources")]
        container = next(iter(with_gpus or found), f"{pod}/containers/0")
        yield _role(job, name, at, pods, count, pod, container)


def _role(job: YamlDocument, name: str, at: str, count_at: str, count: int | None, pod: str, container: str) -> Role:
    resources = f"{container}/resources"
    return Role(
        name=name,
        at=at,
        count_at=count_at,
        count=count,
        pod=pod,
        container=container,
        resources=resources,
        gpus=_gpus(job, resources),
    )


def _count(job: YamlDocument, name: str) -> int | None:
    """A number, 1 where none is written; None where it is no number."""
    return job.integer(name) if job.value(name) is not None else 1


def gpu_requests(job: YamlDocument, resources: str) -> Iterator[tuple[str, str, int | None]]:
    """Resource, place and number of each request for accelerators; None where it is no number."""
    for part in ("limits", "requests"):
        for name, at, value in job.entries(f"{resources}/{part}"):
            if isinstance(name, str) and GPU_RESOURCE.fullmatch(name):
                number = int(value) if isinstance(value, str) and value.isdecimal() else value
                yield name, at, number if isinstance(number, int) and not isinstance(number, bool) else None


def _gpus(job: YamlDocument, resources: str) -> int | None:
    found = {number for _, _, number in gpu_requests(job, resources)}
    return found.pop() if len(found) == 1 else None
