"""Rules on Kubernetes jobs: what their definitions say, what the API server and the controllers
check, and whether pods, processes and GPUs fit one another.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import PurePosixPath
from typing import Final

from ...catalog import NodeType, load_catalog
from ...dataclass import dataclass
from ...findings import ERROR, NOTE, WARNING, Violation, Violations
from ...numerals import read_whole, whole
from ...patterns import lazy_pattern
from ...resources import read_text
from ...rules.violations import derived, kubernetes, suggest, training_operator, violation
from ...submission.repository import find_programs
from ...submission.secrets import secrets_of
from ...submission.subjects import Subject, subject, submissions
from ...submission.submission import Submission
from ...text.around import text_around
from ...text.wording import counted, show, whole_number
from ..cluster_jobs import (
    Difference,
    differences_of,
    miscounted,
    one_process,
    to_fill,
    without_the_other_nodes,
)
from .job import KubernetesJob, Role, containers_of, instance_types, label_of
from .kinds import EFA, OF_MASTER, OF_TRAINER

_SCHEMAS: Final = (
    "kubeflow/trainer manifests/base/crds @ v1.9.4 and v2.3.0; "
    "kubernetes-sigs/jobset config/components/crd @ v0.12.0"
)
_ROLES: Final = ("Master", "Worker")
_LABEL: Final = lazy_pattern(r"[a-z]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_LONGEST: Final = 63  # characters of a label: RFC 1123, which Kubernetes' names follow
_SHM: Final = derived(
    "a container has 64 MiB of /dev/shm; NCCL and a DataLoader's workers share memory there"
)
_POLICIES: Final = {
    "PyTorchJob": ("Always", "OnFailure", "Never", "ExitCode"),
    "JobSet": ("OnFailure", "Never"),
}
_CONTAINERS: Final = ("initContainers", "containers")
_FRACTION: Final = lazy_pattern(r"[0-9]*\.[0-9]*[1-9][0-9]*|[0-9]+m")

#: The jobs of a submission.
jobs: Final = Subject[KubernetesJob](
    ("Kubernetes job",), lambda submission: submission.of(KubernetesJob)
)


@subject("Kubernetes job")
def _differences(submission: Submission) -> Iterator[Difference]:
    for job in jobs(submission):
        if job.row.has_schema:
            yield from differences_of(
                job, "kubernetes", job.kind_of_job, f"a {job.kind_of_job}", "kubectl"
            )


@_differences.rule("KUB001", ERROR, "submit", _SCHEMAS)
def keys_are_known(difference: Difference) -> Violations:
    """Every key of a job is one that its kind has, at every level.
    Prevents: strict decoding error: unknown field. A warning where another release may have it.
    Fix: correct the key, or remove it"""
    if difference.is_key:
        yield difference.violation()


@_differences.rule("KUB002", ERROR, "submit", _SCHEMAS)
def values_have_their_types(difference: Difference) -> Violations:
    """Values have the types of the custom resource definition, and the keys that it requires are
    there.
    Prevents: Invalid value: "integer": spec.nprocPerNode in body must be of type string. A warning
    for a name that another release may have.
    Fix: put numbers and truth values in quotes where text is expected
    """
    if not difference.is_key:
        yield difference.violation()


@jobs.rule(
    "KUB003", ERROR, "submit", training_operator("webhooks/pytorch/pytorchjob_webhook.go:79")
)
def name_is_a_label(job: KubernetesJob) -> Violations:
    """A job's name is a label as of DNS: small letters, digits and dashes, a letter first, at most
    63.
    Prevents: metadata.name: Invalid value: should match: a DNS-1035 label.
    Fix: write the name in small letters, with dashes
    """
    value = job.text("metadata/name")
    if not job.row.name_is_label or value is None or to_fill(value):
        return
    is_placeholder = value.isalpha() and value.isupper()  # no name has capitals
    if not is_placeholder and (len(value) > _LONGEST or not _LABEL.fullmatch(value)):
        message = f"metadata.name is {show(value)}, not a label of small letters, digits and dashes"
        yield violation(job, "metadata/name", message, f"set name to {label_of(value, _LONGEST)}")


@jobs.rule(
    "KUB004", ERROR, "submit", training_operator("webhooks/pytorch/pytorchjob_webhook.go:130")
)
def roles_are_known(job: KubernetesJob) -> Violations:
    """A PyTorchJob has one Master at most, and Workers.
    Prevents: Unsupported value; or Forbidden: must be 1.
    Fix: use Master with replicas: 1, and Worker for the other nodes"""
    if job.kind_of_job != "PyTorchJob":
        return
    for role in job.roles:
        known_role = next((name for name in _ROLES if name.lower() == role.name.lower()), None)
        if known_role is None:
            message = (
                f"pytorchReplicaSpecs has {show(role.name)}; a PyTorchJob has Master and Worker"
            )
            yield Violation(job.locate_key(role.at), message, suggest(role.name, _ROLES))
            continue
        if role.count is None:
            continue
        is_master = known_role == "Master"
        if role.count < 1:
            right = "1" if is_master else "at least 1"
            message = f"{role.name} has replicas: {role.count}; it must be {right}"
            yield violation(job, role.count_at, message, "set replicas to 1")
        elif is_master and role.count > 1:
            message = f"{role.name} has replicas: {role.count}; it must be 1"
            hint = "set replicas to 1, and add the others to Worker"
            yield violation(job, role.count_at, message, hint)


@jobs.rule(
    "KUB005",
    ERROR,
    "launcher",
    derived("the controller makes pods with it, and the API server refuses them"),
)
def restart_policy_is_known(job: KubernetesJob) -> Violations:
    """restartPolicy is Always, OnFailure, Never or ExitCode in a PyTorchJob, and OnFailure or Never
    in a JobSet.
    Prevents: No pod is created: Unsupported value: supported values: "OnFailure", "Never".
    Fix: use OnFailure or Never
    """
    policies = _POLICIES.get(job.kind_of_job, ())
    for role in job.roles if policies else ():
        # a PyTorchJob's role has one of its own, which its pods get
        at = f"{role.at if job.kind_of_job == 'PyTorchJob' else role.pod}/restartPolicy"
        value = job.text(at)
        if value and not to_fill(value) and value not in policies:
            message = (
                f"restartPolicy is {show(value)}; a {job.kind_of_job} takes {', '.join(policies)}"
            )
            yield violation(job, at, message, suggest(value, policies))


@jobs.rule(
    "KUB006", WARNING, "silent", training_operator("apis/kubeflow.org/v1/common_types.go:167")
)
def clean_pod_policy_is_known(job: KubernetesJob) -> Violations:
    """runPolicy.cleanPodPolicy is Running, All or None.
    Prevents: No error: the pods of a finished job keep their GPUs.
    Fix: use Running"""
    at, policies = "spec/runPolicy/cleanPodPolicy", ("Running", "All", "None")
    value = job.value(at)
    if isinstance(value, str) and value not in (*policies, "") and not to_fill(value):
        message = f"cleanPodPolicy is {show(value)}, which the controller does not have"
        yield violation(job, at, message, suggest(value, policies))


@jobs.rule("KUB007", ERROR, "submit", training_operator("core/job.go:82 (PastActiveDeadline)"))
def deadline_is_positive(job: KubernetesJob) -> Violations:
    """A deadline is a number of seconds above 0, and backoffLimit is not negative.
    Prevents: Invalid value: must be greater than or equal to 0; or a job that ends as soon as it
    starts.
    Fix: write seconds
    """
    for name in (
        "spec/runPolicy/activeDeadlineSeconds",
        "spec/activeDeadlineSeconds",
        "spec/runPolicy/backoffLimit",
    ):
        value, least = job.integer(name), 0 if name.endswith("backoffLimit") else 1
        if value is not None and value < least:
            key = name.rpartition("/")[2]
            message = f"{key} is {value}; the least is {least}"
            yield violation(job, name, message, f"set {key} to {least} or more")


def _containers(job: KubernetesJob) -> Iterator[tuple[Role, str, dict[str, object]]]:
    """The containers of the pods whose specification is in the file, with their places."""
    if job.kind_of_job == "TrainJob":  # its pods are in its runtime
        return
    for role in job.roles:
        for at, container in containers_of(job, role.pod, *_CONTAINERS):
            yield role, at, container


def _resources(job: KubernetesJob) -> Iterator[str]:
    """The places of requests and limits."""
    yield from (role.resources for role in job.roles if job.kind_of_job == "TrainJob")
    yield from (f"{at}/resources" for _, at, _ in _containers(job))


@jobs.rule(
    "KUB010", ERROR, "submit", training_operator("webhooks/pytorch/pytorchjob_webhook.go:149")
)
def a_container_is_named_pytorch(job: KubernetesJob) -> Violations:
    """One container of each role of a PyTorchJob is named pytorch: the one that trains.
    Prevents: Required value: must have at least one container with name pytorch.
    Fix: set the container's name to pytorch"""
    if job.kind_of_job != "PyTorchJob":
        return
    for role in job.roles:
        names = [container.get("name") for _, container in containers_of(job, role.pod)]
        if names and "pytorch" not in names and not any(map(to_fill, names)):
            message = (
                f"no container of {role.name} is named pytorch, but {', '.join(map(show, names))}"
            )
            yield violation(job, f"{role.container}/name", message, "set name to pytorch")


@jobs.rule(
    "KUB011", ERROR, "submit", kubernetes("core/validation/validation.go (validateContainerCommon)")
)
def containers_have_an_image(job: KubernetesJob) -> Violations:
    """Every container has an image.
    Prevents: spec.containers[0].image: Required value. A note where the key is there, to be filled
    in.
    Fix: add image
    """
    for role, at, container in _containers(job):
        if not container.get("image"):
            message = f"the container {show(container.get('name'))} of {role.name} has no image"
            is_to_fill_in = container.get("image", "") is None  # `image:` and nothing behind it
            severity = NOTE if is_to_fill_in else ERROR
            yield violation(job, at, message, "add image: REGISTRY/NAME:TAG", severity=severity)


@jobs.rule("KUB012", ERROR, "launcher", kubernetes("core/validation/validation.go (resources)"))
def devices_are_whole_and_limited(job: KubernetesJob) -> Violations:
    """Devices are whole numbers with a limit, and a request for them is the same number.
    Prevents: No pod is created: must be equal to nvidia.com/gpu limit; must be an integer.
    Fix: write the number under limits; requests may be left out"""
    for at in _resources(job):
        limits: dict[str, object] = {}
        for key, place, value in job.entries(f"{at}/limits"):
            name = str(key)
            limits[name] = value
            is_fraction = isinstance(value, float) or (
                isinstance(value, str) and _FRACTION.fullmatch(value)
            )
            if is_fraction and _is_device(name):
                message = f"{name} is {value}; devices are whole numbers"
                yield violation(job, place, message, "write a whole number")
        for key, place, value in job.entries(f"{at}/requests"):
            name = str(key)
            limit = limits.get(name)
            is_empty = value is None or (name in limits and limit is None)  # to be filled in
            if is_empty or to_fill(value) or to_fill(limit) or not _is_device(name):
                continue
            if limit is None:
                message = f"{name} is requested, {show(value)}, and has no limit"
                yield violation(job, place, message, f"add {name}: {value} to limits")
            elif str(value) != str(limit):
                message = f"requests has {name}: {value}, and limits {limit}"
                yield violation(job, place, message, f"write {limit} in both")


def _is_device(name: str) -> bool:
    """Return whether this is an extended resource, which can't be overcommitted."""
    domain, slash, _ = name.partition("/")
    return bool(slash) and not domain.endswith("kubernetes.io")


@jobs.rule(
    "KUB016",
    ERROR,
    "launcher",
    kubernetes("core/validation/validation.go (ValidateResourceRequirements)"),
)
def huge_pages_come_with_memory(job: KubernetesJob) -> Violations:
    """Huge pages are asked for beside cpu or memory.
    Prevents: No pod is created: HugePages require cpu or memory.
    Fix: add memory to the same resources"""
    for at in _resources(job):
        entries = (*job.entries(f"{at}/limits"), *job.entries(f"{at}/requests"))
        place_of = {str(name): place for name, place, _ in entries}
        huge = next((name for name in place_of if name.startswith("hugepages-")), None)
        if huge is not None and not {"cpu", "memory"} & place_of.keys():
            message = f"{huge} is asked for without cpu or memory, and Kubernetes refuses the pod"
            yield Violation(job.locate_key(place_of[huge]), message, "add memory or cpu beside it")


@jobs.rule(
    "KUB013", ERROR, "submit", kubernetes("core/validation/validation.go (ValidateVolumeMounts)")
)
def mounts_name_volumes(job: KubernetesJob) -> Violations:
    """Every volume that a container mounts is one of its pod's.
    Prevents: spec.containers[0].volumeMounts[0].name: Not found.
    Fix: add the volume, or correct the name"""
    added = [*job.row.volumes, *_names_of_claims(job)]
    mounts = (
        (role.name, mount.get("name"))
        for role, at, _ in _containers(job)
        for _, mount in job.mappings(f"{at}/volumeMounts")
    )
    mounted = {(role, name) for role, name in mounts if isinstance(name, str)}
    for role, at, _ in _containers(job):
        volumes = [volume.get("name") for _, volume in job.mappings(f"{role.pod}/volumes")] + added
        if any(map(to_fill, volumes)):
            continue
        unused = [
            volume
            for volume in volumes
            if isinstance(volume, str) and (role.name, volume) not in mounted
        ]
        for place, mount in job.mappings(f"{at}/volumeMounts"):
            name = mount.get("name")
            if not isinstance(name, str) or name in volumes or to_fill(name):
                continue
            known = f"; the pod has {', '.join(map(show, volumes))}" if volumes else ""
            message = f"the mount {show(name)} is no volume of {role.name}{known}"
            hint = f"add a volume named {name}"
            if len(unused) == 1:
                hint = f"mount {unused[0]}, which nothing mounts, or {hint}"
            yield violation(job, f"{place}/name", message, hint)


def _names_of_claims(job: KubernetesJob) -> Iterator[object]:
    """The names of the volumes that a JobSet's claims become in its pods."""
    if not job.row.claims:
        return
    for policy, _ in job.mappings(job.row.claims):
        for template, _ in job.mappings(f"{policy}/templates"):
            yield job.value(f"{template}/metadata/name")


@jobs.rule("KUB014", NOTE, "training", _SHM)
def shared_memory_is_there(job: KubernetesJob) -> Violations:
    """A pod with several GPUs has a volume at /dev/shm, in memory.
    Prevents: No space left on device; RuntimeError: DataLoader worker is killed by signal: Bus
    error. A note: not every program needs it.
    Fix: add an emptyDir with medium: Memory, mounted at /dev/shm
    """
    if job.kind_of_job == "TrainJob":
        return
    for role in job.roles:
        mounts = job.mappings(f"{role.container}/volumeMounts")
        has_volume = any(mount.get("mountPath") == "/dev/shm" for _, mount in mounts)
        shares_hosts = job.value(f"{role.pod}/hostIPC")
        if (role.gpus or 0) > 1 and not has_volume and not shares_hosts:
            message = (
                f"{role.name} has {role.gpus} GPUs, and nothing is mounted at "
                "/dev/shm, which has 64 MiB"
            )
            hint = "mount an emptyDir with medium: Memory at /dev/shm"
            yield violation(job, role.container, message, hint)


@jobs.rule(
    "KUB015",
    ERROR,
    "submit",
    "kubeflow/trainer pkg/runtime/framework/plugins/torch/torch.go:76 @ v2.3.0",
)
def ranks_are_the_controllers(job: KubernetesJob) -> Violations:
    """The variables of the rendezvous are left to the controller.
    Prevents: spec.trainer.env: must not have reserved envs. A note where the runtime may set none,
    or the controller's value counts.
    Fix: remove them from env
    """
    by_kind = {"TrainJob": OF_TRAINER, "PyTorchJob": OF_MASTER if job.has_master else ()}
    reserved = by_kind.get(job.kind_of_job, ())
    # only a TrainJob with Kubeflow's own runtime is known to be refused
    is_refused = job.text("spec/runtimeRef/name") == "torch-distributed"
    severity = ERROR if is_refused else NOTE
    for role in job.roles:
        for place, item in job.mappings(f"{role.container}/env"):
            name = item.get("name")
            if isinstance(name, str) and name in reserved:
                message = (
                    f"{name} is set here, and the controller of a {job.kind_of_job} "
                    "sets it for each pod"
                )
                yield violation(job, f"{place}/name", message, "remove it", severity=severity)


_READABLE: Final = derived("whoever may read the resource reads its variables")
_ENVIRONMENT: Final = training_operator("controller.v1/pytorch/envvar.go:99")
_PER_NODE: Final = lazy_pattern(r"--nproc[-_]per[-_]node[= ]+([0-9]+)(?!\S)")
#: Options of programs that train by DeepSpeed or Megatron, with one GPU a process.
_OF_ENGINES: Final = frozenset(
    {"--deepspeed", "--deepspeed_config", "--deepspeed-config", "--tensor-model-parallel-size"}
)
#: Programs that start processes.
_STARTERS: Final = frozenset({"torchrun", "deepspeed", "accelerate", "mpirun", "srun"})
#: What a program's text has that starts processes of its own, or uses all GPUs from one.
_SPAWNS: Final = lazy_pattern(
    r"\bspawn\(|DataParallel|subprocess|launch\(|multiprocessing|ray\.init"
)
_OTHERS: Final = derived(
    "a JobSet sets no variable that a launcher reads; torch/distributed/run.py: --nnodes is 1:1"
)


@jobs.rule("KUB020", ERROR, "init", _ENVIRONMENT)
def processes_are_the_gpus(job: KubernetesJob) -> Violations:
    """nprocPerNode is the number of a pod's GPUs, where torchrun is not told otherwise.
    Prevents: CUDA error: invalid device ordinal; or, a warning, GPUs that are paid for and not
    used.
    Fix: set it to the GPUs of a pod
    """
    at, count, gpus = job.row.processes, job.processes_per_pod, job.gpus
    if count is None or not gpus or count == gpus:
        return
    key = at.rpartition("/")[2]
    effect = f"{gpus - count} of them are not used" if count < gpus else "the rest find no device"
    message = f"{key} is {count}; a pod has {gpus} GPUs: {effect}"
    severity = ERROR if count > gpus else WARNING
    yield violation(job, at, message, f"set {key} to {gpus}", severity=severity)


def _words(job: KubernetesJob, role: Role) -> list[str]:
    """The words of a role's own command; a script for a shell is split into words, too."""
    parts = (job.value(f"{role.container}/{name}") for name in ("command", "args"))
    texts = [text for part in parts if isinstance(part, list) for text in part]
    return [word for text in texts if isinstance(text, str) for word in text.split()]


@jobs.rule("KUB029", ERROR, "init", _ENVIRONMENT)
def each_role_has_the_gpus_of_its_processes(job: KubernetesJob) -> Violations:
    """The pods of every role have a GPU for each process that torchrun starts in them.
    Prevents: CUDA error: invalid device ordinal, in the pods of one role alone
    Fix: give all roles the same GPUs
    """
    if len({role.gpus for role in job.trainers}) < 2:
        return  # else other rules say so of the job
    for role in job.trainers:
        text = " ".join(_words(job, role))
        started = _PER_NODE.search(text) if role.gpus else None
        count = read_whole(started[1]) if started else None
        if count is not None and role.gpus and count > role.gpus:
            message = (
                f"{role.name} has {role.gpus} GPUs for {count} processes: ranks {role.gpus} to "
                f"{count - 1} of each pod find no device"
            )
            yield violation(job, role.resources, message, f"ask for {count} GPUs, as other roles")


@jobs.rule("KUB030", WARNING, "silent", training_operator("pkg/controller.v1/pytorch/envvar.go:65"))
def a_process_for_each_gpu(job: KubernetesJob) -> Violations:
    """A pod with several GPUs starts a process for each, by torchrun or another launcher: the
    operator starts one in a pod.
    Prevents: No error: all GPUs of a pod but one are idle. No finding where the program may start
    processes itself.
    Fix: start the program by torchrun
    """
    if job.kind_of_job != "PyTorchJob":
        return
    for role in job.trainers:
        words = _words(job, role)
        python, script = _python_and_script(words)
        if (role.gpus or 1) < 2 or script is None:
            continue
        has_launcher = any(PurePosixPath(word).name in _STARTERS for word in words)
        is_reported = not _OF_ENGINES.isdisjoint(words)  # by KUB023
        if has_launcher or is_reported:
            continue
        program = next(iter(find_programs(script, job.path)), None)
        if program is not None and _SPAWNS.search(text_around(program, program.parent)):
            continue
        message = f"{python} {script} is one process in a pod of {role.gpus} GPUs"
        hint = f"start it by torchrun --nproc_per_node={role.gpus} {script}"
        yield Violation(job.locate(f"{role.container}/command"), message, hint)


def _python_and_script(words: list[str]) -> tuple[str, str | None]:
    """A command's interpreter and the script that it runs; None where it runs no script."""
    program = PurePosixPath(words[0]).name if words else ""
    if not re.fullmatch(r"python[0-9.]*", program) or "-m" in words:
        return program, None
    return program, next((word for word in words[1:] if word.endswith(".py")), None)


@jobs.rule("KUB021", ERROR, "silent", _OTHERS)
def launchers_know_the_other_pods(job: KubernetesJob) -> Violations:
    """A launcher in the pods of a job gets the number of nodes, from the controller or by an
    option.
    Prevents: No error: as many trainings as there are pods, each by itself. A warning for a
    launcher that may read a file of the image's.
    Fix: use torchrun, in a JobSet with PET_NNODES, PET_NODE_RANK and PET_MASTER_ADDR
    """
    if job.starts_elsewhere:
        return
    hint = "start torchrun, which the controller's variables tell"
    if job.kind_of_job == "JobSet":
        hint = "set PET_NNODES, PET_NODE_RANK and PET_MASTER_ADDR, which torchrun reads"
    yield from without_the_other_nodes(job, hint)


@jobs.rule(
    "KUB023", WARNING, "silent", derived("DeepSpeed and Megatron take one GPU for each process")
)
def every_gpu_has_a_process(job: KubernetesJob) -> Violations:
    """A training with DeepSpeed or Megatron in a pod of several GPUs is started by torchrun.
    Prevents: No error: one busy GPU in each pod.
    Fix: start it by torchrun"""
    if not job.starts_elsewhere:
        yield from one_process(job)


@jobs.rule(
    "KUB024",
    ERROR,
    "init",
    derived("torch/distributed/run.py: an option counts, and not the variable"),
)
def launchers_count_pods_and_gpus(job: KubernetesJob) -> Violations:
    """torchrun's options, where it has any, have a process for each GPU of a pod and a node for
    each pod.
    Prevents: CUDA error: invalid device ordinal; or a rendezvous that waits for other pods than
    there are.
    Fix: leave --nnodes and --nproc-per-node to the variables that torchrun reads
    """
    if not job.starts_elsewhere:
        yield from miscounted(
            job, "pod", f"--nproc-per-node={job.gpus}", f"--nnodes={job.nodes}, or leave it out"
        )


@jobs.rule(
    "KUB026",
    ERROR,
    "init",
    "kubeflow/mpi-operator pkg/controller/mpi_job_controller.go (the hostfile has slotsPerWorker "
    "slots for each worker); mpirun(1)",
)
def mpirun_starts_a_process_a_slot(job: KubernetesJob) -> Violations:
    """mpirun of an MPIJob starts as many processes as its workers have slots together.
    Prevents: There are not enough slots available in the system; or, a warning, workers that wait
    with their GPUs.
    Fix: leave -np out, or write slotsPerWorker times the workers
    """
    if not job.has_slots:
        return
    workers, at = job.nodes, job.row.processes
    slots = 1 if job.value(at) is None else job.integer(at)
    if not slots or not workers:
        return
    total = slots * workers
    calls = [call for launch in job.launches for call in launch.calls if call.program == "mpirun"]
    for call in calls:
        asked = call.integer("--np")
        if not asked or asked.value == total or call.command.guarded:
            continue
        is_too_many = asked.value > total
        if is_too_many and call.has("--oversubscribe"):
            continue
        if is_too_many:
            effect, severity = "mpirun refuses the rest", ERROR
        else:
            effect, severity = f"{total - asked.value} are not used", WARNING
        message = f"{asked}, and {counted(workers, 'worker')} × {slots} have {total} slots"
        hint = f"write -np {total}, or leave it out"
        yield asked.bad_value(f"{message}: {effect}", hint, severity=severity)


@jobs.rule("KUB027", ERROR, "launcher", derived("no node has what the pod asks for"))
def a_node_has_the_devices(job: KubernetesJob) -> Violations:
    """A pod asks for no more GPUs and EFA interfaces than a node of the type that it names has.
    Prevents: No error: the pod is Pending for ever: 0/4 nodes are available: Insufficient
    nvidia.com/gpu.
    Fix: ask for the GPUs of one node, and for more pods
    """
    for role in job.roles:
        machines = [_Machine.called(name) for name in instance_types(job, role.pod)]
        known = [machine for machine in machines if machine is not None]
        if not known or len(known) < len(machines):
            continue
        largest = max(known, key=lambda machine: machine.gpus)
        devices = {**dict.fromkeys(_WHOLE_GPUS, largest.gpus), EFA: largest.efa_interfaces}
        for resource, place, number in _limits(job, role):
            most = devices.get(resource, 0)
            if most and number > most:
                message = f"{resource} is {number}, and a node of {largest.name} has {most}"
                more = "" if resource == EFA else ", and use more pods"  # interfaces do no work
                yield violation(job, place, message, f"write {most}{more}")


@jobs.rule(
    "KUB028",
    NOTE,
    "silent",
    "docs.aws.amazon.com/eks/latest/userguide, node-efa.html",
)
def pods_have_the_interfaces_of_their_node(job: KubernetesJob) -> Violations:
    """Pods with all GPUs of an AWS node that talk to others ask for all of its EFA interfaces.
    Prevents: No error: NCCL uses the interfaces that there are, and a step takes longer. A warning
    where there are none, so that it goes over TCP.
    Fix: ask for the interfaces of the node
    """
    if (job.nodes or 0) <= 1:
        return
    for role, name, node in _roles_with_node_types(job):
        limits = {resource: (place, number) for resource, place, number in _limits(job, role)}
        _, gpus = limits.get("nvidia.com/gpu", ("", 0))
        place, asked = limits.get(EFA, (role.resources, 0))
        if gpus != node.accelerators_per_node or asked >= node.efa_interfaces:
            continue
        message = f"a pod has {gpus} GPUs and {asked} {EFA}; {name} has {node.efa_interfaces}"
        hint = f"write {EFA}: {node.efa_interfaces} in limits"
        # a privileged container sees all devices of the node without asking for them
        is_privileged = job.value(f"{role.container}/securityContext/privileged") is True
        if not asked and not is_privileged:
            message += ": NCCL goes over TCP between nodes"
            yield violation(job, place, message, hint, severity=WARNING)
        else:
            yield violation(job, place, message, hint)


def _roles_with_node_types(job: KubernetesJob) -> Iterator[tuple[Role, str, NodeType]]:
    """Pods that name types of machines, all of them in the catalog, with the largest of these."""
    for role in job.roles:
        names = [*instance_types(job, role.pod)]
        nodes = {name: node for name in names if (node := _node_called(name)) is not None}
        if nodes and all(name in nodes for name in names):
            largest = max(nodes, key=lambda name: nodes[name].accelerators_per_node)
            yield role, largest, nodes[largest]


def _limits(job: KubernetesJob, role: Role) -> Iterator[tuple[str, str, int]]:
    """The devices that a pod asks for, with place and number."""
    for name, at, value in job.entries(f"{role.resources}/limits"):
        number = read_whole(value) if isinstance(value, str) else whole_number(value)
        if number is not None:
            yield str(name), at, number


_WHOLE_GPUS: Final = ("nvidia.com/gpu", "amd.com/gpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Machine:
    """What a node of a type has."""

    name: str
    gpus: int
    efa_interfaces: int = 0  #: 0: none, or not known

    @classmethod
    def called(cls, name: str) -> _Machine | None:
        """The machine of a cloud's instance type; None where neither the catalog nor the table of
        types that aren't planned for has it.
        """
        node = _node_called(name)
        if node is not None:
            gpus, interfaces = node.accelerators_per_node, node.efa_interfaces
            return cls(name=name, gpus=gpus, efa_interfaces=interfaces)
        count = _gpus_by_type().get(name.lower().removeprefix("ml."))
        return None if count is None else cls(name=name, gpus=count)


@cache
def _gpus_by_type() -> Mapping[str, int]:
    table: dict[str, dict[str, list[str]]] = json.loads(
        read_text(__package__, "instance_types.json")
    )
    return {
        name: whole(count)
        for types in table.values()
        for count, names in types.items()
        for name in names
    }


def _node_called(name: str) -> NodeType | None:
    """The node type of a cloud's instance type; SageMaker's have `ml.` before it."""
    plain = name.lower().removeprefix("ml.")
    types = load_catalog().node_types.items()
    return next((node for known, node in types if known.partition("/")[2] == plain), None)


@jobs.rule(
    "KUB025",
    WARNING,
    "init",
    "kubernetes.io/docs/concepts/workloads/controllers/job, Completion mode: Indexed",
)
def pods_that_are_named_have_a_subdomain(job: KubernetesJob) -> Violations:
    """Pods of an Indexed Job that are called by their names have a subdomain, which a headless
    Service serves.
    Prevents: Temporary failure in name resolution, in every pod but the one that is named, until
    the rendezvous ends.
    Fix: add a headless Service and its name as the pods' subdomain, and call a pod NAME-0.SUBDOMAIN
    """
    name = job.text("metadata/name")
    if not job.is_batch_job or not name:
        return
    pod_name = re.compile(rf"(?<![\w.-]){re.escape(name)}-[0-9]+(?![\w-])")
    for role in job.roles:
        pod = job.block(role.pod)
        if pod.get("subdomain") or pod.get("hostNetwork"):
            continue
        for at, text in _texts(job, role):
            match = pod_name.search(text)
            if match:
                message = f"{match[0]} is a pod of this Job, and no other pod can look it up"
                hint = (
                    f"add subdomain: {name} and a headless Service of that name, and "
                    f"write {match[0]}.{name}"
                )
                yield violation(job, at, f"{message}: the pods have no subdomain", hint)


def _texts(job: KubernetesJob, role: Role) -> Iterator[tuple[str, str]]:
    """The texts of a role's variables and of its command, with their places."""
    items = [
        (f"{at}/value", job.value(f"{at}/value")) for at, _ in job.items(f"{role.container}/env")
    ]
    for key in ("command", "args"):
        items += job.items(f"{role.container}/{key}")
    yield from ((at, text) for at, text in items if isinstance(text, str))


#: `job-worker-0` or `job-node-0-1.domain`: a name, the numbers of a pod, and perhaps a subdomain.
_HOST: Final = lazy_pattern(
    r"(?<![\w./-])(?P<name>[a-z][a-z0-9-]*?)(?P<numbers>(?:-[0-9]+)+)"
    r"(?:\.(?P<domain>[a-z][\w-]*))?(?![\w/-])"
)


@jobs.rule(
    "KUB031",
    ERROR,
    "launcher",
    "jobset.sigs.k8s.io/docs/concepts, Pod hostnames; kubeflow/trainer "
    "pkg/controller.v1/common/util.go (GenGeneralName) @ v1.9.4",
)
def hosts_that_are_named_are_pods(job: KubernetesJob) -> Violations:
    """A host that is named as the pods of the job are is one of them.
    Prevents: Temporary failure in name resolution: the other pods wait for it until they give up.
    Fix: write NAME-ROLE-0 of a PyTorchJob, NAME-ROLE-0-0.NAME of a JobSet
    """
    name, numbers = job.text("metadata/name"), len(job.row.numbered_by)
    if not name or not numbers or to_fill(name):
        return
    domain = None
    if job.row.subdomain:
        domain = job.text(job.row.subdomain) or name
    texts = (text for role in job.trainers for text in _texts(job, role))
    for at, text in texts:
        for match in _HOST.finditer(text):
            is_named_so = match["name"].startswith(f"{name}-")
            is_in_domain = domain is not None and match["domain"] == domain
            reason = None
            if is_named_so or is_in_domain:
                reason = _why_no_pod(job, match, f"{name}-", domain)
            if reason:
                first = f"{name}-{job.trainers[0].name.lower()}{'-0' * numbers}"
                right = f"{first}.{domain}" if domain else first
                yield violation(job, at, f"{match[0]} is no pod of this {reason}", f"write {right}")


def _why_no_pod(
    job: KubernetesJob, host: re.Match[str], prefix: str, domain: str | None
) -> str | None:
    """Why a host is none of a job's pods, as a message goes on; None where it is one.

    The names of its pods begin with `prefix`.
    """
    numbers = [whole(number) for number in host["numbers"].split("-")[1:]]
    roles = {role.name.lower(): role for role in job.roles}
    role = roles.get(host["name"].removeprefix(prefix))
    has_form = host["name"].startswith(prefix) and len(numbers) == len(job.row.numbered_by)
    kind = job.kind_of_job
    if role is None or not has_form:
        return f"{kind}: its roles are {', '.join(roles)}"
    if domain is not None and host["domain"] not in (None, domain):
        return f"{kind}: its pods have the subdomain {domain}"
    for number, key in zip(numbers, job.row.numbered_by, strict=True):
        count = job.integer(f"{role.at}/{key}") if job.has(f"{role.at}/{key}") else 1
        if count is not None and number >= count and not job.has("spec/elasticPolicy"):
            return f"{kind}: {role.name} has {key.rpartition('/')[2]}: {count}"
    return None


@jobs.rule(
    "KUB034",
    ERROR,
    "init",
    "kubernetes.io/docs/concepts/workloads/controllers/job, Controlling parallelism",
)
def all_pods_run_at_once(job: KubernetesJob) -> Violations:
    """A Job whose pods are the nodes of one training runs all of its completions at once.
    Prevents: A rendezvous that waits for pods which start when others have ended.
    Fix: set parallelism and completions to the same number
    """
    calls = [call for launch in job.launches for call in launch.calls]
    nodes = [asked.value for call in calls if (asked := call.integer("--nnodes"))]
    most_nodes = max(nodes, default=1)
    parallelism = next((key for key in job.row.counts if key.endswith("parallelism")), None)
    if most_nodes <= 1 or parallelism is None:
        return
    for role in job.trainers:
        at = f"{role.at}/{parallelism}"
        completions_at = at.replace("parallelism", "completions")
        running = job.integer(at) if job.has(at) else 1
        completions = job.integer(completions_at)
        if running and completions and running < completions:
            message = (
                f"completions is {completions}, and parallelism {running}: {running} of "
                f"{counted(completions, 'pod')} run at a time, and the rest start when these end"
            )
            hint = f"set completions and parallelism to {most_nodes}"
            yield violation(job, completions_at, message, hint)


@submissions.rule("KUB022", WARNING, "silent", _READABLE, reads=("Kubernetes job",))
def jobs_hold_no_secret(submission: Submission) -> Violations:
    """Tokens and passwords are not written into a job: everybody who may read it has them.
    Prevents: No error: a token that others can read and use.
    Fix: keep it in a Secret, and name that by valueFrom.secretKeyRef"""
    hint = "keep it in a Secret, and name that by valueFrom: {secretKeyRef: {name: ..., key: ...}}"
    paths = {job.path for job in submission.of(KubernetesJob)}
    yield from secrets_of(submission, paths, "everybody who can read the job has it", hint)
