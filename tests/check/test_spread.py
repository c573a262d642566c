"""The work on many files is spread over processes, and gives what one process gives."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from dsgen.check.read import read_documents
from tests.case import NAMES, read_case

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


#: Functions that are made in a function can't be sent.
UNSENDABLE = """
from dsgen.check import spread
spread._LEAST_BYTES, spread._cores = 1, lambda: 3
made = spread.spread(lambda n: (lambda: n) if n % 2 else n, range(1, 9), int)
print([each() if callable(each) else each for each in made])
"""


def test_what_cannot_be_sent_is_done_here() -> None:
    """A process sends the rest of its part, and nothing is lost."""
    command = [sys.executable, "-c", UNSENDABLE]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (json.loads(run.stdout), run.stderr) == (list(range(1, 9)), "")


@pytest.mark.parametrize("kind", ["KUB", "SKY", "AML"])
def test_documents_can_be_sent(kind: str, tmp_path: Path) -> None:
    """Whatever is read of jobs in YAML goes to another process, or all of it were read twice."""
    cases = [case for case in map(read_case, NAMES) if case.rule.startswith(kind)][:40]
    for case in cases:
        case.write("bad", tmp_path / case.name)
    documents = read_documents([tmp_path]).documents
    assert len(documents) >= len(cases)
    assert len(pickle.loads(pickle.dumps(documents))) == len(documents)


def test_parts_are_of_about_as_many_bytes() -> None:
    """A part ends where the bytes before it are closest to its share; so do its steps."""
    from dsgen.check import spread

    sizes = [5_000, 900_000, 10_000, 400_000, 500_000, 20_000]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spread, "_cores", lambda: 2)
        patch.setattr(spread, "_STEPS", 2)
        assert spread._parts(sizes) == [[range(2), range(2, 3)], [range(3, 4), range(4, 6)]]
        assert spread._parts(sizes[:1]) == [[range(1)]]
        patch.setattr(spread, "_STEPS", 50)  # most of which no item falls into
        steps = [step for part in spread._parts(sizes) for step in part]
        assert [index for step in steps for index in step] == list(range(6))
        patch.setattr(spread, "_cores", lambda: 1)
        assert spread._parts(sizes) == [[range(6)]]


#: Two processes of which one is slow; prints how many of 20 items the other one worked on.
SLOW = """
import os, time
from dsgen.check import spread
spread._LEAST_BYTES, spread._cores = 1, lambda: 2
main = os.getpid()
def work(n):
    is_other = os.getpid() != main
    time.sleep(is_other)
    return not is_other
print(sum(spread.spread(work, range(20), lambda n: 1)))
"""


def test_a_process_helps_a_slower_one() -> None:
    """One that is done with its own part takes items of another's, which that hasn't begun."""
    run = subprocess.run([sys.executable, "-c", SLOW], capture_output=True, text=True, check=True)
    assert int(run.stdout) >= 18


def test_work_of_few_files_stays_here() -> None:
    """Few files are checked in the process of the command."""
    from dsgen.check import spread

    pids = spread.spread(lambda _: os.getpid(), [300, 400], int)
    assert list(pids) == [os.getpid()] * 2
