"""What a script asks of Slurm, and its launcher calls, are read once, with their places."""

from __future__ import annotations

import math

import pytest

from dsgen.programs.launching.launcher_call import LauncherCall, fixed_port
from dsgen.programs.launching.script import launch_script
from dsgen.programs.launching.subjects import launcher_calls
from dsgen.programs.records import PROGRAMS
from dsgen.programs.slurm.request import Request, steps_of
from dsgen.programs.slurm.subjects import blocks
from dsgen.submission.submission import Submission
from dsgen.text.shell.reader import read_script
from dsgen.text.text import Text


def _submission(*lines: str) -> Submission:
    content = "\n".join(("#!/bin/bash", *lines))
    shell = read_script(Text(path="job.sbatch", content=content, lines=content.split("\n")))
    return Submission(programs=PROGRAMS, documents=(launch_script(shell),))


def _block(*options: str) -> Request:
    (block,) = blocks(_submission(*(f"#SBATCH {option}" for option in options)))
    return block


def _call(line: str, *options: str) -> LauncherCall:
    (call,) = launcher_calls(_submission(*(f"#SBATCH {option}" for option in options), line))
    return call


@pytest.mark.parametrize(
    ("options", "nodes", "most", "tasks", "gpus"),
    [
        (("-N4", "--ntasks-per-node=8", "--gres=gpu:a100:8"), 4, 4, 8, 8),
        (("--nodes=2-4", "--gpus-per-node=4"), None, 4, 1, 4),
        (("--nodes=2", "--ntasks=16", "--gres=gpu:2,gpu:1", "--gpus-per-node=8"), 2, 2, 8, 3),
        (("--nodes=2", "--ntasks=5"), 2, 2, None, None),
        (("--ntasks-per-node=two", "--gres=nvme:1"), None, None, None, None),
        (("--gpus-per-task=1",), None, None, None, None),
        ((), None, None, 1, None),
    ],
)
def test_a_block_says_how_large_the_job_is(
    options: tuple[str, ...],
    nodes: int | None,
    most: int | None,
    tasks: int | None,
    gpus: int | None,
) -> None:
    """Nodes, tasks and GPUs of a node follow from the options that say so; None where none does, or
    it is no number.
    """
    block = _block(*options or ("--job-name=x",))
    each = block.gpus_per_node
    assert (block.nodes, block.most_nodes, block.tasks_per_node, each.value if each else None) == (
        nodes,
        most,
        tasks,
        gpus,
    )


def test_an_argument_knows_its_place_and_its_text() -> None:
    """An option is written in messages by its full name, and found where it was written; the last
    of two holds.
    """
    block = _block("-t 1-0 -G a100:8", "--gpus=h100:16 --time=UNLIMITED --comment=$HOME")
    gpus = block.gpus()
    assert gpus is not None
    assert (str(gpus), gpus.value) == ("#SBATCH --gpus=h100:16", 16)
    assert (gpus.where.line, gpus.where.column, gpus.where_value.column) == (3, 9, 16)
    assert block.seconds("--time") == math.inf
    assert [found.value for found in block.texts("--gpus", "--comment")] == ["a100:8", "h100:16"]
    assert [found.value for found in block.texts("--gpus", last=True)] == ["h100:16"]


def test_a_step_takes_the_jobs_tasks_unless_it_says_its_own() -> None:
    """srun's own --ntasks holds, then the job's; its --ntasks-per-node only where the job has no
    number of tasks.
    """
    (block,) = blocks(
        _submission(
            "#SBATCH -N2 --ntasks-per-node=8",
            *(f"srun {words} python t.py" for words in ("", "-n4", "-N1 -n1")),
        )
    )
    assert [(step.nodes, step.tasks) for step in steps_of(block)] == [(2, 8), (2, 2), (1, 1)]


def test_nothing_is_known_of_a_step_in_another_job() -> None:
    """With --jobid of a number the step has what it says itself; $SLURM_JOB_ID is the script's own
    job.
    """
    lines = ("--jobid=226191 -N1 --ntasks-per-node=1", "--jobid=226191", '--jobid="$SLURM_JOB_ID"')
    (block,) = blocks(
        _submission(
            "#SBATCH -N2 --ntasks-per-node=8 --gres=gpu:8",
            *(f"srun {words} python t.py" for words in lines),
        )
    )
    steps = list(steps_of(block))
    assert [(step.nodes, step.tasks) for step in steps] == [(1, 1), (None, 1), (2, 8)]
    assert [step.block.gpus_per_node is None for step in steps] == [True, True, False]


@pytest.mark.parametrize(
    ("line", "nodes", "port"),
    [
        ("torchrun --nnodes=2:4 --rdzv_endpoint=$HEAD:29400 t.py", 4, 29400),
        ("torchrun --nnodes=$N --master_port=1234 t.py", 3, 1234),
        ("torchrun t.py", 1, None),
        ("PET_NNODES=2 torchrun t.py", None, None),
        ("deepspeed --num_nodes=2 t.py", 2, 29500),
        ("accelerate launch --num_machines 2 --main_process_port=$P t.py", 2, None),
        ("MASTER_PORT=1 deepspeed t.py", None, None),
    ],
)
def test_a_launcher_call_says_its_nodes_and_its_port(
    line: str, nodes: int | None, port: int | None
) -> None:
    """Each launcher's own options and defaults count; what can't be known is the script's, or
    None.
    """
    call = _call(line, "--nodes=3")
    found = fixed_port(call.launch)
    assert (call.nodes, found.number if found else None) == (nodes, port)


def test_the_options_of_a_command_are_read_by_name() -> None:
    """An option is given or not, its value is known or not, and it has its place."""
    call = _call("torchrun --nnodes=2 --standalone --node-rank=$R t.py")
    nodes, alone = call.text("--nnodes"), call.argument("--standalone")
    assert nodes is not None and nodes.value == "2"
    assert call.has("--node-rank") and call.text("--node-rank") is None
    assert alone is not None and alone.where.column == 21
