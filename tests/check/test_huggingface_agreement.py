"""Our findings on TrainingArguments and transformers' own checks agree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import dsgen
from benchmarks.agreement_huggingface import compare_all, transformers_says
from dsgen.findings import Severity
from dsgen.programs.trainer.training_arguments import (
    gone_arguments,
    known_arguments,
    new_arguments,
)
from tests.case import NAMES, read_case
from tests.needs import needs_transformers

#: Cases whose bad arguments, or whose config beside them, transformers refuses while it builds and
#: finalises them.
REFUSED = [
    "HF001",
    "HF001_dtype",
    "HF002",
    "HF013",
    "HF023",
    "HF026",
    "HF030",
    "HF031",
    "HF031_fractions",
]
REFUSED += ["HF032", "HF033", "HF034", "HF035", "HF036", "HF039"]
#: Cases that it takes: what they are about comes later, or never.
TAKEN = ["HF006_batch", "HF022", "HF027", "HF028", "HF037"]


def read(case: str, part: str, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """A case's arguments and DeepSpeed config."""
    read_case(case).write(part, folder)
    arguments = yaml.safe_load((folder / "train.yaml").read_text(encoding="utf-8"))
    config = folder / "ds_config.json"
    written = (
        json.loads(config.read_text(encoding="utf-8"))
        if config.exists()
        else {"zero_optimization": {"stage": 0}}
    )
    return {
        name: value for name, value in arguments.items() if name not in ("output_dir", "deepspeed")
    }, written


@pytest.mark.integration
@needs_transformers
def test_transformers_and_validate_agree() -> None:
    """Over 60 seeded pairs of arguments and configs both refuse the same, key by key."""
    counts, unexplained = compare_all(60, seed=3)
    assert unexplained == []
    assert counts["both take"] > 10
    assert counts["both refuse, key by key"] > 5


@pytest.mark.integration
@needs_transformers
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", [*REFUSED, *TAKEN])
def test_cases_fare_with_transformers_as_they_say(case: str, tmp_path: Path) -> None:
    """What a case calls bad is refused with its DeepSpeed config, or as it says later; what it
    calls good is taken.
    """
    bad, good = (read(case, part, tmp_path / part) for part in ("bad", "good"))
    told = transformers_says(*bad, tmp_path, world_size=8 if case == "HF039" else 1)
    assert (told is not None) == (case in REFUSED), told
    assert transformers_says(*good, tmp_path, world_size=8 if case == "HF039" else 1) is None


@pytest.mark.integration
@needs_transformers
def test_what_is_gone_is_gone() -> None:
    """None of the arguments that we call gone is one of the installed transformers, and all new
    names are.
    """
    import dataclasses

    from transformers import TrainingArguments

    names = {field.name for field in dataclasses.fields(TrainingArguments)}
    assert not gone_arguments().keys() & names
    assert not gone_arguments().keys() & known_arguments().keys()
    assert new_arguments().keys() <= known_arguments().keys()
    for argument in gone_arguments().values():
        word = argument["instead"].split()[0]
        assert word in names or word.startswith(("remove", "the"))


@pytest.mark.parametrize(
    "case",
    [name for name in NAMES if name.startswith("HF0") and "train.yaml" in read_case(name).good],
)
def test_good_cases_have_no_error(case: str, tmp_path: Path) -> None:
    """What transformers accepts causes no error."""
    found = dsgen.validate(read_case(case).write("good", tmp_path))
    assert not [item for item in found if item.severity is Severity.ERROR]
