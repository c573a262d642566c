"""Every rule on files reports its bad case and not its good one, through the API and the command
line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import pytest

import dsgen
from dsgen.cli.findings_text import finding_text
from dsgen.cli.validate import validate as command
from dsgen.findings import Finding
from tests.case import NAMES, Case, files_of, patched, read_case, update_expected
from tests.cli.running import run


def keywords_of(flags: Sequence[str]) -> dict[str, Any]:
    """Options of `dsgen validate` as arguments of the function."""
    context = click.Context(command)
    values, _, _ = command.make_parser(context).parse_args(args=[*flags, "."])
    values.pop("paths")
    return {
        name: int(value) if name.startswith("gpus") else value for name, value in values.items()
    }


#: What is found by options and files: many cases start from the same.
_FINDINGS: dict[object, tuple[Finding, ...]] = {}


def findings_of(
    case: Case, part: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Finding, ...]:
    """What the API finds in the case's `part`, written into `folder`, which becomes the working
    directory.
    """
    monkeypatch.chdir(case.write(part, folder))
    submission = (case.flags, frozenset(getattr(case, part).items()))
    if submission not in _FINDINGS:
        _FINDINGS[submission] = dsgen.validate(".", **keywords_of(case.flags))
    return _FINDINGS[submission]


def in_one_process(names: Sequence[str]) -> list[Any]:
    """The cases, those with the same good submission in a group that one process runs, as do other
    tests of the same cases.
    """
    first = dict[object, str]()
    cases = map(read_case, names)
    groups = (first.setdefault((c.flags, frozenset(c.good.items())), c.name) for c in cases)
    return [
        pytest.param(name, marks=pytest.mark.xdist_group(group))
        for name, group in zip(names, groups, strict=True)
    ]


def one_of_each_question() -> list[str]:
    """The first case of each subject of rules, and of each set of options."""
    first = dict[object, str]()
    for name in NAMES:
        subject = re.match("[A-Z]+", name)
        first.setdefault(subject and subject[0], name)
        first.setdefault(read_case(name).flags, name)
    return sorted(set(first.values()))


@pytest.mark.parametrize("name", in_one_process(NAMES))
def test_a_case_is_as_it_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, update_golden: bool
) -> None:
    """What is expected is found in the bad submission, which is left alone; the good one passes.

    What is expected has a finding of the rule that the case is for.
    """
    case = read_case(name)
    findings = findings_of(case, "bad", tmp_path / "bad", monkeypatch)
    output = "\n".join(map(finding_text, findings)) + "\n"
    if update_golden:
        update_expected(name, output)
    assert output == read_case(name).expected
    assert f"[{case.rule}]" in output
    assert files_of(tmp_path / "bad") == case.bad
    assert case.rule not in {
        finding.rule for finding in findings_of(case, "good", tmp_path / "good", monkeypatch)
    }


@pytest.mark.parametrize("name", one_of_each_question())
def test_the_command_line_prints_what_the_api_finds(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--format json` has the findings of the function, for each subject of rules and each set of
    options.
    """
    case = read_case(name)
    expected = [finding.to_dict() for finding in findings_of(case, "bad", tmp_path, monkeypatch)]
    printed = json.loads(run("validate", ".", "--format", "json", *case.flags).stdout)["findings"]
    assert [{key: finding[key] for key in expected[0]} for finding in printed] == expected
    assert files_of(tmp_path) == case.bad


def test_a_change_is_a_diff_whose_lines_are_found() -> None:
    """Hunks replace their old lines, wherever they are; lines that are nowhere or in two places are
    an error.
    """
    text = "a\n  b\n\nc\na\nd\n"
    assert patched(text, "@@\n   b\n-\n+x\n c\n@@ -5,2 +5,1 @@\n a\n-d\n") == "a\n  b\nx\nc\na\n"
    for change in ("@@\n-a\n", "@@\n-e\n", "@@\n+e\n", "@@\nb\n"):
        with pytest.raises(AssertionError):
            patched(text, change)


def test_an_expected_output_is_replaced_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--update-golden` keeps every other byte of the case, its comments and its order."""
    monkeypatch.setattr("tests.case.FOLDER", tmp_path)
    before, after = (
        "# Why.\nstart: {a: 'x'}  # so\nexpected: |\n  old\n\n    older\n",
        "# The end.\n",
    )
    (tmp_path / "A.yaml").write_text(before + after, encoding="utf-8")
    update_expected("A", "a:1:1: é\n    new\n\nhint: x\n")
    expected = "# Why.\nstart: {a: 'x'}  # so\nexpected: |\n  a:1:1: é\n      new\n\n  hint: x\n"
    assert (tmp_path / "A.yaml").read_text(encoding="utf-8") == expected + after
