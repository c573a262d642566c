"""torchrun in batch scripts: as many nodes as Slurm starts, as many ranks as a node has GPUs."""

from __future__ import annotations

from typing import Final

from ....findings import ERROR, WARNING, Violation, Violations
from ....rules.violations import torch
from ...launching.launcher_call import LauncherCall
from ...launching.subjects import torchrun_calls
from ..request import Request
from ..subjects import blocks

#: Options by which a step takes a part of its job: others may take the rest.
_PART: Final = ("--nodelist", "--exclude", "--relative", "--jobid", "--het-group")
_OF_THE_JOB: Final = frozenset({"SLURM_JOB_NUM_NODES", "SLURM_NNODES"})


@torchrun_calls.rule(
    "LNCH047", ERROR, "training", torch("distributed/run.py:731, parse_min_max_nnodes")
)
def srun_starts_every_node(call: LauncherCall) -> Violations:
    """srun starts torchrun on each of the nodes that its --nnodes counts.
    Prevents: The rendezvous waits for nodes that never come, until it times out.
    Fix: give srun and the job the same nodes; $SLURM_NNODES is always the job's"""
    step, nnodes = call.launch.call("srun"), call.argument("--nnodes")
    others = sum(
        launch.script is call.shell and launch.call("torchrun") is not None
        for launch in call.submission.launches
    )
    if step is None or step.command.guarded or nnodes is None or others > 1:
        return
    step_request = Request(shell=call.shell, options=step.options, program="srun")
    of_job = not _OF_THE_JOB.isdisjoint(
        nnodes.option.values[0].variables if nnodes.option.values else ()
    )
    nodes = (
        call.script_nodes
        if of_job
        else number.value
        if (number := call.integer("--nnodes"))
        else None
    )
    counts = [
        count
        for name in ("--nodes", "--ntasks")
        if (count := step_request.integer(name)) is not None
    ]
    fewest = min(counts, key=lambda count: count.value, default=None)
    if (
        nodes is None
        or fewest is None
        or fewest.value >= nodes
        or step_request.has(*_PART)
        or step_request.opaque
    ):
        return
    counted = f"the job's {nodes} nodes" if of_job else f"{nodes} nodes"
    message = f"{fewest} starts fewer than {counted}, which torchrun --nnodes waits for"
    hint = (
        f"write {fewest.name}={nodes}, or "
        f"{'#SBATCH --nodes' if of_job else '--nnodes'}={fewest.value}"
    )
    yield fewest.bad_value(message, hint)


@blocks.rule(
    "LNCH033", WARNING, "silent", torch("distributed/run.py:434, get_args_parser: the default is 1")
)
def every_gpu_has_a_rank(block: Request) -> Violations:
    """torchrun has --nproc-per-node, which defaults to one process per node.
    Prevents: One busy GPU on each node.
    Fix: set --nproc-per-node to the GPUs per node"""
    gpus = block.gpus_per_node
    if gpus is None or gpus.value <= 1:
        return
    for launch in block.launches:
        call = launch.call("torchrun")
        has_ranks = call is None or call.opaque or call.has("--nproc-per-node")
        if (
            gpus is not None
            and call is not None
            and not has_ranks
            and "PET_NPROC_PER_NODE" not in launch.environment
        ):
            message = (
                "torchrun without --nproc-per-node starts 1 process, and "
                f"{gpus.name} gives {gpus.value}"
            )
            yield Violation(call.where, message, f"write --nproc-per-node={gpus.value}")
