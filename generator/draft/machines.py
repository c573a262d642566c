"""What a launch asks of machines and scheduler: nodes, GPUs, options of Slurm and of services."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from ..catalog import find_accelerator
from ..estimate.adapters import ALL_LINEAR, ATTENTION
from ..job.resolve_names import described_node
from ..numerals import read_whole
from ..patterns import lazy_pattern
from ..programs.azureml.job import ENDS, AzureMLJob
from ..programs.deepspeed.config import Config
from ..programs.kubernetes.job import KubernetesJob, Role, gpu_requests
from ..programs.skypilot.read import SkyPilotTask
from ..programs.slurm.request import Request
from ..programs.slurm.values import gres_list
from ..programs.slurm.write import NAMED
from ..secrets import Likeness, likeness
from ..submission.planned import cluster_of
from ..submission.script import LaunchScript
from ..submission.world import world_of
from ..text.around import is_readable
from ..text.options import Option
from ..text.text import UnusableJson, read_json
from ..units import clock
from .draft import SECRET, Draft

#: Options of sbatch that follow from the plan: a node is one task with all its GPUs.
_ONE_TASK: Final = frozenset({"--ntasks", "--ntasks-per-node", "--gpus-per-task"})
_PLANNED: Final = _ONE_TASK | {
    "--nodes",
    "--gres",
    "--gpus-per-node",
    "--gpus",
    "--job-name",
    "--time",
    "--exclusive",
    "--requeue",
    "--no-requeue",
}
#: A mount, and an image, in a script that dsgen wrote.
_MOUNTED: Final = lazy_pattern(r"^(?:MOUNTS\+=,|  --bind )([^\s$'\"]+)$", re.MULTILINE)
_PULLED: Final = lazy_pattern(
    r"^  (enroot import --output|apptainer pull) \"\$IMAGE\.\$SLURM_JOB_ID\" '?"
    r"(?:docker://)?([^\s$'\"]+)'?$",
    re.MULTILINE,
)
#: Variables that a launcher or a scheduler sets for each process.
_RENDEZVOUS: Final = lazy_pattern(
    r"(?:MASTER|HEAD|RDZV)_.*|.*RANK|WORLD_SIZE|N?NODES?|NUM_NODES|N?GPUS.*|NPROC.*"
    r"|HOSTNAMES?|HOSTS?|NODELIST|SLURM_.*"
    r"|PET_.*|AZ_.*|AZUREML_.*|SKYPILOT_.*|CUDA_VISIBLE_DEVICES"
    r"|PATH|HOME|PWD|OMPI_.*|JOB_COMPLETION_INDEX"
)
#: Keys of a pod, by name in Kubernetes.
_OF_PODS: Final = {
    "serviceAccountName": "service_account",
    "hostNetwork": "host_network",
    "priorityClassName": "priority_class",
}


def read_machines(draft: Draft) -> None:
    """GPUs, the scheduler's options and the environment."""
    found, submission, world = draft.found, draft.found.submission, world_of(draft.found.submission)
    gpus = (found.megatron.run.gpus if found.megatron else None) or world.gpus
    draft.set("gpus", gpus)
    if not gpus:
        draft.set("nodes", world.nodes)
    scripts = [
        one
        for one in submission.scripts
        if found.launch is None or one.shell is found.launch.script
    ]
    for script in scripts[:1]:
        _read_sbatch(draft, script)
    for job in submission.of(AzureMLJob)[:1]:
        _read_azureml(draft, job, found.config)
    for pods in submission.of(KubernetesJob)[:1]:
        _read_kubernetes(draft, pods)
    for task in submission.of(SkyPilotTask)[:1]:
        _read_skypilot(draft, task)
    _read_plan(draft, Path(found.where.path).parent)
    if draft.get("cluster") is None:
        _read_cluster(draft, world.gpus_per_node, world.nodes)
    _read_environment(draft)


def _read_plan(draft: Draft, folder: Path) -> None:
    """Read machines, length and adapters from the plan beside scripts that dsgen wrote."""
    path, plan = folder / "plan.json", None
    with suppress(UnusableJson):
        plan = read_json(path) if is_readable(path, folder) else None
    match plan.get("job") if isinstance(plan, dict) else None:
        case {
            "name": str(name),
            "training": {"sequence_length": length, "lora": lora},
            "cluster": dict(cluster),
        }:
            told = {"name": name, "training.sequence_length": length, "training.lora": lora}
            for key, value in {**told, "cluster": cluster_of(cluster)}.items():
                draft.set(key, value if draft.get(key) is None else None)
    for word in (ALL_LINEAR, ATTENTION):  # a spec has them as words
        if draft.get("training.lora.modules") == [word]:
            draft.set("training.lora.modules", word)


def _read_cluster(draft: Draft, per_node: int | None, nodes: int | None) -> None:
    """Read the requested machine type, if the catalog has it.

    No file says how fast its network is.
    """
    name = draft.get("launch.slurm.gres_type") or draft.comments.pop("accelerator", None)
    accelerator = find_accelerator(str(name).replace("_", "-")) if name else None
    if accelerator is None or not per_node:
        return
    if nodes != 1:
        draft.comments["cluster.network_gbits_per_s_per_node"] = (
            "assumed: the rate of all network cards of a node"
        )
    draft.set("cluster", described_node(accelerator.name, per_node, 0 if nodes == 1 else None))


def _read_sbatch(draft: Draft, script: LaunchScript) -> None:
    request = Request(shell=script.shell, options=script.directives, program="sbatch", block=script)
    if not script.directives.entries:
        if script.launches:
            draft.set("launch.target", "shell")
        return
    draft.set("launch.target", "slurm")
    # where a run goes on
    written = ("--signal", "--open-mode") if script.shell.text.path in draft.ours else ()
    for option in script.directives.entries:
        if script.directives.get(option.name) is option and option.name not in written:
            _read_option(draft, script, option, request.tasks_per_node)
    limit = request.argument("--time")
    if limit and limit.text and request.seconds("--time") not in (None, math.inf):
        draft.set("launch.time_limit", limit.text)
    name = request.text("--job-name")
    draft.set("name", name.value if name and "$" not in name.value else None)
    for flag in ("exclusive", "requeue"):
        draft.set(f"launch.slurm.{flag}", True if request.has(f"--{flag}") else None)
    gres = request.text("--gres")
    kinds = [
        item.type for item in (gres_list(gres.value) if gres else None) or () if item.name == "gpu"
    ]
    draft.set("launch.slurm.gres_type", kinds[0] if kinds else None)
    draft.set("launch.slurm.gpu_request", "gres" if gres and kinds else None)
    _read_commands(draft, script)


def _read_option(draft: Draft, script: LaunchScript, option: Option, tasks: int | None) -> None:
    """Take one option as a key or as a directive of its own, else name it.

    `tasks` are those of a node.
    """
    value = option.values[0].value if option.values else None
    where, shown = script.shell.locate(option.written), option.written.raw
    if option.values and option.values[0] is not option.written and "=" not in shown:
        shown = f"{shown} {option.values[0].raw}"

    # A plan decides these itself.
    if option.name in _PLANNED:
        if option.name in _ONE_TASK and value != "1":
            why = "dsgen's script has one task on each node, which starts a process for each GPU"
            draft.leave(shown, where, why)
        return

    name = option.name.lstrip("-")
    depends_on_shell = value is None or "$" in value or "`" in value
    if option.values and depends_on_shell:
        draft.leave(shown, where, "its value is not in the files")
    elif option.name == "--cpus-per-task":
        cores = read_whole(value)
        of_node = cores * tasks if cores is not None and tasks else None
        draft.set("launch.slurm.cpus_per_task", of_node)
    elif name in NAMED:
        draft.set(f"launch.slurm.{NAMED[name]}", value)
    elif not option.known:
        draft.leave(shown, where, "sbatch has no such option")
    else:
        slurm = draft.spec.setdefault("launch", {}).setdefault("slurm", {})
        slurm.setdefault("directives", {})[name] = True if value is None else value


def _read_commands(draft: Draft, script: LaunchScript) -> None:
    """Read modules, the environment that is entered, and srun's container; name other commands."""
    modules: list[str] = []
    others: dict[str, Any] = {}
    launched = {id(call.command) for launch in script.launches for call in launch.calls}
    for command in script.shell.commands:
        words = [word.value for word in command.words]
        if not words or id(command) in launched or command.inside is not None:
            continue
        if words[0] in ("module", "ml") and words[1:2] == ["load"] and all(words[2:]):
            modules += [word for word in words[2:] if word]
        elif (
            words[0] in ("source", ".")
            and len(words) == 2
            and (words[1] or "").endswith("/bin/activate")
        ):
            draft.set(
                "launch.slurm.virtual_environment", str(words[1]).removesuffix("/bin/activate")
            )
        elif words[0] not in (
            "echo",
            "set",
            "date",
            "exit",
            "module",
            "mkdir",
            "cd",
            "wait",
            "printf",
            "export",
            "[",
        ):
            others.setdefault(command.words[0].raw, command)
    draft.set("launch.slurm.modules", modules)
    # the lines of `launch.slurm.setup` in a script that dsgen wrote
    if script.shell.text.path in draft.ours:
        block = script.shell.text.content.partition("\nset +u # ")[2].partition("\nset -u\n")[0]
        usual = ("module load ", "source ", "# shellcheck ")
        kept = [
            line for line in block.split("\n")[1:] if line.strip() and not line.startswith(usual)
        ]
        draft.set("launch.slurm.setup", kept)
        others.clear()
    for launch in script.launches:
        srun = launch.call("srun")
        if srun:
            for name in ("container_image", "container_mounts"):
                value = srun.options.text("--" + name.replace("_", "-")) if srun else None
                if value and "$" not in value:
                    draft.set(
                        f"launch.slurm.{name}",
                        value.split(",") if name == "container_mounts" else value,
                    )
    if script.shell.text.path in draft.ours:
        content = script.shell.text.content
        if pulled := _PULLED.search(content):
            draft.set("launch.slurm.container_image", pulled[2])
            if pulled[1].startswith("apptainer"):
                draft.set("launch.slurm.container_runtime", "apptainer")
        if mounts := _MOUNTED.findall(content):
            draft.set("launch.slurm.container_mounts", mounts)
    calls = [call.word.offset for one in script.launches for call in one.calls]
    for name, command in others.items():
        if not any(command.offset <= offset < command.offset + 400 for offset in calls):
            why = "a command of the script; launch.slurm.setup can hold it"
            draft.leave(f"`{name} ...`", script.shell.locate(command), why)


def _read_environment(draft: Draft) -> None:
    """The variables that the program gets, but for those that dsgen's launch files set."""
    launch, options = draft.found.launch, draft.spec.get("launch", {}).get("kubernetes", {})
    if launch is None:
        return
    from_secrets = {text.rpartition(":")[2] for text in options.get("variables_from", ())}
    for name, assignment in launch.environment.items():
        if _RENDEZVOUS.fullmatch(name) or name in from_secrets:
            continue
        where, value = launch.script.locate(assignment), assignment.value
        if likeness(name) is not Likeness.NONE:
            draft.leave(name, where, SECRET)
        elif value is None or "$" in value or "\n" in value:
            draft.leave(f"{name}={assignment.raw}", where, "its value is not in the files")
        else:
            draft.spec.setdefault("launch", {}).setdefault("environment", {})[name] = value


def _take(draft: Draft, document: Any, keys: Mapping[str, str], known: tuple[str, ...]) -> None:
    """Take the values of a YAML document that are keys of the spec; name its other keys."""
    for name, path in keys.items():
        value = document.value(name)
        draft.set(path, value if isinstance(value, str | int | bool) else None)
    taken = {name.partition("/")[0] for name in (*keys, *known)}
    for key, place, _ in document.entries(""):
        if key not in taken:
            draft.leave(key, document.locate_key(place), "the spec has no key for it")


def _read_azureml(draft: Draft, job: AzureMLJob, config: Config | None) -> None:
    draft.set("launch.target", "azureml")
    texts = ("compute", "environment", "experiment_name", "display_name", "code")
    keys = {name: f"launch.azureml.{name}" for name in texts} | {
        "resources/shm_size": "launch.azureml.shm_size"
    }
    keys["identity/type"] = "launch.azureml.identity"
    limit_s = job.integer("limits/timeout")
    draft.set("launch.time_limit", clock(limit_s) if limit_s else None)
    blocks = ("inputs", "outputs", "tags", "services", "queue_settings")
    for name in blocks:
        draft.set(f"launch.azureml.{name}", dict(job.block(name)) or None)
    # The config and what ends a run are written anew, and become inputs again.
    own_files = {ENDS, *([] if config is None else [Path(config.path).name])}
    for name, _, entry in job.entries("inputs"):
        path = str(entry.get("path")) if isinstance(entry, dict) else ""
        if ":" not in path and Path(path).name in own_files:
            draft.drop(("launch", "azureml", "inputs", str(name)))
    planned = (
        "$schema",
        "type",
        "command",
        "distribution",
        "environment_variables",
        "resources",
        "limits",
    )
    _take(draft, job, keys, (*blocks, *planned))
    if not isinstance(job.value("environment"), str) and job.has("environment"):
        draft.leave(
            "environment",
            job.locate("environment"),
            "the spec can name an environment, not define one",
        )


def _read_kubernetes(draft: Draft, job: KubernetesJob) -> None:
    draft.set("launch.target", "kubernetes")
    draft.set(
        "launch.kubernetes.kind", job.kind_of_job if job.kind_of_job != "PyTorchJob" else None
    )
    keys = {"metadata/name": "name", "metadata/namespace": "launch.kubernetes.namespace"}
    for role in job.trainers[:1]:
        keys[f"{role.container}/image"] = "launch.kubernetes.image"
        keys |= {f"{role.pod}/{name}": f"launch.kubernetes.{key}" for name, key in _OF_PODS.items()}
        for name in ("initContainers", "affinity"):
            if job.has(f"{role.pod}/{name}"):
                draft.leave(
                    name,
                    job.locate_key(f"{role.pod}/{name}"),
                    "launch.kubernetes has no key for it",
                )
        for key, values in _of_pod(draft, job, role).items():
            draft.set(f"launch.kubernetes.{key}", [text for text in values if text])
        for part in ("spec/runPolicy", role.pod.removesuffix("/template/spec")):
            limit_s = job.integer(f"{part}/activeDeadlineSeconds")
            draft.set("launch.time_limit", clock(limit_s) if limit_s else None)
    _take(draft, job, keys, ("apiVersion", "kind", "spec"))


def _of_pod(draft: Draft, job: KubernetesJob, role: Role) -> dict[str, list[str | None]]:
    """Read what a pod mounts, gets and asks for; name entries that a spec can't have."""

    def each(place: str, why: str, read: Callable[[Any], str | None]) -> list[str | None]:
        found = list[str | None]()
        for at, entry in job.items(place):
            with suppress(KeyError, TypeError, AttributeError):  # of another shape
                found.append(read(entry))
                continue
            draft.leave(place.rpartition("/")[2], job.locate(at), f"launch.kubernetes.{why}")
        return found

    counted = {name for name, _, _ in gpu_requests(job, role.resources)}
    mounts = {
        one.get("name"): one
        for _, one in job.items(f"{role.container}/volumeMounts")
        if isinstance(one, dict)
    }

    def volume(entry: Any) -> str | None:
        mount = mounts.get(entry["name"], {})
        if not mount or "configMap" in entry:  # whose files are written anew
            return None
        if mount["mountPath"] == "/dev/shm":
            draft.set("launch.kubernetes.shm_size", entry["emptyDir"].get("sizeLimit"))
            return None
        claim = {} if "subPath" in mount else entry["persistentVolumeClaim"]
        return f"{claim['claimName']}:{mount['mountPath']}{':ro' * (mount.get('readOnly') is True)}"

    def variable(entry: Any) -> str | None:
        secret = entry["valueFrom"]["secretKeyRef"] if "valueFrom" in entry else None
        return secret and f"{secret['name']}/{secret['key']}:{entry['name']}"

    def toleration(entry: Any) -> str:
        return f"{entry['key']}{'=' + entry['value'] if 'value' in entry else ''}:{entry['effect']}"

    return {
        "volumes": each(f"{role.pod}/volumes", "volumes has claims alone", volume),
        "variables_from": each(
            f"{role.container}/env", "variables_from has secrets alone", variable
        ),
        "tolerations": each(
            f"{role.pod}/tolerations", "tolerations has those of a key and an effect", toleration
        ),
        "image_pull": each(
            f"{role.pod}/imagePullSecrets", "image_pull has names", lambda entry: str(entry["name"])
        ),
        "node_selector": [
            f"{name}={value}" for name, value in job.block(f"{role.pod}/nodeSelector").items()
        ],
        "resources": [
            f"{name}={value}"
            for name, value in job.block(f"{role.resources}/limits").items()
            if name not in counted
        ],
    }


def _read_skypilot(draft: Draft, task: SkyPilotTask) -> None:
    draft.set("launch.target", "skypilot")
    keys = {"name": "name", "resources/image_id": "launch.skypilot.image"}
    keys |= {name: f"launch.skypilot.{name}" for name in ("workdir", "setup")}
    requests = ("infra", "instance_type", "use_spot", "disk_size")
    keys |= {f"resources/{name}": f"launch.skypilot.{name}" for name in requests}
    accelerators = task.value("resources/accelerators")
    if isinstance(accelerators, str):
        draft.comments["accelerator"] = accelerators.partition(":")[0].lower()
    copied, buckets = list[str](), list[str]()
    for target, at, source in task.entries("file_mounts"):
        if isinstance(source, str):
            copied.append(f"{source}:{target}")
        elif (
            isinstance(source, dict)
            and {*source} <= {"source", "mode"}
            and source.get("mode", "MOUNT") == "MOUNT"
        ):
            buckets.append(f"{source.get('source')}:{target}")
        else:
            draft.leave(
                f"file_mounts {target}",
                task.locate_key(at),
                "launch.skypilot.buckets mounts whole buckets",
            )
    draft.set("launch.skypilot.file_mounts", copied)
    draft.set("launch.skypilot.buckets", buckets)
    draft.set(
        "launch.skypilot.passed_variables",
        [name for name, _, value in task.entries("secrets") if value is None],
    )
    for name, at, value in task.entries("secrets"):
        if value is not None:
            draft.leave(name, task.locate_key(at), SECRET)
    _take(draft, task, keys, ("run", "num_nodes", "resources", "envs", "file_mounts", "secrets"))
