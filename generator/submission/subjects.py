"""Subjects of rules on files: a submission divided into what is checked one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, TypeVar

from ..programs.deepspeed.config import Config
from ..programs.launching.launch_line import LAUNCHERS, Launch
from ..programs.launching.launcher_call import LauncherCall
from ..programs.launching.script import LaunchScript
from ..programs.slurm.request import Request, Step, steps_of
from ..rule import Subject as Subject
from ..text.hostfile import EnvironmentFile
from .submission import Submission

if TYPE_CHECKING:
    from ..programs.trainer.training_arguments import TrainingArguments

S = TypeVar("S")


def subject(*reads: str) -> Callable[[Callable[[Submission], Iterable[S]]], Subject[S]]:
    """Make a subject, which reads these kinds of documents, of the function below."""
    return lambda subjects: Subject(reads, subjects)


#: A submission as a whole, for rules that hold its documents against one another, which they name by `reads`.
submissions: Final = Subject[Submission]((), lambda submission: (submission,))
#: DeepSpeed configs, those that could not be read to their end included.
ds_configs: Final = Subject[Config](("DeepSpeed config",), lambda submission: submission.configs)
#: Launch scripts that are files.
scripts: Final = Subject[LaunchScript](("launch script",), lambda submission: submission.scripts)
#: Every shell text: scripts, and the commands of AzureML jobs.
commands: Final = Subject[LaunchScript](
    ("launch script", "AzureML job"), lambda submission: submission.commands
)
#: TrainingArguments, from files and from launch lines.
training_arguments: Final[Subject[TrainingArguments]] = Subject(
    ("training arguments",), lambda submission: submission.training_arguments
)
#: Files named `.deepspeed_env`.
environment_files: Final = Subject[EnvironmentFile](
    ("environment file",), lambda of: of.environment_files
)
#: Every launch line.
launches: Final = Subject[Launch](("launch script",), lambda submission: submission.launches)


@subject("launch script")
def blocks(submission: Submission) -> Iterator[Request]:
    """The `#SBATCH` blocks, of one component each: of a heterogeneous job every component has its own options."""
    for script in submission.scripts:
        firsts = [
            directive.words[0].value or ""
            for directive in script.shell.directives
            if directive.words
        ]
        if script.shell.directives and not {"hetjob", "packjob"} & set(map(str.lower, firsts)):
            yield Request(shell=script.shell, options=script.sbatch, program="sbatch", block=script)


@subject("launch script")
def requests(submission: Submission) -> Iterator[Request]:
    """The blocks, and every call of a Slurm command that starts a program."""
    yield from blocks(submission)
    calls = {id(call): (launch, call) for launch in submission.launches for call in launch.calls}
    for launch, call in calls.values():
        if call.program in ("sbatch", "salloc", "srun"):
            yield Request(shell=launch.script, options=call.options, program=call.program)


@subject("launch script")
def steps(submission: Submission) -> Iterator[Step]:
    """Every launch through srun in the batch scripts."""
    for block in blocks(submission):
        yield from steps_of(block)


@subject("launch script")
def launcher_calls(submission: Submission) -> Iterator[LauncherCall]:
    """Every call of torchrun, deepspeed or accelerate."""
    nodes = {id(block.shell): block.nodes for block in blocks(submission)}
    for launch in submission.launches:
        for call in launch.calls:
            if call.program in LAUNCHERS:
                own = nodes.get(id(launch.script))
                yield LauncherCall(
                    **vars(call), launch=launch, submission=submission, script_nodes=own
                )


torchrun_calls: Final = launcher_calls.where(lambda call: call.program == "torchrun")
deepspeed_calls: Final = launcher_calls.where(lambda call: call.program == "deepspeed")
deepspeed_calls_with_hostfiles: Final = Subject(
    ("launch script", "hostfile"), deepspeed_calls.subjects
)
accelerate_calls: Final = launcher_calls.where(lambda call: call.program == "accelerate")
