"""Rules on srun's steps: what they ask of their job, what they start, what they wait for."""

from __future__ import annotations

import os
import re
from typing import Final

from ....findings import ERROR, NOTE, WARNING, Violation, Violations
from ....patterns import lazy_pattern
from ....rules.violations import ml_engineering, slurm, slurm_manual
from ....submission.launches import Call
from ....submission.repository import program_text
from ....submission.subjects import submissions
from ....submission.submission import Submission
from ....text.shell.background import in_background
from ....text.shell.records import Command, ShellScript
from ...launching.launch_line import LAUNCHERS
from ...launching.launcher_call import ON_EVERY_NODE
from ...launching.ranks_read import may_make_group
from ..request import GPU_OPTIONS, Request, Step
from ..subjects import blocks, launches_within, starts_alone, starts_one_machine, steps

#: Options by which a step takes a part of its job, or shares it; also in short forms.
_SHARES: Final = (
    "--overlap",
    "--gres",
    "--gpus",
    "--exact",
    "--exclusive",
    "--nodelist",
    "--relative",
    "--nodes",
    "--jobid",
    "--het-group",
    "--oversubscribe",
    "-w",
    "-N",
    "-G",
    "-r",
    "-s",
)
#: Of GPUs, or of the library by which they meet. A partition may give GPUs that no option asks for:
#: its name, a module or a variable of NCCL shows that.
_SPEAKS_OF_GPUS: Final = lazy_pattern(r"gpu|cuda|nccl|nvidia|rocm", re.IGNORECASE)
#: Where ranks meet. Source: torch/distributed/rendezvous.py, env://
_MEETING: Final = frozenset({"MASTER_ADDR", "MASTER_PORT"})
#: Variables that say the same as the options --kill-on-bad-exit and --wait.
_ENDING: Final = frozenset({"SLURM_KILL_BAD_EXIT", "SLURM_WAIT"})
#: The rank of a task modulo the GPUs that it sees: `int(os.environ["LOCAL_RANK"]) %
#: torch.cuda.device_count()`.
_MODULO: Final = lazy_pattern(
    r"local_rank[\"'\])]*(?:,\s*[\"']?\w+[\"']?\)+)?\s*%(?![sdirf]\b)|%\s*[\w.]*\bdevice_count\(|"
    r"\bdevice_count\(\)\s*(?:[=<>]=?\s*1\b|\n)",
    re.IGNORECASE,
)
#: The first of the GPUs that a task sees, whatever its rank.
_FIRST_GPU: Final = lazy_pattern(
    r"[\"']cuda:0[\"']|\bset_device\(\s*0\s*\)|\bdevice\(\s*[\"']cuda[\"']\s*,\s*0\s*\)"
)
_NTASKS: Final = slurm_manual(
    "srun(1), --ntasks: also SLURM_NTASKS, which sbatch sets; seen in a real job"
)
_CPUS: Final = slurm(
    "srun/libsrun/opt.c:542; RELEASE_NOTES of 22.05, and of 23.11, which takes it back"
)
_OVERLAP: Final = slurm_manual("srun(1), --overlap: steps share nothing by default since 20.11")
_PER_TASK: Final = slurm_manual(
    "sbatch(1), --gpus-per-task implies --gpu-bind=per_task; seen in a real job"
)


#: The time limit of a job that costs little where it hangs until its end. Our own choice: nobody
#: who read findings on jobs of 5 and 10 minutes would have changed these.
_SHORT_S: Final = 15 * 60


def _waits_for_others(step: Step) -> bool:
    """Whether a step's tasks are ranks of one run: a launcher starts them, they make steps of
    training, or they meet.

    Where the step hands a command to a shell, what that starts counts as well.
    """
    programs = {call.program for launch in launches_within(step) for call in launch.calls}
    if not programs.isdisjoint(LAUNCHERS):
        return True
    if step.launch.makes_steps:
        return True
    if "python" not in programs:
        return False
    # A module that a program imports may have more than the program calls: where nothing says at
    # which address ranks meet, only its own text counts.
    if "init_process_group" in (program_text(step.launch) or ""):
        return True
    return not _MEETING.isdisjoint(step.variables) and may_make_group(step.launch)


def _may_be_ranks(step: Step) -> bool:
    """Whether a step's tasks train, or its program is named and may make a group of ranks."""
    program = step.launch.program
    is_named = program is not None and program.value is not None
    return step.launch.makes_steps or (is_named and may_make_group(step.launch))


def _is_chosen_in_task(step: Step, call: Call) -> bool:
    """Whether a condition in the shell of each task decides which of them start the launcher."""
    return call.command.guarded and not step.launch.calls[0].command.guarded


def _counts_tasks(step: Step, call: Call) -> bool:
    """Whether torchrun's nodes are the step's tasks, each with some of a node's GPUs."""
    if call.program != "torchrun" or not step.nodes or not step.tasks or step.tasks <= 1:
        return False
    return call.options.integer("--nnodes") == step.nodes * step.tasks


@steps.rule("SLM001", ERROR, "launcher", ml_engineering("orchestration/slurm/users.md:583"))
def launcher_starts_once_a_node(step: Step) -> Violations:
    """srun starts torchrun, deepspeed or accelerate once on each node; they start the ranks.
    Prevents: Each of the tasks starts a rank for every GPU: ports in use, or eight ranks on each
    GPU; deepspeed with a hostfile, without --no_ssh, those of all nodes.
    Fix: write --ntasks-per-node=1
    """
    call = step.launch.launcher
    if call is None:
        return
    if _starts_too_many_launchers(step):
        message = (
            f"srun starts {step.tasks} {call.program} tasks per node, and each starts "
            "all ranks of the node"
        )
        yield Violation(step.where_tasks or call.where, message, "write --ntasks-per-node=1")
    elif _starts_all_hosts(step, call):
        message = (
            f"srun starts deepspeed on each of {step.nodes} nodes, and without --no_ssh each "
            "starts the ranks of all hosts in its hostfile"
        )
        hint = 'add --no_ssh --node_rank "$SLURM_NODEID" --master_addr "$MASTER_ADDR", or start it '
        yield Violation(call.where, message, f"{hint}without srun")


def _starts_too_many_launchers(step: Step) -> bool:
    """Whether several tasks of a node are launchers, each of which starts all its ranks."""
    call = step.launch.launcher
    if call is None or step.tasks in (None, 1):
        return False
    return not _is_chosen_in_task(step, call) and not _counts_tasks(step, call)


#: Options by which DeepSpeed's launcher may stay on its own node, in spite of a hostfile.
_STAYS: Final = ("--no_ssh", "--include", "--exclude")


def _starts_all_hosts(step: Step, call: Call) -> bool:
    """Whether deepspeed is started on each of several nodes, and reaches all of them itself."""
    options = call.options
    if call.program != "deepspeed" or options.opaque or _is_chosen_in_task(step, call):
        return False
    hostfile = options.get("--hostfile")
    # DeepSpeed takes what is no file for no hostfile. Source: launcher/runner.py, fetch_hostfile
    if hostfile is None or hostfile.text == os.devnull:
        return False
    if any(options.get(name) for name in _STAYS):
        return False
    return (step.nodes or 1) > 1 and step.tasks == 1 and options.integer("--num_nodes") != 1


@steps.rule(
    "SLM002",
    ERROR,
    "init",
    ml_engineering("orchestration/slurm/launchers/lightning-launcher.slurm:8"),
)
def tasks_are_the_gpus(step: Step) -> Violations:
    """Where srun starts the training program itself, each node has one task for each of its GPUs.
    Prevents: A world size other than the number of GPUs: unused GPUs, or invalid device ordinal. A
    note where it isn't known that the tasks are ranks.
    Fix: start one task per GPU: set --ntasks-per-node to the GPUs per node"""
    if not step.starts_python or step.tasks is None:
        return
    gpus, share = step.block.gpus_per_node, step.block.share_of_a_node
    if share is not None and step.tasks > share.value:
        gpus = share  # of fewer tasks nothing is certain: the GPUs of a job may be spread unevenly
    if gpus is None or gpus.value in (0, step.tasks) or (step.tasks == 1 and step.nodes == 1):
        return
    tasks = f"{step.tasks} task{'s' * (step.tasks > 1)} per node"
    message = f"srun starts {tasks}, and a node gives {gpus.value} GPUs: start one task per GPU"
    hint = f"write --ntasks-per-node={gpus.value}, or start torchrun once per node"
    # One task may start a node's ranks itself; others may be workers that share GPUs.
    severity = ERROR if step.tasks > 1 and _may_be_ranks(step) else NOTE
    yield Violation(step.where_tasks or step.where, message, hint, severity=severity)


@steps.rule("SLM003", NOTE, "silent", _CPUS)
def srun_is_told_the_cores(step: Step) -> Violations:
    """srun is given the cores of a task, as it doesn't inherit them from sbatch (Slurm 22.05 to
    23.02).
    Prevents: Ranks that are pinned to one core: the data loader is ten times slower. Other releases
    do pass it on.
    Fix: give --cpus-per-task to srun, or export SRUN_CPUS_PER_TASK
    """
    cores, srun = step.block.count("--cpus-per-task"), step.srun
    if cores is None or cores.value <= 1 or "SRUN_CPUS_PER_TASK" in step.variables:
        return
    if srun.has("--cpus-per-task", "--cpus-per-gpu", "--exclusive") or srun.opaque:
        return
    message = f"Slurm 22.05 to 23.02 don't pass {cores} on to srun: a task may get one core"
    hint = (
        'write srun --cpus-per-task="$SLURM_CPUS_PER_TASK", or export '
        'SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"'
    )
    yield Violation(step.where, message, hint)


@steps.rule("SLM004", WARNING, "init", _PER_TASK)
def tasks_see_all_gpus(step: Step) -> Violations:
    """Ranks that choose their GPU by LOCAL_RANK see all GPUs of the node.
    Prevents: CUDA error: invalid device ordinal; NCCL without peer-to-peer. A note where the
    program isn't there.
    Fix: use --gpus-per-node
    """
    if not step.starts_python or step.tasks in (None, 1):
        return
    requests = (step.block, step.srun)
    flags = (argument for request in requests for argument in request.valued("--gres-flags"))
    if any("allow-task-sharing" in argument.value for argument in flags):
        return  # every task sees the GPUs of the others on its node
    if any(request.has("--gpu-bind") for request in requests):
        return
    for request in requests:
        per_task = request.argument("--gpus-per-task")
        if per_task is None:
            continue
        message = (
            f"{per_task.command} {per_task.name} shows each task its own GPUs only, as number 0: "
            "cuda:LOCAL_RANK fails from 1 on"
        )
        text = program_text(step.launch) or ""
        # The program may take the first GPU, or count those that it sees. Without set_device,
        # the current device is the first.
        takes_current = "current_device()" in text and "set_device(" not in text
        takes_first = takes_current or _FIRST_GPU.search(text) is not None
        by_rank = "LOCAL_RANK" in text and not takes_first and not _MODULO.search(text)
        severity = WARNING if by_rank else NOTE
        hint = "use --gpus-per-node in its place, or add --gpu-bind=none"
        yield Violation(per_task.where, message, hint, severity=severity)


@submissions.rule(
    "SLM013",
    WARNING,
    "training",
    slurm_manual("srun(1), --kill-on-bad-exit, --wait"),
    reads=("launch script", "accelerate config"),
)
def step_ends_with_its_first_failure(submission: Submission) -> Violations:
    """A step over several nodes ends when one of its tasks fails.
    Prevents: A job that hangs, at worst until its time limit, on all its nodes. A note where it
    isn't known whether they wait, without a GPU, and with a time limit of at most 15 minutes.
    Fix: write srun --kill-on-bad-exit=1 --wait=60
    """
    for step in steps(submission):
        if not starts_one_machine(step, submission):
            yield from _goes_on_after_a_failure(step)


def _goes_on_after_a_failure(step: Step) -> Violations:
    """A violation where nothing ends a step when one of its tasks fails."""
    # Of several launchers on a node one is left, as SLM001 has it.
    tasks = 1 if _starts_too_many_launchers(step) else step.tasks
    several = (step.nodes or 1) > 1 or (tasks or 1) > 1
    ends = step.srun.has("--kill-on-bad-exit", "--wait") or not _ENDING.isdisjoint(step.variables)
    if several and not ends and not step.srun.opaque and not starts_alone(step):
        wait, severity = ("wait", None) if _waits_for_others(step) else ("may wait", NOTE)
        limit_s = step.block.seconds("--time")
        is_short = limit_s is not None and limit_s <= _SHORT_S
        if is_short or not _has_gpus(step):
            severity = NOTE
        effect = f"when one task fails, the others {wait} until they time out or the job does"
        message = f"srun without --kill-on-bad-exit=1: {effect}"
        hint = "write srun --kill-on-bad-exit=1 --wait=60"
        yield Violation(step.where, message, hint, severity=severity)


def _has_gpus(step: Step) -> bool:
    """Whether a step asks for GPUs, or its script speaks of some that a partition may give.

    Ranks without GPUs meet by gloo, whose connections break at once when one of them ends.
    """
    asks = step.block.asks_for_gpus or step.srun.has(*GPU_OPTIONS)
    return asks or _SPEAKS_OF_GPUS.search(step.block.shell.text.content) is not None


@steps.rule("SLM064", ERROR, "silent", _NTASKS)
def tasks_are_counted_anew(step: Step) -> Violations:
    """srun's --ntasks-per-node comes with --ntasks where the job has a number of tasks already.
    Prevents: srun: Warning: can't honor --ntasks-per-node. Eight launchers on a node instead of
    one.
    Fix: give srun --ntasks as well, or the job one task per node
    """
    srun, block = step.srun, step.block
    of_step, of_job = srun.count("--ntasks-per-node"), block.count("--ntasks-per-node")
    if of_step is None or of_job is None or of_step.value == of_job.value:
        return
    if srun.opaque or srun.has("--ntasks") or block.has("--ntasks"):
        return
    each, nodes = of_step.value, block.nodes if block.has("--nodes") else None
    total = f"{of_job.value} tasks per node"
    if nodes:
        total = f"{nodes * of_job.value} tasks, {of_job.value} per node"
    message = f"{of_step} is ignored: srun uses the job's {total}"
    right = nodes * each if nodes else "..."
    hint = (
        f"write srun --ntasks={right} --ntasks-per-node={each}, or #SBATCH --ntasks-per-node={each}"
    )
    yield of_step.bad_value(message, hint)


@steps.rule("SLM065", ERROR, "launcher", slurm_manual("srun(1), --nodes; seen in a real job"))
def step_has_its_nodes(step: Step) -> Violations:
    """A step asks for no more nodes than its job has.
    Prevents: srun: error: Only allocated 2 nodes asked for 3; or fewer nodes than asked for.
    Fix: ask for no more nodes than the job's"""
    block, of_step, asked = step.block, step.srun.argument("--nodes"), step.srun.nodes or 0
    job_nodes = block.most_nodes if block.has("--nodes") else None  # else sbatch --nodes=N
    if of_step is None or job_nodes is None or asked <= job_nodes:
        return
    if not block.has("--ntasks", "--gpus", "--nodelist"):  # which may bring more nodes
        message = f"{of_step}, and the job has {job_nodes} node{'s' * (job_nodes > 1)}"
        yield of_step.bad_value(message, f"write --nodes={job_nodes}, or #SBATCH --nodes={asked}")


@steps.rule(
    "SLM066", ERROR, "launcher", slurm_manual("srun(1), --gpus-per-node; seen in a real job")
)
def step_has_its_gpus(step: Step) -> Violations:
    """A step asks for no more GPUs of a node than its job has.
    Prevents: srun: error: Step requested gres_per_node=gpu:2 is more than the job's
    gres_per_node=gpu:1.
    Fix: ask for no more GPUs than the job's
    """
    of_step, of_job = step.srun.gpus_per_node, step.block.gpus_per_node
    if of_step is not None and of_job is not None and of_step.value > of_job.value:
        message = f"{of_step}, and the job has {of_job.value} GPUs of each node"
        hint = f"ask for {of_step.value} in #SBATCH {of_job.name}, or leave it out of srun"
        yield of_step.bad_value(message, hint)


@submissions.rule("SLM017", WARNING, "training", _OVERLAP, reads=("launch script",))
def no_step_in_a_step(submission: Submission) -> Violations:
    """No step waits for GPUs of another: none starts in a task of srun, or while one runs in the
    background.
    Prevents: srun: Job step creation temporarily disabled, retrying.
    Fix: use one srun, or --overlap
    """
    for request in blocks(submission):
        if request.has(*GPU_OPTIONS):
            yield from _steps_side_by_side(request.shell)
    for shell in (script.shell for script in submission.scripts):
        for command in shell.commands:
            if command.inside is None or not _is_srun(command):
                continue
            overlaps = any(word.value == "--overlap" for word in command.words)
            if _is_srun(shell.commands[command.inside]) and not overlaps:
                message = (
                    "srun inside a task of srun: the inner step waits for the GPUs that "
                    "the outer one holds"
                )
                hint = "use one srun, or --overlap on the inner one"
                yield Violation(shell.locate(command), message, hint)


def _steps_side_by_side(shell: ShellScript) -> Violations:
    """A launch beside a background step that holds the job's GPUs: steps share none by default."""
    in_behind: Command | None = None  # the step that runs in the background
    for command in shell.commands:
        name = command.words[0].value if command.words else None
        if name in ("wait", "kill") and command.shell is None:
            in_behind = None
        if command.shell is not None or command.guarded or not _is_srun(command):
            continue
        if any(word.prefix.startswith(_SHARES) for word in command.words[1:]):
            continue
        if in_behind is not None:
            line = shell.locate(in_behind).line
            message = (
                f"this step waits for the GPUs that the step of line {line} holds in the background"
            )
            hint = "add --overlap to the one in the background, or --gres=none"
            yield Violation(shell.locate(command), message, hint)
            return
        if in_background(shell, command):
            in_behind = command


def _is_srun(command: Command) -> bool:
    return next((word.value for word in command.words if word.value != "exec"), None) == "srun"


@blocks.rule("SLM059", ERROR, "init", slurm_manual("sbatch(1): the script runs on the first node"))
def every_node_starts_its_launcher(request: Request) -> Violations:
    """In a job over several nodes the launcher is started on each of them, not by the batch script
    alone.
    Prevents: One node waits for the others at the rendezvous until the time limit.
    Fix: start it by srun: srun torchrun ...
    """
    if (request.nodes or 1) <= 1:
        return
    started_on_nodes = any(
        outer.program in ON_EVERY_NODE for launch in request.launches for outer in launch.calls
    )
    for launch in request.launches:
        outer_programs = {outer.program for outer in launch.calls}
        launchers = (call for call in launch.calls if call.program in ("torchrun", "accelerate"))
        call = next(launchers, None)
        # Of two branches the one without srun is for a single node.
        is_other_branch = launch.calls[0].command.guarded and started_on_nodes
        is_of_other_job = "sbatch" in outer_programs
        is_on_nodes = not ON_EVERY_NODE.isdisjoint(outer_programs)
        if call is None or is_other_branch or is_of_other_job or is_on_nodes:
            continue
        is_known = not call.opaque and call.command.words[0].value is not None
        if is_known and call.command.shell is None:
            first = f"the batch script runs on the first of {request.nodes} nodes only"
            message = f"{first}, and starts {call.program} there without srun"
            hint = f"write srun {call.program} ..."
            yield Violation(call.where, message, hint)
