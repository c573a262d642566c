"""Every file of `tests/invalid` draws exactly the findings written beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsgen.findings import Finding, InvalidJob
from dsgen.job import codes
from dsgen.job.load import load_with_findings
from dsgen.programs.frameworks import FRAMEWORKS
from dsgen.rule import rules_in

FOLDER = Path(__file__).parents[1] / "invalid"
IDS = {rule.id for rule in rules_in(codes)}
CASES = sorted(path.stem for path in FOLDER.glob("*.yaml"))


def as_text(finding: Finding) -> str:
    """One finding as it is printed, without its excerpt."""
    where = finding.where
    place = ":".join(
        str(part) for part in (where.path, where.line, where.column) if part is not None
    )
    head = f"{place}: {finding.severity.value}: {finding.message} [{finding.rule}]\n"
    return head if finding.hint is None else f"{head}  hint: {finding.hint}\n"


@pytest.mark.parametrize("case", CASES)
def test_every_finding_is_told_in_file_order(
    case: str, monkeypatch: pytest.MonkeyPatch, update_golden: bool
) -> None:
    """An invalid spec raises `InvalidJob` with all its findings, worded and placed as expected."""
    monkeypatch.chdir(FOLDER)
    with pytest.raises(InvalidJob) as caught:
        load_with_findings(f"{case}.yaml", FRAMEWORKS)
    told = "".join(as_text(finding) for finding in caught.value.findings)
    expected = FOLDER / f"{case}.out"
    if update_golden:
        expected.write_text(told, encoding="utf-8")
    assert told == expected.read_text(encoding="utf-8")


@pytest.mark.parametrize("case", CASES)
def test_the_case_shows_what_its_name_says(case: str) -> None:
    """A case that is named after a rule has a finding of that rule."""
    rule = case.partition("_")[0]
    assert rule not in IDS or f"[{rule}]" in (FOLDER / f"{case}.out").read_text(encoding="utf-8")


def test_every_rule_of_files_has_a_case() -> None:
    """Each rule id of the spec's text and shape has an invalid case, but for overrides, which
    aren't in files.
    """
    assert {case.partition("_")[0] for case in CASES} >= IDS - {"SPEC017"}
