"""Environment variables wherever a submission sets them: in scripts, AzureML jobs and `.deepspeed_env`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ....findings import Location
from ...azureml.job import AzureMLJob
from ...rule import subject
from ...submission import Submission
from ..hostfile import EnvironmentFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One variable with its value."""

    name: str
    value: str | None  #: None where it can't be known
    where: Location  #: of the name
    where_value: Location


def settings(submission: Submission, wanted: Callable[[str], bool], *, with_azureml: bool = True) -> Iterator[Setting]:
    """The environment variables of a `wanted` name that the submission sets, in the order of its documents."""
    for script in submission.commands:
        shell = script.shell
        for found in shell.assignments:
            if wanted(found.name):  # before places are looked up: long scripts have many others
                where, where_value = shell.locate(found), shell.locate(found.value_offset)
                yield Setting(name=found.name, value=found.value, where=where, where_value=where_value)
    for job in submission.azureml_jobs if with_azureml else ():
        yield from (setting for setting in _of_azureml(job) if wanted(setting.name))
    for file in submission.environment_files:
        yield from (setting for setting in _of_file(file) if wanted(setting.name))


def _of_azureml(job: AzureMLJob) -> Iterator[Setting]:
    for name, at, value in job.entries("environment_variables"):
        if isinstance(name, str):
            plain = isinstance(value, (str, int)) and not isinstance(value, bool)
            text = str(value) if plain and "${{" not in str(value) else None
            yield Setting(name=name, value=text, where=job.locate_key(at), where_value=job.locate(at))


def _of_file(file: EnvironmentFile) -> Iterator[Setting]:
    for line, where in file.lines:
        name, equals, value = line.partition("=")
        if equals and name.isidentifier():
            yield Setting(name=name, value=value.rstrip(), where=where, where_value=where)


def known(submission: Submission, *names: str, with_azureml: bool = True) -> Iterator[tuple[Setting, str]]:
    """The settings of these variables whose value is known."""
    for setting in settings(submission, names.__contains__, with_azureml=with_azureml):
        if setting.value is not None:
            yield setting, setting.value


@subject("launch script", "AzureML job", "environment file")
def nccl_settings(submission: Submission) -> Iterator[Setting]:
    """Variables that begin with NCCL_, wherever they are set."""
    return settings(submission, lambda name: name.startswith("NCCL_"))
