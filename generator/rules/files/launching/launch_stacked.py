"""Launchers around one another: one of them starts the ranks."""

from __future__ import annotations

from pathlib import PurePath
from typing import Final

from ....documents.shell.launch_line import Call, Launch
from ....documents.submission import Submission
from ....findings import ERROR, Location, Violation, Violations
from ...rule import submissions
from ...sources import deepspeed_now
from ..steps import LAUNCHERS
from .launch_calls import calls_of, said

#: What torchrun and deepspeed call them as modules.
_MODULES: Final = {
    "accelerate.commands.launch": "accelerate",
    "deepspeed.launcher.runner": "deepspeed",
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
}
#: Options of mpirun that put a number of processes on each node, or name the nodes.
_SPREAD: Final = ("--npernode", "--pernode", "--map-by", "--ppn")
_NODES: Final = {"torchrun": "--nnodes", "deepspeed": "--num_nodes", "accelerate": "--num_machines"}
_EACH: Final = {"torchrun": "--nproc-per-node", "deepspeed": "--num_gpus", "accelerate": "--num_processes"}


@submissions.rule(
    "LNCH020",
    ERROR,
    "launcher",
    deepspeed_now("launcher/launch.py:236: every launcher starts its own ranks"),
    reads=("launch script",),
)
def one_launcher_starts_the_ranks(submission: Submission) -> Violations:
    """One launcher starts the ranks: none starts another, and it is started once on each node.

    Prevents: can't open file 'deepspeed'; or N × N processes on one port.
    Fix: One launcher.
    """
    for launch, call in calls_of(submission, *LAUNCHERS):
        found = _inner(launch, call)
        if found is not None:
            inner, where = found
            message = f"{call.program} starts {inner}, and each of them starts a rank for every GPU"
            yield Violation(where=where, message=message, hint=f"leave {call.program} out")
    for launch in submission.launches:
        own = next((call for call in launch.calls if call.program in LAUNCHERS), None)
        if own is not None and own.command.shell is None:
            yield from _many_on_a_node(launch, own)


def _inner(launch: Launch, call: Call) -> tuple[str, Location] | None:
    """The launcher that a launcher starts, and its place."""
    after = launch.calls[launch.calls.index(call) + 1 :]
    other = next((inner for inner in after if inner.program in LAUNCHERS), None)
    if other is not None:
        return other.program, launch.script.locate(other.word)
    if launch.program is None or after:
        return None
    name = PurePath(launch.program.value or "").name
    name = _MODULES.get(name, name)
    return (name, launch.script.locate(launch.program)) if name in LAUNCHERS else None


def _many_on_a_node(launch: Launch, own: Call) -> Violations:
    """More launchers than nodes, by mpirun's or srun's own numbers; of batch scripts SLM001 tells."""
    for outer in launch.calls[: launch.calls.index(own)]:
        if outer.program not in ("mpirun", "srun") or outer.options.opaque:
            continue
        if outer.program == "srun" and launch.script.directives:
            continue
        name = "--np" if outer.program == "mpirun" else "--ntasks"
        total, nodes = outer.options.integer(name), _nodes(outer, own)
        for per_node in ("--ntasks-per-node",) if outer.program == "srun" else ("--npernode", "--ppn"):
            each = outer.options.integer(per_node)
            if each is not None and each > 1:
                name, total, nodes = per_node, each, 1
        option = outer.options.get(name)
        if option is None or total is None or nodes is None or total <= nodes:
            continue
        message = f"{said(outer, name)} starts {own.program} {total} times, and each starts a rank for every GPU"
        hint = f"{outer.program} with one process a node, or leave {own.program} out"
        yield Violation(where=launch.script.locate(option.written), message=message, hint=hint)


def _nodes(outer: Call, own: Call) -> int | None:
    """How many nodes the outer call may be for; None where that can't be known."""
    told = own.options.integer(_NODES[own.program])
    if outer.program == "srun":
        asked = outer.options.integer("--nodes")
        if asked is not None or outer.options.has("--nodes"):
            return asked
    elif any(outer.options.has(name) for name in _SPREAD):
        return None
    if own.options.has(_NODES[own.program]):
        return told
    if own.options.opaque or own.options.has("--no_ssh"):
        ranks = own.options.integer(_EACH[own.program])
        asked = outer.options.integer("--np" if outer.program == "mpirun" else "--ntasks")
        return 1 if ranks is not None and ranks == asked else None  # as many launchers as ranks are a slip
    return 1
