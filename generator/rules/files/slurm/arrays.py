"""Jobs of an array: what they share that each should have for itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ....documents.shell.launch_line import Launch, Option
from ....documents.shell.script import Word
from ....findings import WARNING, Violation, Violations
from ...sources import slurm_manual
from ..launching.launch_ports import fixed_port
from .options import known_values
from .requests import Request, blocks

#: Options of training programs for the folder that checkpoints are written to: Transformers', Megatron's and others'.
_FOLDERS: Final = frozenset(
    {"--output_dir", "--output-dir", "--save", "--save_dir", "--save-dir", "--checkpoint_dir", "--checkpoint-dir"}
    | {"--ckpt_dir", "--ckpt-dir", "--checkpoints_path", "--save_path", "--save-path", "--out_dir", "--output"}
)
_OWN: Final = ("SLURM_ARRAY_TASK_ID", "SLURM_JOB_ID", "SLURM_JOBID")


@blocks.rule("SLM022", WARNING, "training", slurm_manual("sbatch(1), --array, and filename pattern"))
def tasks_of_an_array_differ(request: Request) -> Violations:
    """The jobs of an array have logs, checkpoints, ports and work of their own.

    Prevents: Jobs that write the same checkpoint folder and log at the same time.
    Fix: %A_%a in the paths.
    """
    for option, text in known_values(request, "--array"):
        if text.endswith("%1") or re.fullmatch(r"\d+", text):  # one after the other: a chain that goes on
            continue
        content = request.shell.text.content
        if not any(name in content for name in _OWN):
            same = "nothing in the script depends on SLURM_ARRAY_TASK_ID: all jobs do the same"
            message = f"{request.said(option)}, but {same}"
            hint = "choose the work by $SLURM_ARRAY_TASK_ID, and give each job a checkpoint folder of its own"
            yield Violation(where=request.at_value(option), message=message, hint=hint)
        yield from _shared_log(request)
        yield from _shared_by_launches(request, option)


def _shared_log(request: Request) -> Violations:
    for option, text in known_values(request, "--output", "--error"):
        if not re.search(r"%\d*[aAjJ]", text) and text != "/dev/null":
            message = f"{request.said(option)} is one file for all jobs of the array"
            yield Violation(where=request.at_value(option), message=message, hint=f"{option.name}=%x-%A_%a.out")


def _shared_by_launches(request: Request, array: Option) -> Violations:
    """Folders and ports that are written out in the launch lines, and so the same in every job."""
    shell = request.shell
    for launch in request.block.launches if request.block else ():
        if launch.calls[0].command.guarded:
            continue
        for name, word, value in _folders(launch):
            message = f"{name} {value} is one folder for all jobs of {request.said(array)}"
            hint = f'{name} "{value.rstrip("/")}/$SLURM_ARRAY_TASK_ID"'
            yield Violation(where=shell.locate(word), message=message, hint=hint)
        port = None if request.has("--exclusive") else fixed_port(launch)
        if port is not None:
            message = f"{port.words}, for all jobs of {request.said(array)}, which may run on one node"
            hint = port.instead(f"$(({port.number} + SLURM_ARRAY_TASK_ID))")
            where = shell.locate(port.option.written if port.option else port.call.word)
            yield Violation(where=where, message=message, hint=hint)


def _folders(launch: Launch) -> Iterator[tuple[str, Word, str]]:
    words = launch.arguments
    for index, word in enumerate(words):
        name, equals, value = (word.value or "").partition("=")
        if name not in _FOLDERS:
            continue
        if equals:
            yield name, word, value
        elif index + 1 < len(words):
            following = words[index + 1].value
            if following and not following.startswith("-"):
                yield name, words[index + 1], following
