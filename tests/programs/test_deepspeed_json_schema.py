"""The JSON Schema of DeepSpeed configs says of each key what it does, and flags what the release's
parser refuses.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from dsgen.programs.deepspeed.json_schema import deepspeed_json_schema
from dsgen.programs.deepspeed.schema import versions

TESTS = Path(__file__).parent.parent
RELEASES = [".".join(map(str, version)) for version in versions()]
WRITTEN = sorted((*TESTS.glob("golden/**/ds_config.json"), *TESTS.glob("cases/bases/*zero*.json")))


@cache
def validator(release: str) -> Draft202012Validator:
    return Draft202012Validator(deepspeed_json_schema(release))


def keys(schema: dict[str, Any], at: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every key that a schema names, with its own schema."""
    for name, key in schema.get("properties", {}).items():
        yield f"{at}/{name}", key
        for choice in (key, *key.get("anyOf", ())):
            yield from keys(choice, f"{at}/{name}")


@pytest.mark.parametrize("release", [*RELEASES[::4], RELEASES[-1]])
def test_every_key_is_described(release: str) -> None:
    """The schema of a release is valid, and every key says in words of its own what it does."""
    schema = deepspeed_json_schema(release)
    Draft202012Validator.check_schema(schema)
    found = dict(keys(schema))
    assert len(found) > 300
    facts = ("Default", "Since", "Taken", "Removed")
    assert not [
        at
        for at, key in found.items()
        if key["description"].startswith(facts) or not key["description"]
    ]


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_dsgen_writes_is_accepted(path: Path) -> None:
    """Configs that dsgen writes, and the working ones that cases start from, have nothing to
    flag.
    """
    assert not list(
        validator(RELEASES[-1]).iter_errors(json.loads(path.read_text(encoding="utf-8")))
    )


@pytest.mark.parametrize(
    ("config", "release", "flagged"),
    [
        ({"zero_optimization": {"stage": 4}}, "0.19.8", True),
        ({"zero_optimization": {"stage": "auto", "reduce_bucket_size": "5e8"}}, "0.19.8", True),
        ({"zero_optimization": {"stage": "2", "reduce_bucket_size": 5e8}}, "0.19.8", False),
        ({"zero_optimization": {"stage": "auto"}, "train_batch_size": "auto"}, "0.19.8", False),
        ({"zero_optimization": {"contigous_gradients": True}}, "0.19.8", True),
        ({"zero_optimization": {"mics_shard_size": 8}}, "0.19.8", True),
        ({"zero_optimization": {"mics_shard_size": 8}}, "0.16.9", False),
        ({"zero_optimization": {"zenflow": {}}}, "0.16.9", True),
        ({"zero_optimization": {"overlap_comm": "${OVERLAP}"}}, "0.19.8", False),
        ({"bf16": True}, "0.19.8", True),
        ({"compile": {"deepcompile": True, "passes": ["z1"]}}, "0.19.8", False),
        ({"compile": {"deepcompile": True, "passes": ["z9"]}}, "0.19.8", True),
        ({"unknown_to_deepspeed": 1, "_comment": "x"}, "0.19.8", False),
        ({"elasticity": {"enabled": True}}, "0.19.8", True),
        ({"elasticity": {"enabled": True}}, "0.19.6", False),
    ],
)
def test_flags_what_the_release_refuses(
    config: dict[str, Any], release: str, flagged: bool
) -> None:
    """What the parser of a release refuses is flagged, and what it accepts, ignores or is handed
    filled in is not.
    """
    assert bool(list(validator(release).iter_errors(config))) is flagged


def test_says_what_replaced_a_deprecated_key() -> None:
    """A deprecated key is marked, and says what to write instead."""
    found = dict(keys(deepspeed_json_schema("0.19.8")))
    old = found["/zero_optimization/cpu_offload"]
    assert (
        old["deprecated"]
        and old["deprecationMessage"] == "Deprecated: write offload_optimizer instead."
    )
    assert found["/zero_optimization/stage"]["default"] == 0
