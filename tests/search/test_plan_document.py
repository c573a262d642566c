"""Plans as data keep to their published schema."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import dsgen

SCHEMA: dict[str, Any] = json.loads(
    files("dsgen.schemas").joinpath("plan.schema.json").read_text(encoding="utf-8")
)
DEFINITIONS = SCHEMA["$defs"]
JOB = {
    "framework": "megatron-deepspeed",
    "model": "gpt2",
    "cluster": "azure/standard_nd96amsr_a100_v4",
    "gpus": 16,
    "training": {"sequence_length": 1024, "global_batch": 64, "duration": {"tokens": 1e9}},
    "launch": {"script": "train.py"},
}


@pytest.fixture(scope="module")
def result() -> dsgen.SearchResult:
    """The answer to a small job."""
    answer = dsgen.search(dsgen.load_job(JOB), top=5)
    assert isinstance(answer, dsgen.SearchResult)
    return answer


def undocumented(value: Any, schema: dict[str, Any], path: str = "") -> list[str]:
    """Paths of keys that the schema says nothing about."""
    if "$ref" in schema:
        return undocumented(value, DEFINITIONS[schema["$ref"].rpartition("/")[2]], path)
    found: list[str] = []
    if isinstance(value, dict) and "properties" in schema:
        for key, inner in value.items():
            known = schema["properties"].get(key)
            found += (
                [f"{path}/{key}"] if known is None else undocumented(inner, known, f"{path}/{key}")
            )
    return found


def test_schema_is_valid() -> None:
    """The published schema is itself valid under draft 2020-12."""
    assert [*Draft202012Validator(Draft202012Validator.META_SCHEMA).iter_errors(SCHEMA)] == []


def test_plans_keep_to_the_schema(result: dsgen.SearchResult) -> None:
    """Every plan is valid, and has no key that the schema doesn't describe."""
    for plan in result.plans:
        document = plan.to_dict()
        Draft202012Validator({"$ref": "#/$defs/plan", "$defs": DEFINITIONS}).validate(document)
        assert undocumented(document, DEFINITIONS["plan"]) == []


def test_search_document_keeps_to_the_schema(result: dsgen.SearchResult) -> None:
    """The answer of a search is valid, and survives JSON unchanged."""
    document = result.to_dict()
    Draft202012Validator(SCHEMA).validate(document)
    assert json.loads(json.dumps(document)) == document
    assert document["feasible"] == result.feasible


def test_infeasible_document_keeps_to_the_schema() -> None:
    """An infeasible answer is valid too, with its nearest miss and its suggestions."""
    answer = dsgen.search(dsgen.load_job({**JOB, "model": "gpt3-175b", "gpus": 8}))
    assert isinstance(answer, dsgen.Infeasible)
    document = answer.to_dict()
    Draft202012Validator({"$ref": "#/$defs/infeasible", "$defs": DEFINITIONS}).validate(document)
    assert document["infeasible"]["suggestions"], document  # type: ignore[index]


def test_run_follows_from_steps(result: dsgen.SearchResult) -> None:
    """The run's duration is its steps times the step time, and its GPU-hours that on every GPU."""
    document: Any = result.plans[0].to_dict()
    run, step_s = document["run"], document["step_time"]["total_s"]
    assert run["steps"] == -(-1_000_000_000 // (64 * 1024))
    assert run["duration_s"] == pytest.approx(run["steps"] * step_s)
    assert run["gpu_hours"] == pytest.approx(16 * run["duration_s"] / 3600)
