"""torchrun in batch scripts: as many nodes as Slurm starts, as many ranks as a node has GPUs."""

from __future__ import annotations

from typing import Final

from ....findings import ERROR, WARNING, Violation, Violations
from ....rules.violations import torch
from ....submission.launches import Call
from ....text.options import Argument
from ...launching.launcher_call import LauncherCall
from ...launching.subjects import torchrun_calls
from ...python_around import spreads_over_gpus
from ..request import Request
from ..subjects import blocks

#: Options by which a step takes a part of its job: others may take the rest.
_TAKES_A_PART: Final = ("--nodelist", "--exclude", "--relative", "--jobid", "--het-group")
#: Variables with the number of the job's nodes.
_JOB_NODES: Final = frozenset({"SLURM_JOB_NUM_NODES", "SLURM_NNODES"})


@torchrun_calls.rule(
    "LNCH047", ERROR, "training", torch("distributed/run.py:731, parse_min_max_nnodes")
)
def srun_starts_every_node(call: LauncherCall) -> Violations:
    """srun starts torchrun on each of the nodes that its --nnodes counts.
    Prevents: The rendezvous waits for nodes that never come, until it times out.
    Fix: give srun and the job the same nodes; $SLURM_NNODES is always the job's"""
    srun = call.launch.call("srun")
    if srun is None or srun.command.guarded or _calls_in_script(call) > 1:
        return
    fewest = _fewest(srun, call)
    nnodes = call.argument("--nnodes")
    if fewest is None or nnodes is None:
        return
    variables = nnodes.option.values[0].variables if nnodes.option.values else ()
    if not _JOB_NODES.isdisjoint(variables):
        nodes, asked_by = call.script_nodes, "#SBATCH --nodes"
        counted = f"the job's {nodes} nodes"
    else:
        number = call.integer("--nnodes")
        nodes, asked_by = number.value if number else None, "--nnodes"
        counted = f"{nodes} nodes"
    if nodes is not None and fewest.value < nodes:
        message = f"{fewest} starts fewer than {counted}, which torchrun --nnodes waits for"
        hint = f"write {fewest.name}={nodes}, or {asked_by}={fewest.value}"
        yield fewest.bad_value(message, hint)


def _calls_in_script(call: LauncherCall) -> int:
    """Count the lines of a call's script that start torchrun."""
    return sum(
        launch.script is call.shell and launch.call("torchrun") is not None
        for launch in call.submission.launches
    )


def _fewest(srun: Call, call: LauncherCall) -> Argument[int] | None:
    """The option that bounds most the nodes on which srun starts torchrun; None where it bounds
    none, or another step may start the rest.
    """
    step = Request(shell=call.shell, options=srun.options, program="srun")
    if step.has(*_TAKES_A_PART) or step.opaque:
        return None
    of_step = (step.integer("--nodes"), step.integer("--ntasks"))
    counts = [count for count in of_step if count is not None]
    return min(counts, key=lambda count: count.value, default=None)


@blocks.rule(
    "LNCH033", WARNING, "silent", torch("distributed/run.py:434, get_args_parser: the default is 1")
)
def every_gpu_has_a_rank(block: Request) -> Violations:
    """torchrun has --nproc-per-node, which defaults to one process per node.
    Prevents: One busy GPU on each node. Not where the program uses several GPUs by itself.
    Fix: set --nproc-per-node to the GPUs per node"""
    gpus = block.gpus_per_node
    if gpus is None or gpus.value <= 1:
        return
    for launch in block.launches:
        call = launch.call("torchrun")
        if call is None or call.opaque or call.has("--nproc-per-node"):
            continue
        if "PET_NPROC_PER_NODE" in launch.environment:  # torchrun reads it in the option's place
            continue
        if spreads_over_gpus(launch, gpus.value):
            continue
        message = (
            "torchrun without --nproc-per-node starts 1 process, and "
            f"{gpus.name} gives {gpus.value}"
        )
        yield Violation(call.where, message, f"write --nproc-per-node={gpus.value}")
