"""Files and folders that an AzureML job names: they are taken from beside the job's file when it is submitted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from ....documents.document import AzureMLJob, at_key
from ....documents.links import Reference
from ....documents.submission import Submission
from ....findings import ERROR, Violation, Violations
from ....job.source import escape
from ....job.wording import show
from ...rule import submissions
from ...sources import azureml
from .jobs import command_jobs

_URL: Final = re.compile(r"(?:https?|ftps?)://[^\s/.]+(?:\.[^\s/.]+)+\S*", re.IGNORECASE)
_REMOTE_INPUT: Final = re.compile(r"(?:azureml|https?|wasbs?|abfss?|adl|s3|gs):|\$\{\{", re.IGNORECASE)
_VERSIONED: Final = re.compile(r"azureml:(?:/?subscriptions/.*/versions/.+|registries/.*|[^/:@]+[:@].+)", re.IGNORECASE)
_MAX_PATH: Final = 4096  # Linux, PATH_MAX: a longer text is no path


@command_jobs.rule("AML021", ERROR, "submit", azureml("_schema/core/fields.py:89-165 (LocalPathField), CodeField"))
def code_is_there(job: AzureMLJob) -> Violations:
    """code is a folder or file beside the job's file, a URL, a git+ path or a registered asset with its version.

    Prevents: ValidationError: Can't find directory or file in resolved absolute path
    Fix: a folder relative to the job's file
    """
    value = job.source.value("/code")
    if isinstance(value, str) and not _is_remote_code(value) and _is_missing(job, value):
        message = f"code is {show(value)}, and there is no such folder or file beside {Path(job.path).name}"
        hint = "azureml:NAME:VERSION" if value.startswith("azureml:") else "code: ., or a folder relative to this file"
        yield Violation(where=job.source.locate("/code"), message=message, hint=hint)


def _is_remote_code(value: str) -> bool:
    if value.startswith(("git+", "azureml://registries/", "azureml://feeds/")) or value == "azureml:":
        return True
    return bool(_URL.fullmatch(value) or _VERSIONED.fullmatch(value))


@command_jobs.rule(
    "AML022", ERROR, "submit", azureml("entities/_assets/environment.py:160-200, _schema/assets/environment.py")
)
def environment_files_are_there(job: AzureMLJob) -> Violations:
    """The conda file and the build folder of an environment are beside the job's file.

    Prevents: ValidationException: No such file or directory, or the environment's build has no context.
    Fix: a path relative to the job's file
    """
    for pointer in ("/environment/conda_file", "/environment/build/path"):
        value = job.source.value(pointer)
        remote = isinstance(value, str) and pointer.endswith("path") and _URL.fullmatch(value)
        if isinstance(value, str) and not remote and _is_missing(job, value):
            what = "conda file" if pointer.endswith("conda_file") else "build folder"
            message = f"the {what} {show(value)} is not beside {Path(job.path).name}"
            yield Violation(where=job.source.locate(pointer), message=message, hint="a path relative to this file")


@command_jobs.rule("AML024", ERROR, "submit", azureml("operations/_job_operations.py (_resolve_job_input)"))
def inputs_are_there(job: AzureMLJob) -> Violations:
    """A local path of an input is there, relative to the job's file, so that it can be uploaded.

    Prevents: azure-ai-ml accepts it; the upload at submission fails: Asset path is invalid.
    Fix: a path relative to the job's file, or a registered asset
    """
    inputs = job.source.value("/inputs")
    for name in inputs if isinstance(inputs, dict) else ():
        for key in ("path", "path_on_compute"):
            pointer = f"/inputs/{escape(name)}/{key}"
            value = job.source.value(pointer)
            if not isinstance(value, str) or not value or _REMOTE_INPUT.match(value) or key == "path_on_compute":
                continue
            if _is_missing(job, value.removeprefix("file:")):
                message = f"the input {name} is {show(value)}, and there is no such file beside {Path(job.path).name}"
                hint = "a path relative to this file, azureml:NAME:VERSION, or a URL"
                yield Violation(where=job.source.locate(pointer), message=message, hint=hint)


@command_jobs.rule("AML035", ERROR, "submit", azureml("operations/_job_operations.py (_resolve_job_input)"))
def inputs_have_paths(job: AzureMLJob) -> Violations:
    """An input that is a mapping has a path, and a registered one its version.

    Prevents: azure-ai-ml accepts it; the submission fails: Input path can't be empty for jobs.
    Fix: path, with a version where it is a registered asset
    """
    inputs = job.source.value("/inputs")
    for name, value in inputs.items() if isinstance(inputs, dict) else ():
        if not isinstance(value, dict) or "value" in value:
            continue
        pointer, path = f"/inputs/{escape(name)}", value.get("path")
        if path in (None, "") and not value.get("path_on_compute"):
            message = f"the input {name} has no path"
            yield Violation(where=at_key(job.source, pointer), message=message, hint="path: azureml:NAME:VERSION")
        elif isinstance(path, str) and re.fullmatch(r"azureml:[^/:@]+", path):
            message = f"the input {name} is {show(path)}, without a version"
            where = job.source.locate(f"{pointer}/path")
            yield Violation(where=where, message=message, hint=f"path: {path}:1 or {path}@latest")


@submissions.rule(
    "AML043",
    ERROR,
    "parse",
    azureml("operations/_job_operations.py (code is uploaded, nothing else beside it)"),
    reads=("AzureML job", "DeepSpeed config"),
)
def configs_travel_with_the_code(submission: Submission) -> Violations:
    """A DeepSpeed config that the command names by its path is within the code folder.

    Prevents: FileNotFoundError on the node, after the queue: only the code folder and the inputs are there.
    Fix: the config within code, or as an input of type uri_file
    """
    for job in command_jobs(submission):
        code, base = job.source.value("/code"), job.source.folder
        names = [link for link in submission.references if link.kind == "DeepSpeed config" and _in_command(job, link)]
        for link in names:
            if base is None or not _is_local_name(link.path) or (isinstance(code, str) and _is_remote_code(code)):
                continue
            if code is None:
                message = f"the command reads {link.path}, and the job has no code: nothing is uploaded to the node"
                yield Violation(where=link.where, message=message, hint="code: ., or an input of type uri_file")
            elif isinstance(code, str) and _exists(base / code) and not _exists(base / code / link.path):
                message = f"the command reads {link.path}, which is not in the code folder {code}"
                hint = f"move it there, or pass it as an input of type uri_file: ${{{{inputs.{_stem(link.path)}}}}}"
                yield Violation(where=link.where, message=message, hint=hint)


def _in_command(job: AzureMLJob, link: Reference) -> bool:
    """Whether the command names a file from the folder that it starts in."""
    moves = job.script is not None and any(
        command.words and command.words[0].value in ("cd", "pushd") for command in job.script.shell.commands
    )
    return link.where.path == job.path and not link.where.pointer.startswith("/inputs/") and not moves


def _is_local_name(path: str) -> bool:
    return not path.startswith(("/", "~", "$")) and "$" not in path


def _stem(path: str) -> str:
    return re.sub(r"\W+", "_", Path(path).stem)[:40] or "config"


def _is_missing(job: AzureMLJob, value: str) -> bool:
    """Whether a path is known not to be there; of a job without a folder nothing is known."""
    return job.source.folder is not None and not _exists(job.source.folder / value)


def _exists(path: Path) -> bool:
    try:
        return len(str(path)) < _MAX_PATH and path.exists()
    except (OSError, ValueError):  # a name too long, or with a character that no path has
        return False
