"""Slurm: one batch script, one task per node, torchrun inside each task."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ...job.needs import continuation
from ...search.plan import Plan
from ...units import clock
from ..launching import fabric
from ..launching.call import THREADS, Raw, environment, fill, fill_pick, header, launch_options, own_threads, plain_name
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
from . import container
from .options import block, shared_memory, takes_nodes

_LEAVES_EARLY: Final = ("--exit-duration-in-mins", "--exit-interval")  # Megatron's, which save and end with status 0
_SECONDS_TO_STOP: Final = 30  # what scontrol requeue and the epilogue need before the time limit
#: Slurm may send a signal up to a minute early. Source: sbatch(1), --signal.
_MOST_EARLY_S: Final = 60
_ATTEMPTS: Final = 3  # in a row without a newer checkpoint: as many nodes don't fail at once, a wrong file does


def launch_files(plan: Plan, program: Program, command: str) -> tuple[RenderedFile, ...]:
    """`launch.sbatch`, to be submitted from the folder that holds the script, and `submit.sh` for a chain of jobs."""
    options: Mapping[str, Any] = launch_options(plan)
    way = continuation(plan.job)
    signal_s, form = _signal_s(plan), plan.job.framework.checkpoints
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
        torchrun=container.torchrun(options),
        exclusive=takes_nodes(plan, options),
        threads=threads,
        environment=tuple((Raw(name), text) for name, text in variables.items() if not (threads and name == THREADS)),
        sourced=tuple(path for each in fabric.needed(plan.job) for path in each.sourced),
        host_files=tuple((Raw(name), path) for name, path in fabric.host_files(plan.job).items()),
        signal=signal_s > 0,
        worker_signal=Raw("TERM" if saves_on_term(plan, program) else "USR1"),
        # How long a job that was told waits for its workers before it queues again.
        grace_s=max(signal_s - _SECONDS_TO_STOP, signal_s // 2),
        **_folders(plan, options),
        way=way,
        tracked=way != "none" and plan.job.output.checkpoints is not None,  # attempts are counted, by what is saved
        last_step=last_step(plan, program),
        # With status 0 before its last step: at a time of its own, or when it gets TERM.
        leaves_early=saves_on_term(plan, program) or any(map(program.arguments.__contains__, _LEAVES_EARLY)),
        attempts=options.get("attempts", _ATTEMPTS),
        tracker=form.tracker,
        folder=form.folder,
        names_folder=form.names_folder,
        **container.values(plan, options, variables),
    )
    script = RenderedFile(path="launch.sbatch", text=text)
    return (script, _submit(plan, program, command)) if way == "chain" else (script,)


def _submit(plan: Plan, program: Program, command: str) -> RenderedFile:
    """`submit.sh`: a chain of jobs at once, for sites whose compute nodes may not submit."""
    jobs = plan.run.segments if plan.run else None
    text = fill("slurm/submit.sh.j2", plan, program, header=header(plan, program, command), jobs=jobs)
    return RenderedFile(path="submit.sh", text=text, executable=True)


def _folders(plan: Plan, options: Mapping[str, Any]) -> dict[str, object]:
    """Return where the script finds checkpoints and logs, and where the program does."""
    checkpoints, logs = plan.job.output.checkpoints, plan.job.output.logs
    return {
        "checkpoints": container.host_path(checkpoints or "", options),
        "logs": container.host_path(logs, options) if logs else "",
        "seen_logs": logs or "",
        "tee": Raw(' --tee=3 --log-dir="$RANK_LOGS/node$SLURM_NODEID"' if logs else ""),
    }


def _notes(plan: Plan, program: Program, options: Mapping[str, Any], signal_s: int) -> Iterator[str]:
    if not takes_nodes(plan, options) and "memory" not in options and shared_memory(plan) is None:
        yield "The node's memory is unknown, so Slurm's default limit applies: launch.slurm.memory sets another."
    framework = plan.job.framework
    if signal_s and framework.exit_option is not None and not saves_on_term(plan, program):
        yield (
            f"{framework} does not handle USR1: with {framework.exit_option} in launch.arguments the workers get TERM "
            "instead, save and exit."
        )


def _signal_s(plan: Plan) -> int:
    """Return how long before the time limit the job is told; 0: not at all."""
    options, way = launch_options(plan), continuation(plan.job)
    if "signal_seconds" in options or way == "none":
        return int(str(options.get("signal_seconds", 0)))
    needed = _SECONDS_TO_STOP + _MOST_EARLY_S + last_save_s(plan)
    limit_s = plan.job.launch.time_limit_s
    return min(60 * -int(-needed // 60), 65535 if limit_s is None else max(1, limit_s // 4))


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
    files=launch_files,
    start="sbatch {}/launch.sbatch",
    file="launch.sbatch",
    trials=trials_file,
    pick=pick_file,
    for_whole_runs=frozenset({"requeue", "signal_seconds", "continue", "array", "dependency", "mail_user"}),
    scheduler=Scheduler(
        submit=("sbatch", "--parsable", "{file}"),
        trial=("sbatch", "--test-only", "{file}"),
        identity=r"^(\d+)(?:;(.*))?$",  # with the cluster's name where there are several
        elsewhere="--clusters={}",
        watch=("squeue --jobs={id}", "scontrol show job {id}"),
        state=("squeue", "--noheader", "--format=%T", "--jobs={id}"),
        unfinished=r"(?m)^[A-Z_]+\s*$",  # squeue heads what it says of another cluster with its name
    ),
)  # fmt: skip
