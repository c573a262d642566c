"""What a script launches is followed through launchers and wrappers, by the option tables of the
real programs.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dsgen.programs.launching.launch_line import launches
from dsgen.programs.launching.script import sbatch_options
from dsgen.programs.launching.tables import TABLES
from dsgen.submission.launches import Launch
from dsgen.text.shell.reader import read_script
from dsgen.text.text import Text
from tests.needs import needs_deepspeed, needs_slurm, needs_transformers, program
from tests.workers import HANGS_S

_GOLDEN = Path(__file__).parents[1] / "golden"


def _launches(content: str) -> tuple[Launch, ...]:
    return launches(read_script(Text(path="launch.sh", content=content, lines=content.split("\n"))))


def _one(content: str) -> Launch:
    (launch,) = _launches(content)
    return launch


def _calls(launch: Launch) -> list[str]:
    return [call.program for call in launch.calls]


_LINES = {
    "python train.py --lr 1": (["python"], "train.py", ["--lr", "1"]),
    "python3.11 -u -W ignore train.py": (["python"], "train.py", []),
    "python -m pkg.train --x": (["python"], "pkg.train", ["--x"]),
    "python -m torch.distributed.run --nproc_per_node 8 t.py --y": (["torchrun"], "t.py", ["--y"]),
    "python -u -m torch.distributed.launch --use_env t.py": (["torchrun"], "t.py", []),
    "torchrun --standalone -m pkg.train": (["torchrun"], "pkg.train", []),
    "torchrun --no-python python t.py": (["torchrun", "python"], "t.py", []),
    "deepspeed --num_gpus=8 --hostfile hosts t.py --deepspeed": (
        ["deepspeed"],
        "t.py",
        ["--deepspeed"],
    ),
    "accelerate launch --config-file a.yaml t.py": (["accelerate"], "t.py", []),
    "mpirun -np 16 -hostfile h --mca btl self -x A=1 python t.py": (
        ["mpirun", "python"],
        "t.py",
        [],
    ),
    "srun -N 2 -n16 -l python t.py": (["srun", "python"], "t.py", []),
    "srun --mpi=pmix apptainer exec --nv -B /a:/b i.sif torchrun t.py": (
        ["srun", "singularity", "torchrun"],
        "t.py",
        [],
    ),
    "docker run --rm --gpus all -v /a:/a image:tag torchrun t.py": (
        ["docker", "torchrun"],
        "t.py",
        [],
    ),
    "singularity exec --nv --bind $PWD:/a $IMAGE torchrun t.py": (
        ["singularity", "torchrun"],
        "t.py",
        [],
    ),
    "srun numactl --interleave=all python t.py": (["srun", "python"], "t.py", []),
    "nohup env A=1 time -p python t.py > out 2>&1 &": (["python"], "t.py", []),
    "uv run --with torch torchrun --standalone t.py --a": (["torchrun"], "t.py", ["--a"]),
    "srun conda run -n env --no-capture-output python t.py": (["srun", "python"], "t.py", []),
    "poetry run accelerate launch t.py": (["accelerate"], "t.py", []),
    "srun uv sync": ([], "", []),
    "uv run --extra a train.py --lr 1": (["python"], "train.py", ["--lr", "1"]),
    "uv run -m pkg.train a.b=1": (["python"], "pkg.train", ["a.b=1"]),
    "uv run --module torch.distributed.run t.py": (["torchrun"], "t.py", []),
    "coverage run -a --source=x t.py --y": (["python"], "t.py", ["--y"]),
    "ssh -p 22 host 'cd /x && torchrun t.py --y'": (["ssh", "torchrun"], "t.py", ["--y"]),
    "screen -dmS run nohup torchrun t.py": (["torchrun"], "t.py", []),
    "exec torchrun t.py": (["torchrun"], "t.py", []),
    "timeout -k 5 3600 torchrun t.py": (["torchrun"], "t.py", []),
    "srun bash -c 'torchrun --node_rank $SLURM_NODEID t.py'": (["srun", "torchrun"], "t.py", []),
    "srun bash inner.sh 4": (["srun"], "inner.sh", ["4"]),
    "srun ./a.out x": (["srun"], "./a.out", ["x"]),
    "sbatch --nodes 2 job.sh": (["sbatch"], "job.sh", []),
    "$WRAPPER torchrun t.py": (["torchrun"], "t.py", []),
    "torchrun $ARGS t.py": (["torchrun"], "t.py", []),
    "CMD='torchrun t.py --a 1'; $CMD": (["torchrun"], "t.py", ["--a", "1"]),
    "CMD='torchrun t.py --a 1'; eval $CMD": (["torchrun"], "t.py", ["--a", "1"]),
    "./train.py --x": ([], "./train.py", ["--x"]),
}


@pytest.mark.parametrize("line", _LINES)
def test_the_training_program_is_found_behind_its_launchers(line: str) -> None:
    """Calls are listed outermost first, then the program and its own arguments."""
    programs, script, arguments = _LINES[line]
    if not programs:
        assert _launches(line) == ()
        return
    launch = _one(line)
    assert _calls(launch) == programs
    assert launch.program is not None
    assert (launch.program.value, [word.value for word in launch.arguments]) == (script, arguments)


@pytest.mark.parametrize(
    "line",
    [
        "echo torchrun t.py",
        "srun hostname",
        "python -c 'import x'",
        "python -m pip install x",
        "source a.sh",
        "cd x",
    ],
)
def test_other_commands_are_no_launches(line: str) -> None:
    """What starts no training is left out."""
    assert _launches(line) == ()


def test_options_have_one_name_however_written() -> None:
    """Letters, equals signs, underscores and unambiguous beginnings lead to one name."""
    options = (
        _one("srun -N2 --ntasks=4 -vc 8 --gpus-per-n 8 --mem-per-c=1 --frobnicate=1 python t.py")
        .calls[0]
        .options
    )
    assert {entry.name for entry in options.entries if entry.known} == {
        "--nodes",
        "--ntasks",
        "--verbose",
        "--cpus-per-task",
        "--gpus-per-node",
        "--mem-per-cpu",
    }
    assert (
        options.integer("--nodes"),
        options.integer("--cpus-per-task"),
        options.text("--ntasks"),
    ) == (2, 8, "4")
    assert [entry.name for entry in options.unknown] == ["--frobnicate"]
    assert not options.has("--exclusive")


def test_the_value_of_an_option_has_its_own_place() -> None:
    """The value of `--nodes=2` is located behind the equals sign."""
    launch = _one('torchrun --nnodes=2 "--nproc-per-node=8" t.py\n')
    places = [
        (e.values[0].raw, launch.script.locate(e.values[0]).column)
        for e in launch.calls[0].options.entries
    ]
    assert places == [("2", 19), ("8", 39)]


def test_sbatch_reads_only_directives_before_the_first_command() -> None:
    """The last of several values wins; directives after a command don't count."""
    content = (
        "#!/bin/bash\n#SBATCH -N 2 --exclusive\n#SBATCH --nodes=4\nset -e\n#SBATCH --nodes=8\n"
    )
    options = sbatch_options(
        read_script(Text(path="j.sbatch", content=content, lines=content.split("\n")))
    )
    assert options.integer("--nodes") == 4
    assert options.has("--exclusive")


def test_the_environment_of_a_launch_is_what_was_exported_or_prefixed() -> None:
    """Exports before the line, prefixes and those of `env` count; later or unexported ones
    don't.
    """
    launch = _one("export A=1 B=2\nC=3\nD=4 env E=5 torchrun t.py\nexport F=6\n")
    assert {name: assignment.value for name, assignment in launch.environment.items()} == {
        "A": "1",
        "B": "2",
        "D": "4",
        "E": "5",
    }


def test_exports_inside_bash_c_stay_there() -> None:
    """What the text of `bash -c` exports counts for the programs it starts and for no others."""
    inner, outer = _launches("export A=1\nsrun bash -c 'export B=2; python t.py'\npython u.py\n")
    assert {name: assignment.value for name, assignment in inner.environment.items()} == {
        "A": "1",
        "B": "2",
    }
    assert set(outer.environment) == {"A"}


@pytest.mark.parametrize(
    "script", sorted(_GOLDEN.glob("*/launch.s*")), ids=lambda path: path.parent.name
)
def test_the_scripts_we_write_are_understood(script: Path) -> None:
    """In every script that dsgen writes, torchrun and the arguments of the training program are
    found.
    """
    content = script.read_text(encoding="utf-8")
    launch = _one(content)
    words = [word.value for word in launch.arguments]
    lines = script.with_name("arguments.txt").read_text(encoding="utf-8").splitlines()
    assert launch.call("torchrun") is not None
    if script.with_name("overrides.txt").exists():
        # A loop adds the lines of a file, whose overrides are read from there.
        assert words[-1] is None
        assert [word for word in words[:-1] if word] == words[:-1]
        assert {"--recipe", "--model"} & {*words} and "--mode" in words
        return
    assert len(words) >= len([line for line in lines if line.startswith("--")])


def _assert_same_options(table: str, parser: argparse.ArgumentParser) -> None:
    for action in parser._actions:
        for spelling in action.option_strings:
            known = TABLES[table].options.get(spelling)
            assert known is not None, spelling
            assert known.values == (0 if action.nargs == 0 else 1), spelling
            assert known.name in action.option_strings, spelling
    real = {spelling for action in parser._actions for spelling in action.option_strings}
    return None if real else pytest.fail("the parser has no options")


@pytest.mark.integration
@needs_transformers
def test_torchrun_has_the_options_of_our_table() -> None:
    """Every option of torch's own parser is in the table, and takes as many words."""
    from torch.distributed.run import get_args_parser

    _assert_same_options("torchrun", get_args_parser())


@pytest.mark.integration
@needs_transformers
def test_accelerate_has_the_options_of_our_table() -> None:
    """Every option of accelerate's own parser is in the table, and takes as many words."""
    from accelerate.commands.launch import launch_command_parser

    _assert_same_options("accelerate", launch_command_parser())


@pytest.mark.integration
@needs_deepspeed
def test_deepspeed_has_the_options_of_our_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every option of DeepSpeed's own parser is in the table, and takes as many words."""
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    from deepspeed.launcher import runner

    seen: list[argparse.ArgumentParser] = []

    def keep(self: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        seen.append(self)

    # its parser is made inside parse_args
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", keep)
    runner.parse_args([])
    _assert_same_options("deepspeed", seen[0])


@pytest.mark.integration
@needs_slurm
@pytest.mark.parametrize("name", ["srun", "sbatch", "salloc"])
def test_slurm_has_the_options_of_our_table(name: str, tmp_path: Path) -> None:
    """Every option that `--help` of the installed Slurm lists is in the table, with its letter."""
    configuration = tmp_path / "slurm.conf"
    configuration.write_text(
        "ClusterName=x\nSlurmctldHost=localhost\nNodeName=localhost\nPartitionName=p Nodes=ALL\n"
    )
    answer = subprocess.run(
        [str(program(name)), "--help"],
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        env={**os.environ, "SLURM_CONF": str(configuration)},
    )
    listed = re.findall(
        r"^ +(?:-(\w),? +|   +)?--([a-z][\w-]*)(\[?=)?", answer.stdout, re.MULTILINE
    )
    assert len(listed) > 80
    for letter, long, mark in listed:
        if long == "mem" and not mark:
            continue  # a line that explains --mem-per-cpu
        known = TABLES[name].options.get(f"--{long}")
        assert known is not None, long
        assert not letter or TABLES[name].options.get(f"-{letter}") is known, letter
        if mark == "=":
            assert known.values or known.optional, long
