"""What benchmarks plan with, a user can say."""

from __future__ import annotations

import json
from dataclasses import fields
from functools import cache
from importlib.resources import files
from typing import Any

import pytest

from benchmarks.measured import Run, runs
from dsgen.job.records import Training
from dsgen.programs.frameworks import FRAMEWORKS

SCHEMA: dict[str, Any] = json.loads(
    files("dsgen.schemas").joinpath("job.schema.json").read_text(encoding="utf-8")
)
TRAINING: dict[str, Any] = SCHEMA["$defs"]["training"]["properties"]


@cache
def our_runs() -> tuple[Run, ...]:
    """Those of programs that files are written for: others have states of their own."""
    return tuple(run for run in runs() if run.is_ours)


def test_benchmarks_take_frameworks_as_they_are() -> None:
    """Every measured run is planned with one of the frameworks that a spec can name, unchanged."""
    assert all(run.job.framework is FRAMEWORKS[run.job.framework.name] for run in our_runs())


@pytest.mark.parametrize(
    "name", [field.name for field in fields(Training) if "enum" in TRAINING.get(field.name, {})]
)
def test_benchmarks_take_values_that_a_spec_can_say(name: str) -> None:
    """Every choice of training that a measured run is planned with is one of the schema's."""
    taken = {getattr(run.job.training, name) for run in our_runs()}
    assert taken <= {None, *TRAINING[name]["enum"]}
