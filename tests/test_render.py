"""Rendering: a plan's files as values."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from dsgen.render import render
from dsgen.search.plan import Decision
from tests.programs.hand_built import plan


@pytest.mark.parametrize("target", ["slurm", "azureml", "shell"])
def test_files_are_sorted_unique_and_the_same_each_time(target: str) -> None:
    """The same plan gives the same files, each path once, in order, with plan.json and
    arguments.txt among them.
    """
    files = render(plan(target), command="dsgen --gpus 1024")
    paths = [file.path for file in files]
    assert files == render(plan(target), command="dsgen --gpus 1024")
    assert paths == sorted(set(paths))
    assert {"plan.json", "arguments.txt", "ds_config.json"} <= set(paths)


def test_plan_json_is_the_plan() -> None:
    """plan.json holds what the plan says of itself, decisions and all."""
    decision = Decision(key="tensor", chosen="2", other="4", slower_fraction=0.1, cause="because ☃")
    explained = replace(plan("slurm"), decisions=(decision,))
    text = next(file.text for file in render(explained) if file.path == "plan.json")
    document = json.loads(text)
    assert document.pop("file_hashes")
    assert document == json.loads(json.dumps(explained.to_dict()))
    assert text.endswith("}\n")
    assert "because ☃" in text
