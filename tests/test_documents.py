"""What `--format json` prints of tables is as its published schema has it."""

from __future__ import annotations

import json

import pytest
from jsonschema import Draft202012Validator

from dsgen.cli.catalog import KINDS
from dsgen.job.schema import load_schema
from tests.cli.running import run


def _breaches(name: str, *command: str) -> list[str]:
    document = json.loads(run(*command, "--format", "json").stdout)
    validator = Draft202012Validator(load_schema(name))
    return [error.message for error in validator.iter_errors(document)]


@pytest.mark.parametrize("asked", [(), ("ZERO",), ("ZERO021",)], ids=["all", "subject", "one"])
def test_rules_are_as_their_schema_has_them(asked: tuple[str, ...]) -> None:
    """Rules are printed with the keys and values of `dsgen schema rules`."""
    assert _breaches("rules", "rules", *asked) == []


def test_the_catalog_is_as_its_schema_has_it() -> None:
    """The catalog has every name of each kind, and of each the figures of the table."""
    assert _breaches("catalog", "catalog") == []
    listed = json.loads(run("catalog", "--format", "json").stdout)
    assert [*listed["facts"]] == [*KINDS]
    assert all([*listed["facts"][kind]] == listed[kind] for kind in KINDS)
    assert listed["facts"]["models"]["gpt3-175b"]["layers"] == 96


def test_what_explains_a_plan_is_as_its_schema_has_it() -> None:
    """With --explain the document of plans has the factors of the training time too."""
    assert _breaches("plan", "plan", "--explain", "--top", "1") == []
    explained = json.loads(run("plan", "--explain", "--top", "1", "--format", "json").stdout)
    assert {"GPUs", "memory"} < {row["factor"] for row in explained["factors"]}
    assert explained["plans"][0]["decisions"]


def test_a_wrong_rule_breaks_the_schema() -> None:
    """The schema refuses a rule with a severity that there is not, and one without a title."""
    validator = Draft202012Validator(load_schema("rules"))
    rule = {"id": "A001", "severity": "fatal", "checks": "job", "source": "x"}
    assert len([*validator.iter_errors({"rules": [rule]})]) == 2
