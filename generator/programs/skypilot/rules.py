"""Rules on SkyPilot tasks: by the schema that SkyPilot checks them with, and by their nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...findings import ERROR, NOTE, WARNING, Violation, Violations
from ...rules.violations import derived, skypilot
from ...submission.secrets import secrets_of
from ...submission.subjects import Subject, subject, submissions
from ...submission.submission import Submission
from ..cluster_jobs import (
    Difference,
    differences_of,
    miscounted,
    one_process,
    without_the_other_nodes,
)
from .read import SkyPilotTask

_SCHEMA: Final = skypilot("utils/schemas.py:1180 (get_task_schema)")
_STORED: Final = derived("a task's variables are stored with its job, and shown")
#: Numbers and switches under these keys are no errors: SkyPilot makes text of them. Source:
#: sky/task.py:659-682 @ 0.14.1
_MADE_TEXT: Final = ("/envs/", "/secrets/")

_all_tasks: Final = Subject[SkyPilotTask](
    ("SkyPilot task",), lambda submission: submission.of(SkyPilotTask)
)
#: The tasks whose YAML could be read to its end.
tasks: Final = _all_tasks.where(lambda task: task.readable)


@subject("SkyPilot task")
def _differences(submission: Submission) -> Iterator[Difference]:
    """What the schema refuses in each task."""
    for task in tasks(submission):
        for difference in differences_of(task, "skypilot", "task", "a task", "sky launch"):
            is_scalar = not isinstance(difference.value, (dict, list))
            is_made_text = difference.problem.pointer.startswith(_MADE_TEXT)
            if not (is_scalar and is_made_text):
                yield difference


@_differences.rule("SKY001", ERROR, "submit", _SCHEMA)
def keys_are_known(difference: Difference) -> Violations:
    """Every key of a task is one that SkyPilot has, at every level.
    Prevents: Invalid task YAML: Additional properties are not allowed. A warning where another
    release may have it.
    Fix: correct the key, or remove it
    """
    if difference.is_key:
        yield difference.violation()


@_differences.rule("SKY002", ERROR, "submit", _SCHEMA)
def values_have_their_types(difference: Difference) -> Violations:
    """Values have the types and the forms that SkyPilot reads.
    Prevents: Invalid task YAML: '2' is not of type 'integer'.
    Fix: write a value of the type"""
    if not difference.is_key:
        yield difference.violation()


@tasks.rule("SKY003", ERROR, "submit", skypilot("task.py:1175"))
def there_is_a_node(task: SkyPilotTask) -> Violations:
    """num_nodes is 1 or more.
    Prevents: ValueError: num_nodes should be a positive int.
    Fix: set it to the number of nodes"""
    nodes = task.integer("num_nodes")
    if nodes is not None and nodes < 1:
        message = f"num_nodes is {nodes}; a task needs at least 1"
        yield Violation(task.locate("num_nodes"), message, "set num_nodes to 1")


@tasks.rule(
    "SKY004", ERROR, "silent", skypilot("skylet/constants.py:641-646; torch: --nnodes is 1:1")
)
def launchers_know_the_other_nodes(task: SkyPilotTask) -> Violations:
    """A launcher in a task of several nodes gets their number, its own, and the address of the
    first.
    Prevents: No error: as many trainings as there are nodes, each by itself. A warning for a
    launcher that may read a file of the image's.
    Fix: give torchrun --nnodes, --node-rank and --master-addr from SkyPilot's variables
    """
    options = '--node-rank=$SKYPILOT_NODE_RANK --master-addr=$(head -n1 <<< "$SKYPILOT_NODE_IPS")'
    yield from without_the_other_nodes(
        task, f"write torchrun --nnodes=$SKYPILOT_NUM_NODES {options}"
    )


@tasks.rule("SKY005", NOTE, "submit", skypilot("task.py:712-719"))
def variables_have_a_value(task: SkyPilotTask) -> Violations:
    """Every variable under envs has a value, or gets one by --env.
    Prevents: ValueError: Environment variable 'X' is None. A note: --env may give it.
    Fix: write a value, or move it to secrets"""
    for name, at, value in task.entries("envs"):
        if value is None:
            message = f"{name} has no value: sky launch stops unless --env gives it"
            hint = f"write a value, launch with --env {name}=..., or move it to secrets"
            yield Violation(task.locate_key(at), message, hint)


@tasks.rule(
    "SKY007", WARNING, "silent", derived("DeepSpeed and Megatron take one GPU for each process")
)
def every_gpu_has_a_process(task: SkyPilotTask) -> Violations:
    """A training with DeepSpeed or Megatron on nodes of several GPUs is started by torchrun.
    Prevents: No error: one busy GPU on each node.
    Fix: start it by torchrun"""
    yield from one_process(task)


@tasks.rule(
    "SKY009", ERROR, "init", skypilot("skylet/constants.py:641-646; torch/distributed/run.py")
)
def launchers_count_nodes_and_gpus(task: SkyPilotTask) -> Violations:
    """torchrun has a process for each GPU of a node, and as many nodes as the task.
    Prevents: CUDA error: invalid device ordinal; or a rendezvous that waits for other nodes than
    there are.
    Fix: give torchrun $SKYPILOT_NUM_NODES and $SKYPILOT_NUM_GPUS_PER_NODE
    """
    processes = '--nproc-per-node="$SKYPILOT_NUM_GPUS_PER_NODE"'
    nodes = '--nnodes="$SKYPILOT_NUM_NODES"'
    yield from miscounted(task, "node", processes, nodes)


@submissions.rule("SKY006", WARNING, "silent", _STORED, reads=("SkyPilot task",))
def tasks_hold_no_secret(submission: Submission) -> Violations:
    """Tokens and passwords are not written into a task.
    Prevents: A token in a file that is shared, and in SkyPilot's database.
    Fix: name it under secrets without a value, and launch with --secret"""
    paths = {task.path for task in submission.of(SkyPilotTask)}
    hint = "name it under secrets without a value, and launch with --secret NAME"
    yield from secrets_of(submission, paths, "everybody with the file has it", hint)
