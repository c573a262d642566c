"""Our findings on launch lines and hostfiles agree with the launchers' own code."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.case import read_case
from tests.needs import needs_deepspeed
from tests.workers import HANGS_S

#: Bad cases that DeepSpeed's launcher refuses before it starts anything.
REFUSED_BY_DEEPSPEED = [
    "LNCH002",
    "LNCH002_twice",
    "LNCH003",
    "LNCH004",
    "LNCH004_slot",
    "LNCH005",
    "LNCH006",
    "LNCH012",
    "LNCH018",
    "LNCH018_beyond",
    "LNCH023",
    "LNCH025_deepspeed",
]
#: Cases whose bad line torchrun refuses, and whose good one it takes.
READ_BY_TORCHRUN = ["LNCH025", "LNCH031", "LNCH031_nodes"]
#: Asks DeepSpeed's launcher about `folder`, `words` pairs; it stops at the first thing that it
#: would start.
ASK_DEEPSPEED = """
import json, os, sys
from deepspeed.launcher import runner
answers = []
for folder, words in json.load(sys.stdin):
    os.chdir(folder)
    try:
        runner.main(words)
        answers.append(None)
    except (Exception, SystemExit) as problem:
        answers.append(f"{type(problem).__name__}: {problem}")
print("ANSWERS", json.dumps(answers))
"""


def words_of(folder: Path) -> list[str]:
    """The words of the launch line, without the program; a plain one where the folder has a
    hostfile only.
    """
    script = folder / "run.sh"
    if not script.exists():
        return ["--hostfile", "hostfile", "train.py"]
    return shlex.split(script.read_text(encoding="utf-8").splitlines()[-1])[1:]


@pytest.mark.integration
@needs_deepspeed
def test_deepspeed_refuses_what_we_call_an_error(tmp_path: Path) -> None:
    """Each of these launch lines and hostfiles ends DeepSpeed's own launcher, before any process
    starts.
    """
    extra = ["--no_ssh_check", "--master_addr", "worker-0"]  # nobody is asked over the network
    folders = [read_case(name).write("bad", tmp_path / name) for name in REFUSED_BY_DEEPSPEED]
    asked = [(str(folder), [*extra, *words_of(folder)]) for folder in folders]
    done = subprocess.run(
        [sys.executable, "-c", ASK_DEEPSPEED],
        input=json.dumps(asked),
        env={**os.environ, "DS_ACCELERATOR": "cpu"},
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        check=True,
    )
    line = next(line for line in done.stdout.splitlines() if line.startswith("ANSWERS"))
    answers = dict(zip(REFUSED_BY_DEEPSPEED, json.loads(line.removeprefix("ANSWERS")), strict=True))
    assert [case for case, answer in answers.items() if answer is None] == []
    assert not [
        answer
        for answer in answers.values()
        if answer.startswith(("ModuleNotFound", "FileNotFound"))
    ]


@pytest.mark.integration
@needs_deepspeed
@pytest.mark.parametrize("case", READ_BY_TORCHRUN)
def test_torchrun_reads_as_we_do(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """torchrun refuses the bad line of a case, and takes the good one but for a GPU that isn't
    here.
    """
    from torch.distributed.run import config_from_args, parse_args

    with pytest.raises((SystemExit, ValueError)):
        config_from_args(parse_args(words_of(read_case(case).write("bad", tmp_path / "bad"))))
    try:
        config_from_args(parse_args(words_of(read_case(case).write("good", tmp_path / "good"))))
    except ValueError as problem:
        assert "Cuda is not available" in str(problem)
    capsys.readouterr()
