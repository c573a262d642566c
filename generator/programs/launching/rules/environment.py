"""Environment variables of launch scripts, and those that must reach the training program."""

from __future__ import annotations

import re
from typing import Final

from ....findings import ERROR, NOTE, WARNING, Violation, Violations
from ....rules.sources import deepspeed_now, derived
from ...rule import submissions
from ...shell.records import Command
from ...subjects import commands, deepspeed_calls, launches
from ...submission import Submission
from ..launch_line import Launch
from ..launcher_call import LauncherCall
from ..script import LaunchScript
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
_BAD_NAME: Final = re.compile(r"(?![A-Za-z_]\w*\+?=)(\w[\w-]*)=(?!=)")
_BLOCKING: Final = derived("CUDA C++ Programming Guide, CUDA_LAUNCH_BLOCKING")
_EXPORTS: Final = deepspeed_now("launcher/runner.py:37 and 598, main; accelerator/cuda_accelerator.py:412")


@submissions.rule("ENV004", WARNING, "silent", _BLOCKING, reads=("launch script",))
def kernels_are_not_waited_for(submission: Submission) -> Violations:
    """CUDA_LAUNCH_BLOCKING is off in training.

    Prevents: Training at a fraction of its speed.
    Fix: remove it"""
    for setting, value in known(submission, "CUDA_LAUNCH_BLOCKING", with_azureml=False):  # AML015 is for those
        if value == "1":
            message = "CUDA_LAUNCH_BLOCKING=1 waits for every kernel: much slower, and meant for debugging"
            yield Violation(setting.where, message, "remove it")


@commands.rule("ENV001", NOTE, "silent", derived("bash(1), ENVIRONMENT: only exported variables are passed on"))
def variables_are_exported(script: LaunchScript) -> Violations:
    """A variable that the training program reads is exported.

    Prevents: The setting has no effect. A note, as the environment may have exported it before.
    Fix: export it"""
    shell, content = script.shell, script.shell.text.content
    if not script.launches or shell.unterminated is not None or "set -a" in content or "allexport" in content:
        return
    exported = {assignment.name for assignment in shell.assignments if assignment.exported}
    exported |= {name for launch in script.launches for name in launch.environment}
    for assignment in shell.assignments:
        name = assignment.name
        late = assignment.offset > script.launches[0].calls[0].command.offset
        if late or assignment.exported or name in exported or not _FOR_TRAINING.fullmatch(name):
            continue
        if not re.search(rf"\$\{{?{name}\b", content):  # else the script itself uses it
            message = (
                f"{name} is set without export: the training program doesn't get it, if nothing exported it before"
            )
            yield Violation(shell.locate(assignment), message, f"export {name}={assignment.raw}")


@commands.rule("ENV002", ERROR, "launcher", derived("bash(1), PARAMETERS: name=[value]"))
def assignments_have_no_spaces(script: LaunchScript) -> Violations:
    """An assignment has no spaces around its equals sign, and a name of letters, digits and underscores.

    Prevents: export: `=': not a valid identifier; MODEL-DIR=/data: command not found; the variable is empty.
    Fix: remove the spaces; write the name with underscores"""
    for command in script.shell.commands:
        yield from _bad_name(script, command)
        words = command.words[1:] if command.words and command.words[0].value == "export" else command.words
        if len(words) < 2 or words[1].value != "=" or len(command.words) < 3:
            continue
        name, value = words[0].value, words[2].raw if len(words) > 2 else ""
        if words is not command.words or re.fullmatch(r"[A-Z][A-Z0-9_]*", name or ""):
            message = f"{name} = {value}: bash accepts no spaces around the equals sign, so nothing is set"
            yield Violation(script.shell.locate(command), message, f"export {name}={value}")


def _bad_name(script: LaunchScript, command: Command) -> Violations:
    """An assignment whose name bash doesn't take for one."""
    exports = bool(command.words) and command.words[0].value == "export"
    for word in command.words[1:] if exports else command.words[:1]:
        match = _BAD_NAME.match(word.raw)
        if match and (exports or word.offset == command.offset):
            instead = re.sub(r"\W", "_", match[1])
            message = f"{match[1]} is no name of a variable: bash takes the assignment for a command, and sets nothing"
            yield Violation(script.shell.locate(word), message, f"write {instead}=...")


@launches.rule("ENV003", ERROR, "init", derived("each rank takes the GPU of its LOCAL_RANK"))
def devices_are_as_many_as_ranks(launch: Launch) -> Violations:
    """CUDA_VISIBLE_DEVICES has a GPU for each of the node's ranks.

    Prevents: CUDA error: invalid device ordinal.
    Fix: show as many GPUs as there are ranks"""
    visible, call = launch.environment.get("CUDA_VISIBLE_DEVICES"), launch.call("torchrun")
    ranks = call.options.integer("--nproc-per-node") if call else None
    if visible is None or visible.value is None or ranks is None:
        return
    devices = [part for part in visible.value.split(",") if part.strip()]
    if devices and ranks > len(devices):
        message = f"CUDA_VISIBLE_DEVICES={visible.value} shows {len(devices)} GPUs to {ranks} ranks"
        hint = f"write --nproc-per-node={len(devices)}, or show {ranks} GPUs"
        yield Violation(launch.script.locate(visible.value_offset), message, hint)


@deepspeed_calls.rule("LNCH010", WARNING, "silent", _EXPORTS)
def variables_reach_the_nodes(call: LauncherCall) -> Violations:
    """A variable that training reads is one that deepspeed sends to the other nodes.

    Prevents: Nodes that train with other settings than the first. A note where a job may do without.
    Fix: put it into ~/.deepspeed_env, or use srun, which exports everything"""
    if not call.has("--hostfile") or call.has("--no_ssh") or call.nodes == 1:
        return
    files = call.submission.environment_files
    sent = {line.partition("=")[0] for file in files for line, _ in file.lines} | {"CUDA_VISIBLE_DEVICES"}
    for name, assignment in call.launch.environment.items():
        if name in sent or name.startswith(_SENT) or not _READ.fullmatch(name):
            continue
        message = f"{name} is not sent to the other nodes: deepspeed sends only {', '.join(_SENT)} variables"
        hint = f"write {name}=VALUE into ~/.deepspeed_env"
        # Megatron's tensor parallelism stops without this one; without others a job may well do.
        stops = name == "CUDA_DEVICE_MAX_CONNECTIONS" and bool(call.submission.megatron)
        yield Violation(call.shell.locate(assignment), message, hint, severity=WARNING if stops else NOTE)
