"""No rule on DeepSpeed configs raises, whatever a config contains."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dsgen.check.rules.run import check_submission
from dsgen.programs.deepspeed.config import DsConfig
from dsgen.programs.records import PROGRAMS
from dsgen.submission.submission import Context, Submission
from dsgen.text.hjson.text import read_json
from dsgen.text.text import Text
from tests.case import NAMES, read_case

ODD_VALUES = (
    "null",
    "[]",
    "{}",
    '"text"',
    "-1",
    "0.5",
    "1e999",
    "true",
    "[[1], null]",
    '{"a": {}}',
    f"{10**400}",
)


def merged(one: Any, other: Any) -> Any:
    """Both objects' members, those of `other` where both have one; an object goes before what is
    none.
    """
    if not isinstance(one, dict) or not isinstance(other, dict):
        return one if isinstance(one, dict) else other
    return one | {key: merged(one.get(key), value) for key, value in other.items()}


@cache
def everything() -> dict[str, Any]:
    """One config with the keys of every case."""
    config: dict[str, Any] = {}
    for name in NAMES:
        with suppress(ValueError, KeyError):  # cases of broken text, or without a config
            config = merged(config, json.loads(read_case(name).bad["ds_config.json"]))
    return config


def places(value: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of every member."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*above, key)
            yield from places(inner, (*above, key))


def count(content: str, **context: Any) -> int:
    """How many findings a config has."""
    text = Text(path="ds_config.json", content=content, lines=content.split("\n"), folder=Path())
    submission = Submission(
        programs=PROGRAMS, documents=(DsConfig(json=read_json(text)),), context=Context(**context)
    )
    return len(check_submission(submission))


#: Every so many members are tried with a value: all of them with some, in a few seconds. A number
#: that JSON doesn't have takes longer, as the config is then read by our own reader.
EVERY = 8
EVERY_OF = {"1e999": 2 * EVERY}

#: Ways to go through the rules: a ZeRO stage, an optimizer, a schedule.
WAYS = (
    (0, "AdamW", "WarmupDecayLR"),
    (1, "Lamb", "OneCycle"),
    (2, "Muon", "LRRangeTest"),
    (3, "SGD", "WarmupCosineLR"),
    (3, "Adam", "CosineAnnealingLR"),
)


@pytest.mark.parametrize("odd", ODD_VALUES)
def test_a_member_may_be_anything(odd: str) -> None:
    """With any member of a config replaced by an odd value, whatever the stage and optimizer, no
    rule raises.
    """
    stage, optimizer, schedule = WAYS[ODD_VALUES.index(odd) % len(WAYS)]
    way = {
        "zero_optimization": {"stage": stage},
        "optimizer": {"type": optimizer},
        "scheduler": {"type": schedule},
    }
    config = merged(everything(), way)
    found = 0
    start = ODD_VALUES.index(odd) % EVERY
    for path in list(places(config))[start :: EVERY_OF.get(odd, EVERY)]:
        changed = copy.deepcopy(config)
        holder = changed
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = "ODD"
        found += count(json.dumps(changed).replace('"ODD"', odd), gpus=8, gpus_per_node=8)
    assert found > 0


@pytest.mark.parametrize("version", [(0, 12, 6), (0, 16, 9), (0, 19, 8)])
@pytest.mark.parametrize("consumer", ["deepspeed", "huggingface", "megatron-deepspeed"])
def test_every_member_may_be_odd_at_once(version: tuple[int, ...], consumer: str) -> None:
    """With every leaf of a config odd, in each version and for each reader, no rule raises."""
    for odd, (stage, optimizer, schedule) in zip(
        (None, [], {}, "text", -1, 0.5, True, "auto"), WAYS * 2, strict=False
    ):
        way = {
            "zero_optimization": {"stage": stage},
            "optimizer": {"type": optimizer},
            "scheduler": {"type": schedule},
        }
        config = merged(_replaced(everything(), odd), way)
        assert count(json.dumps(config), gpus=8, deepspeed_version=version, consumer=consumer) > 0


def test_a_product_may_be_too_small_for_a_number() -> None:
    """A batch whose factors make 0, as a float rounds it, is no batch that a rule divides by."""
    factors = {"train_micro_batch_size_per_gpu": 1e-200, "gradient_accumulation_steps": 1e-200}
    assert count(json.dumps({"train_batch_size": 8, **factors}), gpus=8) > 0


def _replaced(value: Any, odd: object) -> Any:
    if isinstance(value, dict):
        return {key: _replaced(inner, odd) for key, inner in value.items()}
    return odd
