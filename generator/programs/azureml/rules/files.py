"""Files and folders that an AzureML job names: they are read relative to the job's file when it is submitted."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ....facts.around import is_there, matching, text_around
from ....findings import ERROR, NOTE, Violation, Violations
from ....job.wording import show
from ....rules.violations import azureml, violation
from ...references import Reference
from ...subjects import submissions
from ...submission import Submission
from ..job import AzureMLJob
from .loading import FILE_PREFIX, is_to_fill, jobs

_URL: Final = re.compile(r"(?:https?|ftps?)://[^\s/.]+(?:\.[^\s/.]+)+\S*", re.IGNORECASE)
_REMOTE_INPUT: Final = re.compile(r"(?:azureml|https?|wasbs?|abfss?|adl|s3|gs):|\$\{\{", re.IGNORECASE)
_VERSIONED: Final = re.compile(r"azureml:(?:/?subscriptions/.*/versions/.+|registries/.*|[^/:@]+[:@].+)", re.IGNORECASE)
_OF_ENVIRONMENT: Final = (
    ("environment", "environment file"),
    ("environment/conda_file", "conda file"),
    ("environment/build/path", "build folder"),
)
_TELLS: Final = ("*.md", "*.sh", "*.rst", "*.txt", "*.xml", "Makefile")  # files that tell how to make what isn't there
_MOST_CHARACTERS: Final = 200_000
_RESOLVED: Final = azureml("operations/_job_operations.py (_resolve_job_input)")
_UPLOADED: Final = azureml("operations/_job_operations.py (only code and inputs are uploaded)")


@jobs.rule("AML021", ERROR, "submit", azureml("_schema/core/fields.py:89-165 (LocalPathField), CodeField"))
def code_is_there(job: AzureMLJob) -> Violations:
    """code is a folder or file relative to the job's file, a URL, a git+ path or a registered asset with its version.
    Prevents: ValidationError: Can't find directory or file in resolved absolute path. A note where it may be made yet:
    outside the job's folder, or where a file beside the job names it.
    Fix: name a folder relative to the job's file"""
    value = job.text("code")
    if value is not None and not _is_remote_code(value) and _is_missing(job, value):
        message = f"there is no folder or file {_seen(job, value)}, which code names"
        registered = value.startswith("azureml:")
        own = f"set code to . for the folder of {Path(job.path).name}"
        hint = "write azureml:NAME:VERSION" if registered else f"make {_seen(job, value)}, or {own}"
        yield violation(job, "code", message, hint, severity=NOTE if _is_made(job, value) else ERROR)


def _is_remote_code(value: str) -> bool:
    if value.startswith(("git+", "azureml://registries/", "azureml://feeds/")) or value == "azureml:":
        return True
    return bool(_URL.fullmatch(value) or _VERSIONED.fullmatch(value))


@jobs.rule("AML022", ERROR, "submit", azureml("entities/_assets/environment.py:160-200, _schema/assets/environment.py"))
def environment_files_are_there(job: AzureMLJob) -> Violations:
    """The file, the conda file and the build folder of an environment exist, relative to the job's file.
    Prevents: ValidationException: No such file or directory, or the environment's build has no context.
    Fix: write a path relative to the job's file"""
    for at, what in _OF_ENVIRONMENT:
        value = job.text(at)
        if value is None or (at == "environment" and not value.startswith(FILE_PREFIX)):
            continue
        value = value.removeprefix(FILE_PREFIX) if at == "environment" else value
        if not (what == "build folder" and _URL.fullmatch(value)) and _is_missing(job, value):
            message = f"the {what} {show(value)} doesn't exist relative to {Path(job.path).name}"
            yield violation(job, at, message, "write a path relative to this file")


@jobs.rule("AML024", ERROR, "submit", _RESOLVED)
def inputs_are_there(job: AzureMLJob) -> Violations:
    """A local path of an input exists, relative to the job's file, so that it can be uploaded.
    Prevents: azure-ai-ml accepts it; the upload at submission fails: Asset path is invalid.
    Fix: write a path relative to the job's file, or a registered asset"""
    for name, at, _ in job.entries("inputs"):
        value = job.text(f"{at}/path") or ""
        local = value and not is_to_fill(value) and not _REMOTE_INPUT.match(value)
        if local and _is_missing(job, value.removeprefix("file:")):
            message = f"there is no file or folder {_seen(job, value)}, which the input {name} names"
            hint = f"write a path relative to {Path(job.path).name}, azureml:NAME:VERSION, or a URL"
            yield violation(job, f"{at}/path", message, hint)


@jobs.rule("AML035", ERROR, "submit", _RESOLVED)
def inputs_have_paths(job: AzureMLJob) -> Violations:
    """An input that is a mapping has a path, and a registered one its version.
    Prevents: azure-ai-ml accepts it; the submission fails: Input path can't be empty for jobs.
    Fix: add a path, with a version where it is a registered asset"""
    for name, at, value in job.entries("inputs"):
        if not isinstance(value, dict) or "value" in value or is_to_fill(value.get("path")):
            continue
        path = value.get("path")
        if path in (None, "") and not value.get("path_on_compute"):
            yield Violation(job.locate_key(at), f"the input {name} has no path", "add path: azureml:NAME:VERSION")
        elif isinstance(path, str) and re.fullmatch(r"azureml:[^/:@]+", path):
            message = f"the input {name} is {show(path)}, without a version"
            yield violation(job, f"{at}/path", message, f"write {path}:1 or {path}@latest")


@submissions.rule("AML043", ERROR, "parse", _UPLOADED, reads=("AzureML job", "DeepSpeed config"))
def configs_travel_with_the_code(submission: Submission) -> Violations:
    """A DeepSpeed config that the command names by its path is within the code folder.
    Prevents: FileNotFoundError on the node, after the queue: only the code folder and the inputs are there.
    Fix: move the config into code, or pass it as an input of type uri_file"""
    for job in jobs(submission):
        code, base = job.value("code"), job.source.folder
        for link in _configs_of(job, submission) if base is not None else ():
            if code is None:
                message = f"the command reads {link.path}, and the job has no code: nothing is uploaded to the node"
                yield Violation(link.where, message, "set code to ., or add an input of type uri_file")
            elif base is None or not isinstance(code, str) or _is_remote_code(code) or not is_there(base / code):
                continue
            elif not is_there(base / code / link.path):
                stem = re.sub(r"\W+", "_", Path(link.path).stem)[:40] or "config"
                message = f"the command reads {link.path}, which is not in the code folder {code}"
                hint = f"move it there, or pass it as an input of type uri_file: ${{{{inputs.{stem}}}}}"
                yield Violation(link.where, message, hint)


def _configs_of(job: AzureMLJob, submission: Submission) -> Iterator[Reference]:
    """DeepSpeed configs that the command names by a path from the folder in which it starts, and doesn't make."""
    script = job.script
    if script is None or any(one.words and one.words[0].value in ("cd", "pushd") for one in script.shell.commands):
        return
    prefix = job.locate("command").pointer.removesuffix("/command")
    for link in submission.references:
        inside = link.where.path == job.path and link.where.pointer.startswith(prefix)
        own = inside and not link.where.pointer.removeprefix(prefix).startswith("/inputs/")
        own = own and link.kind == "DeepSpeed config" and not script.makes(link.path)
        if own and not link.path.startswith(("/", "~")) and "$" not in link.path:
            yield link


def _is_made(job: AzureMLJob, value: str) -> bool:
    """Return whether a missing folder may be made yet: it is outside the job's, or a file beside the job names it."""
    folder, name = job.source.folder, re.escape(Path(value).name)
    if folder is None or not name or value.startswith("../"):
        return folder is not None and bool(name)
    word = re.compile(rf"(?<![\w.-]){name}(?![\w.-])")
    paths = (path for pattern in _TELLS for path in matching(pattern, folder, folder))
    return any(word.search(text_around(path, folder, _MOST_CHARACTERS)) for path in paths)


def _is_missing(job: AzureMLJob, value: str) -> bool:
    """Return whether a path is known not to exist; of a job without a folder nothing is known."""
    return job.source.folder is not None and not is_there(job.source.folder / value)


def _seen(job: AzureMLJob, value: str) -> str:
    """A path of the job as it is from the current folder."""
    return show(Path(os.path.normpath(Path(job.path).parent / value.removeprefix("file:"))).as_posix())
