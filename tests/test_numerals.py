"""Numbers are read from text in one place: digits from 0 to 9, at a bounded length; nothing else
raises or is slow.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsgen.numerals import LARGEST, is_whole, python_float, python_int, read_whole, whole

from .cli.running import run
from .test_architecture import PACKAGE, PATHS, ROOT, shown, tree

LONG = "4" * 4301
#: The reader of HJSON takes the digits of every script, as hjson does.
TAKES_ALL_DIGITS = {"text/hjson/tokens.py"}


@given(st.text())
def test_a_whole_number_is_ascii_digits(text: str) -> None:
    """Text is a whole number only where it is at most 18 digits from 0 to 9; no text raises."""
    assert (read_whole(text) is not None) == bool(re.fullmatch(r"[0-9]{1,18}", text))
    assert is_whole(text) == bool(re.fullmatch(r"[0-9]+", text))
    python_float(text)


@pytest.mark.parametrize("text", ["²", "٣", "１", "", " 1", "+1", "1_0", "1.0", "-1"])
def test_other_digits_are_no_number(text: str) -> None:
    """Superscripts, other scripts' digits, signs, blanks and separators are no whole number."""
    assert read_whole(text) is None
    assert not is_whole(text)
    with pytest.raises(ValueError, match="not a whole number"):
        whole(text)


def test_long_numbers_are_bounded() -> None:
    """More digits than Python converts are no number, or the largest that there is; zeros in front
    don't count.
    """
    assert read_whole(LONG) is None
    assert python_int(LONG) is None
    assert whole(LONG) == LARGEST
    assert whole("0" * 5000 + "7") == 7


@given(st.text("0123456789_+- \t²٣１xe.", max_size=18))
def test_python_int_is_pythons(text: str) -> None:
    """`python_int` reads what Python's `int` reads, and nothing else."""
    try:
        expected = int(text)
    except ValueError:
        expected = None
    assert python_int(text) == expected


@pytest.mark.parametrize("number", ["²", "٣", LONG])
def test_commands_answer_odd_numbers(
    number: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`plan` and `validate` answer where an argument, a directive, an index or a resource is such a
    number.
    """
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dsgen.yaml").write_text(
        "model: llama-2-7b\ncluster: dgx-h100\ngpus: 8\nframework: huggingface\n"
        "training: {global_batch: 64, duration: {steps: 100}}\noutput: {checkpoints: /shared/run}\n"
        f"launch: {{target: slurm, script: train.py, arguments: "
        f"[--save_total_limit, '{number}']}}\n"
    )
    assert run("plan").exit_code in (0, 1)
    (tmp_path / "run.sbatch").write_text(
        f"#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --cpus-per-task={number}\n#SBATCH "
        f"--signal={number}\n"
        f'A=(x y)\nexport B="${{A[{number}]}}" C="${{@:{number}}}" D="${{{number}}}"\n'
        f"srun torchrun --nnodes {number} --nproc_per_node {number} train.py"
        f" --per_device_train_batch_size {number} --max_steps {number} --output_dir out\n"
        f"deepspeed --num_gpus {number} pretrain_gpt.py --num-layers {number} --seq-length {number}"
        f" --rampup-batch-size {number} {number} {number}\n"
    )
    (tmp_path / "job.yaml").write_text(
        "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: a}\nspec:\n"
        "  pytorchReplicaSpecs:\n    Worker:\n      replicas: 2\n      template:\n        spec:\n"
        "          containers:\n            - name: pytorch\n              image: a:1\n"
        f"              command: [torchrun, --nproc-per-node, '{number}', train.py]\n"
        f"              resources: {{limits: {{nvidia.com/gpu: '{number}'}}}}\n"
    )
    (tmp_path / "hostfile").write_text(f"a slots={number}\nb slots={number}\n")
    assert run("validate", ".", "--format", "json").exit_code in (0, 1)
    run("init", "--from", ".", "-o", "new.yaml", "--model", "llama-2-7b", "--cluster", "dgx-h100")


def test_digits_are_asked_of_in_one_place() -> None:
    """`isdigit`, `isdecimal` and `isnumeric`, which take other digits, stand in `numerals.py`
    alone.
    """
    asking = {
        shown(path)
        for path in PATHS
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Attribute) and node.attr in ("isdigit", "isdecimal", "isnumeric")
    }
    assert asking == {"numerals.py"}


def test_patterns_match_no_other_digits() -> None:
    r"""`\d` of a pattern, which takes the digits of every script, stands beside `re.ASCII`, or as
    `[0-9]`.
    """
    wrong = []
    for path in PATHS:
        calls = [node for node in ast.walk(tree(path)) if isinstance(node, ast.Call)]
        plain = [node for node in calls if "re.ASCII" in map(ast.unparse, _flags(node))]
        inside = {id(part) for node in plain for part in ast.walk(node)}
        wrong += [
            f"{shown(path)}:{node.lineno}"
            for node in ast.walk(tree(path))
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and re.search(r"(?<!\\)(?:\\\\)*\\d", node.value)
            and id(node) not in inside
            and shown(path) not in TAKES_ALL_DIGITS
        ]
    assert wrong == []


def _flags(call: ast.Call) -> list[ast.expr]:
    """The arguments of a call, flags that are joined by `|` one by one."""
    found, waiting = [], [*call.args, *(keyword.value for keyword in call.keywords)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            waiting += [node.left, node.right]
        found.append(node)
    return found


def test_conversions_are_not_handed_on() -> None:
    """`int` and `float` are called, where mypy sees of what; as functions for others they stand in
    `numerals.py`.
    """
    handed = []
    for path in PATHS:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("map", "partial"):
                first = ast.unparse(node.args[0]) if node.args else ""
                handed += [f"{shown(path)}:{node.lineno}"] if first in ("int", "float") else []
    assert handed == []


@pytest.mark.slow
def test_mypy_refuses_conversions_of_text(tmp_path: Path) -> None:
    """The project's mypy knows the plugin, which refuses `int()` and `float()` of what may be text,
    and nothing else.
    """
    assert 'plugins = ["scripts/mypy_numbers.py"]' in (ROOT / "pyproject.toml").read_text()
    config = tmp_path / "mypy.ini"
    config.write_text(f"[mypy]\nplugins = {ROOT / 'scripts' / 'mypy_numbers.py'}\n")
    (tmp_path / "a.py").write_text(
        "import re\n\ndef f(a: str, b: float, c: str | None, m: re.Match[str]) -> None:\n"
        "    int(a)\n    float(a)\n    int(c or 'x')\n    int(m[1])\n    int(b)\n    "
        "float(len(a))\n    int()\n"
    )
    command = [sys.executable, "-m", "mypy", "--config-file", str(config), "a.py"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    refused = re.findall(r"^a\.py:([0-9]+): error: .*numerals", done.stdout, re.MULTILINE)
    assert refused == ["4", "5", "6", "7"], done.stdout + done.stderr
    assert (PACKAGE / "numerals.py").is_file()
