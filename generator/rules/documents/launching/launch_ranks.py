"""Ranks that srun starts itself: the variables by which they know who they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ....documents.submission import Submission
from ....findings import Severity
from ...sources import deepspeed_now
from ..rule import Breach, DocumentRule
from ..steps import Step, steps
from .launch_calls import launcher_rule

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
        python = any(call.program == "python" for call in step.launch.calls)
        several = (step.tasks or 1) * (step.nodes or 1) > 1
        if step.launcher is None and python and several and _trains(submission, step):
            yield step, set(step.launch.environment)


def _trains(submission: Submission, step: Step) -> bool:
    words = {word.prefix.partition("=")[0] for word in step.launch.arguments}
    named = {"--deepspeed", "--deepspeed_config", "--deepspeed-config", "--tensor-model-parallel-size"}
    return bool(words & named or submission.ds_configs or submission.megatron)


def ranks_know_who_they_are(submission: Submission) -> Iterator[Breach]:
    """Ranks that srun starts get RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT."""
    for step, names in _direct(submission):
        missing = [name for name in _NEEDED if name not in names]
        if not missing:
            continue
        hint = f"srun bash -c 'export {_FROM[missing[0]]}; ...', in single quotes, or srun torchrun"
        message = f"srun starts the ranks without {', '.join(missing)}, by which DeepSpeed and torch find one another"
        severity = Severity.ERROR if "RANK" in names else Severity.WARNING
        where = step.launch.script.locate(step.srun.word)
        yield Breach(where=where, message=message, hint=hint, severity=severity)


def ranks_know_their_gpu(submission: Submission) -> Iterator[Breach]:
    """Ranks that srun starts get LOCAL_RANK."""
    for step, names in _direct(submission):
        if "LOCAL_RANK" in names or not {"RANK", "WORLD_SIZE"} <= names:
            continue
        message = "srun starts the ranks with RANK and WORLD_SIZE, but without LOCAL_RANK"
        hint = f"export {_FROM['LOCAL_RANK']} where RANK is exported"
        yield Breach(where=step.launch.script.locate(step.srun.word), message=message, hint=hint)


RULES: Final[tuple[DocumentRule, ...]] = (
    launcher_rule(
        "LNCH014",
        ranks_know_who_they_are,
        deepspeed_now("comm/comm.py:889, init_distributed: else the ranks are asked of mpi4py"),
        "ModuleNotFoundError: No module named 'mpi4py'. A warning where the program may set them itself.",
        "Export them from Slurm's variables.",
        when="init",
    ),
    launcher_rule(
        "LNCH015",
        ranks_know_their_gpu,
        deepspeed_now("runtime/engine.py:1972, _do_args_sanity_check"),
        "AssertionError: DeepSpeed requires the LOCAL_RANK environment variable.",
        "LOCAL_RANK=$SLURM_LOCALID.",
        when="init",
    ),
)
