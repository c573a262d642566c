"""The folder of a batch job's log, which sbatch doesn't make."""

from __future__ import annotations

import re
from typing import Final

from ....findings import NOTE, WARNING, Violations
from ....rules.sources import slurm_manual
from ...rule import submissions
from ...subjects import blocks
from ...submission import Submission
from ..request import Request

_FAILED_JOB: Final = slurm_manual("seen in a real job: state FAILED, exit code 0:53, and no line of the script run")
_MAKES: Final = re.compile(r"\b(?:mkdir|makedirs)\b[^\r\n]{0,999}")
_BETWEEN: Final = re.compile(r"[\s;&|,`'\"()]+")


@submissions.rule("SLM020", WARNING, "launcher", _FAILED_JOB, reads=("launch script",))
def log_folder_exists(submission: Submission) -> Violations:
    """The folder of the job's log exists before the job starts.

    Prevents: A job that fails at once, without a log that says why. A note where a comment tells to make it.
    Fix: run mkdir -p for the folder before sbatch"""
    for request in blocks(submission):
        commands, seen, path = request.shell.commands, set[str](), request.shell.text.path
        for found in request.texts("--output", "--error"):
            folder = found.value.rpartition("/")[0].removeprefix("./").strip(".")
            elsewhere = found.value.startswith(("/", "~")) or submission.files.has_folder(folder, path)
            if not folder or folder in seen or elsewhere:
                continue
            seen.add(folder)
            made = [word for command in commands if command.words[0].value == "mkdir" for word in command.words[1:]]
            late = any((word.value or "").rstrip("/").endswith(folder) for word in made)
            tail = "the script's mkdir comes too late" if late else "sbatch doesn't create it"
            message = f"{found}: without the folder {folder} the job fails at its start, with no log; {tail}"
            less = NOTE if folder in _told_to_make(request) else None
            yield found.bad_value(message, f"run mkdir -p {folder} before sbatch", severity=less)


def _told_to_make(request: Request) -> frozenset[str]:
    """The folders that the script's comments tell whoever submits it to make."""
    comments = (line for line in request.shell.text.lines if line.lstrip().startswith("#"))
    return _made_in("\n".join(comments))


def _made_in(text: str) -> frozenset[str]:
    """The folders that a text makes, as far as they are written out."""
    names = (name for line in _MAKES.findall(text) for name in _BETWEEN.split(line))
    return frozenset(name.removeprefix("./").rstrip("/") for name in names)
