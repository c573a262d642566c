"""Jobs of an array: what they share that each should have for itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ....documents.command_line import Argument
from ....documents.launcher_call import fixed_port
from ....documents.shell.launch_line import Launch
from ....documents.shell.script import Word
from ....documents.slurm_request import Request
from ....findings import WARNING, Violation, Violations
from ...sources import slurm_manual
from ..subjects import blocks

#: Options of training programs for the folder that checkpoints are written to: Transformers', Megatron's and others'.
_FOLDERS: Final = frozenset(
    {"--output_dir", "--output-dir", "--save", "--save_dir", "--save-dir", "--checkpoint_dir", "--checkpoint-dir"}
    | {"--ckpt_dir", "--ckpt-dir", "--checkpoints_path", "--save_path", "--save-path", "--out_dir", "--output"}
)
_OWN: Final = ("SLURM_ARRAY_TASK_ID", "SLURM_JOB_ID", "SLURM_JOBID")


@blocks.rule("SLM022", WARNING, "training", slurm_manual("sbatch(1), --array, and filename pattern"))
def tasks_of_an_array_differ(request: Request) -> Violations:
    """The jobs of an array have their own logs, checkpoints, ports and work.

    Prevents: Jobs that write the same checkpoint folder and log at the same time.
    Fix: put %A_%a into the paths
    """
    for array in request.texts("--array"):
        if array.value.endswith("%1") or re.fullmatch(r"\d+", array.value):  # one after the other: a chain that goes on
            continue
        if not any(name in request.shell.text.content for name in _OWN):
            message = f"{array}, but nothing in the script depends on SLURM_ARRAY_TASK_ID: all jobs do the same"
            hint = "choose the work by $SLURM_ARRAY_TASK_ID, and give each job its own checkpoint folder"
            yield Violation(where=array.where_value, message=message, hint=hint)
        for log in request.texts("--output", "--error"):
            if not re.search(r"%\d*[aAjJ]", log.value) and log.value != "/dev/null":
                message = f"{log} is one file for all jobs of the array"
                yield Violation(where=log.where_value, message=message, hint=f"write {log.name}=%x-%A_%a.out")
        for launch in request.launches:
            if not launch.calls[0].command.guarded:
                yield from _shared(request, array, launch)


def _shared(request: Request, array: Argument[str], launch: Launch) -> Violations:
    """Folders and a port that are literal in a launch line, and so the same in every job."""
    for name, word, value in _folders(launch):
        message = f"{name} {value} is one folder for all jobs of {array}"
        hint = f'write {name} "{value.rstrip("/")}/$SLURM_ARRAY_TASK_ID"'
        yield Violation(where=launch.script.locate(word), message=message, hint=hint)
    port = None if request.has("--exclusive") else fixed_port(launch)
    if port is not None:
        message = f"{port.text}, for all jobs of {array}, which may run on one node"
        hint = f"write {port.instead(f'$(({port.number} + SLURM_ARRAY_TASK_ID))')}"
        yield Violation(where=port.where, message=message, hint=hint)


def _folders(launch: Launch) -> Iterator[tuple[str, Word, str]]:
    words = launch.arguments
    for word, following in zip(words, (*words[1:], None), strict=False):
        name, equals, value = (word.value or "").partition("=")
        if name in _FOLDERS and equals:
            yield name, word, value
        elif name in _FOLDERS and following and following.value and not following.value.startswith("-"):
            yield name, following, following.value
