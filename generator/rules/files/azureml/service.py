"""What azure-ai-ml loads without a word, and only AzureML's service or the run itself refuses or gets wrong."""

from __future__ import annotations

import difflib
import re
from typing import Final

from ....documents.document import AzureMLJob
from ....documents.submission import Submission
from ....findings import ERROR, NOTE, WARNING, Severity, Violation, Violations
from ....job.source import escape
from ....job.wording import show
from ...numbers import listed
from ...rule import submissions
from ...sources import azureml, derived
from .jobs import command_jobs, whole_number
from .shape import SERVICE_TYPES, environment_fits

_SHM_SIZE: Final = re.compile(r"0*[1-9][0-9]*[bkmg]", re.IGNORECASE | re.ASCII)
_JOB_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,254}", re.ASCII)
_COMPUTE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)


@command_jobs.rule("AML004", ERROR, "submit", azureml("_schema/core/fields.py:316-342 (allow_default_version)"))
def environment_has_a_version(job: AzureMLJob) -> Violations:
    """An environment is named with a version or a label: azureml:NAME:5 or azureml:NAME@latest.

    Prevents: azure-ai-ml accepts it; only the service refuses it, when the job is created.
    Fix: azureml:NAME:VERSION or azureml:NAME@latest
    """
    name = job.source.value("/environment")
    if not isinstance(name, str) or not environment_fits(name) or _is_versioned(name):
        return
    message = f"environment is {show(name)}, without a version: the service can't tell which one is meant"
    hint = f"{name}/versions/1 or {name}/labels/latest" if "//registries/" in name else f"{name}:1 or {name}@latest"
    yield Violation(where=job.source.locate("/environment"), message=message, hint=hint if name != "azureml:" else None)


def _is_versioned(name: str) -> bool:
    if "/" in name:
        return "/versions/" in name or "/labels/" in name
    bare = name.removeprefix("azureml:")
    base, mark, version = bare.partition("@") if "@" in bare else bare.partition(":")
    return bool(base and mark and version)


@command_jobs.rule(
    "AML005", ERROR, "submit", azureml("_schema/core/fields.py (ComputeField), operations/_job_operations.py:1445-1469")
)
def compute_is_a_name(job: AzureMLJob) -> Violations:
    """compute names a cluster: no placeholder is left in it.

    Prevents: azure-ai-ml accepts it; only the service finds that there is no such compute. A name without azureml:
    is fine.
    Fix: the name of a cluster of the workspace
    """
    value = job.source.value("/compute")
    if not isinstance(value, str) or "${{" in value:
        return
    name = value.removeprefix("azureml:")
    if not (_COMPUTE.fullmatch(name) or name.startswith(("/subscriptions/", "virtualClusters/", "virtualclusters/"))):
        message = f"compute is {show(value)}, which is no name of a cluster"
        yield Violation(
            where=job.source.locate("/compute"), message=message, hint="compute: azureml:NAME of the cluster"
        )


@submissions.rule(
    "AML006", ERROR, "submit", azureml("_schema/core/resource_configuration.py:13 (fields.Int)"), reads=("AzureML job",)
)
def instance_count_counts(submission: Submission) -> Violations:
    """resources.instance_count is a whole number of at least 1.

    Prevents: azure-ai-ml accepts it; the service refuses 0, and 1.5 becomes 1 without a word.
    Fix: the number of nodes
    """
    pointer = "/resources/instance_count"
    for job in command_jobs(submission):
        value, count = job.source.value(pointer), whole_number(job, pointer)
        if isinstance(value, float) and abs(value) < 1e15 and value != int(value):
            message = f"instance_count is {value}, which azure-ai-ml cuts to {int(value)}"
            yield Violation(
                where=job.source.locate(pointer), message=message, hint=f"instance_count: {max(1, round(value))}"
            )
        elif (count is not None and count < 1) or (isinstance(value, float) and value < 1):
            message = f"instance_count is {value}; a job needs at least 1 node"
            yield Violation(where=job.source.locate(pointer), message=message, hint="instance_count: 1")


@submissions.rule(
    "AML008", ERROR, "submit", azureml("_schema/job/job_resource_configuration.py:14-24"), reads=("AzureML job",)
)
def shm_size_has_a_unit(submission: Submission) -> Violations:
    """resources.shm_size is a number above 0 and one letter of b, k, m, g, as text: 64g.

    Prevents: azure-ai-ml accepts it; the container's start fails. (A number is refused at once.)
    Fix: 64g
    """
    pointer = "/resources/shm_size"
    for job in command_jobs(submission):
        value = job.source.value(pointer)
        if isinstance(value, str):
            if not _SHM_SIZE.fullmatch(value):
                message = f"shm_size is {show(value)}, not a number and one of b, k, m, g"
                yield Violation(where=job.source.locate(pointer), message=message, hint=_shm_hint(value))
        elif value is not None:
            message = f"shm_size is {show(value)}; it is text with a unit"
            hint = f"shm_size: {value}g" if isinstance(value, int) and not isinstance(value, bool) else "shm_size: 64g"
            yield Violation(where=job.source.locate(pointer), message=message, hint=hint)


def _shm_hint(value: str) -> str:
    match = re.match(r"\s*(\d{1,6})\s*([bkmg])", value, re.IGNORECASE)
    return f"shm_size: {match[1]}{match[2].lower()}" if match and int(match[1]) else "shm_size: 64g"


@command_jobs.rule("AML011", WARNING, "silent", azureml("_schema/job/services.py:37-53"))
def service_types_are_known(job: AzureMLJob) -> Violations:
    """A service's type is ssh, jupyter_lab, tensor_board or vs_code.

    Prevents: No error: the service isn't there when you look for it.
    Fix: ssh, jupyter_lab, tensor_board or vs_code
    """
    services = job.source.value("/services")
    for name in services if isinstance(services, dict) else ():
        pointer = f"/services/{escape(name)}/type"
        value = job.source.value(pointer)
        if isinstance(value, str) and value.lower() not in SERVICE_TYPES:
            close = difflib.get_close_matches(value.lower(), SERVICE_TYPES, n=1, cutoff=0.6)
            message = f"the service type {show(value)} is none that the service starts"
            hint = f"did you mean {close[0]}?" if close else listed(SERVICE_TYPES)
            yield Violation(where=job.source.locate(pointer), message=message, hint=hint)


@command_jobs.rule(
    "AML027", WARNING, "submit", derived("AzureML's rules for names of jobs; not checked against the service")
)
def job_name_is_plain(job: AzureMLJob) -> Violations:
    """A job's name has letters, digits, - and _ only, at most 255 of them.

    Prevents: azure-ai-ml accepts it; the service refuses the name.
    Fix: letters, digits, - and _; display_name takes any text
    """
    value = job.source.value("/name")
    if isinstance(value, str) and not _JOB_NAME.fullmatch(value):
        plain = re.sub(r"[^A-Za-z0-9_-]+", "-", value).strip("-_")[:255] or "my-job"
        message = f"name is {show(value)}: the name of a job has letters, digits, - and _, at most 255"
        yield Violation(
            where=job.source.locate("/name"), message=message, hint=f"name: {plain}; display_name takes any text"
        )


@command_jobs.rule("AML028", ERROR, "submit", azureml("_utils/utils.py:637-645, _schema/job/job_limits.py"))
def timeout_is_positive(job: AzureMLJob) -> Violations:
    """limits.timeout is a number of seconds above 0.

    Prevents: azure-ai-ml accepts it; a negative duration is sent to the service, and 0 is sent as none.
    Fix: seconds above 0
    """
    value = whole_number(job, "/limits/timeout")
    where = job.source.locate("/limits/timeout")
    if value is not None and value < 0:
        message = f"timeout is {value} seconds; it is sent as a negative duration"
        yield Violation(where=where, message=message, hint=f"timeout: {-value}")
    elif value == 0:
        message = "timeout is 0, which azure-ai-ml sends as no limit at all"
        yield Violation(where=where, message=message, hint="leave it out, or give seconds", severity=Severity.WARNING)


@command_jobs.rule("AML029", ERROR, "submit", azureml("_schema/job/distribution.py:24,63 (fields.Int)"))
def process_count_counts(job: AzureMLJob) -> Violations:
    """distribution.process_count_per_instance is a whole number of at least 1.

    Prevents: azure-ai-ml accepts it; the service refuses it or starts no process.
    Fix: the GPUs of a node
    """
    for name in ("process_count_per_instance", "worker_count"):
        pointer = f"/distribution/{name}"
        value, count = job.source.value(pointer), whole_number(job, pointer)
        if isinstance(value, float) and abs(value) < 1e15 and value != int(value):
            message = f"{name} is {value}, which azure-ai-ml cuts to {int(value)}"
            yield Violation(where=job.source.locate(pointer), message=message, hint=f"{name}: {max(1, round(value))}")
        elif count is not None and count < 1:
            message = f"{name} is {value}: no process would start"
            yield Violation(where=job.source.locate(pointer), message=message, hint=f"{name}: the GPUs of a node")


@command_jobs.rule(
    "AML030", NOTE, "silent", azureml("constants/_common.py:85 (SERVERLESS_COMPUTE); the default size is the service's")
)
def compute_is_said(job: AzureMLJob) -> Violations:
    """A job for GPUs names its compute, or the instance type of serverless compute.

    Prevents: No error: the job runs on a default size of virtual machine, which has no GPU.
    Fix: compute, or resources.instance_type
    """
    if not job.source.has("/compute") and not job.source.has("/resources/instance_type") and _trains(job):
        yield Violation(
            where=job.source.locate(""),
            message="no compute and no resources.instance_type: the service picks a machine of a default size",
            hint="compute: azureml:NAME, or resources.instance_type",
        )


def _trains(job: AzureMLJob) -> bool:
    """Whether a job is for GPUs, as far as can be told: it has a distribution, or starts a launcher."""
    calls = {call.program for launch in (job.script.launches if job.script else ()) for call in launch.calls}
    return job.source.has("/distribution") or bool(calls & {"torchrun", "deepspeed", "accelerate"})


@command_jobs.rule(
    "AML041", WARNING, "silent", azureml("_schema/job/parameterized_command.py:36-42 (fields.Dict without types)")
)
def environment_variables_are_text(job: AzureMLJob) -> Violations:
    """The values of environment_variables are text: on, off, yes and no are read as true and false.

    Prevents: No error from azure-ai-ml: the variable is False, not no, or the service refuses the job.
    Fix: quotes
    """
    variables = job.source.value("/environment_variables")
    for name, value in variables.items() if isinstance(variables, dict) else ():
        if isinstance(value, (bool, list, dict)) or value is None:
            pointer = f"/environment_variables/{escape(name)}"
            message = f"{name} is {show(value)}, not text; {_effect(value)}"
            severe = Severity.ERROR if isinstance(value, (list, dict)) else None
            yield Violation(where=job.source.locate(pointer), message=message, hint=f"{name}: '...'", severity=severe)


def _effect(value: object) -> str:
    if isinstance(value, bool):
        return f"programs get {str(value)!r}, or the service refuses it"
    return "the service takes text only"


_SILENT: Final = "azure-ai-ml accepts it; "
_JOB: Final = ("AzureML job",)
