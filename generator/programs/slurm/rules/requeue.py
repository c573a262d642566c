"""Jobs that Slurm starts again from their beginning, and whether the training goes on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

from ....findings import NOTE, WARNING, Location, Violation, Violations
from ....rules.sources import slurm_manual
from ...launching.launch_line import Launch
from ...launching.launcher_call import program_text
from ...shell.script import Command
from ...subjects import blocks
from ..request import Request
from .steps import trains_nothing

#: Options by which training programs go on from a checkpoint, and words of programs that look for one by themselves.
_RESUMES: Final = re.compile(
    r"--(?:\w+[.-])*(?:resume|load(?![_-]best)|restore|auto[_-]?resume|ckpt|checkpoint|continue)", re.IGNORECASE
)
_LOOKS: Final = re.compile(r"resume|restore|get_last_checkpoint|load_checkpoint|latest", re.IGNORECASE)
_SAVES: Final = re.compile(r"--(?:save|output[_-]dir|save[_-]\w+|checkpoint[_-]dir|ckpt[_-]dir)\b", re.IGNORECASE)
_SOURCE: Final = slurm_manual("sbatch(1), --requeue; scontrol(1), requeue: the batch script starts from its beginning")


@blocks.rule("SLM071", WARNING, "silent", _SOURCE)
def requeued_jobs_go_on(request: Request) -> Violations:
    """A job that is requeued goes on from its last checkpoint.

    Prevents: Training starts anew each time, over the checkpoints of before. A note where the program may find them.
    Fix: pass --resume_from_checkpoint, or --load with the folder of --save"""
    place = next(_requeues(request), None)
    for launch in request.launches if place is not None else ():
        words = [*(word for call in launch.calls for word in call.options.rest), *launch.arguments]
        texts = [word.raw for word in words]
        if place is None or trains_nothing(launch) or _resumes(launch, texts) or not any(map(_SAVES.match, texts)):
            continue
        message = "Slurm starts the script again from its beginning, and nothing on the launch line resumes training"
        severity = WARNING if _starts_anew(launch, texts) else NOTE
        hint = "pass --resume_from_checkpoint, or --load with the folder of --save"
        yield Violation(place, message, hint, severity=severity)
        return


def _resumes(launch: Launch, texts: list[str]) -> bool:
    text = program_text(launch)
    environment = any(_LOOKS.search(name) for name in launch.environment)
    return environment or any(map(_RESUMES.match, texts)) or (text is not None and _LOOKS.search(text) is not None)


def _starts_anew(launch: Launch, texts: list[str]) -> bool:
    """Whether it is known that the program looks for no checkpoint: by its text, as Megatron's, or as it is told."""
    if any(word.value is None and not word.prefix.startswith("-") for word in launch.arguments):
        return False  # options that can't be known
    name = PurePosixPath(launch.program.value or "").name if launch.program is not None else ""
    told = "--overwrite_output_dir" in texts
    return told or program_text(launch) is not None or (name.startswith("pretrain_") and "--save" in texts)


def _requeues(request: Request) -> Iterator[Location]:
    """What has the job start again: --requeue, or scontrol requeue."""
    given = request.argument("--requeue")
    if given is not None:
        yield given.where
    yield from (request.shell.locate(command) for command in request.shell.commands if _is_requeue(command))


def _is_requeue(command: Command) -> bool:
    return [word.value for word in command.words[:2]] == ["scontrol", "requeue"]
