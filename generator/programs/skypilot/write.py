"""SkyPilot: a task that torchrun starts on every node, on any cloud or on Kubernetes.

SkyPilot runs the task's `run` by bash on each node, with SKYPILOT_NODE_RANK, SKYPILOT_NODE_IPS,
SKYPILOT_NUM_NODES and SKYPILOT_NUM_GPUS_PER_NODE set. Source: skypilot 0.14.1
sky/skylet/constants.py:641-646, sky/skylet/log_lib.py:391.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from ...job.records import JobLaunch
from ...patterns import lazy_pattern
from ...search.plan import Plan
from ..launching import write
from ..program import Launcher, Program, RenderedFile, Scheduler, from_the_scripts_folder
from .accelerators import accelerator_name

_PORT: Final = 29500  # torch's own default
#: The secrets of a task's file, and the names of those without a value.
_SECRETS: Final = lazy_pattern(r"^secrets:\n((?: .*\n)+)", re.MULTILINE)
_WITHOUT_VALUE: Final = lazy_pattern(r"^ +(\w+):(?: null| ~)? *$", re.MULTILINE)
#: What a task's name may be. Source: skypilot 0.14.1 sky/task.py:46 (_VALID_NAME_REGEX).
_NAME: Final = lazy_pattern(r"[a-zA-Z0-9]+(?:[._-]{1,2}[a-zA-Z0-9]+)*")
#: Clouds by the catalog's names of providers. Source: skypilot 0.14.1 sky/skylet/constants.py:885
#: (ALL_CLOUDS).
_CLOUDS: Final = frozenset({"aws", "azure", "gcp", "lambda", "nebius", "oci"})


def launch_files(plan: Plan, program: Program, command: str) -> tuple[RenderedFile, ...]:
    """`task.yaml`, for `sky launch task.yaml` from the script's folder."""
    return (
        write.yaml_file("task.yaml", plan, program, command, _notes(plan), _task(plan, program)),
    )


def _task(plan: Plan, program: Program) -> dict[str, object]:
    """The entries of `task.yaml`."""
    options, limit_s = write.launch_options(plan), plan.job.launch.time_limit_s
    written = tuple(
        (file.path, write.Raw(file.text), write.Raw(_end_of(file.text))) for file in program.files
    )
    mounts = {target: source for source, target in _pairs(options, "file_mounts")}
    buckets = {
        target: {"source": source, "mode": "MOUNT"} for source, target in _pairs(options, "buckets")
    }
    in_pods = options.get("infra", "").lower().startswith(("k8s", "kubernetes"))
    environment = write.pod_environment if in_pods else write.environment
    variables = environment(plan, program)
    secret = options.get("passed_variables", ())
    return {
        "name": "-".join(_NAME.findall(plan.job.name)) or "job",
        "resources": _resources(plan, options),
        "num_nodes": plan.job.nodes,
        "workdir": options.get("workdir", "."),
        "file_mounts": {**mounts, **buckets},
        "envs": {name: value for name, value in variables.items() if name not in secret},
        "secrets": dict.fromkeys(secret),
        "setup": options.get("setup"),
        "run": write.fill(
            "skypilot/run.sh.j2",
            plan,
            program,
            limit="" if limit_s is None else write.Raw(str(limit_s)),
            port=_PORT,
            written=written,
            **write.ending_values(plan, program),
        ),
    }


def _end_of(text: str) -> str:
    """A word that ends a here-document with the text: no line of it is that word."""
    lines, end = set(text.split("\n")), "END"
    while end in lines:
        end += "_"
    return end


def _pairs(options: Mapping[str, Any], key: str) -> Iterator[tuple[str, str]]:
    """Source and destination of each `source:destination`."""
    for text in options.get(key) or ():
        source, _, target = text.rpartition(":")
        yield source, target


def _resources(plan: Plan, options: Mapping[str, Any]) -> dict[str, object]:
    cluster, gpus = plan.job.cluster, write.processes_per_node(plan)
    cloud = cluster.provider if cluster.provider in _CLOUDS else None
    card = options.get("accelerator", accelerator_name(cluster.accelerator.name))
    has_network = plan.job.nodes > 1 and cluster.network_bytes_per_s_per_node
    resources = {
        "infra": options.get("infra", cloud),
        "instance_type": options.get("instance_type"),
        "accelerators": f"{card}:{gpus}",
        "image_id": options.get("image"),
        "use_spot": options.get("use_spot"),
        "disk_size": options.get("disk_size"),
        "network_tier": "best" if has_network else None,
    }
    return {key: value for key, value in resources.items() if value is not None}


def _notes(plan: Plan) -> Iterator[str]:
    """Notes on paths, and on what the user has to do."""
    options, script = write.launch_options(plan), plan.job.launch.script
    yield (
        "For SkyPilot 0.14. Its paths are relative to the folder that sky launch runs "
        "in, not to this file."
    )
    if "workdir" not in options:
        holds = "" if plan.job.launch.is_module else f" and holds {script}"
        yield (
            f"`workdir` is that folder, which is uploaded{holds}; "
            "launch.skypilot.workdir names another."
        )
    yield from _lost(plan)
    if options.get("use_spot"):
        yield (
            "sky launch starts nothing again when a machine is taken away: sky jobs launch "
            "does, with the same file."
        )
    if options.get("passed_variables"):
        yield "The secrets are taken from where it is launched: sky launch --secret NAME for each."


def _lost(plan: Plan) -> Iterator[str]:
    """Notes on paths that are in no bucket and on no mount."""
    options = plan.job.launch.options
    mounts = (*_pairs(options, "buckets"), *_pairs(options, "file_mounts"))
    return write.not_mounted(plan.job, (target for _, target in mounts), "launch.skypilot.buckets")


def _secret_options(file: Path) -> tuple[str, ...]:
    """Options of `sky launch` for the task's secrets, whose values are not in the file."""
    block = _SECRETS.search(file.read_text(encoding="utf-8")) if file.is_file() else None
    names = _WITHOUT_VALUE.findall(block[1]) if block else ()
    return tuple(word for name in names for word in ("--secret", name))


def _before(launch: JobLaunch, folder: Path) -> str:
    """Return what is uploaded, which has to hold the script."""
    if "workdir" in launch.options and not launch.is_module:
        return f"Start the job, which uploads {launch.options['workdir']} with {launch.script}:"
    return from_the_scripts_folder(launch, folder)


LAUNCHER: Final = Launcher(
    name="skypilot",
    files=launch_files,
    start="sky launch {}/task.yaml",
    file="task.yaml",
    extra_words=_secret_options,
    token="set launch.skypilot.passed_variables: [HF_TOKEN]",
    scheduler=Scheduler(
        submit=("sky", "launch", "--yes", "--detach-run", "{file}"),
        trial=("sky", "launch", "--yes", "--dryrun", "{file}"),
        identity=r"sky logs ([\w.-]+)",  # the cluster's name
        watch=("sky queue {id}", "sky logs {id}"),
    ),
    in_folder=False,  # `workdir` may be another folder, which is uploaded
    lost=_lost,
    before=_before,
)  # fmt: skip
