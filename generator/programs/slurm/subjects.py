"""Subjects of rules on Slurm jobs: blocks of directives, calls of its commands, steps of a job."""

from __future__ import annotations

from collections.abc import Iterator

from ...submission.script import LaunchScript
from ...submission.subjects import subject
from ...submission.submission import Submission
from ..python_around import rank_variables
from .request import Request, Step, steps_of


@subject("launch script")
def blocks(submission: Submission) -> Iterator[Request]:
    """The `#SBATCH` blocks, of one component each.

    In a heterogeneous job every component has options of its own.
    """
    for script in submission.scripts:
        if script.shell.directives and not is_heterogeneous(script):
            yield Request(
                shell=script.shell, options=script.directives, program="sbatch", block=script
            )


def is_heterogeneous(script: LaunchScript) -> bool:
    """Return whether a line divides the directives into those of several components."""
    firsts = {
        (directive.words[0].value or "").lower()
        for directive in script.shell.directives
        if directive.words
    }
    return not firsts.isdisjoint({"hetjob", "packjob"})


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


def starts_alone(step: Step) -> bool:
    """Whether each task of a step trains by itself.

    Its program takes its rank from variables of a launcher's, and nothing sets one of them.
    """
    variables = rank_variables(step.launch) if step.starts_python else frozenset[str]()
    if not variables or not variables.isdisjoint(step.variables):
        return False
    return not step.launch.script.mentions("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID")
