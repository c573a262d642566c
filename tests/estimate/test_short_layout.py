"""Layouts in short words."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from dsgen.estimate.layout import Layout, Modules, Offload, Recompute, short_layout, short_legend

USUAL = Layout(data=16, tensor=4, pipeline=16, zero_stage=1, gradient_accumulation=96)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "DP16 TP4 PP16 Z1 mb1"),
        ({"tensor": 1, "pipeline": 1, "zero_stage": 0}, "DP16 mb1"),
        ({"context": 4, "context_heads": 2, "virtual_pipeline": 3}, "DP16 TP4 PP16 VP3 CP4 UL2 Z1 mb1"),
        ({"expert": 8, "expert_tensor": 2, "sequence_parallel": True}, "DP16 TP4 PP16 EP8 ETP2 SP Z1 mb1"),
        ({"recompute": Recompute.FULL, "recompute_layers": 4}, "DP16 TP4 PP16 Z1 mb1 rc=full:4"),
        ({"recompute": Recompute.SELECTIVE}, "DP16 TP4 PP16 Z1 mb1 rc=attn"),
        ({"offload": Offload.OPTIMIZER, "offload_fraction": 0.5}, "DP16 TP4 PP16 Z1 mb1 off=opt50%"),
    ],
)
def test_only_what_differs_from_one_or_none(changes: dict[str, Any], words: str) -> None:
    """The words name what differs from 1 and none, in one order."""
    assert short_layout(replace(USUAL, **changes)) == words


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


@pytest.mark.parametrize("field", [f.name for f in fields(Layout) if f.name != "gradient_accumulation"])
def test_layouts_that_differ_look_different(field: str) -> None:
    """No two rows of a table look the same: every decision but gradient accumulation changes the short form."""
    base = replace(USUAL, **NEEDED.get(field, {}))
    other = replace(base, **{field: OTHER.get(field, 5)})
    assert short_layout(base) != short_layout(other)


def test_the_legend_says_what_is_there() -> None:
    """Every word is explained, and none that isn't shown."""
    assert short_legend([USUAL]) == (
        "DP=data parallel, TP=tensor parallel, PP=pipeline stages, Z=ZeRO stage, mb=micro-batch"
    )
    assert "rc=recompute" in short_legend([USUAL, replace(USUAL, recompute=Recompute.FULL)])
