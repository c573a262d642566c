"""What the directives of batch scripts ask for: nodes, and GPUs on each."""

from __future__ import annotations

from collections.abc import Iterator

from ...submission.claims import Claim, Trust
from ...submission.script import LaunchScript
from ...submission.submission import Submission
from ...text.options import Argument
from ..launching.front_ends import trains
from .request import Request
from .started_by_shell import if_submitted
from .subjects import blocks, is_heterogeneous


def claims_of(submission: Submission) -> Iterator[Claim]:
    """The nodes and GPUs that each script's `#SBATCH` block asks for.

    That of a script which a batch script runs as a program is comments, which nobody reads; so is
    that of one which the project starts by a shell.
    """
    batch_scripts = [script for script in submission.scripts if script.shell.directives]
    run_by_others = {path for script in batch_scripts for path in script.shell.called}
    for script in batch_scripts:
        is_read = script.path not in run_by_others and not is_heterogeneous(script)
        if is_read and not if_submitted(script.shell.text):
            yield from _claims(script)


def _claims(script: LaunchScript) -> Iterator[Claim]:
    request = Request(shell=script.shell, options=script.directives, program="sbatch", block=script)
    nodes, option = request.nodes, request.argument("--nodes")
    per_node = request.gpus("--gpus-per-node") or request.gpus_per_node or request.gpus_of_tasks

    step = _step_of_all(script)
    if step is not None and nodes is not None and step.value < nodes:
        nodes, text = step.value, f"srun --nodes={step.value}"
        yield Claim("nodes", nodes, step.where, text, Trust.DIRECTIVES)
    elif nodes is not None and option:
        yield Claim("nodes", nodes, option.where, f"#SBATCH --nodes={nodes}", Trust.DIRECTIVES)

    if per_node is not None:
        gpus, where = per_node.value, per_node.where
        text = f"#SBATCH {per_node.name} ({gpus} a node)"
        yield Claim("GPUs per node", gpus, where, text, Trust.DIRECTIVES)

        if nodes is not None:
            text = f"#SBATCH --nodes={nodes} × {gpus} GPUs a node"
            if step is not None and step.value == nodes:
                text = f"srun --nodes={nodes} × {gpus} GPUs a node"
            yield Claim("GPUs", nodes * gpus, where, text, Trust.DIRECTIVES)


def _step_of_all(script: LaunchScript) -> Argument[int] | None:
    """srun's number of nodes, where other launches of the script serve its training, and every
    training runs in a step of so many nodes.
    """
    trainings = [launch for launch in script.launches if trains(launch.front_end)]
    if len(trainings) == len(script.launches):
        return None
    steps = [launch.call("srun") for launch in trainings]
    node_counts = [None if step is None else step.integer("--nodes") for step in steps]
    different = {None if count is None else count.value for count in node_counts}
    return node_counts[0] if len(different) == 1 else None


def nodes_of_scripts(submission: Submission) -> Iterator[tuple[int, int | None]]:
    """The nodes that each `#SBATCH` block asks for, by the identity of the script's text."""
    for block in blocks(submission):
        yield id(block.shell), block.nodes
