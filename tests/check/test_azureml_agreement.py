"""Our findings on AzureML jobs and azure-ai-ml's own loader agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.agreement_azureml import BASES, compare_all, loader_says, quiet
from dsgen.check.rules.run import all_file_rules
from dsgen.findings import Severity
from tests.case import NAMES, read_case
from tests.check.test_cases import findings_of
from tests.needs import needs_azure

CASES = [name for name in NAMES if name.startswith("AML")]
#: What the loader refuses: these rules' bad cases don't load.
REFUSED = {
    rule.id
    for rule in all_file_rules()
    if rule.id.startswith("AML") and rule.prevents.startswith("Validation")
}


@pytest.mark.integration
@needs_azure
def test_the_loader_and_validate_agree() -> None:
    """The rendered jobs, the hand-written ones and 150 mutations of them: no disagreement that
    isn't explained.
    """
    counts = compare_all(150, seed=7)
    assert counts.unexplained == []
    assert counts.asked > 150 + len(BASES)
    assert 30 < counts.refused < counts.asked


@pytest.mark.integration
@needs_azure
@pytest.mark.parametrize("name", CASES)
def test_bad_cases_fare_with_the_loader_as_their_rule_says(name: str, tmp_path: Path) -> None:
    """A rule that quotes azure-ai-ml's error is of a job that it refuses; every other case loads,
    bad and good.
    """
    case = read_case(name)
    refused = case.rule in REFUSED
    with quiet():
        told = loader_says(case.write("bad", tmp_path / "bad") / "job.yml")
        assert (told is not None) == (refused or name == "AML008_number"), told
        assert loader_says(case.write("good", tmp_path / "good") / "job.yml") is None


@pytest.mark.parametrize("name", CASES)
def test_good_cases_have_no_error(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What loads and is right causes no error."""
    found = findings_of(read_case(name), "good", tmp_path, monkeypatch)
    assert not [finding for finding in found if finding.severity is Severity.ERROR]
