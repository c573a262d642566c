"""Rules on jobs that azure-ai-ml loads without error, and that fail in the service or the run.

The rules from AML021 on are on files that a job names by paths relative to its own file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ....findings import ERROR, NOTE, WARNING, Violation, Violations
from ....numerals import whole
from ....patterns import lazy_pattern
from ....rules.violations import azureml, derived, suggest, violation
from ....submission.references import Reference
from ....submission.subjects import submissions
from ....submission.submission import Submission
from ....text.around import is_there, matching, text_around
from ....text.wording import counted, show
from ...launching.launch_line import LAUNCHERS
from ..job import AzureMLJob
from .loading import FILE_PREFIX, SERVICE_TYPES, environment_fits, is_to_fill, jobs, left_to_fill

_SHM_SIZE: Final = lazy_pattern(r"0*[1-9][0-9]*[bkmg]", re.IGNORECASE | re.ASCII)
_SIZE_IN_TEXT: Final = lazy_pattern(r"\s*([0-9]{1,6})\s*([bkmg])", re.IGNORECASE)
_JOB_NAME: Final = lazy_pattern(r"[A-Za-z0-9][A-Za-z0-9_-]{0,254}", re.ASCII)
_COMPUTE: Final = lazy_pattern(
    r"(?:azureml:)?(?:[A-Za-z0-9][A-Za-z0-9._-]*\Z|/subscriptions/|virtual[Cc]lusters/)", re.ASCII
)
#: The id of a version or label in a registry or workspace; else NAME@LABEL, or NAME:VERSION.
_VERSIONED: Final = lazy_pattern(
    r".*/(?:versions|labels)/.*|azureml:(?:[^/@]+@[^/]+|[^/:@]+:[^/@]+)", re.DOTALL
)
_COMPUTE_FIELD: Final = azureml(
    "_schema/core/fields.py (ComputeField), operations/_job_operations.py:1445-1469"
)
_SERVERLESS: Final = azureml(
    "constants/_common.py:85 (SERVERLESS_COMPUTE); the default size is the service's"
)
_UNTYPED: Final = azureml("_schema/job/parameterized_command.py:36-42 (fields.Dict without types)")
_URL: Final = lazy_pattern(r"(?:https?|ftps?)://[^\s/.]+(?:\.[^\s/.]+)+\S*", re.IGNORECASE)
_REMOTE_INPUT: Final = lazy_pattern(
    r"(?:azureml|https?|wasbs?|abfss?|adl|s3|gs):|\$\{\{", re.IGNORECASE
)
_REGISTERED: Final = lazy_pattern(
    r"azureml:(?:/?subscriptions/.*/versions/.+|registries/.*|[^/:@]+[:@].+)", re.IGNORECASE
)
#: The keys of an environment that name a file or folder, and what each is called in a message.
_ENVIRONMENT_PATHS: Final = (
    ("environment", "environment file"),
    ("environment/conda_file", "conda file"),
    ("environment/build/path", "build folder"),
)
#: Files beside a job that may make a missing folder, or say how it is made.
_INSTRUCTIONS: Final = ("*.md", "*.sh", "*.rst", "*.txt", "*.xml", "Makefile")

#: How much of each of these files is searched. They only decide between an error and a note.
_MOST_CHARACTERS: Final = 200_000
_RESOLVED: Final = azureml("operations/_job_operations.py (_resolve_job_input)")
_UPLOADED: Final = azureml("operations/_job_operations.py (only code and inputs are uploaded)")


@jobs.rule(
    "AML004", ERROR, "submit", azureml("_schema/core/fields.py:316-342 (allow_default_version)")
)
def environment_has_a_version(job: AzureMLJob) -> Violations:
    """An environment is named with a version or a label: azureml:NAME:5 or azureml:NAME@latest.
    Prevents: azure-ai-ml accepts it; only the service refuses it, when the job is created.
    Fix: write azureml:NAME:VERSION or azureml:NAME@latest"""
    name = job.text("environment") or ""
    is_registered = environment_fits(name) and not name.startswith(FILE_PREFIX)
    if is_registered and not _VERSIONED.fullmatch(name) and not is_to_fill(name):
        message = f"environment is {show(name)}, without a version or a label such as latest"
        hint: str | None = f"write {name}:1 or {name}@latest"
        if "//registries/" in name:
            hint = f"write {name}/versions/1 or {name}/labels/latest"
        elif name == "azureml:":  # without a name there is nothing to add a version to
            hint = None
        yield violation(job, "environment", message, hint)


@jobs.rule("AML005", ERROR, "submit", _COMPUTE_FIELD)
def compute_is_a_name(job: AzureMLJob) -> Violations:
    """compute names a cluster.
    Prevents: azure-ai-ml accepts it; only the service finds that there is no such compute. A name
    without azureml: is fine.
    Fix: name a cluster of the workspace
    """
    value = job.text("compute")
    if value is None or "${{" in value or is_to_fill(value):
        return
    if not _COMPUTE.match(value):
        message = f"compute is {show(value)}, not the name of a cluster"
        yield violation(job, "compute", message, "set compute to azureml:NAME of the cluster")


@jobs.rule(
    "AML052",
    NOTE,
    "submit",
    derived("the service has no such name, and no program reads it as a number"),
)
def placeholders_are_filled_in(job: AzureMLJob) -> Violations:
    """Names, sizes and paths of a job are written out.
    Prevents: azure-ai-ml or the service refuses the job.
    Fix: write the names and numbers of your workspace"""
    placeholders = left_to_fill(job)
    if placeholders:
        shown = ", ".join(f"{key.replace('/', '.')} {show(job.value(key))}" for key in placeholders)
        message = f"{counted(len(placeholders), 'placeholder')} to fill in: {shown}"
        yield violation(
            job, placeholders[0], message, "write the names and numbers of your workspace"
        )


@jobs.rule(
    "AML006", ERROR, "submit", azureml("_schema/core/resource_configuration.py:13 (fields.Int)")
)
def instance_count_is_positive(job: AzureMLJob) -> Violations:
    """resources.instance_count is an integer of at least 1.
    Prevents: azure-ai-ml accepts it; the service refuses 0, and 1.5 silently becomes 1.
    Fix: set it to the number of nodes"""
    yield from _not_positive(job, "resources/instance_count", "; a job needs at least 1 node", "1")


@jobs.rule("AML029", ERROR, "submit", azureml("_schema/job/distribution.py:24,63 (fields.Int)"))
def process_count_is_positive(job: AzureMLJob) -> Violations:
    """distribution.process_count_per_instance is an integer of at least 1.
    Prevents: azure-ai-ml accepts it; the service refuses it or starts no process.
    Fix: set it to the GPUs of a node"""
    for name in ("distribution/process_count_per_instance", "distribution/worker_count"):
        yield from _not_positive(job, name, ": no process would start", "the GPUs of a node")


def _not_positive(job: AzureMLJob, name: str, effect: str, right: str) -> Violations:
    """A violation where a count isn't an integer of at least 1.

    `effect` ends the message, and `right` is what the hint says to set.
    """
    key, value, count = name.rpartition("/")[2], job.value(name), job.count(name)
    # the bound leaves out infinity and nan, which int() refuses
    if isinstance(value, float) and abs(value) < 1e15 and value != int(value):
        message = f"{key} is {value}, which azure-ai-ml truncates to {int(value)}"
        yield violation(job, name, message, f"set {key} to {max(1, round(value))}")
    elif (count is not None and count < 1) or (isinstance(value, float) and value < 1):
        yield violation(job, name, f"{key} is {value}{effect}", f"set {key} to {right}")


@jobs.rule("AML008", ERROR, "submit", azureml("_schema/job/job_resource_configuration.py:14-24"))
def shm_size_has_a_unit(job: AzureMLJob) -> Violations:
    """resources.shm_size is a number above 0 and one letter of b, k, m, g, as text: 64g.
    Prevents: azure-ai-ml accepts it; the container's start fails. (A number is refused at once.)
    Fix: write a size such as 64g"""
    value = job.value("resources/shm_size")
    if value is None or is_to_fill(value):
        return
    if isinstance(value, str) and _SHM_SIZE.fullmatch(value):
        return

    form = "a number and one of b, k, m, g" if isinstance(value, str) else "text with a unit"
    message = f"shm_size is {show(value)}, not {form}"
    yield violation(job, "resources/shm_size", message, f"set shm_size to {_shm_size(value)}")


def _shm_size(wrong: object) -> str:
    """The size that a wrong `shm_size` most likely means: the 64g of `64 GB`, the 8g of `8`."""
    if isinstance(wrong, int) and not isinstance(wrong, bool):
        return f"{wrong}g"
    match = _SIZE_IN_TEXT.match(wrong) if isinstance(wrong, str) else None
    return f"{match[1]}{match[2].lower()}" if match and whole(match[1]) else "64g"


@jobs.rule("AML011", WARNING, "silent", azureml("_schema/job/services.py:37-53"))
def service_types_are_known(job: AzureMLJob) -> Violations:
    """A service's type is ssh, jupyter_lab, tensor_board or vs_code.
    Prevents: No error: the service does not start.
    Fix: use ssh, jupyter_lab, tensor_board or vs_code"""
    for _, at, _ in job.entries("services"):
        value = job.text(f"{at}/type")
        if value is not None and value.lower() not in SERVICE_TYPES:
            message = f"unknown service type {show(value)}"
            yield violation(job, f"{at}/type", message, suggest(value.lower(), SERVICE_TYPES))


@jobs.rule(
    "AML027",
    WARNING,
    "submit",
    derived("AzureML's rules for names of jobs; not checked against the service"),
)
def job_name_is_plain(job: AzureMLJob) -> Violations:
    """A job's name has letters, digits, - and _ only, at most 255 of them.
    Prevents: azure-ai-ml accepts it; the service refuses the name.
    Fix: use letters, digits, - and _; display_name accepts any text"""
    value = job.text("name")
    if value is not None and not _JOB_NAME.fullmatch(value):
        plain = re.sub(r"[^A-Za-z0-9_-]+", "-", value).strip("-_")[:255] or "my-job"
        message = (
            f"name is {show(value)}: the name of a job has letters, digits, - and _, at most 255"
        )
        yield violation(job, "name", message, f"set name to {plain}; display_name accepts any text")


@jobs.rule("AML028", ERROR, "submit", azureml("_utils/utils.py:637-645, _schema/job/job_limits.py"))
def timeout_is_positive(job: AzureMLJob) -> Violations:
    """limits.timeout is a number of seconds above 0.
    Prevents: azure-ai-ml accepts it; a negative duration is sent to the service, and 0 is sent as
    none.
    Fix: set it to a number of seconds above 0
    """
    value = job.count("limits/timeout")
    if value is not None and value < 0:
        message = f"timeout is {value} seconds; it is sent as a negative duration"
        yield violation(job, "limits/timeout", message, f"set timeout to {-value}")
    elif value == 0:
        message = "timeout is 0, which azure-ai-ml sends as no limit at all"
        yield violation(
            job, "limits/timeout", message, "remove it, or give seconds", severity=WARNING
        )


@jobs.rule("AML030", NOTE, "silent", _SERVERLESS)
def compute_is_named(job: AzureMLJob) -> Violations:
    """A job for GPUs names its compute, or the instance type of serverless compute.
    Prevents: No error: the job runs on a default size of virtual machine, which has no GPU.
    Fix: set compute or resources.instance_type"""
    trains = job.has("distribution") or job.runs(*LAUNCHERS)
    if trains and not job.has("compute") and not job.has("resources/instance_type"):
        message = (
            "no compute and no resources.instance_type: the service picks a "
            "machine of a default size"
        )
        yield violation(job, "", message, "set compute to azureml:NAME, or resources.instance_type")


@jobs.rule("AML041", WARNING, "silent", _UNTYPED)
def environment_variables_are_text(job: AzureMLJob) -> Violations:
    """The values of environment_variables are text: on, off, yes and no are read as true and false.
    Prevents: No error from azure-ai-ml: the variable is False, not no, or the service refuses the
    job.
    Fix: put the values in quotes
    """
    for name, at, value in job.entries("environment_variables"):
        if isinstance(value, (bool, list, dict)) or value is None:
            effect = "the service accepts text only"
            if isinstance(value, bool):
                effect = f"programs get {str(value)!r}, or the service refuses it"
            severity = ERROR if isinstance(value, (list, dict)) else None
            message = f"{name} is {show(value)}, not text; {effect}"
            yield violation(job, at, message, f"write {name}: '...'", severity=severity)


@jobs.rule(
    "AML021", ERROR, "submit", azureml("_schema/core/fields.py:89-165 (LocalPathField), CodeField")
)
def code_is_there(job: AzureMLJob) -> Violations:
    """code is a folder or file relative to the job's file, a URL, a git+ path or a registered asset
    with its version.
    Prevents: ValidationError: Can't find directory or file in resolved absolute path. A note where
    it may be made yet: outside the job's folder, or where a file beside the job names it.
    Fix: name a folder relative to the job's file
    """
    value = job.text("code")
    if value is not None and not _is_remote_code(value) and _is_missing(job, value):
        shown = _shown_path(job, value)
        message = f"there is no folder or file {shown}, which code names"
        hint = f"make {shown}, or set code to . for the folder of {Path(job.path).name}"
        if value.startswith("azureml:"):
            hint = "write azureml:NAME:VERSION"
        severity = NOTE if _may_be_made_later(job, value) else ERROR
        yield violation(job, "code", message, hint, severity=severity)


def _is_remote_code(value: str) -> bool:
    """Whether `code` is a URL, a path in git or a registered asset: nothing on this disk."""
    if value == "azureml:" or value.startswith(
        ("git+", "azureml://registries/", "azureml://feeds/")
    ):
        return True
    return bool(_URL.fullmatch(value) or _REGISTERED.fullmatch(value))


@jobs.rule(
    "AML022",
    ERROR,
    "submit",
    azureml("entities/_assets/environment.py:160-200, _schema/assets/environment.py"),
)
def environment_files_are_there(job: AzureMLJob) -> Violations:
    """The file, the conda file and the build folder of an environment exist, relative to the job's
    file.
    Prevents: ValidationException: No such file or directory, or the environment's build has no
    context.
    Fix: write a path relative to the job's file
    """
    for at, what in _ENVIRONMENT_PATHS:
        value = job.text(at)
        if value is None:
            continue
        if at == "environment":
            if not value.startswith(FILE_PREFIX):
                continue  # a name, not a file
            value = value.removeprefix(FILE_PREFIX)
        is_url = what == "build folder" and _URL.fullmatch(value)
        if not is_url and _is_missing(job, value):
            message = f"the {what} {show(value)} doesn't exist relative to {Path(job.path).name}"
            yield violation(job, at, message, "write a path relative to this file")


@jobs.rule("AML024", ERROR, "submit", _RESOLVED)
def inputs_are_there(job: AzureMLJob) -> Violations:
    """A local path of an input exists, relative to the job's file, so that it can be uploaded.
    Prevents: azure-ai-ml accepts it; the upload at submission fails: Asset path is invalid.
    Fix: write a path relative to the job's file, or a registered asset"""
    for name, at, _ in job.entries("inputs"):
        value = job.text(f"{at}/path") or ""
        is_local = value and not is_to_fill(value) and not _REMOTE_INPUT.match(value)
        if is_local and _is_missing(job, value.removeprefix("file:")):
            shown = _shown_path(job, value)
            message = f"there is no file or folder {shown}, which the input {name} names"
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
            yield Violation(
                job.locate_key(at),
                f"the input {name} has no path",
                "add path: azureml:NAME:VERSION",
            )
        elif isinstance(path, str) and re.fullmatch(r"azureml:[^/:@]+", path):
            message = f"the input {name} is {show(path)}, without a version"
            yield violation(job, f"{at}/path", message, f"write {path}:1 or {path}@latest")


@submissions.rule("AML043", ERROR, "parse", _UPLOADED, reads=("AzureML job", "DeepSpeed config"))
def configs_travel_with_the_code(submission: Submission) -> Violations:
    """A DeepSpeed config that the command names by its path is within the code folder.
    Prevents: FileNotFoundError on the node, after the queue: only the code folder and the inputs
    are there.
    Fix: move the config into code, or pass it as an input of type uri_file
    """
    for job in jobs(submission):
        code, folder = job.value("code"), job.source.folder
        if folder is None:
            continue
        for config in _configs_in_command(job, submission):
            if code is None:
                message = (
                    f"the command reads {config.path}, and the job has no code: nothing is "
                    "uploaded to the node"
                )
                hint = "set code to ., or add an input of type uri_file"
                yield Violation(config.where, message, hint)
                continue

            if not isinstance(code, str) or _is_remote_code(code) or not is_there(folder / code):
                continue
            if not is_there(folder / code / config.path):
                name = re.sub(r"\W+", "_", Path(config.path).stem)[:40] or "config"
                message = f"the command reads {config.path}, which is not in the code folder {code}"
                hint = (
                    "move it there, or pass it as an input of type uri_file: "
                    f"${{{{inputs.{name}}}}}"
                )
                yield Violation(config.where, message, hint)


def _configs_in_command(job: AzureMLJob, submission: Submission) -> Iterator[Reference]:
    """DeepSpeed configs that the command names by a relative path.

    Configs that the command writes itself are left out. None are yielded where the command changes
    its folder, since the paths are then relative to another one.
    """
    script = job.script
    if script is None or any(
        command.words and command.words[0].value in ("cd", "pushd")
        for command in script.shell.commands
    ):
        return

    job_pointer = job.locate("command").pointer.removesuffix("/command")
    for reference in submission.references:
        place = reference.where
        if place.path != job.path or not place.pointer.startswith(job_pointer):
            continue
        if place.pointer.removeprefix(job_pointer).startswith("/inputs/"):
            continue
        is_relative = not reference.path.startswith(("/", "~")) and "$" not in reference.path
        is_config = reference.kind == "DeepSpeed config" and not script.makes(reference.path)
        if is_config and is_relative:
            yield reference


def _may_be_made_later(job: AzureMLJob, value: str) -> bool:
    """Whether a missing folder may be made before the job is submitted.

    That is so of a folder outside the job's own, and of one that a file beside the job names.
    """
    folder, name = job.source.folder, re.escape(Path(value).name)
    if folder is None or not name:
        return False
    if value.startswith("../"):
        return True
    word = re.compile(rf"(?<![\w.-]){name}(?![\w.-])")
    paths = (path for pattern in _INSTRUCTIONS for path in matching(pattern, folder, folder))
    return any(word.search(text_around(path, folder, _MOST_CHARACTERS)) for path in paths)


def _is_missing(job: AzureMLJob, value: str) -> bool:
    """Whether a path is known not to exist: never of a job that wasn't read from a folder."""
    return job.source.folder is not None and not is_there(job.source.folder / value)


def _shown_path(job: AzureMLJob, value: str) -> str:
    """A path that a job names, relative to the current folder, for a message."""
    path = Path(job.path).parent / value.removeprefix("file:")
    return show(Path(os.path.normpath(path)).as_posix())
