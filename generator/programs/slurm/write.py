"""Slurm: one batch script, one task per node, torchrun inside each task."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ...job.continuation import continuation
from ...search.plan import Plan
from ...units import clock
from ..launcher import TRIAL, TRIAL_LOG, Launcher, Scheduler
from ..launching import fabric
from ..launching.call import THREADS, environment, fill, fill_pick, header, launch_options, own_threads
from ..launching.quoting import Raw, plain_name
from ..program import Program, RenderedFile
from . import write_attempts as slurm_attempts
from . import write_container as slurm_container
from .write_directives import PASSED_ON, block, shared_memory, takes_nodes


def launch_files(plan: Plan, program: Program, command: str) -> tuple[RenderedFile, ...]:
    """`launch.sbatch`, to be submitted from the folder that holds the script, and `submit.sh` for a chain of jobs."""
    options: Mapping[str, Any] = launch_options(plan)
    way = continuation(plan.job)
    signal_s = _signal_s(plan)
    variables = environment(plan, program)
    # The catalog's cores are a guess where the job has the whole node.
    threads = takes_nodes(plan, options) and "cpus_per_task" not in options and own_threads(plan, program)
    text = fill(
        "slurm/launch.sbatch.j2",
        plan,
        program,
        directives=block(plan, options, way, signal_s),
        header=header(plan, program, command, tuple(_notes(plan, program, options, signal_s))),
        modules=tuple(options.get("modules", ())),
        setup=tuple(map(Raw, options.get("setup", ()))),
        virtual_environment="" if "container_image" in options else options.get("virtual_environment", ""),
        torchrun=slurm_container.torchrun(options),
        exclusive=takes_nodes(plan, options),
        threads=threads,
        environment=tuple((Raw(name), text) for name, text in variables.items() if not (threads and name == THREADS)),
        sourced=fabric.sourced(plan.job),
        host_files=tuple((Raw(name), path) for name, path in fabric.host_files(plan.job).items()),
        signal=signal_s > 0,
        worker_signal=Raw("TERM" if slurm_attempts.saves_on_term(plan, program) else "USR1"),
        grace_s=slurm_attempts.grace_s(signal_s),
        **_folders(plan, options),
        **slurm_attempts.values(plan, program, way, options),
        **slurm_container.values(plan, options, variables),
    )
    script = RenderedFile(path="launch.sbatch", text=text)
    return (script, _submit(plan, program, command)) if way == "chain" else (script,)


def _submit(plan: Plan, program: Program, command: str) -> RenderedFile:
    """`submit.sh`: a chain of jobs at once, for sites whose compute nodes may not submit."""
    jobs = plan.run.segments if plan.run else None
    text = fill("slurm/submit.sh.j2", plan, program, header=header(plan, program, command), jobs=jobs)
    return RenderedFile(path="submit.sh", text=text, executable=True)


def _folders(plan: Plan, options: Mapping[str, Any]) -> dict[str, object]:
    """Where the script finds checkpoints and logs, and where the program does."""
    checkpoints, logs = plan.job.output.checkpoints, plan.job.output.logs
    return {
        "checkpoints": slurm_container.host_path(checkpoints or "", options),
        "logs": slurm_container.host_path(logs, options) if logs else "",
        "seen_logs": logs or "",
        "tee": Raw(' --tee=3 --log-dir="$RANK_LOGS/node$SLURM_NODEID"' if logs else ""),
    }


def _signal_s(plan: Plan) -> int:
    return slurm_attempts.signal_s(plan, launch_options(plan), continuation(plan.job))


def _notes(plan: Plan, program: Program, options: Mapping[str, Any], signal_s: int) -> Iterator[str]:
    if not takes_nodes(plan, options) and "memory" not in options and shared_memory(plan) is None:
        yield "The node's memory is unknown, so Slurm's default limit applies: launch.slurm.memory sets another."
    framework = plan.job.framework
    if signal_s and framework.exit_option is not None and not slurm_attempts.saves_on_term(plan, program):
        yield (
            f"{framework} does not handle USR1: with {framework.exit_option} in launch.arguments the workers get TERM "
            "instead, save and exit."
        )


def pick_file(plans: Sequence[Plan], largest: RenderedFile, command: str) -> tuple[RenderedFile, ...]:
    """`launch.sbatch` of an elastic job: it asks for as many nodes as there are, and runs the plan for those it got."""
    lines = largest.text.splitlines()[1:]
    asked = lines[: next(at for at, line in enumerate(lines) if not line.startswith("#SBATCH "))]
    nodes = Raw(f"#SBATCH --nodes={plans[-1].job.nodes}-{plans[0].job.nodes}")
    # With --ntasks-per-node, Slurm 22.05 counts the tasks of the fewest nodes, and allocates no more than these.
    own = ("#SBATCH --nodes=", "#SBATCH --ntasks-per-node=")
    told = f"@{max(_signal_s(plan) for plan in plans)}"  # the plan that takes longest to save is told early enough
    kept = (Raw(re.sub(r"(?<=:USR1)@\d+$", told, line)) for line in asked if not line.startswith(own))
    text = fill_pick("slurm/pick.sbatch.j2", plans, command, directives=(nodes, *kept))
    return (RenderedFile(path="launch.sbatch", text=text),)


def trials_file(plans: Sequence[Plan], programs: Sequence[Program], command: str) -> RenderedFile:
    """`tune.sbatch`: an array, whose every task runs the launch script of one trial in an allocation of its own."""
    options = launch_options(plans[0])
    limit_s = max(plan.job.launch.time_limit_s or 0 for plan in plans)
    own = {
        "job-name": plain_name(f"{plans[0].job.name}-tune"),
        **({"time": clock(limit_s)} if limit_s else {}),
        "array": f"1-{len(plans)}%1",
        "output": "%x-%A_%a.out",
    }
    text = fill(
        "slurm/tune.sbatch.j2",
        plans[0],
        programs[0],
        directives=block(plans[0], options, "none", 0, own),
        header=header(plans[0], programs[0], command, (f"Trials of {len(plans)} plans, the first of which follows.",)),
        mark=TRIAL,
        log=TRIAL_LOG,
    )
    return RenderedFile(path="tune.sbatch", text=text)


LAUNCHER: Final = Launcher(
    name="slurm",
    keys=frozenset({
        *PASSED_ON, "exclusive", "gpu_request", "gres_type", "cpus_per_task", "memory", "requeue", "continue",
        "attempts", "signal_seconds", "output", "directives", "setup", "container_image", "container_runtime",
        "container_folder", "container_mounts", "modules", "virtual_environment", "mail_user",
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
