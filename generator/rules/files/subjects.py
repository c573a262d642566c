"""Documents of a submission as subjects of rules, one by one."""

from __future__ import annotations

from collections.abc import Iterable

from ...documents.deepspeed_config import Config
from ...documents.document import EnvironmentFile, LaunchScript
from ...documents.hostfile import Hostfile
from ...documents.submission import Submission
from ...documents.training_arguments import TrainingArguments
from ..rule import subject


@subject("DeepSpeed config")
def ds_configs(submission: Submission) -> Iterable[Config]:
    """DeepSpeed configs, those that could not be read to their end included."""
    return submission.configs


@subject("launch script")
def scripts(submission: Submission) -> Iterable[LaunchScript]:
    """Launch scripts that are files."""
    return submission.scripts


@subject("launch script", "AzureML job")
def commands(submission: Submission) -> Iterable[LaunchScript]:
    """Every shell text: scripts, and the commands of AzureML jobs."""
    return submission.commands


@subject("training arguments")
def training_arguments(submission: Submission) -> Iterable[TrainingArguments]:
    """TrainingArguments, from files and from launch lines."""
    return submission.training_arguments


@subject("hostfile")
def hostfiles(submission: Submission) -> Iterable[Hostfile]:
    """Hostfiles."""
    return submission.hostfiles


@subject("environment file")
def environment_files(submission: Submission) -> Iterable[EnvironmentFile]:
    """Files named `.deepspeed_env`."""
    return submission.environment_files
