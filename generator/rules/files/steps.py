"""srun's steps in batch scripts, with the nodes and tasks that they get."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ...documents.shell.launch_line import Call, Launch
from ...documents.submission import Submission
from ...findings import Location
from ..rule import subject
from .slurm.requests import Request, blocks, count, nodes_of, tasks_per_node

#: They start the ranks of a node themselves.
LAUNCHERS: Final = frozenset({"torchrun", "deepspeed", "accelerate"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A launch through srun in a script with `#SBATCH` lines."""

    block: Request
    launch: Launch
    srun: Call
    nodes: int | None
    tasks: int | None  #: on each node; None where it can't be known
    where_tasks: Location | None  #: of the option that says so

    @property
    def launcher(self) -> Call | None:
        """The program under srun that starts a node's ranks."""
        return next((call for call in self.launch.calls if call.program in LAUNCHERS), None)


@subject("launch script")
def steps(submission: Submission) -> Iterator[Step]:
    """Every launch through srun in the batch scripts."""
    for block in blocks(submission):
        for launch in block.block.launches if block.block else ():
            srun = launch.call("srun")
            if srun is None:
                continue
            own = Request(shell=launch.script, options=srun.options, program="srun")
            nodes = nodes_of(own) if own.has("--nodes") else nodes_of(block) if block.has("--nodes") else 1
            tasks, where = _tasks(own, block, nodes)
            yield Step(block=block, launch=launch, srun=srun, nodes=nodes, tasks=tasks, where_tasks=where)


def _tasks(own: Request, block: Request, nodes: int | None) -> tuple[int | None, Location | None]:
    """Tasks on each node. srun takes the job's number of tasks, and then its own --ntasks-per-node doesn't count."""
    if own.options.opaque or own.has("--ntasks-per-gpu", "--gpus-per-task", "--multi-prog"):
        return None, None
    total = own.options.get("--ntasks")
    if total is not None:
        tasks = count(own, "--ntasks")
        return (tasks // nodes if tasks is not None and nodes and tasks % nodes == 0 else None), own.at(total)
    each = own.options.get("--ntasks-per-node")
    if each is not None and not block.has("--ntasks", "--ntasks-per-node"):
        return count(own, "--ntasks-per-node"), own.at(each)
    if own.has("--nodes") and nodes_of(own) != nodes_of(block):
        return None, None
    option = block.options.get("--ntasks-per-node")
    return tasks_per_node(block), block.at(option) if option is not None else None
