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

from ...job.records import Job, JobLaunch
from ...patterns import lazy_pattern
from ...search.plan import Plan
from ..launching import write
from ..program import Launcher, Program, RenderedFile, Scheduler, from_the_scripts_folder
from .accelerators import accelerator_name

_PORT: Final = 29500  # torch's own default
_SECRETS: Final = lazy_pattern(r"^secrets:\n((?: .*\n)+)", re.MULTILINE)
# of secrets: without a value
_EMPTY: Final = lazy_pattern(r"^ +(\w+):(?: null| ~)? *$", re.MULTILINE)
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
    options, limit = write.launch_options(plan), plan.job.launch.time_limit_s
    in_pods = options.get("infra", "").lower().startswith(("k8s", "kubernetes"))
    ends = ["END" + number * "_" for number in range(99)]  # of here-documents: no line of theirs
    written = tuple(
        (
            file.path,
            write.Raw(file.text),
            write.Raw(next(end for end in ends if end not in file.text.split("\n"))),
        )
        for file in program.files
    )
    mounts = {target: source for source, target in _pairs(options, "file_mounts")}
    buckets = {
        target: {"source": source, "mode": "MOUNT"} for source, target in _pairs(options, "buckets")
    }
    variables = (write.pod_environment if in_pods else write.environment)(plan, program)
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
            limit="" if limit is None else write.Raw(str(limit)),
            port=_PORT,
            written=written,
            **write.ending_values(plan, program),
        ),
    }


def _pairs(options: Mapping[str, Any], key: str) -> Iterator[tuple[str, str]]:
    """Source and destination of each `source:destination`."""
    for text in options.get(key) or ():
        source, _, target = text.rpartition(":")
        yield source, target


def _resources(plan: Plan, options: Mapping[str, Any]) -> dict[str, object]:
    cluster, gpus = plan.job.cluster, write.processes_per_node(plan)
    cloud = cluster.provider if cluster.provider in _CLOUDS else None
    card = options.get("accelerator", accelerator_name(cluster.accelerator.name))
    resources = {
        "infra": options.get("infra", cloud),
        "instance_type": options.get("instance_type"),
        "accelerators": f"{card}:{gpus}",
        "image_id": options.get("image"),
        "use_spot": options.get("use_spot"),
        "disk_size": options.get("disk_size"),
        "network_tier": "best"
        if plan.job.nodes > 1 and cluster.network_bytes_per_s_per_node
        else None,
    }
    return {key: value for key, value in resources.items() if value is not None}


def _notes(plan: Plan) -> Iterator[str]:
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
    yield from _lost(plan.job)
    if options.get("use_spot"):
        yield (
            "sky launch starts nothing again when a machine is taken away: sky jobs launch "
            "does, with the same file."
        )
    if options.get("passed_variables"):
        yield "The secrets are taken from where it is launched: sky launch --secret NAME for each."


def _lost(job: Job) -> Iterator[str]:
    mounted = (
        target
        for key in ("buckets", "file_mounts")
        for _, target in _pairs(job.launch.options, key)
    )
    return write.not_mounted(job, mounted, "launch.skypilot.buckets")


def _secrets(file: Path) -> tuple[str, ...]:
    """Options that give the task's secrets their values, which are not in the file."""
    block = _SECRETS.search(file.read_text(encoding="utf-8")) if file.is_file() else None
    names = _EMPTY.findall(block[1]) if block else ()
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
    extra_words=_secrets,
    token="set launch.skypilot.passed_variables: [HF_TOKEN]",
    scheduler=Scheduler(
        submit=("sky", "launch", "--yes", "--detach-run", "{file}"),
        trial=("sky", "launch", "--yes", "--dryrun", "{file}"),
        identity=r"sky logs ([\w.-]+)",  # the cluster's name
        watch=("sky queue {id}", "sky logs {id}"),
    ),
    in_folder=False,  # or in another that is uploaded
    lost=_lost,
    before=_before,
)  # fmt: skip
