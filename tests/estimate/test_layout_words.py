"""Layouts in short words."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from dsgen.estimate.layout import (
    Layout,
    Modules,
    Offload,
    Recompute,
)
from dsgen.estimate.layout_words import details, differing, dimensions, in_words
from dsgen.programs.trainer.engine import FSDP2

USUAL = Layout(data=16, tensor=4, pipeline=16, zero_stage=1, gradient_accumulation=96)
PRODUCT = "16 replicas × 4 tensor × 16 pipeline"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, f"{PRODUCT}, ZeRO 1, 96 micro-batches of 1"),
        (
            {
                "data": 1,
                "tensor": 1,
                "pipeline": 1,
                "zero_stage": 0,
                "gradient_accumulation": 1,
                "micro_batch": 1024,
            },
            "1 replica, 1 micro-batch of 1,024",
        ),
        (
            {"context": 4, "context_heads": 2, "virtual_pipeline": 3},
            f"{PRODUCT} × 4 context, 3 chunks per stage, ZeRO 1, Ulysses over 2, "
            "96 micro-batches of 1",
        ),
        (
            {"expert": 8, "expert_tensor": 2, "sequence_parallel": True},
            f"{PRODUCT}, experts over 8 GPUs, ZeRO 1, sequence parallel, each expert over 2 GPUs, "
            "96 micro-batches of 1",
        ),
        (
            {"recompute": Recompute.FULL, "recompute_layers": 4},
            f"{PRODUCT}, ZeRO 1, recompute of 4 layers, 96 micro-batches of 1",
        ),
        (
            {"recompute": Recompute.FULL},
            f"{PRODUCT}, ZeRO 1, full recompute, 96 micro-batches of 1",
        ),
        (
            {"recompute": Recompute.SELECTIVE},
            f"{PRODUCT}, ZeRO 1, recompute of core_attn, 96 micro-batches of 1",
        ),
        (
            {"offload": Offload.OPTIMIZER, "offload_fraction": 0.5},
            f"{PRODUCT}, ZeRO 1, 50% of the optimizer offloaded, 96 micro-batches of 1",
        ),
    ],
)
def test_only_what_differs_from_one_or_none(changes: dict[str, Any], words: str) -> None:
    """A layout in words names what differs from 1 and none, without a code that needs a key."""
    assert in_words(replace(USUAL, **changes)) == words


OTHER: dict[str, Any] = {
    "recompute": Recompute.FULL,
    "offload": Offload.OPTIMIZER_AND_PARAMETERS,
    "recompute_modules": Modules.MLP | Modules.LAYERNORM,
    "offload_fraction": 0.25,
    "sequence_parallel": True,
    "tensor_overlap": True,
    "expert_overlap": True,
}
#: What these fields say something about.
NEEDED: dict[str, dict[str, Any]] = {
    "recompute_layers": {"recompute": Recompute.FULL},
    "recompute_group": {"recompute": Recompute.FULL},
    "recompute_modules": {"recompute": Recompute.SELECTIVE},
    "offload_fraction": {"offload": Offload.OPTIMIZER},
}


@pytest.mark.parametrize("field", [f.name for f in fields(Layout)])
def test_layouts_that_differ_have_different_words(field: str) -> None:
    """Every decision changes the words, and all but gradient accumulation a column or a detail of a
    table's row.
    """
    base = replace(USUAL, **NEEDED.get(field, {}))
    other = replace(base, **{field: OTHER.get(field, 5)})
    assert in_words(base) != in_words(other)
    rows = [(dimensions(layout), details(layout)) for layout in (base, other)]
    assert (rows[0] == rows[1]) is (field == "gradient_accumulation")


def test_a_dimension_of_one_is_blank() -> None:
    """The columns of dimensions that are 1 or off are empty; replicas and micro-batch always have
    their number.
    """
    assert {name: cell for name, cell in dimensions(Layout(data=1)).items() if cell} == {
        "DP": "1",
        "mb": "1",
    }


@pytest.mark.parametrize("name", ["FSDP2", "SimpleFSDP"])
def test_units_are_in_the_words_of_their_engine(name: str) -> None:
    """An engine that shards by units has a column and words with its own name, none of ZeRO's."""
    engine = replace(FSDP2, sharding_name=name)
    freed = Layout(data=8, zero_stage=3, zero_copies=2)
    kept = replace(freed, zero_stage=2, zero_copies=1)
    assert in_words(freed, engine).startswith(f"8 replicas, {name} (reshard), ")
    cells = [dimensions(layout, engine) for layout in (freed, kept)]
    assert [row[name] for row in cells] == ["reshard", "keep"]
    assert "ZeRO" not in cells[0]
    assert details(freed, engine) == (f"2 copies of the {name} shards",)
    assert differing(kept, freed, engine) == (f"one copy of the {name} shards",)
