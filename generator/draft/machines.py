"""What a launch asks of machines and scheduler: nodes, GPUs, options of Slurm and of services."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeGuard

from ..catalog import find_accelerator
from ..estimate.adapters import ALL_LINEAR, ATTENTION
from ..job.resolve_names import described_node
from ..numerals import read_whole
from ..patterns import lazy_pattern
from ..programs.azureml.job import ENDS, AzureMLJob
from ..programs.deepspeed.config import Config
from ..programs.kubernetes.job import KubernetesJob, Role, gpu_requests
from ..programs.launching.front_ends import trains
from ..programs.skypilot.read import SkyPilotTask
from ..programs.slurm.request import Request
from ..programs.slurm.rules.script import SET_BY
from ..programs.slurm.values import gres_list
from ..programs.slurm.write import NAMED
from ..secrets import Likeness, likeness
from ..submission.launches import Call, Launch
from ..submission.planned import cluster_of
from ..submission.script import LaunchScript
from ..submission.world import world_of
from ..text.around import is_readable
from ..text.options import Option
from ..text.shell.records import Assignment, Command, ShellScript
from ..text.text import UnusableJson, read_json
from ..units import clock
from .draft import SECRET, Draft
from .preparation import CHANGES_THE_SHELL, Places, line_of, text_of

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
    r"|HOSTNAMES?|HOSTS?|NODELIST|SLURM_.*|SRUN_CPUS_PER_TASK"
    r"|PET_.*|AZ_.*|AZUREML_.*|SKYPILOT_.*|CUDA_VISIBLE_DEVICES"
    r"|PATH|HOME|PWD|OMPI_.*|JOB_COMPLETION_INDEX"
)
#: A variable of Slurm's, as the whole of a value.
_OF_SLURM: Final = lazy_pattern(r"(\"?)\$(?:(SLURM_[A-Z_]+)|\{(SLURM_[A-Z_]+)\})\1")
#: Commands that need no key of the spec: dsgen's script does the same, or nothing depends on them.
_NEEDS_NO_KEY: Final = frozenset(
    {
        "[",
        "cd",
        "date",
        "echo",
        "exit",
        "export",
        "mkdir",
        "printf",
        "set",
        "wait",
    }
)
#: Why a command isn't carried over.
_OF_SCRIPT: Final = "a command of the script; launch.slurm.setup can hold it"
#: Commands that load modules.
_LOADERS: Final = ("module", "ml")
#: Keys of a pod, by name in Kubernetes.
_OF_PODS: Final = {
    "serviceAccountName": "service_account",
    "hostNetwork": "host_network",
    "priorityClassName": "priority_class",
}


def read_machines(draft: Draft) -> None:
    """Set GPUs, the scheduler's options and the environment."""
    run = draft.found
    submission = run.submission
    world = world_of(submission)
    gpus = run.megatron.run.gpus if run.megatron else None
    gpus = gpus or world.gpus
    draft.set("gpus", gpus)
    if not gpus:
        draft.set("nodes", world.nodes)
    scripts = [
        script
        for script in submission.scripts
        if run.launch is None or script.shell is run.launch.script
    ]
    # A run has one script or job; of several the first decides.
    for script in scripts[:1]:
        _read_sbatch(draft, script)
    for job in submission.of(AzureMLJob)[:1]:
        _read_azureml(draft, job, run.config)
    for pods in submission.of(KubernetesJob)[:1]:
        _read_kubernetes(draft, pods)
    accelerator = draft.get("launch.slurm.gres_type")
    for task in submission.of(SkyPilotTask)[:1]:
        _read_skypilot(draft, task)
        accelerator = accelerator or _accelerator_of(task)
    _read_plan(draft, Path(run.where.path).parent)
    if draft.get("cluster") is None:
        _read_cluster(draft, accelerator, world.gpus_per_node, world.nodes)
    _read_environment(draft, next(iter(scripts), None))
    for launch in submission.launches:
        program = launch.program
        if not trains(launch.front_end) and program is not None:
            last = launch.arguments[-1] if launch.arguments else program
            content = launch.script.text.content
            text = content[program.offset : last.offset + len(last.raw)]
            where = launch.script.locate(program)
            draft.leave(text, where, "it serves the training: the spec has the training alone")


def _read_plan(draft: Draft, folder: Path) -> None:
    """Read machines, length and adapters from the plan beside scripts that dsgen wrote."""
    path, plan = folder / "plan.json", None
    with suppress(UnusableJson):
        plan = read_json(path) if is_readable(path, folder) else None
    match plan:
        case {
            "job": {
                "name": str(name),
                "training": {"sequence_length": length, "lora": lora},
                "cluster": dict(cluster),
            }
        }:
            planned = {
                "name": name,
                "training.sequence_length": length,
                "training.lora": lora,
                "cluster": cluster_of(cluster),
            }
            for key, value in planned.items():
                if draft.get(key) is None:
                    draft.set(key, value)
    for word in (ALL_LINEAR, ATTENTION):  # a spec has them as words
        if draft.get("training.lora.modules") == [word]:
            draft.set("training.lora.modules", word)


def _read_cluster(draft: Draft, name: object, per_node: int | None, nodes: int | None) -> None:
    """Read the machine type with the accelerator of that name, if the catalog has it.

    No file says how fast its network is.
    """
    accelerator = find_accelerator(str(name).replace("_", "-")) if name else None
    if accelerator is None or not per_node:
        return
    if nodes != 1:
        draft.comments["cluster.network_gbits_per_s_per_node"] = (
            "assumed: the rate of all network cards of a node"
        )
    draft.set("cluster", described_node(accelerator.name, per_node, 0 if nodes == 1 else None))


def _read_sbatch(draft: Draft, script: LaunchScript) -> None:
    """Read the directives and the commands of a script; without directives it is a shell's."""
    request = Request(shell=script.shell, options=script.directives, program="sbatch", block=script)
    if not script.directives.entries:
        if script.launches:
            draft.set("launch.target", "shell")
            _leave_preparation(draft, script.shell)
        return
    draft.set("launch.target", "slurm")
    # With these options dsgen's own scripts go on after a time limit: `generate` writes them again.
    rewritten = ("--signal", "--open-mode") if script.shell.text.path in draft.ours else ()
    for option in script.directives.entries:
        is_last = script.directives.get(option.name) is option  # the last one counts
        if is_last and option.name not in rewritten:
            _read_option(draft, script, option, request.tasks_per_node)
    limit = request.argument("--time")
    if limit and limit.text and request.seconds("--time") not in (None, math.inf):
        draft.set("launch.time_limit", limit.text)
    name = request.text("--job-name")
    draft.set("name", name.value if name and "$" not in name.value else None)
    for flag in ("exclusive", "requeue"):
        draft.set(f"launch.slurm.{flag}", True if request.has(f"--{flag}") else None)
    gres = request.text("--gres")
    resources = gres_list(gres.value) if gres else None
    gpus = [resource for resource in resources or () if resource.name == "gpu"]
    if gpus:
        draft.set("launch.slurm.gres_type", gpus[0].type)
        draft.set("launch.slurm.gpu_request", "gres")
    _read_commands(draft, script)


def _read_option(draft: Draft, script: LaunchScript, option: Option, tasks: int | None) -> None:
    """Take one option of sbatch as a key or as a directive of its own, else name it.

    `tasks` is the number of tasks on a node.
    """
    value = option.values[0].value if option.values else None
    where, shown = script.shell.locate(option.written), option.written.raw
    has_separate_value = option.values and option.values[0] is not option.written
    if has_separate_value and "=" not in shown:
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
    content = script.shell.text.content
    is_ours = script.shell.text.path in draft.ours
    setup = _read_preparation(draft, script)
    draft.set("launch.slurm.setup", _setup_lines(content) if is_ours else setup)
    for launch in script.launches:
        srun = launch.call("srun")
        if srun:
            _read_container(draft, srun)
    if is_ours:
        _read_our_container(draft, content)


def _read_preparation(draft: Draft, script: LaunchScript) -> list[str]:
    """Read modules and the virtual environment, and name other commands.

    Returns the lines of those that prepare the environment otherwise: they run after these keys,
    in this order.
    """
    shell, environment = script.shell, "launch.slurm.virtual_environment"
    launched = [call.command for launch in script.launches for call in launch.calls]
    first = min((command.index for command in launched), default=len(shell.commands))
    starters = {command.index for command in launched} | {each.inside for each in launched}
    modules: list[str] = []
    setup: list[str] = []
    named: set[str] = set()
    places = Places(shell.commands)
    for command in shell.commands:
        words = [word.value for word in command.words]
        if not words or command.index in starters or command.inside is not None:
            continue
        if places.is_given(command) or _evaluates(command, launched):
            continue
        is_sourced = command.offset > len(shell.text.content)  # it is in another file
        changes_shell = words[0] in CHANGES_THE_SHELL and not is_sourced
        loads_modules = words[0] in _LOADERS and words[1:2] == ["load"] and all(words[2:])
        folder = _entered_by(words)
        is_before = changes_shell and command.index < first
        line = line_of(shell, command, places) if is_before else None
        if line is not None and line != draft.hide(line):  # it has a secret
            line = None

        comes_first = not setup and not draft.get(environment)
        if comes_first and loads_modules:
            modules += [word for word in words[2:] if word]
        elif comes_first and folder:
            draft.set(environment, folder)
        elif line is not None:
            if line not in setup[-1:]:  # as of two commands on one line
                setup.append(line)
        elif changes_shell:
            draft.leave(f"`{text_of(shell, command)}`", shell.locate(command), _OF_SCRIPT)
        elif not (words[0] in _NEEDS_NO_KEY or words[0] in _LOADERS or words[0] in named):
            named.add(words[0] or "")
            draft.leave(f"`{command.words[0].raw} ...`", shell.locate(command), _OF_SCRIPT)
    draft.set("launch.slurm.modules", modules)
    return setup


def _evaluates(command: Command, launched: Iterable[Command]) -> bool:
    """Return whether a command is the `eval` of the text that starts a launch."""
    if command.words[0].value != "eval":
        return False
    words = (command.words[-1].value or "").split()
    following = (each for each in launched if each.index == command.index + 1)
    return any(each.words[0].value in words for each in following)


def _leave_preparation(draft: Draft, shell: ShellScript) -> None:
    """Name the commands that prepare the environment, for a target that has no key for them."""
    for command in shell.commands:
        is_here = command.inside is None and command.offset <= len(shell.text.content)
        if command.words and is_here and command.words[0].value in CHANGES_THE_SHELL:
            why = "a command of the script: run it before the launch file"
            draft.leave(f"`{text_of(shell, command)}`", shell.locate(command), why)


def _entered_by(words: Sequence[str | None]) -> str:
    """The folder of the virtual environment that a command enters; empty: none."""
    if words[0] not in ("source", ".") or len(words) != 2:
        return ""
    folder, activate, rest = (words[1] or "").rpartition("/bin/activate")
    return folder if activate and not rest else ""


def _setup_lines(content: str) -> list[str]:
    """The lines of `launch.slurm.setup` in a script that dsgen wrote.

    They are between `set +u` and `set -u`, behind modules and the virtual environment.
    """
    block = content.partition("\nset +u # ")[2].partition("\nset -u\n")[0]
    lines = [line for line in block.split("\n")[1:] if line.strip()]  # the first is a comment's
    while lines and lines[0].startswith("module load "):
        del lines[0]
    return lines[2:] if lines[:1] == ["# shellcheck disable=SC1091"] else lines


def _read_container(draft: Draft, srun: Call) -> None:
    """Read the container that srun's options name."""
    image = srun.options.text("--container-image")
    if image and "$" not in image:
        draft.set("launch.slurm.container_image", image)
    mounts = srun.options.text("--container-mounts")
    if mounts and "$" not in mounts:
        draft.set("launch.slurm.container_mounts", mounts.split(","))


def _read_our_container(draft: Draft, content: str) -> None:
    """Read the container of a script that dsgen wrote, which has it in variables."""
    pulled = _PULLED.search(content)
    if pulled:
        draft.set("launch.slurm.container_image", pulled[2])
        if pulled[1].startswith("apptainer"):
            draft.set("launch.slurm.container_runtime", "apptainer")
    draft.set("launch.slurm.container_mounts", _MOUNTED.findall(content))


def _count_by_slurm(assignment: Assignment, script: LaunchScript | None) -> str | None:
    """The count that a variable of Slurm's has by the script's own option for it."""
    match = _OF_SLURM.fullmatch(assignment.raw)
    if match is None or script is None:
        return None
    name = match[2] or match[3]
    option = "--" + name.removeprefix("SLURM_").lower().replace("_", "-")
    count = script.directives.integer(option) if option in SET_BY.get(name, ()) else None
    return str(count) if count is not None else None


def _read_environment(draft: Draft, script: LaunchScript | None) -> None:
    """Set the variables that the program gets, but for those that dsgen's launch files set.

    `script` has the options of the scheduler.
    """
    launch = draft.found.launch
    if launch is None:
        return
    of_secrets = draft.get("launch.kubernetes.variables_from") or ()
    from_secrets = {text.rpartition(":")[2] for text in of_secrets}
    for name, assignment in launch.environment.items():
        if _RENDEZVOUS.fullmatch(name) or name in from_secrets or _is_of_line(launch, assignment):
            continue
        where = launch.script.locate(assignment)
        value = _count_by_slurm(assignment, script) or assignment.value
        if likeness(name) is not Likeness.NONE:
            draft.leave(name, where, SECRET)
        elif value is None or "$" in value or "\n" in value:
            draft.leave(f"{name}={assignment.raw}", where, "its value is not in the files")
        else:
            draft.spec.setdefault("launch", {}).setdefault("environment", {})[name] = value


def _is_of_line(launch: Launch, assignment: Assignment) -> bool:
    """Whether a variable holds a part of the launch line: `CMD="train.py --lr 1e-4"`.

    The shell puts it into the line. The program doesn't read it.
    """
    parts = (assignment.value or "").split()
    words = [launch.program, *(call.word for call in launch.calls)]
    return len(parts) > 1 and any(word is not None and word.value in parts for word in words)


def _take(draft: Draft, document: Any, keys: Mapping[str, str], handled: tuple[str, ...]) -> None:
    """Take the values of a YAML document for keys of the spec, and name its other keys.

    `keys` has the paths in the spec. Keys that are `handled` elsewhere aren't named.
    """
    for name, path in keys.items():
        value = document.value(name)
        draft.set(path, value if isinstance(value, str | int | bool) else None)
    taken = {name.partition("/")[0] for name in (*keys, *handled)}
    for key, place, _ in document.entries(""):
        if key not in taken:
            draft.leave(key, document.locate_key(place), "the spec has no key for it")


def _read_azureml(draft: Draft, job: AzureMLJob, config: Config | None) -> None:
    """Read an AzureML job."""
    draft.set("launch.target", "azureml")
    texts = ("compute", "environment", "experiment_name", "display_name", "code")
    keys = {name: f"launch.azureml.{name}" for name in texts}
    keys["resources/shm_size"] = "launch.azureml.shm_size"
    keys["identity/type"] = "launch.azureml.identity"
    limit_s = job.integer("limits/timeout")
    draft.set("launch.time_limit", clock(limit_s) if limit_s else None)
    blocks = ("inputs", "outputs", "tags", "services", "queue_settings")
    for name in blocks:
        draft.set(f"launch.azureml.{name}", dict(job.block(name)) or None)
    # The config and the program that ends a run are written anew, and become inputs again.
    rewritten = {ENDS}
    if config is not None:
        rewritten.add(Path(config.path).name)
    for name, _, entry in job.entries("inputs"):
        path = str(entry.get("path")) if isinstance(entry, dict) else ""
        if ":" not in path and Path(path).name in rewritten:
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
        why = "the spec can name an environment, not define one"
        draft.leave("environment", job.locate("environment"), why)


def _read_kubernetes(draft: Draft, job: KubernetesJob) -> None:
    """Read a job of Kubernetes: its first role that trains decides."""
    draft.set("launch.target", "kubernetes")
    if job.kind_of_job != "PyTorchJob":  # the default
        draft.set("launch.kubernetes.kind", job.kind_of_job)
    keys = {"metadata/name": "name", "metadata/namespace": "launch.kubernetes.namespace"}
    for role in job.trainers[:1]:
        keys[f"{role.container}/image"] = "launch.kubernetes.image"
        keys |= {f"{role.pod}/{name}": f"launch.kubernetes.{key}" for name, key in _OF_PODS.items()}
        for name in ("initContainers", "affinity"):
            place = f"{role.pod}/{name}"
            if job.has(place):
                draft.leave(name, job.locate_key(place), "launch.kubernetes has no key for it")
        for key, values in _of_pod(draft, job, role).items():
            draft.set(f"launch.kubernetes.{key}", [text for text in values if text])
        for part in ("spec/runPolicy", role.pod.removesuffix("/template/spec")):
            limit_s = job.integer(f"{part}/activeDeadlineSeconds")
            draft.set("launch.time_limit", clock(limit_s) if limit_s else None)
    _take(draft, job, keys, ("apiVersion", "kind", "spec"))


def _of_pod(draft: Draft, job: KubernetesJob, role: Role) -> dict[str, list[str | None]]:
    """Read what a pod mounts, gets and asks for; name entries that a spec can't have."""

    def texts(place: str, why: str, read: Callable[[Any], str | None]) -> list[str | None]:
        """The entries of a list as `read` writes them; others are named, with the reason."""
        values = list[str | None]()
        for at, entry in job.items(place):
            try:
                values.append(read(entry))
            except (KeyError, TypeError, AttributeError):  # an entry of another shape
                draft.leave(place.rpartition("/")[2], job.locate(at), f"launch.kubernetes.{why}")
        return values

    selector = job.block(f"{role.pod}/nodeSelector")
    limits = job.block(f"{role.resources}/limits")
    gpus = {name for name, _, _ in gpu_requests(job, role.resources)}
    return {
        "volumes": texts(
            f"{role.pod}/volumes", "volumes has claims alone", _volume_reader(draft, job, role)
        ),
        "variables_from": texts(
            f"{role.container}/env", "variables_from has secrets alone", _variable
        ),
        "tolerations": texts(
            f"{role.pod}/tolerations", "tolerations has those of a key and an effect", _toleration
        ),
        "image_pull": texts(
            f"{role.pod}/imagePullSecrets", "image_pull has names", lambda entry: str(entry["name"])
        ),
        "node_selector": [f"{name}={value}" for name, value in selector.items()],
        "resources": [f"{name}={value}" for name, value in limits.items() if name not in gpus],
    }


def _volume_reader(draft: Draft, job: KubernetesJob, role: Role) -> Callable[[Any], str | None]:
    """A function that writes a volume of a pod as a spec has it: `CLAIM:PATH`, `CLAIM:PATH:ro`."""
    mounts = {
        mount.get("name"): mount
        for _, mount in job.items(f"{role.container}/volumeMounts")
        if isinstance(mount, dict)
    }

    def volume(entry: Any) -> str | None:
        mount = mounts.get(entry["name"], {})
        if not mount or "configMap" in entry:  # files of a config map are written anew
            return None
        if mount["mountPath"] == "/dev/shm":
            draft.set("launch.kubernetes.shm_size", entry["emptyDir"].get("sizeLimit"))
            return None
        if "subPath" in mount:
            raise KeyError("a spec mounts whole claims")
        mode = ":ro" if mount.get("readOnly") is True else ""
        return f"{entry['persistentVolumeClaim']['claimName']}:{mount['mountPath']}{mode}"

    return volume


def _variable(entry: Any) -> str | None:
    """A variable from a secret as a spec has it; None for one with a plain value."""
    if "valueFrom" not in entry:
        return None
    secret = entry["valueFrom"]["secretKeyRef"]
    return f"{secret['name']}/{secret['key']}:{entry['name']}"


def _toleration(entry: Any) -> str:
    value = "=" + entry["value"] if "value" in entry else ""
    return f"{entry['key']}{value}:{entry['effect']}"


def _accelerator_of(task: SkyPilotTask) -> str | None:
    """The accelerator that a task asks for, as the catalog writes names."""
    accelerators = task.value("resources/accelerators")
    return accelerators.partition(":")[0].lower() if isinstance(accelerators, str) else None


def _is_whole_bucket(source: object) -> TypeGuard[Mapping[str, object]]:
    """Return whether an entry of `file_mounts` mounts a bucket as a whole."""
    if not isinstance(source, dict):
        return False
    has_other_keys = not source.keys() <= {"source", "mode"}
    return not has_other_keys and source.get("mode", "MOUNT") == "MOUNT"


def _read_skypilot(draft: Draft, task: SkyPilotTask) -> None:
    """Read a task of SkyPilot."""
    draft.set("launch.target", "skypilot")
    keys = {"name": "name", "resources/image_id": "launch.skypilot.image"}
    keys |= {name: f"launch.skypilot.{name}" for name in ("workdir", "setup")}
    requests = ("infra", "instance_type", "use_spot", "disk_size")
    keys |= {f"resources/{name}": f"launch.skypilot.{name}" for name in requests}
    copied, buckets = list[str](), list[str]()
    for target, at, source in task.entries("file_mounts"):
        if isinstance(source, str):
            copied.append(f"{source}:{target}")
        elif _is_whole_bucket(source):
            buckets.append(f"{source.get('source')}:{target}")
        else:
            why = "launch.skypilot.buckets mounts whole buckets"
            draft.leave(f"file_mounts {target}", task.locate_key(at), why)
    draft.set("launch.skypilot.file_mounts", copied)
    draft.set("launch.skypilot.buckets", buckets)
    passed = list[str]()
    for name, at, value in task.entries("secrets"):
        if value is None:  # it is taken from the user's environment
            passed.append(name)
        else:
            draft.leave(name, task.locate_key(at), SECRET)
    draft.set("launch.skypilot.passed_variables", passed)
    _take(draft, task, keys, ("run", "num_nodes", "resources", "envs", "file_mounts", "secrets"))
