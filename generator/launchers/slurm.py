"""Slurm: one batch script, one task per node, torchrun inside each task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ..frameworks.program import Program, RenderedFile
from ..search.plan import Plan
from ..units import GIB
from .call import cores_per_node, environment, fill, fill_pick, header, launch_options, processes_per_node
from .launcher import TRIAL, TRIAL_LOG, Launcher, Scheduler
from .quoting import Raw, plain_name, sbatch_word, shell_word

_PASSED_ON = ("partition", "account", "qos", "constraint", "reservation")
_USUAL_EXIT_OPTION = "--exit-signal-handler"  # Megatron's, which other scripts have taken over
_FOR_JOBS = 0.9  # of a node's memory; the system keeps the rest, and Slurm's figure leaves it out
_SECONDS_TO_STOP = 30  # what scontrol requeue and the epilogue need before the time limit


def launch_files(plan: Plan, program: Program, command: str) -> tuple[RenderedFile, ...]:
    """`launch.sbatch`, to be submitted with `sbatch launch.sbatch` from the folder that holds the script."""
    options: Mapping[str, Any] = launch_options(plan)
    signal_s = int(options.get("signal_seconds", 0))
    text = fill(
        "slurm.sbatch.j2",
        plan,
        program,
        directives=tuple(_directive(*pair) for pair in _directives(plan, options)),
        header=header(plan, program, command, tuple(_notes(plan, program, options))),
        modules=tuple(options.get("modules", ())),
        virtual_environment="" if "container_image" in options else options.get("virtual_environment", ""),
        torchrun=_torchrun(options),
        environment=tuple((Raw(name), value) for name, value in environment(plan, program).items()),
        container=options.get("container_runtime", "pyxis") if "container_image" in options else "none",
        image=options.get("container_image", ""),
        mounts=tuple(options.get("container_mounts", ())),
        signal=signal_s > 0,
        worker_signal=Raw("TERM" if _saves_on_term(plan, program) else "USR1"),
        grace_s=max(signal_s - _SECONDS_TO_STOP, signal_s // 2),
        requeue=bool(options.get("requeue", False)),
    )
    return (RenderedFile(path="launch.sbatch", text=text),)


def slurm_time(seconds: int) -> str:
    """`D-HH:MM:SS`, the one form of --time that can't be read as minutes (SLM010)."""
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    day, hour = divmod(hours, 24)
    return f"{day}-{hour:02}:{minute:02}:{second:02}"


def _directive(option: str, value: object) -> Raw:
    return Raw(f"#SBATCH --{option}" if value is None else f"#SBATCH --{option}={sbatch_word(value).text}")


def _directives(plan: Plan, options: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """#SBATCH options in reading order; `None` is an option without value."""
    yield "job-name", plain_name(plan.job.name)
    yield "nodes", plan.job.nodes
    yield "ntasks-per-node", 1
    yield from _gpu_directives(processes_per_node(plan), options)
    exclusive = _takes_nodes(plan, options)
    cpus = options.get("cpus_per_task", plan.job.cluster.cpu_cores if exclusive else cores_per_node(plan))
    if cpus:
        yield "cpus-per-task", cpus
    if exclusive:
        yield "exclusive", None
    memory = options.get("memory", "0" if exclusive else _shared_memory(plan))
    if memory is not None:
        yield "mem", memory
    if plan.job.launch.time_limit_s is not None:
        yield "time", slurm_time(plan.job.launch.time_limit_s)
    yield from ((key, options[key]) for key in _PASSED_ON if key in options)
    yield "output", "%x-%j.out"
    if options.get("requeue", False):
        yield "requeue", None
        yield "open-mode", "append"
    if options.get("signal_seconds"):
        yield "signal", f"B:USR1@{options['signal_seconds']}"
    if "mail_user" in options:
        yield "mail-user", options["mail_user"]
        yield "mail-type", "END,FAIL"


def _notes(plan: Plan, program: Program, options: Mapping[str, Any]) -> Iterator[str]:
    if not _takes_nodes(plan, options) and "memory" not in options and _shared_memory(plan) is None:
        yield "The node's memory is unknown, so Slurm's default limit applies: launch.slurm.memory sets another."
    framework = plan.job.framework
    if options.get("signal_seconds") and framework.exit_option is not None and not _saves_on_term(plan, program):
        yield (
            f"{framework} does not handle USR1: with {framework.exit_option} in launch.arguments the workers get TERM "
            "instead, save and exit."
        )


def _saves_on_term(plan: Plan, program: Program) -> bool:
    """Whether the script is asked to save and exit when it gets TERM."""
    option = plan.job.framework.exit_option or _USUAL_EXIT_OPTION
    return option in (*program.arguments, *plan.job.launch.arguments)


def _takes_nodes(plan: Plan, options: Mapping[str, Any]) -> bool:
    """Whether nobody else may use the nodes: as asked for, else when nothing of them is left."""
    cluster = plan.job.cluster
    leaves_room = plan.job.gpus < cluster.accelerators_per_node or cluster.accelerator.is_slice
    return bool(options.get("exclusive", not leaves_room))


def _shared_memory(plan: Plan) -> str | None:
    """The accelerators' share of the node's memory in Slurm's gigabytes, for which 0 would mean all of it."""
    cluster = plan.job.cluster
    if cluster.host_memory_bytes is None:
        return None
    share = plan.job.gpus / cluster.accelerators_per_node
    return f"{max(1, int(cluster.host_memory_bytes / GIB * share * _FOR_JOBS))}G"


def _gpu_directives(gpus: int, options: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    request = options.get("gpu_request", "gpus-per-node")
    typed = f"{options['gres_type']}:{gpus}" if "gres_type" in options else gpus
    if request == "gres":
        yield "gres", f"gpu:{typed}"
    elif request == "gpus-per-node":
        yield "gpus-per-node", typed


def _torchrun(options: Mapping[str, Any]) -> Raw:
    """torchrun by PATH; in a container, which has its own PATH, from the virtual environment if there is one."""
    if "container_image" in options and "virtual_environment" in options:
        return Raw(shell_word(f"{options['virtual_environment']}/bin/torchrun"))
    return Raw("torchrun")


def pick_file(plans: Sequence[Plan], largest: RenderedFile, command: str) -> tuple[RenderedFile, ...]:
    """`launch.sbatch` of an elastic job: it asks for as many nodes as there are, and runs the plan for those it got."""
    lines = largest.text.splitlines()[1:]
    asked = lines[: next(at for at, line in enumerate(lines) if not line.startswith("#SBATCH "))]
    nodes = Raw(f"#SBATCH --nodes={plans[-1].job.nodes}-{plans[0].job.nodes}")
    # With --ntasks-per-node, Slurm 22.05 counts the tasks of the fewest nodes, and allocates no more than these.
    kept = (Raw(line) for line in asked if not line.startswith(("#SBATCH --nodes=", "#SBATCH --ntasks-per-node=")))
    text = fill_pick("slurm_pick.sbatch.j2", plans, command, directives=(nodes, *kept))
    return (RenderedFile(path="launch.sbatch", text=text),)


def trials_file(plans: Sequence[Plan], programs: Sequence[Program], command: str) -> RenderedFile:
    """`tune.sbatch`: an array, whose every task runs the launch script of one trial in an allocation of its own."""
    options = launch_options(plans[0])
    limit_s = max(plan.job.launch.time_limit_s or 0 for plan in plans)
    directives = [(k, v) for k, v in _directives(plans[0], options) if k not in ("job-name", "time", "output")]
    text = fill(
        "tune.sbatch.j2",
        plans[0],
        programs[0],
        directives=tuple(
            _directive(*pair)
            for pair in (
                ("job-name", plain_name(f"{plans[0].job.name}-tune")),
                *directives,
                *((("time", slurm_time(limit_s)),) if limit_s else ()),
                ("array", f"1-{len(plans)}%1"),
                ("output", "%x-%A_%a.out"),
            )
        ),
        header=header(plans[0], programs[0], command, (f"Trials of {len(plans)} plans, the first of which follows.",)),
        mark=TRIAL,
        log=TRIAL_LOG,
    )
    return RenderedFile(path="tune.sbatch", text=text)


LAUNCHER: Final = Launcher(
    name="slurm",
    keys=frozenset({
        *_PASSED_ON, "exclusive", "gpu_request", "gres_type", "cpus_per_task", "memory", "requeue", "continue",
        "signal_seconds", "container_image", "container_runtime", "container_mounts", "modules", "virtual_environment",
        "mail_user",
    }),
    files=launch_files,
    start="sbatch {}/launch.sbatch",
    file="launch.sbatch",
    trials=trials_file,
    pick=pick_file,
    for_whole_runs=frozenset({"requeue", "signal_seconds", "continue", "array", "dependency", "mail_user"}),
    scheduler=Scheduler(
        submit=("sbatch", "--parsable", "{file}"),
        trial=("sbatch", "--test-only", "{file}"),
        identity=r"^(\d+)(?:;.*)?$",  # with the cluster's name where there are several
        watch=("squeue --jobs={id}", "scontrol show job {id}"),
        state=("squeue", "--noheader", "--format=%T", "--jobs={id}"),
    ),
)  # fmt: skip
