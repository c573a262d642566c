"""Kinds of objects whose pods may train, a row each, and the kinds that hold others.

A row says where the pods are described, how many there are, and who tells their processes of one
another. What Kubernetes itself says of a pod is the same in all of them.
"""

from __future__ import annotations

from typing import Final, Literal

from ...dataclass import dataclass

#: Who starts the ranks: the controller sets their variables; nobody does, so that a launcher has to
#: be told; or `mpirun` or Ray starts them from one pod.
Ranks = Literal["controller", "nobody", "mpirun", "ray"]

#: Variables that the controllers set: of a PyTorchJob with a master, and of a TrainJob.
OF_MASTER: Final = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")
OF_TRAINER: Final = (
    "PET_NNODES",
    "PET_NPROC_PER_NODE",
    "PET_NODE_RANK",
    "PET_MASTER_ADDR",
    "PET_MASTER_PORT",
)
EFA: Final = "vpc.amazonaws.com/efa"  #: AWS' network interfaces, as its device plugin counts them
#: Keys of `launch.kubernetes` for whose fields of pods a TrainJob has none: its runtime has them.
OF_RUNTIME: Final = ("host_network", "priority_class")
_OF_PYTORCH_JOB: Final = ("PYTHONUNBUFFERED", "PET_NNODES", "PET_NPROC_PER_NODE")
_INDEX: Final = ("JOB_COMPLETION_INDEX",)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodKind:
    """A kind of object, and where its pods are. Places are keys with slashes between them.

    A role is a set of pods that are alike, such as `Worker`. Places said to be of a role are
    relative to it.
    """

    name: str
    versions: tuple[str, ...]  #: values of `apiVersion`
    roles: tuple[str, ...]  #: pods that are alike; `*` is each entry of a mapping or a list
    template: str  #: of a role: the specification of its pods; empty where the role is one itself
    #: Of a role: the numbers whose product is how many pods it has, each 1 where it isn't written.
    counts: tuple[str, ...] = ("replicas",)
    label: str = ""  #: what a role without a name is called
    resources: str = ""  #: of a role whose resources aren't those of a container
    container: str = ""  #: name of the container that trains; else it is the first with GPUs
    command: str = ""  #: name of the role whose command starts the training; else one that trains
    script: str = ""  #: where a shell command is that the controller starts
    #: Which roles are one training: all, those with GPUs, or the one with most GPUs.
    trains: Literal["all", "with GPUs", "most GPUs"] = "all"
    processes: str = ""  #: where the processes of a pod are counted
    ranks: Ranks = "nobody"
    sets: tuple[str, ...] = ()  #: variables that the controller sets in each pod
    volumes: tuple[str, ...] = ()  #: that the controller adds to each pod
    claims: str = ""  #: where claims are that become volumes of each pod
    name_is_label: bool = True  #: whether its name becomes that of a host
    #: A pod's host is called OBJECT-ROLE-i or OBJECT-ROLE-i-j; i and j count up to these numbers of
    #: the role. Empty where hosts are called otherwise.
    numbered_by: tuple[str, ...] = ()
    subdomain: str = ""  #: where the hosts' subdomain is written; else it is the object's name
    has_schema: bool = False  #: whether schema.json has its definition
    needs_gpus: bool = False  #: whether only GPUs show that it trains: other programs use it too


#: **Source**: types of kubeflow/trainer pkg/apis @ v1.9.4 and v2.3.0; kubernetes-sigs/jobset
#: api/jobset/v1alpha2 @ v0.12.0; kubeflow/mpi-operator pkg/apis/kubeflow/v2beta1/types.go and
#: pkg/controller/mpi_job_controller.go:75-80;
#: ray-project/kuberay ray-operator/apis/ray/v1; kubernetes-sigs/lws api/leaderworkerset/v1;
#: volcano-sh/apis pkg/apis/batch/v1alpha1/job.go and its plugins env and pytorch;
#: aws/sagemaker-hyperpod-training-operator, HyperPodPyTorchJob of sagemaker.amazonaws.com/v1;
#: pytorch/elastic kubernetes/api/v1alpha1 and kubernetes/controllers, whose controller puts
#: `--nnodes` and `--rdzv_endpoint` before the arguments of each container.
KINDS: Final = (
    PodKind(
        name="PyTorchJob",
        versions=("kubeflow.org/v1",),
        roles=("spec/pytorchReplicaSpecs/*",),
        template="template/spec",
        container="pytorch",
        processes="spec/nprocPerNode",
        ranks="controller",
        sets=_OF_PYTORCH_JOB,
        has_schema=True,
        numbered_by=("replicas",),
    ),
    PodKind(
        name="TrainJob",
        versions=("trainer.kubeflow.org/v1alpha1",),
        roles=("spec/trainer",),
        template="",
        counts=("numNodes",),
        label="trainer",
        resources="resourcesPerNode",
        processes="spec/trainer/numProcPerNode",
        ranks="controller",
        sets=OF_TRAINER,
        has_schema=True,
    ),
    PodKind(
        name="JobSet",
        versions=("jobset.x-k8s.io/v1alpha2",),
        roles=("spec/replicatedJobs/*",),
        template="template/spec/template/spec",
        counts=("template/spec/parallelism", "replicas"),
        trains="most GPUs",
        sets=_INDEX,
        claims="spec/volumeClaimPolicies",
        has_schema=True,
        numbered_by=("replicas", "template/spec/parallelism"),
        subdomain="spec/network/subdomain",
    ),
    *(
        PodKind(
            name=name,
            versions=("trainer.kubeflow.org/v1alpha1",),
            roles=("spec/template/spec/replicatedJobs/*",),
            template="template/spec/template/spec",
            counts=("template/spec/parallelism", "replicas"),
            trains="most GPUs",
            ranks="controller",
            sets=(*_INDEX, *OF_TRAINER),
            claims="spec/template/spec/volumeClaimPolicies",
            name_is_label=False,
        )
        for name in ("TrainingRuntime", "ClusterTrainingRuntime")
    ),
    PodKind(
        name="Job",
        versions=("batch/v1",),
        roles=("spec",),
        template="template/spec",
        counts=(),
        label="the Job",
        sets=_INDEX,
        needs_gpus=True,
    ),
    PodKind(
        name="MPIJob",
        versions=("kubeflow.org/v2beta1", "kubeflow.org/v1", "kubeflow.org/v1alpha2"),
        roles=("spec/mpiReplicaSpecs/*",),
        template="template/spec",
        command="Launcher",
        trains="with GPUs",
        processes="spec/slotsPerWorker",
        ranks="mpirun",
        volumes=("mpi-job-config", "ssh-auth"),
    ),
    *(
        PodKind(
            name=name,
            versions=("ray.io/v1", "ray.io/v1alpha1"),
            roles=(f"{at}/headGroupSpec", f"{at}/workerGroupSpecs/*"),
            template="template/spec",
            script=script,
            trains="with GPUs",
            ranks="ray",
            needs_gpus=True,
        )
        for name, at, script in (
            ("RayJob", "spec/rayClusterSpec", "spec/entrypoint"),
            ("RayCluster", "spec", ""),
        )
    ),
    PodKind(
        name="LeaderWorkerSet",
        versions=("leaderworkerset.x-k8s.io/v1",),
        roles=(
            "spec/leaderWorkerTemplate/leaderTemplate",
            "spec/leaderWorkerTemplate/workerTemplate",
        ),
        template="spec",
        counts=(),
        sets=("LWS_LEADER_ADDRESS", "LWS_GROUP_SIZE", "LWS_WORKER_INDEX"),
        needs_gpus=True,
    ),
    PodKind(
        name="Job",
        versions=("batch.volcano.sh/v1alpha1",),
        roles=("spec/tasks/*",),
        template="template/spec",
        trains="with GPUs",
        sets=("VC_TASK_INDEX", "VK_TASK_INDEX"),
        needs_gpus=True,
    ),
    PodKind(
        name="HyperPodPyTorchJob",
        versions=("sagemaker.amazonaws.com/v1",),
        roles=("spec/replicaSpecs/*",),
        template="template/spec",
        trains="with GPUs",
        processes="spec/nprocPerNode",
        ranks="controller",
        sets=_OF_PYTORCH_JOB,
    ),
    PodKind(
        name="ElasticJob",
        versions=("elastic.pytorch.org/v1alpha1",),
        roles=("spec/replicaSpecs/*",),
        template="template/spec",
        ranks="controller",
        sets=("PET_NNODES", "PET_RDZV_ENDPOINT", "PET_RDZV_BACKEND", "PET_RDZV_ID"),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderKind:
    """A kind of object that holds others, and where."""

    name: str
    versions: tuple[str, ...]
    objects: str


#: **Source**: kubernetes.io/docs/reference/using-api/api-concepts, Collections;
#: project-codeflare/appwrapper api/v1beta2/appwrapper_types.go.
HOLDERS: Final = (
    HolderKind(name="List", versions=("v1",), objects="items/*"),
    HolderKind(
        name="AppWrapper",
        versions=("workload.codeflare.dev/v1beta2",),
        objects="spec/components/*/template",
    ),
)


def version_of(name: str) -> str:
    """The newest API version of a kind."""
    return next(row.versions[0] for row in KINDS if row.name == name)


def kind_of(data: object) -> PodKind | None:
    """The row of an object; None for one whose pods aren't read."""
    return next((row for row in KINDS if _is_of_kind(data, row)), None)


def holder_of(data: object) -> HolderKind | None:
    """The row of an object that holds others."""
    return next((row for row in HOLDERS if _is_of_kind(data, row)), None)


def _is_of_kind(data: object, row: PodKind | HolderKind) -> bool:
    if not isinstance(data, dict):
        return False
    return data.get("kind") == row.name and data.get("apiVersion") in row.versions
