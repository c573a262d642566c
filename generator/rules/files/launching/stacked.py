"""Launchers around one another: one of them starts the ranks."""

from __future__ import annotations

from pathlib import PurePath
from typing import Final

from ....documents.launcher_call import NODES, LauncherCall
from ....documents.shell.launch_line import Call
from ....documents.slurm_request import LAUNCHERS
from ....findings import ERROR, Location, Violation, Violations
from ...sources import deepspeed_now
from ..subjects import launcher_calls

#: The modules by which python starts them.
_MODULES: Final = {
    "accelerate.commands.launch": "accelerate",
    "deepspeed.launcher.runner": "deepspeed",
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
}
#: Options of mpirun that put a number of processes on each node, or name the nodes.
_SPREAD: Final = ("--npernode", "--pernode", "--map-by", "--ppn")
#: Options of the number of processes: of all, and on each node.
_TOTAL: Final = {"srun": "--ntasks", "mpirun": "--np"}
_PER_NODE: Final = {"srun": ("--ntasks-per-node",), "mpirun": ("--npernode", "--ppn")}
_RANKS: Final = {"torchrun": "--nproc-per-node", "deepspeed": "--num_gpus", "accelerate": "--num_processes"}


@launcher_calls.rule(
    "LNCH020", ERROR, "launcher", deepspeed_now("launcher/launch.py:236: every launcher starts its own ranks")
)
def one_launcher_starts_the_ranks(call: LauncherCall) -> Violations:
    """One launcher starts the ranks: none starts another, and it is started once on each node.

    Prevents: can't open file 'deepspeed'; or N × N processes on one port.
    Fix: use one launcher
    """
    inner, calls = _inner(call), call.launch.calls
    if inner is not None:
        message = f"{call.program} starts {inner[0]}, and each of them starts a rank for every GPU"
        yield Violation(where=inner[1], message=message, hint=f"leave {call.program} out")
    outers = calls[: calls.index(call.call)]
    if call.call.command.shell is None and not any(outer.program in LAUNCHERS for outer in outers):
        for outer in outers:
            yield from _many_on_a_node(call, outer)


def _inner(call: LauncherCall) -> tuple[str, Location] | None:
    """The launcher that a launcher starts, and its place."""
    launch = call.launch
    after = launch.calls[launch.calls.index(call.call) + 1 :]
    other = next((inner for inner in after if inner.program in LAUNCHERS), None)
    if other is not None:
        return other.program, launch.script.locate(other.word)
    if launch.program is None or after:
        return None
    name = PurePath(launch.program.value or "").name
    name = _MODULES.get(name, name)
    return (name, launch.script.locate(launch.program)) if name in LAUNCHERS else None


def _many_on_a_node(own: LauncherCall, outer: Call) -> Violations:
    """More launchers than nodes, by mpirun's or srun's own numbers; SLM001 reports those of batch scripts."""
    if outer.program not in _TOTAL or outer.options.opaque or (outer.program == "srun" and own.shell.directives):
        return
    name, nodes = _TOTAL[outer.program], _nodes(outer, own)
    for per_node in _PER_NODE[outer.program]:
        if (outer.options.integer(per_node) or 0) > 1:
            name, nodes = per_node, 1
    option, total = outer.options.get(name), outer.options.integer(name)
    if option is not None and total is not None and nodes is not None and total > nodes:
        written = f"{outer.program} {option.written.raw.partition('=')[0]}={outer.options.text(name)}"
        message = f"{written} starts {own.program} {total} times, and each starts a rank for every GPU"
        hint = f"use {outer.program} with one process per node, or leave {own.program} out"
        yield Violation(where=own.shell.locate(option.written), message=message, hint=hint)


def _nodes(outer: Call, own: LauncherCall) -> int | None:
    """How many nodes the outer call may be for; None where that can't be known."""
    if outer.program == "srun" and outer.options.has("--nodes"):
        return outer.options.integer("--nodes")
    if outer.program == "mpirun" and any(outer.options.has(name) for name in _SPREAD):
        return None
    if own.has(NODES[own.program]):
        return own.options.integer(NODES[own.program])
    if own.opaque or own.has("--no_ssh"):
        ranks = own.options.integer(_RANKS[own.program])
        # As many launchers as ranks are a slip.
        return 1 if ranks is not None and ranks == outer.options.integer(_TOTAL[outer.program]) else None
    return 1
