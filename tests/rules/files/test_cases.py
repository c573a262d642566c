"""Every rule of documents fires on its bad case and not on its good one, through the API and the command line."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import click
import pytest

import dsgen
from dsgen.cli.findings_text import finding_text
from dsgen.cli.validate import validate as command
from dsgen.findings import Finding
from tests.cli.running import run

FOLDER = Path(__file__).parents[2] / "validate"
CASES = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())


def rule_of(case: str) -> str:
    """The rule that a case is for."""
    return case.partition("_")[0]


def flags_of(case: str) -> list[str]:
    """The case's options, as words of a command line."""
    options = FOLDER / case / "options"
    return shlex.split(options.read_text(encoding="utf-8")) if options.exists() else []


def keywords_of(flags: list[str]) -> dict[str, Any]:
    """The same as arguments of `dsgen.validate`."""
    context = click.Context(command)
    values, _, _ = command.make_parser(context).parse_args(args=[*flags, "."])
    values.pop("paths")
    return {name: int(value) if name.startswith("gpus") else value for name, value in values.items()}


def findings_of(case: str, part: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Finding, ...]:
    """What the API says of the case's folder `part`."""
    monkeypatch.chdir(FOLDER / case / part)
    return dsgen.validate(".", **keywords_of(flags_of(case)))


@pytest.mark.parametrize("case", CASES)
def test_a_bad_submission_draws_what_is_written_beside_it(
    case: str, monkeypatch: pytest.MonkeyPatch, update_golden: bool
) -> None:
    """The findings of a bad case are those of its `bad.out`, its own rule among them."""
    told = "\n".join(map(finding_text, findings_of(case, "bad", monkeypatch))) + "\n"
    expected = FOLDER / case / "bad.out"
    if update_golden:
        expected.write_text(told, encoding="utf-8")
    assert told == expected.read_text(encoding="utf-8")
    assert f"[{rule_of(case)}]" in told


@pytest.mark.parametrize("case", CASES)
def test_a_good_submission_passes_the_rule(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The good case doesn't break the rule that the bad one breaks."""
    assert rule_of(case) not in {finding.rule for finding in findings_of(case, "good", monkeypatch)}


@pytest.mark.parametrize("case", CASES)
def test_the_command_line_tells_the_same(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`dsgen validate --format json` prints what the API gives."""
    expected = [finding.to_dict() for finding in findings_of(case, "bad", monkeypatch)]
    answer = run("validate", ".", "--format", "json", *flags_of(case))
    told = json.loads(answer.stdout)["findings"]
    assert [{key: finding[key] for key in expected[0]} for finding in told] == expected
