"""Kubernetes: a PyTorchJob or TrainJob of Kubeflow, or a JobSet, with a pod per node.

torchrun starts the processes of each pod. It learns the number of nodes, its own number and the
master's address from PET_ variables: the controllers of a PyTorchJob and a TrainJob set them, and
in a JobSet they are written here.

A container's command is a list of words that no shell reads. Where checkpoints are saved, the words
start bash with a script, which looks for the last checkpoint.
Source: kubeflow/trainer pkg/controller.v1/pytorch/envvar.go @ v1.9.4,
pkg/runtime/framework/plugins/torch/torch.go @ v2.3.0; kubernetes-sigs/jobset
pkg/webhooks/jobset_webhook.go @ v0.12.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import ceil, inf, sqrt
from typing import Any, Final

from ...dataclass import dataclass
from ...job.needs import default_image
from ...numerals import read_whole
from ...patterns import lazy_pattern
from ...search.plan import Plan
from ...units import GIB
from ..launching import write
from ..program import (
    ConfigPath,
    Launcher,
    Program,
    RenderedFile,
    Scheduler,
    last_save_s,
    saves_on_term,
)
from .job import label_of
from .kinds import EFA, OF_RUNTIME, version_of

_CONFIG_FOLDER: Final = "/etc/dsgen"
_PORT: Final = 29500  # torch's own default
_SHM_SIZE: Final = "64Gi"
_RESTARTS: Final = 3  # at least; as many more as a long run's failures make likely
#: The share that pods request of what a node can hand out. The rest is for daemon sets: no cloud
#: says how much they request.
_REQUESTED: Final = 0.9
#: GKE keeps shares of a node's memory, each up to so many GiB. Source:
#: cloud.google.com/kubernetes-engine/docs/concepts/plan-node-sizes.
_KEPT_BY_GKE: Final = ((4, 0.25), (8, 0.2), (16, 0.1), (128, 0.06), (inf, 0.02))
#: AKS keeps 20 MB a pod (of 250 at most) and 50 MB, but no more than a quarter; and 0.1 cores and a
#: hundredth of all. EKS keeps less of both. Source:
#: learn.microsoft.com/azure/aks/node-resource-reservations, 1.29; awslabs/amazon-eks-ami
#: nodeadm/internal/kubelet/config.go, getMemoryMebibytesToReserve, getCPUMillicoresToReserve.
_KEPT_BY_AKS: Final = (250 * 20e6 + 50e6) / GIB
_EVICTION_GIB: Final = 100 / 1024  # free memory below which pods are evicted, on all three
#: Restarts are planned for the expected failures and so many standard deviations more; failures
#: follow a Poisson distribution, whose deviation is the root of its mean.
_DEVIATIONS: Final = 3
#: The time until all pods see a file that one has saved. Source: nfs(5), acdirmax.
_PATIENCE_S: Final = 60
#: For what a program does after its last save: as long as Kubernetes by default lets a pod stop.
_SECONDS_TO_STOP: Final = 30
#: What a node of each vendor is asked for.
_RESOURCES: Final = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu", "intel": "habana.ai/gaudi"}
#: Devices whose drivers pin memory, which a container needs the capability IPC_LOCK for.
_PINS_MEMORY: Final = lazy_pattern(r"rdma|efa|roce|infiniband|hca|/ib", re.IGNORECASE)
#: An example of `launch.kubernetes.resources` by network, with the name that its device plugin has
#: by default. Source: docs.aws.amazon.com/eks/latest/userguide/ device-management-efa.html and
#: node-efa.html; Mellanox/k8s-rdma-shared-dev-plugin README.md.
_DEVICE_EXAMPLES: Final = {
    "efa": f"{EFA}=N with a node's number of EFA interfaces",
    **dict.fromkeys(("infiniband", "roce"), "rdma/hca_shared_devices_a=1"),
}
#: A `$` that Kubernetes expands in a command or a variable's value: in `$(NAME)` and in `$$`.
_REFERENCE: Final = lazy_pattern(r"\$(?=[$(])")
_LONGEST_LIST: Final = 128  # of words, in a TrainJob. Source: its custom resource definition
#: A pod's name has 63 characters at most; the rest is for -worker-12345 and the like.
_LONGEST_NAME: Final = 40
_INDEX: Final = "metadata.annotations['batch.kubernetes.io/job-completion-index']"

Entry = dict[str, Any]


def launch_files(plan: Plan, program: Program, command: str) -> tuple[RenderedFile, ...]:
    """`job.yaml` for `kubectl apply -f job.yaml`: the job, and a ConfigMap of its files."""
    job = _Job(plan, program, write.launch_options(plan))
    documents: list[Entry] = []
    if program.files:
        config_map = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": job.config_metadata(),
            "data": {file.path: file.text for file in program.files},
        }
        documents.append(config_map)
    training = {
        "apiVersion": version_of(job.kind),
        "kind": job.kind,
        "metadata": job.metadata(),
        "spec": _SPECS[job.kind](job),
    }
    documents.append(training)
    return (write.yaml_file("job.yaml", plan, program, command, job.notes(), *documents),)


@dataclass(frozen=True, slots=True)
class _Job:
    """The parts that the kinds of jobs have in common."""

    plan: Plan
    program: Program
    options: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """The resource that is made."""
        return str(self.options.get("kind", "PyTorchJob"))

    @property
    def name(self) -> str:
        """The job's name as a DNS label, which it has to be (KUB003)."""
        return label_of(self.plan.job.name, _LONGEST_NAME)

    def metadata(self) -> Entry:
        """The job's name, namespace, queue, labels and annotations."""
        labels = self._pairs("labels")
        if "queue" in self.options:
            labels = {"kueue.x-k8s.io/queue-name": self.options["queue"], **labels}
        return {"name": self.name, **self._namespace(), **self._marks(labels)}

    def config_metadata(self) -> Entry:
        """The name and namespace of the ConfigMap."""
        return {"name": f"{self.name}-config", **self._namespace()}

    def pod_metadata(self) -> Entry:
        """The metadata of a template of pods, where it has any."""
        marks = self._marks(self._pairs("labels"))
        return {"metadata": marks} if marks else {}

    def _namespace(self) -> Entry:
        return {"namespace": self.options["namespace"]} if "namespace" in self.options else {}

    def _marks(self, labels: Mapping[str, str]) -> Entry:
        """The labels and the job's annotations, where there are any."""
        marks = {"labels": labels, "annotations": self._pairs("annotations")}
        return {key: value for key, value in marks.items() if value}

    def _pairs(self, key: str) -> dict[str, str]:
        """An option of pairs `key=value`."""
        return dict(text.split("=", 1) for text in self.options.get(key, ()))

    @property
    def image(self) -> str:
        """Return what the pods run."""
        return str(self.options.get("image", default_image(self.plan.job)))

    def command(self) -> list[str]:
        """The words of the container's command: torchrun and what it starts.

        Where the job saves checkpoints they start bash: its script looks for the last step, and
        gets the other words as arguments. Kubernetes expands `$(NAME)` in words, and `$$` to `$`.
        """
        start: tuple[str, ...] = ("torchrun",)
        if self.plan.job.output.checkpoints is not None:
            values = write.ending_values(self.plan, self.program)
            text = write.fill(
                "kubernetes/start.sh.j2",
                self.plan,
                self.program,
                patience_s=_PATIENCE_S,
                **values,
            )
            start = ("bash", "-c", text, "bash")
        words = (*start, *self.program.start, *self.program.arguments)
        return [
            f"{_CONFIG_FOLDER}/{word.name}" if isinstance(word, ConfigPath) else _literal(word)
            for word in words
        ]

    @property
    def saves(self) -> bool:
        """Return whether the script saves when its pod is told to stop."""
        has_folder = self.plan.job.output.checkpoints is not None
        return has_folder and saves_on_term(self.plan, self.program)

    @property
    def restarts(self) -> int:
        """How often the job may start again: a few times, or what a long run's failures need."""
        run = self.plan.run
        likely = ceil(run.failures + _DEVIATIONS * sqrt(run.failures)) if run else 0
        return int(self.options.get("restarts", max(_RESTARTS, likely)))

    def environment(self) -> list[Entry]:
        """The variables, and those that come from secrets."""
        variables = write.environment if self.on_host_network else write.pod_environment
        values = variables(self.plan, self.program)
        cores = self._cores()
        # a limit of cores holds for threads as for processes
        if cores and write.own_threads(self.plan, self.program):
            values[write.THREADS] = str(max(1, int(cores / write.processes_per_node(self.plan))))
        entries: dict[str, Entry] = {
            name: {"value": _literal(value)} for name, value in values.items()
        }
        for text in self.options.get("variables_from", ()):  # SECRET/KEY:NAME
            place, _, name = text.rpartition(":")
            secret, _, key = place.partition("/")
            entries[name] = {"valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}
        return [{"name": name, **entry} for name, entry in entries.items()]

    def _cores(self) -> float:
        """The cores that a pod requests, also as `500m`, half a core; 0 where none are."""
        cpu = str(self.resources()["requests"].get("cpu", ""))
        number = read_whole(cpu.removesuffix("m")) or 0
        return number / 1000 if cpu.endswith("m") else number

    def resources(self) -> Entry:
        """Requests and limits, the same for devices; cores and memory have no limit by default."""
        vendor = self.plan.job.cluster.accelerator.vendor
        name = self.options.get("gpu_resource", _RESOURCES[vendor])
        amounts: Entry = {name: write.processes_per_node(self.plan), **self.interfaces()}
        for key, text in self._pairs("resources").items():
            number = read_whole(text)
            amounts[key] = text if number is None else number  # 8, but 512Gi
        return {"requests": {**amounts, **self._shares()}, "limits": amounts}

    def interfaces(self) -> dict[str, int]:
        """The EFA interfaces of a node, for pods that have all of its GPUs and talk to others."""
        cluster, plan = self.plan.job.cluster, self.plan
        has_all_gpus = write.processes_per_node(plan) == cluster.accelerators_per_node
        if not cluster.efa_interfaces or not has_all_gpus or plan.job.nodes == 1:
            return {}
        return {EFA: cluster.efa_interfaces}

    def _shares(self) -> Entry:
        """Requests of cores and memory where the spec has none: pods without are evicted first."""
        cluster = self.plan.job.cluster
        share = _REQUESTED * write.processes_per_node(self.plan) / cluster.accelerators_per_node
        cores, memory_gib = _allocatable(
            cluster.cpu_cores or 0, (cluster.host_memory_bytes or 0) / GIB
        )
        cpu, gib = int(share * cores), int(share * memory_gib)
        asked = self._pairs("resources")
        shares: Entry = {}
        if cpu and "cpu" not in asked:
            shares["cpu"] = cpu
        if gib and "memory" not in asked:
            shares["memory"] = f"{gib}Gi"
        return shares

    def _pins_memory(self) -> bool:
        """Return whether devices of the network are requested."""
        return any(map(_PINS_MEMORY.search, self.resources()["limits"]))

    def in_container(self) -> Entry:
        """Return where the volumes are mounted, and what the devices of the network need."""
        mounts: list[Entry] = [{"name": "shm", "mountPath": "/dev/shm"}]
        if self.program.files:
            mounts.append({"name": "config", "mountPath": _CONFIG_FOLDER, "readOnly": True})
        for number, (_, path, is_read_only) in enumerate(_claims(self.options)):
            mount: Entry = {"name": f"volume-{number}", "mountPath": path}
            if is_read_only:
                mount["readOnly"] = True
            mounts.append(mount)
        entries: Entry = {"volumeMounts": mounts}
        if self._pins_memory():
            entries["securityContext"] = {"capabilities": {"add": ["IPC_LOCK"]}}
        return entries

    def in_pod(self) -> Entry:
        """The volumes, and where the pods may run."""
        memory = {"medium": "Memory", "sizeLimit": self.options.get("shm_size", _SHM_SIZE)}
        volumes: list[Entry] = [{"name": "shm", "emptyDir": memory}]
        if self.program.files:
            volumes.append({"name": "config", "configMap": {"name": f"{self.name}-config"}})
        for number, (claim, _, _) in enumerate(_claims(self.options)):
            volumes.append(
                {"name": f"volume-{number}", "persistentVolumeClaim": {"claimName": claim}}
            )
        grace_s = None
        if self.saves:  # in whole minutes
            grace_s = 60 * ceil((_SECONDS_TO_STOP + last_save_s(self.plan)) / 60)
        entries: Entry = {
            "volumes": volumes,
            "nodeSelector": self._pairs("node_selector"),
            "tolerations": list(self._tolerations()),
            "serviceAccountName": self.options.get("service_account"),
            "imagePullSecrets": [{"name": name} for name in self.options.get("image_pull", ())],
            "terminationGracePeriodSeconds": self.options.get("grace_seconds", grace_s),
        }
        return {key: value for key, value in entries.items() if value}

    def _tolerations(self) -> Iterator[Entry]:
        """Each `key=value:effect`, as of `kubectl taint`."""
        for text in self.options.get("tolerations", ()):
            taint, _, effect = text.partition(":")
            key, equals, value = taint.partition("=")
            toleration = {
                "key": key,
                "operator": "Equal" if equals else "Exists",
                "value": value,
                "effect": effect,
            }
            yield {field: text for field, text in toleration.items() if text}

    @property
    def on_host_network(self) -> bool:
        """Return whether pods see the interfaces of their node."""
        return bool(self.options.get("host_network")) and self.kind != "TrainJob"

    def pod(self, container: str, restart: str, *variables: Entry) -> Entry:
        """The template of a pod that trains on one node; an empty `restart` writes no policy."""
        spec: Entry = {}
        if restart:
            spec["restartPolicy"] = restart
        if self.on_host_network:
            # the policy without which such a pod finds no services of the cluster
            spec |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
        if priority := self.options.get("priority_class"):
            spec["priorityClassName"] = priority
        main = {
            "name": container,
            "image": self.image,
            "command": self.command(),
            "env": [*variables, *self.environment()],
            "resources": self.resources(),
            **self.in_container(),
        }
        return {**self.pod_metadata(), "spec": {**spec, "containers": [main], **self.in_pod()}}

    def deadline(self) -> Entry:
        """The time limit, where the job has one."""
        limit = self.plan.job.launch.time_limit_s
        if limit is None:
            return {}
        return {"activeDeadlineSeconds": limit}

    def notes(self) -> Iterator[str]:
        """Return what a reader has to know."""
        yield _WRITTEN_FOR[self.kind]
        is_relative = not self.program.is_module and not self.program.script.startswith("/")
        kind_of_path = ", a path from its working directory," if is_relative else ""
        yield f"The image has to have {self.program.script}{kind_of_path} and what it imports."
        yield from self._notes_on_resources()
        yield from self._notes_on_network()
        if not self.options.get("volumes"):
            yield (
                "Nothing is mounted: launch.kubernetes.volumes names claims of volumes for "
                "data and checkpoints."
            )
        for key in OF_RUNTIME:
            if self.kind == "TrainJob" and self.options.get(key):
                yield f"launch.kubernetes.{key} has no field in a TrainJob: its runtime sets it."
        yield from _lost(self.plan)

    def _notes_on_resources(self) -> Iterator[str]:
        """Notes on cores and memory, and on restarts."""
        if shares := self._shares():
            yield (
                f"The requests of {' and '.join(shares)} are {_REQUESTED:.0%} of the "
                "accelerators' share of what "
                f"clouds let pods have of {self.plan.job.cluster.name}, without a limit: kubectl "
                "describe node shows "
                "yours, launch.kubernetes.resources sets others."
            )
        elif not {"cpu", "memory"} & self._pairs("resources").keys():
            yield (
                "Neither cpu nor memory is requested, so these pods are the first to be "
                "evicted (BestEffort): "
                "launch.kubernetes.resources sets them, such as memory=512Gi."
            )
        if self.kind == "PyTorchJob" and self.restarts:
            nodes = self.plan.job.nodes
            yield (
                f"backoffLimit counts the restarts of every pod: {self.restarts} of the job × "
                f"{nodes} pods, and one."
            )

    def _notes_on_network(self) -> Iterator[str]:
        """Notes on the devices that NCCL needs for anything faster than TCP."""
        if interfaces := self.interfaces():
            yield (
                f"Each pod asks for {interfaces[EFA]} {EFA}, all of a node: the cluster needs AWS' "
                "EFA device plugin, and the image libfabric with its plug-in for NCCL."
            )
        if self.plan.job.nodes > 1 and not self._pins_memory():
            cluster = self.plan.job.cluster
            # each cloud that has RoCE has a plugin of its own, whose devices are called otherwise
            is_plugins_own = cluster.network == "roce" and cluster.provider is not None
            device = None if is_plugins_own else _DEVICE_EXAMPLES.get(cluster.network)
            example = f", such as {device}" if device else ""
            yield (
                "No device of the network is requested, without which NCCL may be left to TCP: "
                f"launch.kubernetes.resources names it{example}."
            )


def _allocatable(cores: float, memory_gib: float) -> tuple[float, float]:
    """Cores and GiB that pods may request of a node: the least on GKE, AKS and EKS."""
    kept_by_gke, start = 0.0, 0.0
    for end, share in _KEPT_BY_GKE:
        kept_by_gke += share * max(0, min(memory_gib, end) - start)
        start = end
    kept_by_aks = min(_KEPT_BY_AKS, memory_gib / 4)
    kept = max(kept_by_gke, kept_by_aks) + _EVICTION_GIB
    return max(0, 0.99 * cores - 0.1), max(0, memory_gib - kept)


def _claims(options: Mapping[str, Any]) -> Iterator[tuple[str, str, bool]]:
    """Claims of volumes, with where they are mounted and whether only to be read."""
    for text in options.get("volumes") or ():
        claim, _, path = text.partition(":")
        yield claim, path.removesuffix(":ro"), path.endswith(":ro")


def _lost(plan: Plan) -> Iterator[str]:
    """Notes on racks that pods don't see, and on paths that are on no mounted volume."""
    job = plan.job
    if plan.segment > 1:
        yield (
            f"Racks: the plan counts on NVLink between {plan.segment} nodes in rank order: "
            "add the claim of a "
            "ComputeDomain (NVIDIA's DRA driver for GPUs) to the pods, and place them rack by rack."
        )
    yield from write.not_mounted(
        job, (path for _, path, _ in _claims(job.launch.options)), "launch.kubernetes.volumes"
    )


def _literal(text: str) -> str:
    """Text that Kubernetes doesn't expand.

    Source: kubernetes third_party/forked/golang/expansion/expand.go @ v1.33.
    """
    return _REFERENCE.sub("$$", text)


def _pytorch_job(job: _Job) -> Entry:
    """A master and workers, with variables by the controller.

    It sets PET_NNODES, PET_NODE_RANK, PET_MASTER_ADDR and PET_NPROC_PER_NODE.
    """
    nodes = job.plan.job.nodes
    pod = {"restartPolicy": "OnFailure", "template": job.pod("pytorch", "")}
    specs = {"Master": {"replicas": 1, **pod}}
    if nodes > 1:
        specs["Worker"] = {"replicas": nodes - 1, **pod}
    # The controller sums up the restarts of all pods, and ends the job at the limit; a pod that
    # fails ends the others, so that a restart of the job is one of every pod.
    limit = job.restarts * nodes + 1 if job.restarts else 0
    return {
        "nprocPerNode": str(write.processes_per_node(job.plan)),
        "runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": limit, **job.deadline()},
        "pytorchReplicaSpecs": specs,
    }


def _train_job(job: _Job) -> Entry:
    """A TrainJob: its runtime has the pods and sets the PET_ variables; a patch adds volumes."""
    container = {"name": "node", **job.in_container()}
    template = {**job.pod_metadata(), "spec": {"containers": [container], **job.in_pod()}}
    replicated = {"name": "node", "template": {"spec": {"template": template}}}
    patch = {"template": {"spec": {"replicatedJobs": [replicated]}}}
    # A list that is too long is split: a container starts `command` with `args` behind it.
    words = job.command()
    command, args = words[:_LONGEST_LIST], words[_LONGEST_LIST:]
    trainer = {
        "image": job.image,
        "numNodes": job.plan.job.nodes,
        "numProcPerNode": write.processes_per_node(job.plan),
        "command": command,
        **({"args": args} if args else {}),
        "env": job.environment(),
        "resourcesPerNode": job.resources(),
    }
    return {
        **job.deadline(),
        "runtimeRef": {"name": job.options.get("runtime", "torch-distributed")},
        "trainer": trainer,
        "runtimePatches": [{"manager": "dsgen/job", "trainingRuntimeSpec": patch}],
    }


def _job_set(job: _Job) -> Entry:
    """An indexed job with a pod per node; a failed pod ends all, and the set starts them again."""
    nodes = job.plan.job.nodes
    variables: tuple[Entry, ...] = (
        {"name": "PET_NNODES", "value": str(nodes)},
        {"name": "PET_NPROC_PER_NODE", "value": str(write.processes_per_node(job.plan))},
        {"name": "PET_NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": _INDEX}}},
        {"name": "PET_MASTER_ADDR", "value": f"{job.name}-node-0-0.{job.name}"},
        {"name": "PET_MASTER_PORT", "value": str(_PORT)},
    )
    of_pods = {
        "parallelism": nodes,
        "completions": nodes,
        "completionMode": "Indexed",
        "backoffLimit": 0,
    }
    spec = {**of_pods, **job.deadline(), "template": job.pod("node", "Never", *variables)}
    return {
        "network": {"enableDNSHostnames": True, "subdomain": job.name},
        "failurePolicy": {"maxRestarts": job.restarts},
        "replicatedJobs": [{"name": "node", "replicas": 1, "template": {"spec": spec}}],
    }


_SPECS: Final = {"PyTorchJob": _pytorch_job, "TrainJob": _train_job, "JobSet": _job_set}
_WRITTEN_FOR: Final = {
    "PyTorchJob": "For Kubeflow's Training Operator 1.9, whose controller sets "
    "PET_NNODES, PET_NODE_RANK and "
    "PET_MASTER_ADDR for torchrun.",
    "TrainJob": "For Kubeflow Trainer 2.3 and its runtime torch-distributed, which sets "
    "PET_NNODES, PET_NODE_RANK and "
    "PET_MASTER_ADDR for torchrun. How often a failed pod is started again is "
    "the runtime's to say.",
    "JobSet": "For JobSet 0.12. When a pod fails, all are started again.",
}


LAUNCHER: Final = Launcher(
    name="kubernetes",
    files=launch_files,
    start="kubectl apply -f {}/job.yaml",
    file="job.yaml",
    token="set launch.kubernetes.variables_from: [SECRET/KEY:HF_TOKEN]",
    scheduler=Scheduler(
        submit=("kubectl", "apply", "-f", "{file}"),
        trial=("kubectl", "apply", "--dry-run=server", "-f", "{file}"),
        # kubectl says `unchanged` of a job that is there already: that starts nothing
    identity=r"^((?:pytorchjob|trainjob|jobset)\S*) (?!unchanged)\S+$",
        watch=("kubectl get -f {file}", "kubectl describe -f {file}"),
    ),
    in_folder=False,
    lost=_lost,
    before=lambda launch, _: f"The image has to have {launch.script}. Start the job:",
)  # fmt: skip
