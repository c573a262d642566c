"""What srun asks for within its job."""

from __future__ import annotations

from ....findings import ERROR, Violation, Violations
from ...sources import slurm_manual
from ..steps import Step, steps
from .requests import Request, count, gpus_per_node, most_nodes, nodes_of


def _own(step: Step) -> Request:
    return Request(shell=step.launch.script, options=step.srun.options, program="srun")


@steps.rule(
    "SLM064",
    ERROR,
    "silent",
    slurm_manual("srun(1), --ntasks: also SLURM_NTASKS, which sbatch sets; seen in a real job"),
)
def tasks_are_counted_anew(step: Step) -> Violations:
    """srun's --ntasks-per-node comes with --ntasks where the job has a number of tasks already.

    Prevents: srun: Warning: can't honor --ntasks-per-node. Eight launchers on a node instead of one.
    Fix: Give srun --ntasks as well, or the job one task a node.
    """
    own, block = _own(step), step.block
    option, each = own.options.get("--ntasks-per-node"), count(own, "--ntasks-per-node")
    if option is None or each is None or own.has("--ntasks") or own.options.opaque:
        return
    before = count(block, "--ntasks-per-node")
    if before is None or before == each or block.has("--ntasks"):
        return
    nodes = nodes_of(block) if block.has("--nodes") else 1
    total = f"{nodes * before} tasks" if nodes else f"{before} tasks a node"
    right = f"--ntasks={nodes * each} " if nodes else "--ntasks=... "
    message = f"{own.said(option)} is ignored: srun takes the job's {total}, {before} a node"
    hint = f"srun {right}--ntasks-per-node={each}, or #SBATCH --ntasks-per-node={each}"
    yield Violation(where=own.at_value(option), message=message, hint=hint)


@steps.rule("SLM065", ERROR, "launcher", slurm_manual("srun(1), --nodes; seen in a real job"))
def step_has_its_nodes(step: Step) -> Violations:
    """A step asks for no more nodes than its job has.

    Prevents: srun: error: Only allocated 2 nodes asked for 3; or fewer nodes than asked for.
    Fix: No more nodes than the job's.
    """
    own, block = _own(step), step.block
    option, asked = own.options.get("--nodes"), nodes_of(own)
    has = most_nodes(block) if block.has("--nodes") else 1
    if option is None or asked is None or has is None or asked <= has or block.has("--ntasks", "--gpus", "--nodelist"):
        return
    message = f"{own.said(option)}, and the job has {has} node{'s' * (has > 1)}"
    yield Violation(where=own.at_value(option), message=message, hint=f"--nodes={has}, or #SBATCH --nodes={asked}")


@steps.rule("SLM066", ERROR, "launcher", slurm_manual("srun(1), --gpus-per-node; seen in a real job"))
def step_has_its_gpus(step: Step) -> Violations:
    """A step asks for no more GPUs of a node than its job has.

    Prevents: srun: error: Step requested gres_per_node=gpu:2 is more than the job's gres_per_node=gpu:1.
    Fix: No more GPUs than the job's.
    """
    own = _own(step)
    asked, has = gpus_per_node(own), gpus_per_node(step.block)
    if asked is None or has is None or asked[1] <= has[1]:
        return
    message = f"{own.said(asked[0])}, and the job has {has[1]} GPUs of each node"
    hint = f"#SBATCH {has[0].name} for {asked[1]}, or leave it out of srun"
    yield Violation(where=own.at_value(asked[0]), message=message, hint=hint)
