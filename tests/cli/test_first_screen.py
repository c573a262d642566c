"""The first screen at 80 columns: the answer in the first six lines, 30 lines at most, no row wrapped."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.running import run
from tests.examples import FOLDER, NAMES

ANSWER = ("Chosen", "Memory", "Speed", "Run")


@pytest.fixture(autouse=True)
def _at_80_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder, and a terminal of 80 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


def screen(*arguments: str) -> list[str]:
    """The lines of standard output."""
    lines = run(*arguments).stdout.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    assert len(lines) <= 30, "\n".join(lines)
    return lines


def table(lines: list[str]) -> list[str]:
    """The rows of the plans, without the heading."""
    start = next(number for number, line in enumerate(lines) if re.match(r"plan +DP ", line)) + 1
    return lines[start : lines.index("", start)]


@pytest.mark.parametrize("arguments", [("--gpus", "1024"), *((str(FOLDER / f"{name}.yaml"),) for name in NAMES)])
def test_the_answer_comes_first(arguments: tuple[str, ...]) -> None:
    """Plan, memory, speed and the run are in the first six lines; every row of the table is one line."""
    lines = screen(*arguments, "-o", "out")
    assert [word for word in ANSWER if not any(line.startswith(word) for line in lines[:6])] == []
    rows = table(lines)
    assert rows and all(re.match(r"(chosen|fastest|roomy|\d+) +\d", row) for row in rows)
    assert all(re.search(r" \d+\.\d%", row) for row in rows)  # MFU is there


@pytest.mark.parametrize("arguments", [("plan", "--gpus", "1024"), ("plan", "--gpus", "64")])
def test_plan_has_the_same_order(arguments: tuple[str, ...]) -> None:
    """`dsgen plan` begins as `dsgen` does, and lists ten plans on the same screen."""
    lines = screen(*arguments)
    assert [word for word in ANSWER if not any(line.startswith(word) for line in lines[:6])] == []
    assert len(table(lines)) >= 10


def test_a_job_that_is_not_ready_says_so_in_place_of_the_command() -> None:
    """What is missing stands in the line of the next command, which isn't shown."""
    lines = screen("--gpus", "1024", "-o", "out")
    assert any(line.startswith("Next    Not ready to submit: no data (set data.path)") for line in lines[:8])
    assert not any("sbatch out" in line for line in lines)


def test_what_does_not_fit_begins_with_what_would() -> None:
    """Where nothing fits, the changes that would make it fit are in the first six lines."""
    lines = screen("--gpus", "8")
    assert lines[0].startswith("gpt3-175b: none of ")
    assert any(line.strip().startswith("gpus: ") for line in lines[:6])


def test_rows_say_how_they_differ() -> None:
    """Every row with a name has its reason in words below the table."""
    lines = screen("--gpus", "1024", "-o", "out")
    names = [row.split()[0] for row in table(lines) if not row[0].isdigit()]
    assert names[0] == "chosen"
    below = lines[lines.index(table(lines)[-1]) + 1 :]
    assert [name for name in names if not any(line.startswith(f"{name} ") for line in below)] == []


def test_explain_is_tables() -> None:
    """`--explain` has a row for each other value of a decision: its change of the step time and the cause in words."""
    lines = run("plan", "--gpus", "1024", "--explain").stdout.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("decision "))
    assert lines[start].split() == ["decision", "chosen", "other", "step", "time", "cause"]
    rows = lines[start + 1 : lines.index("", start)]
    assert any(re.search(r" [+-]\d+%  (more|less) [a-z]+", row) for row in rows)
    assert all(re.match(r"[a-z_]+ +\S| {20}", row) for row in rows)
