"""Subjects of rules on what starts processes: calls of launchers, and the files that these read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...rule import Subject
from ...submission.script import LaunchScript
from ...submission.subjects import subject
from ...submission.submission import Submission
from ...text.hostfile import EnvironmentFile
from .launcher_call import LauncherCall

#: Every shell text: scripts, and the commands of AzureML jobs.
commands: Final = Subject[LaunchScript](
    ("launch script", "AzureML job"), lambda submission: submission.shell_texts
)
#: Files named `.deepspeed_env`.
environment_files: Final = Subject[EnvironmentFile](
    ("environment file",), lambda submission: submission.of(EnvironmentFile)
)


@subject("launch script")
def launcher_calls(submission: Submission) -> Iterator[LauncherCall]:
    """Every call of torchrun, deepspeed or accelerate."""
    for launch in submission.launches:
        for call in launch.calls:
            if call.starts_ranks:
                yield LauncherCall(**vars(call), launch=launch, submission=submission)


torchrun_calls: Final = launcher_calls.where(lambda call: call.program == "torchrun")
deepspeed_calls: Final = launcher_calls.where(lambda call: call.program == "deepspeed")
deepspeed_calls_with_hostfiles: Final = Subject(
    ("launch script", "hostfile"), deepspeed_calls.subjects
)
accelerate_calls: Final = launcher_calls.where(lambda call: call.program == "accelerate")
