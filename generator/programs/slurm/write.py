"""Writes a job for Slurm: one batch script with a task per node and torchrun in each.

**Source** of what is said of containers: NVIDIA/pyxis wiki, Usage (srun --help):
`[USER@][REGISTRY#]IMAGE[:TAG]|PATH`, mount flags joined by `+`, --container-env; NVIDIA/enroot
doc/cmd/import.md; apptainer.org/docs/user/latest: bind_paths_and_mounts, environment_and_metadata
(--no-eval, APPTAINERENV_), gpu (--nv, --rocm), docker_and_oci.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import PurePosixPath
from typing import Any, Final

from ...job.needs import continuation
from ...numerals import python_int
from ...patterns import lazy_pattern
from ...search.plan import Plan
from ...units import GIB, clock
from ..launching import fabric, write
from ..program import (
    TRIAL,
    TRIAL_LOG,
    Launcher,
    Program,
    RenderedFile,
    Scheduler,
    last_save_s,
    last_step,
    saves_on_term,
)
from .values import MOST_SIGNAL_SECONDS

ENDS: Final = "ends.sh"  #: the functions with which a start of a run begins and ends
#: Megatron's options that save and end with status 0 before the last step.
_LEAVES_EARLY: Final = ("--exit-duration-in-mins", "--exit-interval")
_SECONDS_TO_STOP: Final = 30  #: what scontrol requeue and the epilogue need before the time limit
#: Slurm may send a signal up to a minute early. Source: sbatch(1), --signal.
_MOST_EARLY_S: Final = 60
#: Attempts in a row without a newer checkpoint: nodes don't fail so often, a wrong file does.
_ATTEMPTS: Final = 3


def launch_files(plan: Plan, program: Program, command: str) -> tuple[RenderedFile, ...]:
    """`launch.sbatch`, submitted from the script's folder, and what it needs beside it.

    `ends.sh` has the functions that a run calls to begin, end and go on; `submit.sh` submits a
    chain of jobs.
    """
    options, way = write.launch_options(plan), continuation(plan.job)
    signal_s = _signal_s(plan)
    variables = write.environment(plan, program)
    # Where the job has whole nodes the script counts their cores itself: the catalog's are a guess.
    counts_cores = (
        takes_nodes(plan, options)
        and "cpus_per_task" not in options
        and write.own_threads(plan, program)
    )
    exported = dict(variables)
    if counts_cores:
        exported.pop(write.THREADS, None)
    top = write.header(plan, program, command, tuple(_notes(plan, program, options, signal_s)))
    ending = _ending_values(plan, program, options, way, signal_s)
    read_files = (*write.config_files(program), *((ENDS,) if ending["ends"] else ()))
    virtual_environment = options.get("virtual_environment", "")
    values: dict[str, object] = {
        "directives": block(plan, options, way, signal_s),
        "header": top,
        "beside": read_files,
        "modules": tuple(options.get("modules", ())),
        "setup": tuple(map(write.Raw, options.get("setup", ()))),
        "virtual_environment": "" if "container_image" in options else virtual_environment,
        "torchrun": torchrun(options),
        # in the folder that the job is submitted from
        "here": not (program.script.startswith("/") or program.is_module),
        "exclusive": takes_nodes(plan, options),
        "threads": counts_cores,
        "environment": tuple((write.Raw(name), text) for name, text in exported.items()),
        "sourced": tuple(path for each in fabric.needed(plan.job) for path in each.sourced),
        "host_files": tuple(
            (write.Raw(name), path) for name, path in fabric.host_files(plan.job).items()
        ),
        "worker_signal": write.Raw("TERM" if saves_on_term(plan, program) else "USR1"),
        **_folders(plan, options),
        **container_values(plan, options, variables),
        **ending,
    }
    texts = {"launch.sbatch": write.fill("slurm/launch.sbatch.j2", plan, program, **values)}
    if ending["ends"]:
        texts[ENDS] = write.fill("slurm/ends.sh.j2", plan, program, header=top, **ending)
    files = tuple(RenderedFile(path=path, text=text) for path, text in texts.items())
    return (*files, _submit(plan, program, command)) if way == "chain" else files


def _ending_values(
    plan: Plan, program: Program, options: Mapping[str, Any], way: str, signal_s: int
) -> dict[str, object]:
    """What `launch.sbatch` and `ends.sh` need to know of how a start of the run ends.

    `ends` is the name of the second, and nothing where the run needs none.
    """
    form = plan.job.framework.checkpoints
    # Whether attempts are counted: those in a row in which no newer checkpoint was saved.
    is_tracked = way != "none" and plan.job.output.checkpoints is not None
    return {
        "ends": ENDS if is_tracked or signal_s > 0 or program.resume else None,
        "way": way,
        "tracked": is_tracked,
        "signal": signal_s > 0,
        # How long a job that was told waits for its workers before it queues again.
        "grace_s": max(signal_s - _SECONDS_TO_STOP, signal_s // 2),
        "last_step": last_step(plan, program),
        # With status 0 before its last step: at a time of its own, or when it gets TERM.
        "leaves_early": saves_on_term(plan, program)
        or any(option in program.arguments for option in _LEAVES_EARLY),
        "attempts": options.get("attempts", _ATTEMPTS),
        "tracker": form.tracker,
        "folder": form.folder,
        "names_folder": form.names_folder,
    }


def _submit(plan: Plan, program: Program, command: str) -> RenderedFile:
    """`submit.sh`: a chain of jobs at once, for sites whose compute nodes may not submit."""
    jobs = plan.run.segments if plan.run else None
    text = write.fill(
        "slurm/submit.sh.j2", plan, program, header=write.header(plan, program, command), jobs=jobs
    )
    return RenderedFile(path="submit.sh", text=text, executable=True)


def _folders(plan: Plan, options: Mapping[str, Any]) -> dict[str, object]:
    """Return where the script finds checkpoints and logs, and where the program does."""
    checkpoints, logs = plan.job.output.checkpoints, plan.job.output.logs
    return {
        "checkpoints": host_path(checkpoints or "", options),
        "logs": host_path(logs, options) if logs else "",
        "seen_logs": logs or "",
        "tee": write.Raw(' --tee=3 --log-dir="$RANK_LOGS/node$SLURM_NODEID"' if logs else ""),
    }


def _notes(
    plan: Plan, program: Program, options: Mapping[str, Any], signal_s: int
) -> Iterator[str]:
    if not takes_nodes(plan, options) and "memory" not in options and shared_memory(plan) is None:
        yield (
            "The node's memory is unknown, so Slurm's default limit applies: "
            "launch.slurm.memory sets another."
        )
    if plan.segment > 1 and not plan.job.elastic:
        yield (
            "--segment (Slurm 23.11, topology/block) keeps groups of ranks within racks as "
            "the plan counts them: "
            "with launch.slurm.directives, segment: N, it counts on another size."
        )
    set_keys = [f"launch.slurm.{key}" for key in ("modules", "setup") if options.get(key)]
    if set_keys and options.get("container_image"):  # pyxis starts it for srun's tasks alone
        run = "run" if len(set_keys) > 1 else "runs"
        yield f"{' and '.join(set_keys)} {run} on the first node's host, not in the container."
    framework = plan.job.framework
    if signal_s and framework.exit_option is not None and not saves_on_term(plan, program):
        yield (
            f"{framework} does not handle USR1: with {framework.exit_option} in launch.arguments "
            "the workers get TERM "
            "instead, save and exit."
        )


def _signal_s(plan: Plan) -> int:
    """Return how long before the time limit the job is told; 0: not at all."""
    options, way = write.launch_options(plan), continuation(plan.job)
    if "signal_seconds" in options or way == "none":
        return python_int(str(options.get("signal_seconds", 0))) or 0
    needed_s = _SECONDS_TO_STOP + _MOST_EARLY_S + last_save_s(plan)
    whole_minutes_s = 60 * -int(-needed_s // 60)  # rounded up
    limit_s = plan.job.launch.time_limit_s
    most_s = MOST_SIGNAL_SECONDS if limit_s is None else max(1, limit_s // 4)
    return min(whole_minutes_s, most_s)


def pick_file(
    plans: Sequence[Plan], largest: RenderedFile, command: str
) -> tuple[RenderedFile, ...]:
    """`launch.sbatch` of an elastic job, for whatever number of nodes it gets.

    It asks for as many nodes as there are, and runs the plan for those it got.
    """
    _, *lines = largest.text.splitlines()
    directives = takewhile(lambda line: line.startswith("#SBATCH "), lines)
    least, most = plans[-1].job.nodes, plans[0].job.nodes
    nodes = write.Raw(f"#SBATCH --nodes={most if least == most else f'{least}-{most}'}")
    # With --ntasks-per-node, Slurm 22.05 counts the tasks of the fewest nodes, and allocates no
    # more than these.
    sized_by_plan = ("#SBATCH --nodes=", "#SBATCH --ntasks-per-node=")
    # Early enough for the plan that takes longest to save.
    signal_time = f"@{max(_signal_s(plan) for plan in plans)}"
    kept = (
        write.Raw(re.sub(r"(?<=:USR1)@[0-9]+$", signal_time, line))
        for line in directives
        if not line.startswith(sized_by_plan)
    )
    text = write.fill_pick("slurm/pick.sbatch.j2", plans, command, directives=(nodes, *kept))
    return (RenderedFile(path="launch.sbatch", text=text),)


def trials_file(plans: Sequence[Plan], programs: Sequence[Program], command: str) -> RenderedFile:
    """`tune.sbatch`: an array with a task per trial, each with an allocation of its own."""
    options = write.launch_options(plans[0])
    limit_s = max(plan.job.launch.time_limit_s or 0 for plan in plans)
    directives = {"job-name": write.plain_name(f"{plans[0].job.name}-tune")}
    if limit_s:
        directives["time"] = clock(limit_s)
    directives |= {"array": f"1-{len(plans)}%1", "output": "%x-%A_%a.out"}
    note = f"Trials of {len(plans)} plans, the first of which follows."
    text = write.fill(
        "slurm/tune.sbatch.j2",
        plans[0],
        programs[0],
        directives=block(plans[0], options, "none", 0, directives),
        header=write.header(plans[0], programs[0], command, (note,)),
        mark=TRIAL,
        log=TRIAL_LOG,
    )
    return RenderedFile(path="tune.sbatch", text=text)


LAUNCHER: Final = Launcher(
    name="slurm",
    reads_overrides=True,
    files=launch_files,
    start="sbatch {}/launch.sbatch",
    file="launch.sbatch",
    trials=trials_file,
    pick=pick_file,
    for_whole_runs=frozenset(
        {"requeue", "signal_seconds", "continue", "array", "dependency", "mail_user"}
    ),
    token="export HF_TOKEN before sbatch",
    scheduler=Scheduler(
        submit=("sbatch", "--parsable", "{file}"),
        trial=("sbatch", "--test-only", "{file}"),
        identity=r"^([0-9]+)(?:;(.*))?$",  # with the cluster's name where there are several
        elsewhere="--clusters={}",
        watch=("squeue --jobs={id}", "scontrol show job {id}"),
        state=("squeue", "--noheader", "--format=%T", "--jobs={id}"),
        # squeue heads what it says of another cluster with its name
        unfinished=r"(?m)^[A-Z_]+\s*$",
    ),
)  # fmt: skip


_GPU_FLAGS: Final = {"nvidia": " --nv", "amd": " --rocm"}  #: apptainer's, by vendor
_OF_LAUNCH: Final = ("MASTER_ADDR", "MASTER_PORT")
#: An image's name whose first part is a host: `nvcr.io/nvidia/pytorch`, `localhost/train`.
_REGISTRY: Final = lazy_pattern(r"(?:[^/#.:]*[.:][^/#]*|(?:[^/#]+@)?localhost)/.+")
#: How an image is fetched: `docker://`, `dockerd://`.
_SCHEME: Final = lazy_pattern(r"\A[a-z]+://")


def container_values(
    plan: Plan, options: Mapping[str, Any], names: Iterable[str]
) -> dict[str, object]:
    """Return what the templates need; `names` are the variables that the job sets."""
    if "container_image" not in options:
        return {"container": "none"}
    runtime = options.get("container_runtime", "pyxis")
    image = str(options["container_image"])
    folder = str(options.get("container_folder", ".")).rstrip("/")
    file_name = f"{write.plain_name(_SCHEME.sub('', image))}{_SUFFIX[runtime]}"
    output = plan.job.output
    written = (
        path
        for path in (output.checkpoints, output.logs)
        if path is not None and path.startswith("/")
    )
    unmounted = (f"{path}:{path}" for path in written if _mount_of(path, options) is None)
    mounts = [*options.get("container_mounts", ()), *unmounted]
    separator = " " if runtime == "apptainer" else ","
    return {
        "container": runtime,
        "image": image if is_file(image) else _NAMED[runtime](image),
        "pulled": "" if is_file(image) else f"{folder}/{file_name}",
        "mounts": tuple(_mount(mount, runtime) for mount in dict.fromkeys(mounts)),
        "read": tuple(_read(plan, options)),
        "gpu_flag": write.Raw(_GPU_FLAGS.get(plan.job.cluster.accelerator.vendor, "")),
        "passed": write.Raw(separator.join(dict.fromkeys((*_OF_LAUNCH, *names)))),
    }


def is_file(image: str) -> bool:
    """Return whether an image is a file that the nodes share, not a name in a registry."""
    return image.startswith(("/", "./", "../")) or image.endswith(
        (".sqsh", ".squashfs", ".sif", ".img")
    )


def _of_enroot(image: str) -> str:
    """A container image as enroot reads it: `docker://[USER@][REGISTRY#]IMAGE[:TAG]`.

    Without `#`, the registry would be taken for a name at Docker Hub.
    """
    match = _SCHEME.match(image)
    scheme = match[0] if match else "docker://"
    name = image.removeprefix(scheme)
    if "#" not in name and _REGISTRY.fullmatch(name):
        name = name.replace("/", "#", 1)
    return scheme + name


def _of_apptainer(image: str) -> str:
    """A container image as apptainer reads it: `docker://REGISTRY/IMAGE[:TAG]`, without `#`."""
    return image if _SCHEME.match(image) else f"docker://{image.replace('#', '/', 1)}"


#: What names an image for each runtime.
_NAMED: Final[Mapping[str, Callable[[str], str]]] = {
    "pyxis": _of_enroot,
    "apptainer": _of_apptainer,
}
#: Of the file into which each runtime pulls an image.
_SUFFIX: Final = {"pyxis": ".sqsh", "apptainer": ".sif"}


def _mount(mount: str, runtime: str) -> str:
    """A mount with flags as the runtime separates them: `source[:destination[:flags]]`.

    A comma would begin the next mount.
    """
    *places, flags = mount.split(":") if mount.count(":") > 1 else (mount, "")
    joined = re.sub(r"[,+]", "+" if runtime == "pyxis" else ",", flags)
    return ":".join(filter(None, (*places, joined)))


def _read(plan: Plan, options: Mapping[str, Any]) -> Iterator[str]:
    """Absolute paths of data and tokenizer on no mount, which the host may have."""
    data, tokenizer = plan.job.data, plan.job.data.tokenizer
    paths = [PurePosixPath(path) for path in data.path]
    read_paths = [path.parent for path in paths] if plan.job.framework.data_prefix else paths
    read_paths += [
        PurePosixPath(path)
        for path in (tokenizer.path, tokenizer.vocab_file, tokenizer.merges_file)
        if path
    ]
    for path in dict.fromkeys(read_paths):
        is_within = any(path != other and path.is_relative_to(other) for other in read_paths)
        can_be_mounted = path.is_absolute() and len(path.parts) > 1  # the root can't
        if can_be_mounted and not is_within and _mount_of(str(path), options) is None:
            yield str(path)


def host_path(path: str, options: Mapping[str, Any]) -> str:
    """Where the batch script finds `path` of the program: in a container, through its mount."""
    mount = _mount_of(path, options) if "container_image" in options else None
    if mount is None:
        return path
    source, destination = mount
    return str(PurePosixPath(source) / PurePosixPath(path).relative_to(destination))


def _mount_of(path: str, options: Mapping[str, Any]) -> tuple[str, str] | None:
    """Source and destination of the innermost mount that `path` is in."""
    parts = [mount.split(":") for mount in options.get("container_mounts", ())]
    pairs = ((source, rest[0] if rest else source) for source, *rest in parts)
    holding = ((source, to) for source, to in pairs if PurePosixPath(path).is_relative_to(to))
    return max(holding, key=lambda pair: len(pair[1]), default=None)


def torchrun(options: Mapping[str, Any]) -> write.Raw:
    """torchrun by PATH; in a container, from the virtual environment if there is one.

    A container has a PATH of its own.
    """
    if "container_image" in options and "virtual_environment" in options:
        return write.Raw(write.shell_word(f"{options['virtual_environment']}/bin/torchrun"))
    return write.Raw("torchrun")


#: Keys of `launch.slurm` that are options of sbatch.
PASSED_ON: Final = (
    "partition",
    "account",
    "qos",
    "constraint",
    "reservation",
    "exclude",
    "dependency",
    "array",
)
#: Options of sbatch whose value is that of one key, by their names.
NAMED: Final[Mapping[str, str]] = {
    **{name: name for name in (*PASSED_ON, "output")},
    "mem": "memory",
    "mail-user": "mail_user",
}
#: Options of sbatch that keys of `launch.slurm` write, by their names.
WRITTEN: Final[Mapping[str, str]] = {
    **NAMED,
    "exclusive": "exclusive",
    "requeue": "requeue",
    **dict.fromkeys(
        ("gres", "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket"), "gpu_request"
    ),
    **dict.fromkeys(("mem-per-cpu", "mem-per-gpu"), "memory"),
    **dict.fromkeys(("cpus-per-task", "cpus-per-gpu"), "cpus_per_task"),
    "signal": "signal_seconds",
    **dict.fromkeys(("no-requeue", "open-mode"), "continue"),
}
#: Options of sbatch that the plan decides, with the keys of the spec that decide them.
PLANNED: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("nodes", "ntasks", "ntasks-per-node", "tasks-per-node", "ntasks-per-gpu"), "gpus"
    ),
    "time": "launch.time_limit",
    "job-name": "name",
}
#: The share of a node's memory that jobs get: the system keeps the rest, and Slurm's figure leaves
#: it out.
_FOR_JOBS: Final = 0.9


def block(
    plan: Plan,
    options: Mapping[str, Any],
    way: str,
    signal_s: int,
    instead: Mapping[str, object] | None = None,
) -> tuple[write.Raw, ...]:
    """The lines of the `#SBATCH` block; an option of `instead` replaces the plan's."""
    pairs = dict(_resources(plan, options))
    pairs |= {key: options[key] for key in PASSED_ON if key in options}
    pairs["output"] = options.get("output", "%x-%A_%a.out" if "array" in options else "%x-%j.out")

    requeues = way == "requeue" or options.get("requeue", False)
    if requeues:
        pairs["requeue"] = None
    if requeues or way != "none":
        # Slurm itself starts jobs again after a node's failure, with the same log.
        pairs["open-mode"] = "append"
    if signal_s:
        pairs["signal"] = f"B:USR1@{signal_s}"
    if "mail_user" in options:
        pairs |= {"mail-user": options["mail_user"], "mail-type": "END,FAIL"}

    # The user's own come last, and replace what is written before.
    for name, value in options.get("directives", {}).items():
        if value is not False:
            pairs[name] = None if value is True else value
    pairs |= instead or {}

    words = {
        name: "" if value is None else f"={write.sbatch_word(value).text}"
        for name, value in pairs.items()
    }
    return tuple(write.Raw(f"#SBATCH --{name}{word}") for name, word in words.items())


def _resources(plan: Plan, options: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    yield "job-name", write.plain_name(plan.job.name)
    yield "nodes", plan.job.nodes
    yield "ntasks-per-node", 1
    if plan.segment > 1 and not plan.job.elastic:
        yield "segment", plan.segment

    gpus = write.processes_per_node(plan)
    request = options.get("gpu_request", "gpus-per-node")
    typed = f"{options['gres_type']}:{gpus}" if "gres_type" in options else gpus
    if request == "gres":
        yield "gres", f"gpu:{typed}"
    elif request == "gpus-per-node":
        yield "gpus-per-node", typed

    # Whole nodes come with all their cores and memory; of a shared one a share is asked for.
    exclusive = takes_nodes(plan, options)
    cpus = options.get("cpus_per_task", None if exclusive else write.cores_per_node(plan))
    if cpus:
        yield "cpus-per-task", cpus
    if exclusive:
        yield "exclusive", None
    memory = options.get("memory", "0" if exclusive else shared_memory(plan))
    if memory is not None:
        yield "mem", memory

    limit_s = plan.job.launch.time_limit_s
    if limit_s is not None:
        yield "time", clock(limit_s)  # in the form that can't be read as minutes (SLM010)


def takes_nodes(plan: Plan, options: Mapping[str, Any]) -> bool:
    """Whether nobody else may use the nodes: as asked for, else if the job uses all of them."""
    cluster = plan.job.cluster
    leaves_room = plan.job.gpus < cluster.accelerators_per_node or cluster.accelerator.is_slice
    return bool(options.get("exclusive", not leaves_room))


def shared_memory(plan: Plan) -> str | None:
    """The used accelerators' share of each node's memory, in Slurm's gigabytes.

    0 would mean all of it.
    """
    cluster = plan.job.cluster
    if cluster.host_memory_bytes is None:
        return None
    share = write.processes_per_node(plan) / cluster.accelerators_per_node
    return f"{max(1, int(cluster.host_memory_bytes / GIB * share * _FOR_JOBS))}G"
