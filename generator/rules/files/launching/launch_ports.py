"""Ports of the rendezvous: of jobs that share a node, and of launch lines that run side by side."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from ....documents.shell.launch_line import Call, Launch, Option
from ....documents.submission import Submission
from ....documents.world import FLAGS
from ....findings import WARNING, Severity, Violation, Violations
from ...rule import submissions
from ...sources import deepspeed_now
from ..background import in_background
from ..slurm.requests import Request, blocks, gpus_per_node
from .launch_calls import at, said

PORTS: Final = (
    ("torchrun", "--master-port"),
    ("deepspeed", "--master_port"),
    ("accelerate", "--main_process_port"),
)
_DEFAULT: Final = 29500  # deepspeed/constants.py, TORCH_DISTRIBUTED_DEFAULT_PORT @ 0.19.8; accelerate's is the same
_USUAL_GPUS: Final = 8  # of a node; a job that asks for less may share one, where nothing says how many there are
_ENDPOINT_PORT: Final = re.compile(r":(\d{1,5})\Z", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Port:
    """The port of a launch line that is the same in every job."""

    number: int
    words: str  #: how it comes about
    call: Call
    name: str  #: of the option that sets it
    option: Option | None

    def instead(self, expression: str) -> str:
        """The words that set another port."""
        if self.option is not None and self.option.name == "--rdzv-endpoint":
            return f'--rdzv-endpoint="$MASTER_ADDR:{expression}"'
        return f"{self.name} {expression}"


def fixed_port(launch: Launch) -> _Port | None:
    """The port that a launch line always takes; None where it differs, or can't be known."""
    for program, name in PORTS:
        call = launch.call(program)
        if call is None or call.options.opaque or call.options.has("--standalone"):
            continue
        endpoint = call.options.get("--rdzv-endpoint")
        if program == "torchrun" and endpoint is not None and endpoint.values:
            match = _ENDPOINT_PORT.search((endpoint.values[0].parts or ("",))[-1] or "")
            if match is None or match[1] == "0":
                return None
            words = f"torchrun {endpoint.written.raw.partition('=')[0]} ends in port {match[1]}"
            return _Port(number=int(match[1]), words=words, call=call, name=name, option=endpoint)
        option, number = call.options.get(name), call.options.integer(name)
        if option is not None:
            words = said(call, name)
            return _Port(number=number, words=words, call=call, name=name, option=option) if number else None
        if program == "torchrun" or "MASTER_PORT" in launch.environment:
            return None
        words = f"{program} takes port {_DEFAULT}"
        return _Port(number=_DEFAULT, words=words, call=call, name=name, option=None)
    return None


@submissions.rule(
    "LNCH022",
    WARNING,
    "training",
    deepspeed_now("launcher/runner.py:98: the default is 29500"),
    reads=("launch script",),
)
def ports_differ_on_a_shared_node(submission: Submission) -> Violations:
    """Two jobs on one node have different ports, and so have two launch lines that run at the same time.

    Prevents: RuntimeError: Address already in use. An error for two lines of one script.
    Fix: A port from the job's number.
    """
    for block in blocks(submission):
        for launch in block.block.launches if block.block else ():
            port, others = fixed_port(launch), _free_gpus(submission, block)
            if port is None or others is None:
                continue
            message = f"{port.words}, and others' jobs may run on {others[0]}"
            hint = port.instead("$((20000 + SLURM_JOB_ID % 10000))")
            where = at(launch, port.option or port.call)
            yield Violation(where=where, message=message, hint=hint, severity=others[1])
    for script in submission.commands:
        yield from _side_by_side(script.launches)


def _free_gpus(submission: Submission, block: Request) -> tuple[str, Severity] | None:
    """The GPUs of its nodes that a job leaves to others, in words; None where it leaves none."""
    asked = gpus_per_node(block)
    if asked is None or asked[1] == 0 or block.has("--exclusive"):
        return None
    told = next(
        (claim.value for claim in submission.world.claims_on("GPUs per node") if claim.where.path == FLAGS), None
    )
    has = submission.cluster.accelerators_per_node if submission.cluster else told
    if has is not None:
        return (f"the {has - asked[1]} other GPUs", Severity.WARNING) if asked[1] < has else None
    return ("the node's other GPUs, if it has more", Severity.NOTE) if asked[1] < _USUAL_GPUS else None


def _side_by_side(launches: tuple[Launch, ...]) -> Violations:
    running: list[_Port] = []
    last: Launch | None = None
    for launch in launches:
        port, command = fixed_port(launch), launch.calls[0].command
        if last is not None and _waits_between(last, launch):
            running = []
        last = launch
        if any(call.program in ("srun", "ssh", "pdsh", "mpirun", "sbatch") for call in launch.calls):
            continue
        if port is None or command.guarded or command.shell is not None:
            continue
        if port.call.options.has("--hostfile") or port.call.options.integer("--num_processes") == 1:
            continue
        before = next((other for other in running if other.number == port.number), None)
        if before is not None:
            line = launch.script.locate(before.call.word).line
            message = f"{port.words}, and so does line {line}, which still runs in the background"
            hint = f"{port.instead(str(port.number + 1))}, another for each"
            where = at(launch, port.option or port.call)
            yield Violation(where=where, message=message, hint=hint, severity=Severity.ERROR)
        if in_background(launch.script, command):
            running.append(port)


def _waits_between(first: Launch, second: Launch) -> bool:
    start, end = first.calls[0].command.index, second.calls[0].command.index
    return any(
        command.words and command.words[0].value in ("wait", "sleep", "kill", "exit", "return")
        for command in first.script.commands[start:end]
    )
