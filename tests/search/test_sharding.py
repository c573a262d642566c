"""The same job with the other way to shard its states."""

from __future__ import annotations

from typing import Any

import dsgen
from dsgen.programs.frameworks import FRAMEWORKS
from dsgen.search.sharding import sharding_text, with_other_sharding
from tests.cli.running import run

SPEC: dict[str, Any] = {
    "framework": "huggingface",
    "model": "qwen2.5-7b",
    "cluster": "dgx-h100",
    "nodes": 1,
    "training": {"global_batch": 64, "sequence_length": 2048, "sharding": "fsdp2"},
}


def best(spec: dict[str, Any]) -> dsgen.Plan:
    """The chosen plan of a spec."""
    found = dsgen.search(dsgen.load_job(spec), top=1)
    assert isinstance(found, dsgen.SearchResult)
    return found.plans[0]


def test_the_other_is_the_plan_of_the_other() -> None:
    """What the line says is the plan that the spec has with the other sharding, both ways."""
    framework = FRAMEWORKS["huggingface"]
    ways = {"fsdp2": framework.shardings["fsdp2"], "deepspeed": framework}
    plans = {
        name: best({**SPEC, "training": {**SPEC["training"], "sharding": name}}) for name in ways
    }
    for name, other in (("fsdp2", "deepspeed"), ("deepspeed", "fsdp2")):
        found = with_other_sharding(plans[name], ways[other])
        assert found is not None
        assert found.layout == plans[other].layout
        assert found.step_time == plans[other].step_time
        assert sharding_text(plans[name], found).startswith(f"training.sharding: {other}: ZeRO ")


def test_what_a_rule_refuses_is_not_named() -> None:
    """Tensor parallelism and LAMB have no plan with FSDP2, and `plan` says no line of it."""
    spec = {**SPEC, "training": {**SPEC["training"], "sharding": "deepspeed"}}
    plan = best({**spec, "layout": {"tensor": 2}})
    assert with_other_sharding(plan, FRAMEWORKS["huggingface"].shardings["fsdp2"]) is None


def test_plan_says_it_in_a_line() -> None:
    """`dsgen plan` of a Trainer's job says what the other sharding takes, of other jobs nothing."""
    flags = ("--model", "qwen2.5-7b", "--cluster", "dgx-h100", "--global-batch", "64")
    told = run("plan", *flags, "--nodes", "1", "--framework", "huggingface").output
    assert "Or      training.sharding: fsdp2: ZeRO " in told
    assert "training.sharding" not in run("plan", *flags, "--nodes", "1").output
