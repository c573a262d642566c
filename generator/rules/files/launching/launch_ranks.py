"""Ranks that no launcher starts: the variables by which they know who they are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ....documents.shell.launch_line import Call, Launch
from ....documents.submission import Submission
from ....findings import ERROR, Severity, Violation, Violations
from ...rule import submissions
from ...sources import deepspeed_now
from ..steps import Step, steps
from .launch_calls import at
from .program_text import program_text

#: Arguments of a training program that say that DeepSpeed or Megatron trains.
_TRAINING: Final = frozenset(
    {"--deepspeed", "--deepspeed_config", "--deepspeed-config", "--tensor-model-parallel-size"}
)
_NEEDED: Final = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_FROM: Final = {
    "RANK": "RANK=$SLURM_PROCID",
    "WORLD_SIZE": "WORLD_SIZE=$SLURM_NTASKS",
    "LOCAL_RANK": "LOCAL_RANK=$SLURM_LOCALID",
    "MASTER_ADDR": 'MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1)',
    "MASTER_PORT": "MASTER_PORT=29500",
}


def _direct(submission: Submission) -> Iterator[tuple[Step, set[str]]]:
    """Steps that start a Python program with DeepSpeed or Megatron on each rank, and the variables they get."""
    for step in steps(submission):
        several = (step.tasks or 1) * (step.nodes or 1) > 1
        told = submission.configs or submission.megatron or _names_deepspeed(step.launch)
        if step.launcher is None and _is_python(step.launch) and several and told:
            yield step, set(step.launch.environment)


def _is_python(launch: Launch) -> bool:
    return any(call.program == "python" for call in launch.calls)


def _names_deepspeed(launch: Launch) -> bool:
    """Whether the training program's own arguments ask for DeepSpeed or Megatron."""
    return bool({word.prefix.partition("=")[0] for word in launch.arguments} & _TRAINING)


def _asks_for_deepspeed(step: Step) -> bool:
    """Whether the program starts DeepSpeed as the node's own Python runs it; an image's entry point may export more."""
    named = {word.prefix.partition("=")[0] for word in step.launch.arguments} & _TRAINING
    images = (step.srun.options, step.block.options)
    return any("deepspeed" in name for name in named) and not any(given.has("--container-image") for given in images)


def _finds_out_itself(launch: Launch) -> bool:
    """Whether the program, where it lies beside the script, reads the variables of Slurm or MPI, or sets its own."""
    text = program_text(launch)
    return text is not None and re.search(r"SLURM_|OMPI_|mpi4py|PMI_|RANK['\"]\]\s*=", text) is not None


@submissions.rule(
    "LNCH014",
    ERROR,
    "init",
    deepspeed_now("comm/comm.py:889, init_distributed: else the ranks are asked of mpi4py"),
    reads=("launch script",),
)
def ranks_know_who_they_are(submission: Submission) -> Violations:
    """Ranks get RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT from a launcher, or from the line that starts them.

    Prevents: ModuleNotFoundError: No module named 'mpi4py'. A warning where the program may set them itself.
    Fix: Export them from Slurm's variables.
    """
    for step, names in _direct(submission):
        missing = [name for name in _NEEDED if name not in names]
        if not missing:
            continue
        hint = f"srun bash -c 'export {_FROM[missing[0]]}; ...', in single quotes, or srun torchrun"
        message = f"srun starts the ranks without {', '.join(missing)}, by which DeepSpeed and torch find one another"
        sure = "RANK" in names or (_asks_for_deepspeed(step) and not _finds_out_itself(step.launch))
        where = step.launch.script.locate(step.srun.word)
        yield Violation(where=where, message=message, hint=hint, severity=Severity.ERROR if sure else Severity.WARNING)
    for launch, outer in _bare(submission):
        if outer.program == "mpirun":  # which works where mpi4py is installed
            message = "mpirun starts the ranks without RANK and WORLD_SIZE: DeepSpeed asks mpi4py for them"
            hint = "install mpi4py, or start them by deepspeed --launcher openmpi or torchrun"
            yield Violation(where=at(launch, outer), message=message, hint=hint, severity=Severity.NOTE)
        else:
            message = f"no launcher starts this: one process, and the job has {submission.world.gpus} GPUs"
            hint = f"deepspeed {launch.program.raw} ..." if launch.program else "start it by deepspeed or torchrun"
            yield Violation(where=at(launch, outer), message=message, hint=hint, severity=Severity.WARNING)


def _bare(submission: Submission) -> Iterator[tuple[Launch, Call]]:
    """Lines that start a program with DeepSpeed by python or mpirun alone, though it is for several ranks."""
    scripts = {id(script.shell) for script in submission.scripts}
    for launch in submission.launches:
        programs = [call.program for call in launch.calls]
        names = set(launch.environment)
        if id(launch.script) not in scripts or not _names_deepspeed(launch) or names & {"RANK", "WORLD_SIZE"}:
            continue
        if _finds_out_itself(launch) or programs[-1] != "python":
            continue
        if programs == ["python"] and launch.calls[0].command.shell is None:
            started = _starts_scripts(submission)
            if (submission.world.gpus or 1) > 1 and not started and not launch.calls[0].command.guarded:
                yield launch, launch.calls[0]
        elif programs[0] == "mpirun" and (launch.calls[0].options.integer("--np") or 1) > 1:
            yield launch, launch.calls[0]


def _starts_scripts(submission: Submission) -> bool:
    """Whether anything here may start another script, or start ranks otherwise than by its own launch lines."""
    if submission.azureml_jobs:
        return True
    others = [launch for launch in submission.launches if launch.program and launch.program.raw.endswith(".sh")]
    ranks = [call for launch in submission.launches for call in launch.calls if call.program != "python"]
    return bool(others or ranks)


@submissions.rule(
    "BATCH008",
    ERROR,
    "init",
    deepspeed_now("comm/comm.py:889, init_distributed; runtime/config.py, _batch_assertion"),
    reads=("launch script",),
)
def world_is_not_one(submission: Submission) -> Violations:
    """A batch that is for several ranks is not counted by ranks that each take themselves for the only one.

    Prevents: Check batch related parameters: 64 != 1 * 8 * 1. A warning where mpi4py or the program may know
    better.
    Fix: Export RANK and WORLD_SIZE, or start a launcher.
    """
    config = submission.config
    total = config.value("/train_batch_size") if config else None
    for step, names in _direct(submission):
        deep = config is not None or _asks_for_deepspeed(step)
        if deep and not names & {"RANK", "WORLD_SIZE"} and not _finds_out_itself(step.launch):
            ranks = (step.nodes or 1) * (step.tasks or 1)
            sure = _asks_for_deepspeed(step) and isinstance(total, int)
            yield _alone(step.launch, step.srun, ranks, total, Severity.ERROR if sure else Severity.WARNING)
    for launch, outer in _bare(submission):
        ranks = outer.options.integer("--np") or 1
        if outer.program == "mpirun" and isinstance(total, int):
            yield _alone(launch, outer, ranks, total, Severity.WARNING)


def _alone(launch: Launch, outer: Call, ranks: int, total: object, severity: Severity) -> Violation:
    batch = f", and train_batch_size: {total} is not counted by 1" if isinstance(total, int) else ""
    unless = " unless mpi4py tells it more" if outer.program == "mpirun" else ""
    message = f"{outer.program} starts {ranks} ranks without RANK and WORLD_SIZE: "
    message += f"each sees a world size of 1{unless}{batch}"
    hint = "export RANK and WORLD_SIZE, or start torchrun or deepspeed"
    return Violation(where=at(launch, outer), message=message, hint=hint, severity=severity)


@submissions.rule(
    "LNCH015", ERROR, "init", deepspeed_now("runtime/engine.py:1972, _do_args_sanity_check"), reads=("launch script",)
)
def ranks_know_their_gpu(submission: Submission) -> Violations:
    """Ranks that srun starts get LOCAL_RANK.

    Prevents: AssertionError: DeepSpeed requires the LOCAL_RANK environment variable.
    Fix: LOCAL_RANK=$SLURM_LOCALID.
    """
    for step, names in _direct(submission):
        if "LOCAL_RANK" in names or not {"RANK", "WORLD_SIZE"} <= names:
            continue
        message = "srun starts the ranks with RANK and WORLD_SIZE, but without LOCAL_RANK"
        hint = f"export {_FROM['LOCAL_RANK']} where RANK is exported"
        yield Violation(where=step.launch.script.locate(step.srun.word), message=message, hint=hint)
