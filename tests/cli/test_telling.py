"""How findings are told: a cause once in a file, once over many files, and not again where a
baseline has it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import dsgen
from dsgen.check.validate import folded
from dsgen.cli.findings_text import annotation, counted
from dsgen.cli.printing import ExitStatus
from dsgen.findings import Edit, Finding, Location, Severity
from tests.cli.running import run

#: Two steps that wait for their first failure: the same warning in two places.
SCRIPT = """\
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
srun python train.py --first
srun python train.py --second
"""
RULE = "SLM013"


@pytest.fixture(autouse=True)
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test runs in a folder of its own, with one script, and with nothing beside it."""
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "job.sbatch").write_text(SCRIPT)
    return folder


def at(line: int, path: str = "a.sh", message: str = "too few", **fields: Any) -> Finding:
    """A finding at a line."""
    return Finding(
        rule="SLM001",
        severity=Severity.ERROR,
        where=Location(path=path, line=line, column=1, excerpt=f"line {line}"),
        message=message,
        **fields,
    )


def found(*arguments: str) -> list[dict[str, Any]]:
    """What the command prints as JSON."""
    documents: list[dict[str, Any]] = json.loads(
        run("validate", ".", "--format", "json", *arguments).stdout
    )["findings"]
    return documents


def test_what_is_the_same_is_one_finding() -> None:
    """Findings that say the same become the first of them, with the places and edits of all; others
    stay.
    """
    edits = [Edit(path="a.sh", start=start, end=start + 1, replacement="") for start in (3, 9)]
    one, again, other = (
        at(1, edits=(edits[0],)),
        at(7, edits=(edits[1],)),
        at(7, message="too many"),
    )
    elsewhere = at(1, path="b.sh")
    joined, *rest = folded([one, again, other, elsewhere])
    assert (joined.elsewhere, rest) == ((elsewhere.where,), [other])
    joined, *rest = folded([one, again, other, elsewhere], across=False)
    assert (joined.where, joined.lines, joined.edits) == (one.where, (1, 7), tuple(edits))
    assert rest == [other, elsewhere]
    assert counted(joined) == "too few (2 times, lines 1, 7)"
    assert "too few (2 times, lines 1, 7)" in annotation(joined)
    assert counted(other) == "too many"


def test_the_file_that_runs_is_named_before_its_copy() -> None:
    """What is said of arguments.txt too, which no program reads, has its place in the launch
    file.
    """
    (joined,) = folded([at(5, "job/arguments.txt"), at(9, "job/launch.sbatch")])
    assert [where.path for where in (joined.where, *joined.again)] == [
        "job/launch.sbatch",
        "job/arguments.txt",
    ]


def test_a_cause_is_told_once_unless_strict() -> None:
    """The command and the API tell two equal steps once, with their number; --strict tells both."""
    once, every = found("--select", RULE), found("--select", RULE, "--strict")
    assert [(one["line"], one["times"], one["lines"]) for one in once] == [(5, 2, [5, 6])]
    assert [(one["line"], one["times"]) for one in every] == [(5, 1), (6, 1)]
    assert "(2 times, lines 5, 6)" in run("validate", ".").stdout
    assert [one.lines for one in dsgen.validate(".") if one.rule == RULE] == [(5, 6)]
    assert [one.lines for one in dsgen.validate(".", strict=True) if one.rule == RULE] == [
        (5,),
        (6,),
    ]


def test_an_ignored_place_leaves_the_others(workdir: Path) -> None:
    """A comment that ignores the first place of a cause doesn't ignore the second."""
    (workdir / "job.sbatch").write_text(
        SCRIPT.replace("--first", f"--first  # dsgen: ignore[{RULE}]")
    )
    assert [one["lines"] for one in found("--select", RULE)] == [[6]]


def test_what_many_files_share_is_shown_once_in_text(workdir: Path) -> None:
    """Four files with one cause make one finding, with a list of the others; JSON has each place,
    GitHub each file.
    """
    for name in ("b", "c", "d"):
        (workdir / f"{name}.sbatch").write_text(SCRIPT)
    text = run("validate", ".", "--select", RULE)
    assert text.stdout.count("note:") == 1
    assert (
        "the same in 3 more files: c.sbatch:5, d.sbatch:5, job.sbatch:5 (--strict shows each)"
        in text.stdout
    )
    assert text.stderr.startswith("1 note in 4 documents")
    assert run("validate", ".", "--select", RULE, "--strict").stdout.count("note:") == 8
    (one,) = found("--select", RULE)
    assert (one["path"], one["lines"], one["times"]) == ("b.sbatch", [5, 6], 8)
    assert [place["path"] for place in one["places"]] == [f"{name}.sbatch" for name in "bbccdd"] + [
        "job.sbatch"
    ] * 2
    assert [place["line"] for place in one["places"]] == [5, 6] * 4
    assert (
        run("validate", ".", "--select", RULE, "--format", "github").stdout.count("::notice ") == 4
    )


def test_a_baseline_leaves_out_what_was_there(workdir: Path) -> None:
    """What the baseline has isn't told, on whatever line it is now and from whatever folder; what
    is new is told.
    """
    assert (
        run("validate", ".", "--baseline", "base.json", "--write-baseline").exit_code
        == ExitStatus.OK
    )
    assert found("--baseline", "base.json") == []
    script = workdir / "job.sbatch"
    script.write_text(SCRIPT.replace("#SBATCH --nodes", "# a line more\n\n#SBATCH --nodes"))
    assert found("--baseline", "base.json") == []
    script.write_text(SCRIPT + "srun python train.py --third\n")
    assert [one["line"] for one in found("--baseline", "base.json", "--select", RULE)] == [7]
    result = run("validate", "..", "--baseline", str(workdir / "base.json"))
    assert "left out" in result.stderr


def test_an_edited_line_is_judged_anew(workdir: Path) -> None:
    """A finding whose source line has changed is told, and its old entry is told to be of no
    use.
    """
    run("validate", ".", "--baseline", "base.json", "--write-baseline")
    (workdir / "job.sbatch").write_text(SCRIPT.replace("--second", "--other"))
    result = run("validate", ".", "--baseline", "base.json", "--select", RULE, "--format", "json")
    assert [one["line"] for one in json.loads(result.stdout)["findings"]] == [6]
    assert (
        "1 entry of base.json without a finding: job.sbatch SLM013; write it anew" in result.stderr
    )


def test_entries_of_rules_and_files_that_are_not_checked_are_kept(workdir: Path) -> None:
    """An entry is of no use only where its file was checked and its rule selected."""
    (workdir / "other.sbatch").write_text(SCRIPT)
    run("validate", ".", "--baseline", "base.json", "--write-baseline")
    for arguments in (["job.sbatch"], [".", "--select", "ZERO"], [".", "--ignore", RULE]):
        assert (
            "without a finding" not in run("validate", *arguments, "--baseline", "base.json").stderr
        )


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--baseline", "none.json"], "there is no none.json: write it with --write-baseline"),
        (["--baseline", "job.sbatch"], "job.sbatch is no baseline of dsgen: choose another FILE"),
        (["--write-baseline"], "--write-baseline requires --baseline FILE"),
        (["--baseline", "no/where.json", "--write-baseline"], "cannot write no/where.json"),
        (
            ["--baseline", "job.sbatch", "--write-baseline"],
            "job.sbatch is no baseline of dsgen: choose another FILE",
        ),
        (["--baseline", ".", "--write-baseline"], ". is no file"),
    ],
)
def test_a_baseline_that_cannot_be_used_is_refused(arguments: list[str], problem: str) -> None:
    """A missing, foreign or unwritable baseline is a wrong command line, and says why."""
    result = run("validate", ".", *arguments)
    assert result.exit_code == ExitStatus.USAGE
    assert problem in result.stderr


def test_sarif_tells_how_often() -> None:
    """SARIF has one result for the cause, with its number in the message."""
    log = json.loads(run("validate", ".", "--format", "sarif", "--select", RULE).stdout)
    (result,) = log["runs"][0]["results"]
    assert "(2 times, lines 5, 6)" in result["message"]["text"]
