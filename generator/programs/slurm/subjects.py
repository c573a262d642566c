"""Subjects of rules on Slurm jobs: blocks of directives, calls of its commands, steps of a job."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from ...findings import ERROR, WARNING, Violation
from ...submission.launches import Launch
from ...submission.script import LaunchScript
from ...submission.subjects import Subject, scripts, subject
from ...submission.submission import Submission
from ..launching.launcher_call import NODES, LauncherCall, accelerate_config, meets_itself
from ..launching.ranks_read import rank_variables
from .request import Request, Step, steps_of
from .started_by_shell import if_submitted


def _as_submitted(subject: Request | LaunchScript, violation: Violation) -> Violation:
    """What holds in a job alone, of a script that the project starts without one: a warning."""
    script = subject if isinstance(subject, LaunchScript) else subject.block
    when = if_submitted(script.shell.text) if script and violation.severity is ERROR else ""
    if not when:
        return violation
    return replace(violation, message=f"{violation.message}, {when}", severity=WARNING)


#: Launch scripts, as what sbatch reads.
batch_scripts: Final = Subject[LaunchScript](scripts.reads, scripts.subjects, tells=_as_submitted)


def _blocks(submission: Submission) -> Iterator[Request]:
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


def _requests(submission: Submission) -> Iterator[Request]:
    """The blocks, and every call of a Slurm command that starts a program."""
    yield from _blocks(submission)
    calls = {id(call): (launch, call) for launch in submission.launches for call in launch.calls}
    for launch, call in calls.values():
        if call.program in ("sbatch", "salloc", "srun"):
            yield Request(shell=launch.script, options=call.options, program=call.program)


#: Blocks, and requests of both kinds.
blocks: Final = Subject[Request](scripts.reads, _blocks, tells=_as_submitted)
requests: Final = Subject[Request](scripts.reads, _requests, tells=_as_submitted)


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


def launches_within(step: Step) -> list[Launch]:
    """What a step launches, and what the shells launch to which it hands a command."""
    srun = step.launch.call("srun")
    inner = [
        launch
        for launch in step.block.launches
        if srun and any(call.command is srun.command for call in launch.calls)
    ]
    return [step.launch, *inner]


def starts_one_machine(step: Step, submission: Submission) -> bool:
    """Whether each task of a step is a launcher, or starts some, that is told of one machine.

    Each then starts a run of its own.
    """
    calls = [
        LauncherCall(**vars(call), launch=launch, submission=submission)
        for launch in launches_within(step)
        for call in launch.calls
        if call.starts_ranks
    ]
    return bool(calls) and all(map(_is_told_of_one_machine, calls))


def _is_told_of_one_machine(call: LauncherCall) -> bool:
    """Whether a launcher is told that its ranks are all on its own machine."""
    if call.opaque:
        return False
    if call.program == "torchrun":
        return call.has("--standalone") or meets_itself(call)
    if call.argument(NODES[call.program]) is not None:
        return call.program == "accelerate" and call.nodes == 1
    config = accelerate_config(call.submission, call.launch)
    return config is not None and config.value("num_machines") == 1
