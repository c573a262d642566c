"""Ports of the rendezvous: of jobs that share a node, and of launch lines that run at the same time."""

from __future__ import annotations

from typing import Final

from ....documents.launcher_call import ON_EVERY_NODE, Port, fixed_port
from ....documents.shell.launch_line import Launch
from ....documents.slurm_request import Request
from ....documents.submission import Submission
from ....documents.world import FLAGS, world_of
from ....findings import ERROR, NOTE, WARNING, Severity, Violation, Violations
from ...rule import submissions
from ...sources import deepspeed_now
from ..slurm.steps import in_background
from ..subjects import blocks

_USUAL_GPUS: Final = 8  # of a node; a job that asks for less may share one, where nothing says how many there are
_SOURCE: Final = deepspeed_now("launcher/runner.py:98: the default is 29500")


@submissions.rule("LNCH022", WARNING, "training", _SOURCE, reads=("launch script",))
def ports_differ_on_a_shared_node(submission: Submission) -> Violations:
    """Two jobs on one node have different ports, and so have two launch lines that run at the same time.

    Prevents: RuntimeError: Address already in use. An error for two lines of one script.
    Fix: derive the port from the job's number
    """
    for block in blocks(submission):
        free = _free_gpus(submission, block)
        for port in map(fixed_port, block.launches) if free is not None else ():
            if port is not None and free is not None:
                message = f"{port.text}, and other users' jobs may run on {free[0]}"
                hint = f"write {port.instead('$((20000 + SLURM_JOB_ID % 10000))')}"
                yield Violation(where=port.where, message=message, hint=hint, severity=free[1])
    for script in submission.commands:
        yield from _side_by_side(script.launches)


def _free_gpus(submission: Submission, block: Request) -> tuple[str, Severity] | None:
    """The GPUs of its nodes that a job leaves to others; None where it leaves none."""
    asked, cluster = block.gpus_per_node, submission.cluster
    if asked is None or asked.value == 0 or block.has("--exclusive"):
        return None
    claims = world_of(submission).said("GPUs per node")
    has = next((claim.value for claim in claims if claim.where.path == FLAGS), None)
    has = cluster.accelerators_per_node if cluster else has
    if has is not None:
        return (f"the {has - asked.value} other GPUs", WARNING) if asked.value < has else None
    return ("the node's other GPUs, if it has more", NOTE) if asked.value < _USUAL_GPUS else None


def _side_by_side(launches: tuple[Launch, ...]) -> Violations:
    running: list[Port] = []
    for last, launch in zip((None, *launches), launches, strict=False):
        port, command = fixed_port(launch), launch.calls[0].command
        if last is not None and _waits_between(last, launch):
            running = []
        elsewhere = any(call.program in (*ON_EVERY_NODE, "sbatch") for call in launch.calls)
        if port is None or elsewhere or command.guarded or command.shell is not None:
            continue
        if port.call.options.has("--hostfile") or port.call.options.integer("--num_processes") == 1:
            continue
        before = next((other for other in running if other.number == port.number), None)
        if before is not None:
            line = launch.script.locate(before.call.word).line
            message = f"{port.text}, and so does line {line}, which still runs in the background"
            hint = f"write {port.instead(str(port.number + 1))}, another for each"
            yield Violation(where=port.where, message=message, hint=hint, severity=ERROR)
        if in_background(launch.script, command):
            running.append(port)


def _waits_between(first: Launch, second: Launch) -> bool:
    start, end = first.calls[0].command.index, second.calls[0].command.index
    return any(
        command.words and command.words[0].value in ("wait", "sleep", "kill", "exit", "return")
        for command in first.script.commands[start:end]
    )
