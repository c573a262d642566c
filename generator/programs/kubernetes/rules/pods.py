"""The pods of Kubernetes jobs: their containers, devices and volumes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ....findings import ERROR, NOTE, Violation, Violations
from ....job.source import escape
from ....job.wording import show
from ....rules.sources import derived, kubernetes, training_operator
from ....rules.violations import violation
from ...cluster_jobs import to_fill
from ...rule import subject
from ...submission import Submission
from ..job import KubernetesJob
from ..pods import Role, containers_of
from .jobs import jobs

_CONTAINERS: Final = ("initContainers", "containers")
_FRACTION: Final = re.compile(r"\d*\.\d*[1-9]\d*|\d+m")


@dataclass(frozen=True, slots=True)
class _Container:
    """A container of a pod whose specification is in the file."""

    job: KubernetesJob
    role: Role
    at: str
    name: object


@subject("Kubernetes job")
def _containers(submission: Submission) -> Iterator[_Container]:
    for job in jobs(submission):
        for role in job.roles if job.kind_of_job != "TrainJob" else ():
            for at, container in containers_of(job, role.pod, *_CONTAINERS):
                yield _Container(job, role, at, container.get("name"))


@subject("Kubernetes job")
def _resources(submission: Submission) -> Iterator[tuple[KubernetesJob, str]]:
    """Each place of requests and limits: of a TrainJob, those of a node."""
    for job in jobs(submission):
        yield from ((job, role.resources) for role in job.roles if job.kind_of_job == "TrainJob")
    yield from ((one.job, f"{one.at}/resources") for one in _containers(submission))


@jobs.rule("KUB010", ERROR, "submit", training_operator("webhooks/pytorch/pytorchjob_webhook.go:149"))
def a_container_is_named_pytorch(job: KubernetesJob) -> Violations:
    """One container of each role of a PyTorchJob is named pytorch: the one that trains.

    Prevents: Required value: must have at least one container with name pytorch.
    Fix: set the container's name to pytorch"""
    for role in job.roles if job.kind_of_job == "PyTorchJob" else ():
        names = [container.get("name") for _, container in containers_of(job, role.pod)]
        if names and "pytorch" not in names and not any(map(to_fill, names)):
            message = f"no container of {role.name} is named pytorch, but {', '.join(map(show, names))}"
            yield violation(job, f"{role.container}/name", message, "set name to pytorch")


@_containers.rule("KUB011", ERROR, "submit", kubernetes("core/validation/validation.go (validateContainerCommon)"))
def containers_have_an_image(container: _Container) -> Violations:
    """Every container has an image.

    Prevents: spec.containers[0].image: Required value. A note where the key is there, to be filled in.
    Fix: add image"""
    job, at = container.job, f"{container.at}/image"
    if not job.value(at):
        message = f"the container {show(container.name)} of {container.role.name} has no image"
        empty = job.has(at) and job.value(at) is None
        yield violation(job, container.at, message, "add image: REGISTRY/NAME:TAG", severity=NOTE if empty else ERROR)


@_resources.rule("KUB012", ERROR, "launcher", kubernetes("core/validation/validation.go (resources)"))
def devices_are_whole_and_limited(found: tuple[KubernetesJob, str]) -> Violations:
    """Devices are whole numbers with a limit, and a request for them is the same number.

    Prevents: No pod is created: must be equal to nvidia.com/gpu limit; must be an integer.
    Fix: write the number under limits; requests may be left out"""
    job, at = found
    limits = dict[str, object]()
    for name, place, value in job.entries(f"{at}/limits"):
        limits[str(name)] = "$" if value is None else value
        yield from _whole(job, str(name), place, value)
    for name, place, value in job.entries(f"{at}/requests"):
        text, limit = str(name), limits.get(str(name))
        if not _is_device(text) or value is None or to_fill(value) or to_fill(limit):
            continue
        if limit is None:
            message = f"{text} is requested, {show(value)}, and has no limit"
            yield violation(job, place, message, f"add {text}: {value} to limits")
        elif str(value) != str(limit):
            message = f"requests has {text}: {value}, and limits {limit}"
            yield violation(job, place, message, f"write {limit} in both")


def _whole(job: KubernetesJob, name: str, place: str, value: object) -> Iterator[Violation]:
    if _is_device(name) and (isinstance(value, float) or (isinstance(value, str) and _FRACTION.fullmatch(value))):
        yield violation(job, place, f"{name} is {value}; devices are whole numbers", "write a whole number")


def _is_device(name: str) -> bool:
    """Whether this is an extended resource, which can't be overcommitted."""
    domain, slash, _ = name.partition("/")
    return bool(slash) and not domain.endswith("kubernetes.io")


@_containers.rule("KUB013", ERROR, "submit", kubernetes("core/validation/validation.go (ValidateVolumeMounts)"))
def mounts_name_volumes(container: _Container) -> Violations:
    """Every volume that a container mounts is one of its pod's.

    Prevents: spec.containers[0].volumeMounts[0].name: Not found.
    Fix: add the volume, or correct the name"""
    job, pod = container.job, container.role.pod
    if job.has("spec/volumeClaimPolicies"):  # of a JobSet, whose claims are volumes of its pods
        return
    volumes, mounts = job.value(f"{pod}/volumes"), job.value(f"{container.at}/volumeMounts")
    names = [each.get("name") for each in volumes if isinstance(each, dict)] if isinstance(volumes, list) else []
    for index, mount in enumerate(mounts if isinstance(mounts, list) else ()):
        name = mount.get("name") if isinstance(mount, dict) else None
        if isinstance(name, str) and name not in names and not any(map(to_fill, (name, *names))):
            known = f"; the pod has {', '.join(map(show, names))}" if names else ""
            message = f"the mount {show(name)} is no volume of {container.role.name}{known}"
            yield violation(job, f"{container.at}/volumeMounts/{index}/name", message, f"add a volume named {name}")


_SHM: Final = derived("a container has 64 MiB of /dev/shm; NCCL and a DataLoader's workers share memory there")


@jobs.rule("KUB014", NOTE, "training", _SHM)
def shared_memory_is_there(job: KubernetesJob) -> Violations:
    """A pod with several GPUs has a volume at /dev/shm, in memory.

    Prevents: No space left on device; RuntimeError: DataLoader worker is killed by signal: Bus error. A note: not
    every program needs it.
    Fix: add an emptyDir with medium: Memory, mounted at /dev/shm"""
    for role in job.roles if job.kind_of_job != "TrainJob" else ():
        mounts = job.value(f"{role.container}/volumeMounts")
        paths = [each.get("mountPath") for each in mounts if isinstance(each, dict)] if isinstance(mounts, list) else []
        if (role.gpus or 0) > 1 and "/dev/shm" not in paths and not job.value(f"{role.pod}/hostIPC"):
            message = f"{role.name} has {role.gpus} GPUs, and nothing is mounted at /dev/shm, which has 64 MiB"
            hint = "mount an emptyDir with medium: Memory at /dev/shm"
            yield violation(job, role.container, message, hint)


_RESERVED: Final = frozenset(
    ["PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"]
)
_OF_MASTER: Final = frozenset(["MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"])


@jobs.rule("KUB015", ERROR, "submit", "kubeflow/trainer pkg/runtime/framework/plugins/torch/torch.go:76 @ v2.3.0")
def ranks_are_the_controllers(job: KubernetesJob) -> Violations:
    """The variables of the rendezvous are left to the controller.

    Prevents: spec.trainer.env: must not have reserved envs. A note where the runtime may set none, or the controller's
    value counts.
    Fix: remove them from env"""
    master = any(role.name.lower() == "master" for role in job.roles)
    reserved = {"TrainJob": _RESERVED, "PyTorchJob": _OF_MASTER if master else frozenset()}
    names = reserved.get(job.kind_of_job, frozenset())
    certain = job.text("spec/runtimeRef/name") == "torch-distributed"
    for role in job.roles:
        items = job.value(f"{role.container}/env")
        for index, item in enumerate(items if isinstance(items, list) else ()):
            name = item.get("name") if isinstance(item, dict) else None
            if name in names:
                message = f"{name} is set here, and the controller of a {job.kind_of_job} sets it for each pod"
                at = f"{role.container}/env/{index}/{escape('name')}"
                yield violation(job, at, message, "remove it", severity=ERROR if certain else NOTE)
