"""`deepspeed_config`: keys of the spec's own in the DeepSpeed config."""

from __future__ import annotations

import json
from typing import Any

import pytest

import dsgen
from dsgen.programs.deepspeed.write import merged

SPEC: dict[str, Any] = {
    "model": "llama-2-7b",
    "cluster": "azure/standard_nd96amsr_a100_v4",
    "gpus": 8,
    "training": {"global_batch": 64},
    "layout": {"zero_stage": 2},
}


def config_of(framework: str, patch: dict[str, Any]) -> dict[str, Any]:
    """The DeepSpeed config of the plan of a spec with a patch."""
    plan = dsgen.estimate(
        dsgen.load_job({**SPEC, "framework": framework, "deepspeed_config": patch})
    )
    config: dict[str, Any] = json.loads(
        next(f.text for f in dsgen.render(plan) if f.path == "ds_config.json")
    )
    return config


@pytest.mark.parametrize("framework", ["deepspeed", "huggingface", "megatron-deepspeed"])
def test_keys_are_merged(framework: str) -> None:
    """Every framework on DeepSpeed writes the keys beside those of the plan, 5e8 as an integer;
    null removes one.
    """
    config = config_of(
        framework,
        {"zero_optimization": {"reduce_bucket_size": 5e8, "overlap_comm": None}, "x": {"y": 1}},
    )
    zero = config["zero_optimization"]
    assert zero["stage"] == 2
    assert zero["reduce_bucket_size"] == 500_000_000
    assert isinstance(zero["reduce_bucket_size"], int)
    assert "overlap_comm" not in zero
    assert config["x"] == {"y": 1}


@pytest.mark.parametrize(
    ("config", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": "foo"}, {"a": {"b": {"c": None}}}, {"a": {"b": {}}}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ],
)
def test_merges_as_the_rfc_says(
    config: dict[str, Any], patch: dict[str, Any], result: dict[str, Any]
) -> None:
    """The merge is that of RFC 7386, by its own examples for objects."""
    assert merged(config, patch) == result


def test_own_options_replace_those_of_the_plan() -> None:
    """An option that launch.arguments give is given once, with their value."""
    spec = {
        **SPEC,
        "framework": "megatron-deepspeed",
        "launch": {"arguments": ["--min-lr", "3e-6"]},
    }
    words = dsgen.render(dsgen.estimate(dsgen.load_job(spec)))
    arguments = next(file.text for file in words if file.path == "arguments.txt")
    assert arguments.count("--min-lr") == 1
    assert "--min-lr 3e-6" in arguments
