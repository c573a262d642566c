"""The work on many files is spread over processes, and gives what one process gives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

#: Checks a folder with so many processes; prints the findings, texts and faults.
CHECK = """
import json, sys
from dsgen.check import spread
from dsgen.check.validate import validate
spread._LEAST_BYTES, spread._cores = 1, lambda: int(sys.argv[1])
{before}
answer = validate([sys.argv[2]])
print(json.dumps([list(map(repr, answer.findings)), sorted(answer.texts), answer.documents,
                  list(map(str, answer.not_checked)), dict(answer.left_alone),
                  [(fault.path, fault.parts) for fault in answer.faults]]))
"""
BROKEN_RULE = """
import dsgen.check.rules.run as run, os
check = run._may_be_estimated
def broken(submission):
    {fault}
    return check(submission)
run._may_be_estimated = broken
"""


def answer(processes: int, folder: Path, before: str = "") -> list[object]:
    """What a check of a folder says, in an interpreter of its own, which has no other threads."""
    command = [sys.executable, "-c", CHECK.format(before=before), str(processes), str(folder)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stderr == ""
    said: list[object] = json.loads(run.stdout)
    return said


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Jobs of several files each, two names for one file, and a file that can't be read."""
    for number in range(12):
        job = tmp_path / f"job_{number}"
        job.mkdir()
        (job / "ds_config.json").write_text(json.dumps({"train_batch_size": 8 + number}))
        (job / "train.sh").write_text(
            "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gres=gpu:4\n"
            f"deepspeed --num_gpus 3 train.py --deepspeed ds_config.json --lr $LEARNING_RAT{number}"
            "\n"
        )
    # Places in it are functions, which can't be sent.
    (tmp_path / "job_11" / "job.yaml").write_text(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec:\n  template:\n    spec:\n"
        "      containers:\n      - name: a\n        resources: {limits: {nvidia.com/gpu: 8}}\n"
        "        command: [torchrun, --nproc_per_node=16, train.py]\n"
    )
    (tmp_path / "job_1" / "again.sh").symlink_to("../job_0/train.sh")
    (tmp_path / "job_2" / "bytes.json").write_bytes(b'{"train_batch_size": \xff}')
    return tmp_path


@pytest.mark.parametrize("processes", [2, 5])
def test_processes_give_what_one_gives(folder: Path, processes: int) -> None:
    """Findings, texts and accounts of several processes are those of one."""
    alone = answer(1, folder)
    assert alone[0]
    assert answer(processes, folder) == alone


def test_faults_of_processes_are_noted(folder: Path) -> None:
    """A fault of a rule in another process is reported like one in this."""
    before = BROKEN_RULE.format(fault="raise ValueError('broken')")
    alone = answer(1, folder, before)
    assert alone[-1]
    assert answer(3, folder, before) == alone


def test_the_part_of_a_process_that_dies_is_done_again(folder: Path) -> None:
    """Nothing is lost when a process is killed."""
    before = BROKEN_RULE.format(fault="os.getpid() == main or os._exit(3)")
    assert answer(3, folder, f"import os; main = os.getpid()\n{before}") == answer(1, folder)


def test_parts_are_of_about_as_many_bytes() -> None:
    """A part ends where the bytes before it are closest to its share."""
    from dsgen.check import spread

    sizes = [5_000, 900_000, 10_000, 400_000, 500_000, 20_000]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spread, "_cores", lambda: 2)
        parts = spread._parts(sizes, int)
        assert [list(part) for part in parts] == [sizes[:3], sizes[3:]]
        assert spread._parts(sizes[:1], int) == [sizes[:1]]
        patch.setattr(spread, "_cores", lambda: 1)
        assert spread._parts(sizes, int) == [sizes]


def test_work_of_few_files_stays_here() -> None:
    """Few files are checked in the process of the command."""
    from dsgen.check import spread

    pids = spread.spread(lambda _: os.getpid(), [300, 400], int)
    assert list(pids) == [os.getpid()] * 2
