"""How a batch script starts its job: what srun starts on each node, and which variables it relies on."""

from __future__ import annotations

from typing import Final

from ....documents.shell.launch_line import Launch
from ....documents.shell.script import Command
from ....documents.submission import Submission
from ....findings import ERROR, WARNING, Severity, Violation, Violations
from ...rule import submissions
from ...sources import ml_engineering, slurm, slurm_manual
from ..background import in_background
from ..steps import Step, steps
from .requests import Request, blocks, count, gpus_per_node, nodes_of

#: Options by which a step takes a part of its job, or shares it.
_SHARES: Final = (
    *("--overlap", "--gres", "--gpus", "--exact", "--exclusive", "--nodelist", "--relative", "--nodes"),
    *("--jobid", "--het-group", "--oversubscribe", "-w", "-N", "-G", "-r", "-s"),
)


@steps.rule("SLM001", ERROR, "launcher", ml_engineering("orchestration/slurm/users.md:583"))
def launcher_starts_once_a_node(step: Step) -> Violations:
    """srun starts torchrun, deepspeed or accelerate once on each node; they start the ranks.

    Prevents: Each of the tasks starts a rank for every GPU: ports in use, or eight ranks on each GPU.
    Fix: --ntasks-per-node=1
    """
    call = step.launcher
    if call is None or step.tasks is None or step.tasks == 1:
        return
    message = f"srun starts {step.tasks} tasks a node, and each is {call.program}, which starts a node's ranks itself"
    where = step.where_tasks or step.launch.script.locate(call.word)
    yield Violation(where=where, message=message, hint="--ntasks-per-node=1")


@steps.rule("SLM002", ERROR, "init", ml_engineering("orchestration/slurm/launchers/lightning-launcher.slurm:8"))
def tasks_are_the_gpus(step: Step) -> Violations:
    """Where srun starts the training program itself, each node has one task for each of its GPUs.

    Prevents: A world size other than the GPUs: idle GPUs, or invalid device ordinal.
    Fix: --ntasks-per-node = GPUs per node.
    """
    asked = gpus_per_node(step.block)
    if step.launcher is not None or not _is_python(step.launch) or step.tasks is None or asked is None:
        return
    if step.tasks == asked[1] or asked[1] == 0 or (step.tasks == 1 and step.nodes == 1):
        return
    tasks = f"{step.tasks} task{'s' * (step.tasks > 1)} a node"
    message = f"srun starts {tasks}, and a node gives {asked[1]} GPUs: a rank for each GPU is a task for each"
    where = step.where_tasks or step.launch.script.locate(step.srun.word)
    hint = f"--ntasks-per-node={asked[1]}, or start torchrun once a node"
    severity = Severity.WARNING if step.tasks == 1 else None  # the program may start a node's ranks itself
    yield Violation(where=where, message=message, hint=hint, severity=severity)


def _is_python(launch: Launch) -> bool:
    return any(call.program == "python" for call in launch.calls)


@steps.rule(
    "SLM003",
    WARNING,
    "silent",
    slurm("srun/libsrun/opt.c:542; RELEASE_NOTES of 22.05, and of 23.11, which takes it back"),
)
def srun_is_told_the_cores(step: Step) -> Violations:
    """srun is told the cores of a task, as it doesn't take them from sbatch (Slurm 22.05 to 23.02).

    Prevents: Ranks that are pinned to one core: the data loader is ten times slower. Other releases do pass it on.
    Fix: Give --cpus-per-task to srun, or export SRUN_CPUS_PER_TASK.
    """
    cores = count(step.block, "--cpus-per-task")
    given = any(step.srun.options.has(name) for name in ("--cpus-per-task", "--cpus-per-gpu", "--exclusive"))
    if cores is None or cores < 2 or given or step.srun.options.opaque or "SRUN_CPUS_PER_TASK" in _names(step):
        return
    message = (
        f"#SBATCH --cpus-per-task={cores} is not passed on to srun by Slurm 22.05 to 23.02: a task may get one core"
    )
    hint = 'srun --cpus-per-task="$SLURM_CPUS_PER_TASK", or export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"'
    yield Violation(where=step.launch.script.locate(step.srun.word), message=message, hint=hint)


def _names(step: Step) -> set[str]:
    shell = step.launch.script
    return {assignment.name for assignment in shell.assignments} | set(step.launch.environment)


@steps.rule(
    "SLM004",
    WARNING,
    "init",
    slurm_manual("sbatch(1), --gpus-per-task implies --gpu-bind=per_task; seen in a real job"),
)
def tasks_see_all_gpus(step: Step) -> Violations:
    """Ranks that choose their GPU by LOCAL_RANK see all GPUs of the node.

    Prevents: CUDA error: invalid device ordinal; NCCL without peer-to-peer.
    Fix: --gpus-per-node.
    """
    options = [(step.block.options, "#SBATCH "), (step.srun.options, "srun ")]
    for given, who in options:
        option = given.get("--gpus-per-task")
        if option is None or step.launcher is not None or not _is_python(step.launch) or step.tasks in (None, 1):
            continue
        message = (
            f"{who}--gpus-per-task shows each task its own GPUs only, as number 0: cuda:LOCAL_RANK fails from 1 on"
        )
        hint = "--gpus-per-node in its place, or --gpu-bind=none with it"
        if not given.has("--gpu-bind"):
            yield Violation(where=step.launch.script.locate(option.written), message=message, hint=hint)


@steps.rule("SLM013", WARNING, "training", slurm_manual("srun(1), --kill-on-bad-exit, --wait"))
def step_ends_with_its_first_failure(step: Step) -> Violations:
    """A step over several nodes ends when one of its tasks fails.

    Prevents: A job that hangs until its time limit, on all its nodes.
    Fix: srun --kill-on-bad-exit=1 --wait=60
    """
    several = (step.nodes or 1) > 1 or (step.tasks or 1) > 1
    options = step.srun.options
    if not several or options.has("--kill-on-bad-exit") or options.opaque or "SLURM_KILL_BAD_EXIT" in _names(step):
        return
    message = "srun without --kill-on-bad-exit=1: when one task fails, the others wait for it until the time limit"
    hint = "srun --kill-on-bad-exit=1 --wait=60"
    yield Violation(where=step.launch.script.locate(step.srun.word), message=message, hint=hint)


@submissions.rule(
    "SLM017",
    WARNING,
    "training",
    slurm_manual("srun(1), --overlap: steps share nothing by default since 20.11"),
    reads=("launch script",),
)
def no_step_in_a_step(submission: Submission) -> Violations:
    """A step waits for no GPUs of another: none starts in a task of srun, or beside one in the background.

    Prevents: srun: Job step creation temporarily disabled, retrying.
    Fix: One srun, or --overlap.
    """
    for request in blocks(submission):
        yield from _steps_side_by_side(request)
    for script in submission.scripts:
        commands = script.shell.commands
        for command in commands:
            outer = commands[command.inside] if command.inside is not None else None
            if outer is None or not (_is_srun(command) and _is_srun(outer)):
                continue
            if any(word.value == "--overlap" for word in command.words):
                continue
            message = "srun inside a task of srun: the inner step waits for the GPUs that the outer one holds"
            yield Violation(
                where=script.shell.locate(command), message=message, hint="one srun, or --overlap on the inner one"
            )


def _steps_side_by_side(request: Request) -> Violations:
    """A launch after a step in the background that has taken the job's GPUs, as steps share none by default."""
    script = request.block
    if script is None or not request.has("--gres", "--gpus", "--gpus-per-node", "--gpus-per-task"):
        return
    behind: Command | None = None
    for command in script.shell.commands:
        name = command.words[0].value if command.words else None
        if name in ("wait", "kill") and command.shell is None:
            behind = None
        if command.shell is not None or command.guarded or not _is_srun(command) or _has_a_share(command):
            continue
        if behind is not None:
            line = script.shell.locate(behind).line
            message = f"this step waits for the GPUs that the step of line {line} holds in the background"
            hint = "--overlap on the one in the background, or --gres=none"
            yield Violation(where=script.shell.locate(command), message=message, hint=hint)
            return
        if in_background(script.shell, command):
            behind = command


def _has_a_share(command: Command) -> bool:
    """Whether a step says which part of the job it takes, so that others may run beside it."""
    words = [word.prefix for word in command.words[1:]]
    return any(word.startswith(_SHARES) for word in words)


def _is_srun(command: Command) -> bool:
    names = [word.value for word in command.words if word.value != "exec"]
    return names[:1] == ["srun"]


@blocks.rule(
    "SLM059", ERROR, "init", slurm_manual("sbatch(1): the batch script runs on the first node of the allocation")
)
def every_node_starts_its_launcher(request: Request) -> Violations:
    """In a job over several nodes the launcher is started on each of them, not by the batch script alone.

    Prevents: One node waits for the others at the rendezvous until the time limit.
    Fix: srun torchrun ...
    """
    nodes, script = nodes_of(request), request.block
    if script is None or nodes is None or nodes < 2:
        return
    for launch in script.launches:
        call = next((call for call in launch.calls if call.program in ("torchrun", "accelerate")), None)
        if call is None or any(c.program in ("srun", "ssh", "pdsh", "mpirun", "sbatch") for c in launch.calls):
            continue
        if call.options.opaque or call.command.words[0].value is None or call.command.shell is not None:
            continue
        first = f"the batch script runs on the first of {nodes} nodes only"
        message = f"{first}, and starts {call.program} there without srun"
        yield Violation(where=launch.script.locate(call.word), message=message, hint=f"srun {call.program} ...")
