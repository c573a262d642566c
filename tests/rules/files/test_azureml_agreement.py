"""Our findings on AzureML jobs and azure-ai-ml's own loader agree."""

from __future__ import annotations

from pathlib import Path

import pytest

import dsgen
from benchmarks.agreement_azureml import BASES, compare_all, loader_says, quiet
from dsgen.findings import Severity
from dsgen.rules.files.registry import all_file_rules
from tests.needs import needs_azure

CASES = sorted((Path(__file__).parents[2] / "validate").glob("AML*"))
#: What the loader refuses: these rules' bad cases don't load.
REFUSED = {rule.id for rule in all_file_rules() if rule.id.startswith("AML") and rule.prevents.startswith("Validation")}


@pytest.mark.integration
@needs_azure
def test_the_loader_and_validate_agree() -> None:
    """The rendered jobs, the hand-written ones and 150 mutations of them: no disagreement that isn't explained."""
    counts = compare_all(150, seed=7)
    assert counts.unexplained == []
    assert counts.asked > 150 + len(BASES)
    assert 30 < counts.refused < counts.asked


@pytest.mark.integration
@needs_azure
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bad_cases_fare_with_the_loader_as_their_rule_says(case: Path) -> None:
    """A rule that quotes azure-ai-ml's error is of a job that it refuses; every other case loads, bad and good."""
    refused = case.name.partition("_")[0] in REFUSED
    with quiet():
        told = loader_says(case / "bad" / "job.yml")
        assert (told is not None) == (refused or case.name == "AML008_number"), told
        assert loader_says(case / "good" / "job.yml") is None


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_good_cases_have_no_error(case: Path) -> None:
    """What loads and is right draws no error."""
    options = case / "options"
    flags = options.read_text(encoding="utf-8").split() if options.exists() else []
    said = {name[2:].replace("-", "_"): value for name, value in zip(flags[::2], flags[1::2], strict=True)}
    gpus = int(said.pop("gpus_per_node", "0")) or None
    found = dsgen.validate(case / "good", cluster=said.get("cluster"), gpus_per_node=gpus)
    assert not [finding for finding in found if finding.severity is Severity.ERROR]
