"""Generated configs train with DeepSpeed's engine: two processes on CPU, a tiny model, two
steps.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import dsgen
from dsgen.estimate.layout import Layout, Offload
from dsgen.programs.frameworks import program_for
from dsgen.search.plan import Plan, SearchResult
from tests.jobs import job
from tests.programs.plans import TINY, make_job, make_plan
from tests.workers import answers, once

WORKER = Path(__file__).parents[1] / "engine_worker.py"


LAYOUTS = [
    Layout(data=2, zero_stage=stage, micro_batch=3, gradient_accumulation=2, offload=offload)
    for stage, offload in [
        (0, Offload.NONE),
        (1, Offload.NONE),
        (2, Offload.NONE),
        (3, Offload.NONE),
        (2, Offload.OPTIMIZER),
        (3, Offload.OPTIMIZER_AND_PARAMETERS),
    ]
]
AUTOTP = [
    Layout(data=1, tensor=2, zero_stage=stage, micro_batch=2, gradient_accumulation=2)
    for stage in (1, 3)
]
ULYSSES = [
    Layout(data=1, context=2, zero_stage=stage, micro_batch=2, gradient_accumulation=2)
    for stage in (1, 3)
]
PINS = [{"zero_stage": 1}, {"zero_stage": 3, "micro_batch": 2}, {"tensor": 2}]


def made(layout: Layout) -> Plan:
    """A plan of the layout, on two GPUs."""
    rate = {"learning_rate": 1e-3} if layout in LAYOUTS else {}
    return make_plan(make_job("deepspeed", TINY, gpus=2, **rate), layout)


def searched(pins: dict[str, int]) -> Plan:
    """The best plan of a real search."""
    changes = {f"layout__{name}": value for name, value in pins.items()}
    answer = dsgen.search(job(framework="deepspeed", gpus=2, training__global_batch=8, **changes))
    assert isinstance(answer, SearchResult)
    return answer.plans[0]


@once
def trained() -> list[tuple[Plan, dict[str, Any]]]:
    """Every plan with what the engine said, two processes each, of one start of DeepSpeed."""
    plans = [*map(made, (*LAYOUTS, *AUTOTP, *ULYSSES)), *map(searched, PINS)]
    configs = [json.loads(program_for(plan).files[0].text) for plan in plans]
    return list(zip(plans, answers(WORKER, configs), strict=True))


def result_of(plan: Plan) -> dict[str, Any]:
    """What the engine said of a plan."""
    [result] = [
        result
        for known, result in trained()
        if (known.job, known.layout) == (plan.job, plan.layout)
    ]
    assert "error" not in result, result["error"][-4000:]
    return result


@pytest.mark.integration
@pytest.mark.parametrize(
    "layout", LAYOUTS, ids=lambda layout: f"{layout.zero_stage}-{layout.offload}"
)
def test_the_engine_trains_with_the_plans_batch(layout: Layout) -> None:
    """At each ZeRO stage the engine takes the config, its batch numbers are the plan's, and the
    loss is finite.
    """
    result = result_of(made(layout))
    assert result["train_batch_size"] == layout.global_batch == 12
    assert (result["micro_batch"], result["gradient_accumulation"]) == (3, 2)
    assert result["zero_stage"] == layout.zero_stage
    assert result["global_steps"] == 2
    assert all(math.isfinite(loss) for loss in result["losses"])


@pytest.mark.integration
@pytest.mark.parametrize("pins", PINS)
def test_the_engine_trains_what_the_search_chose(pins: dict[str, int]) -> None:
    """The config of the best plan of a real search trains, and micro batch, accumulation and stage
    are the plan's.
    """
    plan = searched(pins)
    result, layout = result_of(plan), plan.layout
    assert result["train_batch_size"] == layout.global_batch * layout.tensor == 8 * layout.tensor
    assert result["micro_batch"] == layout.micro_batch
    assert result["gradient_accumulation"] == layout.gradient_accumulation
    assert result["zero_stage"] == layout.zero_stage
    assert all(math.isfinite(loss) for loss in result["losses"])


@pytest.mark.integration
@pytest.mark.parametrize("layout", AUTOTP, ids=lambda layout: str(layout.zero_stage))
def test_the_engine_takes_autotp(layout: Layout) -> None:
    """The installed engine trains with tensor parallelism, even under ZeRO-3, and counts both ranks
    of the group.
    """
    result = result_of(made(layout))
    assert result["train_batch_size"] == 2 * layout.global_batch
    assert (result["micro_batch"], result["gradient_accumulation"]) == (2, 2)
    assert result["zero_stage"] == layout.zero_stage
    assert result["global_steps"] == 2


@pytest.mark.integration
@pytest.mark.parametrize("layout", ULYSSES, ids=lambda layout: str(layout.zero_stage))
def test_the_engine_builds_the_ulysses_mesh(layout: Layout) -> None:
    """From the two keys the engine makes its mesh, and both ranks of a Ulysses group count as one
    replica.
    """
    result = result_of(made(layout))
    assert result["train_batch_size"] == layout.global_batch
    assert (result["micro_batch"], result["gradient_accumulation"]) == (2, 2)
    assert result["zero_stage"] == layout.zero_stage
    assert result["global_steps"] == 2
