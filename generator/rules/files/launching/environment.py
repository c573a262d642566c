"""Environment variables of launch scripts: NCCL's, and those that must reach the training program."""

from __future__ import annotations

import re
from typing import Final

from ....documents.document import LaunchScript
from ....documents.submission import Submission
from ....findings import ERROR, WARNING, Severity, Violation, Violations
from ...rule import submissions
from ...sources import deepspeed_now, derived
from ..subjects import commands
from .launch_calls import calls_of
from .settings import known

#: Variables without which training goes another way, so that one that stays in the script's shell is a slip.
_FOR_TRAINING: Final = re.compile(
    r"(?:NCCL|TORCH_NCCL|PYTORCH|WANDB|TOKENIZERS|UCX|NVTE|TRITON|HF_(?:HUB|DATASETS))_[A-Z0-9_]+|"
    r"HF_(?:HOME|TOKEN|ENDPOINT)|TRANSFORMERS_(?:CACHE|OFFLINE)|DS_ACCELERATOR|"
    r"CUDA_(?:VISIBLE_DEVICES|DEVICE_MAX_CONNECTIONS|LAUNCH_BLOCKING|DEVICE_ORDER)|OMP_NUM_THREADS|LD_LIBRARY_PATH"
)
#: Variables that DeepSpeed's launcher sends to the nodes. Source: runner.py:37, cuda_accelerator.py:412 @ 0.19.8
_SENT: Final = ("MLFLOW", "PYTHON", "MV2", "UCX", "NCCL")
#: Variables that training reads on every node; others may be for the script alone.
_READ: Final = re.compile(
    r"(?:WANDB|HF|TRANSFORMERS|HUGGINGFACE|TORCH|PYTORCH|CUDA|CUBLAS|NVTE|OMP|MKL|TOKENIZERS|DS|DEEPSPEED|TRITON|GLOO|"
    r"FI|LD|XLA|TE|FLASH|NVIDIA)_\w+"
)


@submissions.rule(
    "ENV004", WARNING, "silent", derived("CUDA C++ Programming Guide, CUDA_LAUNCH_BLOCKING"), reads=("launch script",)
)
def kernels_are_not_waited_for(submission: Submission) -> Violations:
    """CUDA_LAUNCH_BLOCKING is off in training.

    Prevents: Training at a fraction of its speed.
    Fix: Take it out.
    """
    for setting, value in known(submission, "CUDA_LAUNCH_BLOCKING", with_azureml=False):  # AML015 is for those
        if value == "1":
            message = "CUDA_LAUNCH_BLOCKING=1 waits for every kernel: much slower, and meant for finding faults"
            yield Violation(where=setting.where, message=message, hint="take it out")


@commands.rule(
    "ENV001",
    WARNING,
    "silent",
    derived("bash(1), ENVIRONMENT: only exported variables are passed on"),
    reads=("launch script",),
)
def variables_are_exported(script: LaunchScript) -> Violations:
    """A variable that the training program reads is exported.

    Prevents: The setting has no effect.
    Fix: export
    """
    first = next(iter(script.launches), None)
    if first is None or script.shell.unterminated is not None:
        return
    exported = {a.name for a in script.shell.assignments if a.exported}
    exported |= {name for launch in script.launches for name in launch.environment}
    for assignment in script.shell.assignments:
        name, content = assignment.name, script.shell.text.content
        if assignment.exported or name in exported or not _FOR_TRAINING.fullmatch(name):
            continue
        if re.search(rf"\$\{{?{name}\b", content) or "set -a" in content or "allexport" in content:
            continue  # used by the script itself
        if assignment.offset > first.calls[0].command.offset:
            continue
        message = f"{name} is set without export: the training program doesn't get it"
        yield Violation(where=script.shell.locate(assignment), message=message, hint=f"export {name}={assignment.raw}")


@commands.rule("ENV002", ERROR, "launcher", derived("bash(1), PARAMETERS: name=[value]"), reads=("launch script",))
def assignments_have_no_spaces(script: LaunchScript) -> Violations:
    """An assignment has no spaces around its equals sign.

    Prevents: export: `=': not a valid identifier; the variable is empty.
    Fix: No spaces.
    """
    for command in script.shell.commands:
        words = command.words
        values = [word.value for word in words[:4]]
        if len(words) < 3:
            continue
        if values[0] == "export" and "=" in values[2:3]:
            name, value = values[1], words[3].raw if len(words) > 3 else ""
        elif values[1] == "=" and re.fullmatch(r"[A-Z][A-Z0-9_]*", values[0] or ""):
            name, value = values[0], words[2].raw
        else:
            continue
        message = f"{name} = {value}: bash takes no spaces around the equals sign, so nothing is set"
        yield Violation(where=script.shell.locate(command), message=message, hint=f"export {name}={value}")


@submissions.rule(
    "ENV003", ERROR, "init", derived("each rank takes the GPU of its LOCAL_RANK"), reads=("launch script",)
)
def devices_are_as_many_as_ranks(submission: Submission) -> Violations:
    """CUDA_VISIBLE_DEVICES has a GPU for each of the node's ranks.

    Prevents: CUDA error: invalid device ordinal.
    Fix: As many GPUs as ranks.
    """
    for launch in submission.launches:
        assignment, call = launch.environment.get("CUDA_VISIBLE_DEVICES"), launch.call("torchrun")
        if assignment is None or assignment.value is None or call is None:
            continue
        devices = [part for part in assignment.value.split(",") if part.strip()]
        ranks, option = call.options.integer("--nproc-per-node"), call.options.get("--nproc-per-node")
        if option is None or ranks is None or ranks <= len(devices) or not devices:
            continue
        message = f"CUDA_VISIBLE_DEVICES={assignment.value} shows {len(devices)} GPUs to {ranks} ranks"
        hint = f"--nproc-per-node={len(devices)}, or show {ranks} GPUs"
        yield Violation(where=launch.script.locate(assignment.value_offset), message=message, hint=hint)


@submissions.rule(
    "LNCH010",
    ERROR,
    "silent",
    deepspeed_now("launcher/runner.py:37 and 598, main; accelerator/cuda_accelerator.py:412"),
    reads=("launch script",),
)
def variables_reach_the_nodes(submission: Submission) -> Violations:
    """A variable that training reads is one that deepspeed sends to the other nodes.

    Prevents: Nodes that train with other settings than the first. A warning for variables that a job can do
    without.
    Fix: ~/.deepspeed_env, or srun, which exports everything.
    """
    sent = {line.partition("=")[0] for file in submission.environment_files for line, _ in file.lines}
    for launch, call in calls_of(submission, "deepspeed"):
        if not call.options.has("--hostfile") or call.options.has("--no_ssh"):
            continue
        if call.options.integer("--num_nodes") == 1:
            continue
        for name, assignment in launch.environment.items():
            if name.startswith(_SENT) or name in sent or not _READ.fullmatch(name) or name == "CUDA_VISIBLE_DEVICES":
                continue
            message = f"{name} is not sent to the other nodes: deepspeed sends only {', '.join(_SENT)} variables"
            hint = f"write {name}=VALUE into ~/.deepspeed_env"
            # Megatron's tensor parallelism stops without this one; without others a job may well do.
            stops = name == "CUDA_DEVICE_MAX_CONNECTIONS" and bool(submission.megatron)
            severity = Severity.ERROR if stops else Severity.WARNING
            yield Violation(where=launch.script.locate(assignment), message=message, hint=hint, severity=severity)
