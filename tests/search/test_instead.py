"""What pinned keys and the framework cost, against plans without them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

import dsgen
from dsgen.job.records import Job, Pins
from dsgen.programs.frameworks import FRAMEWORKS
from dsgen.search.instead import elsewhere, elsewhere_text, unpinned, unpinned_text
from dsgen.search.plan import Plan

#: Tensor parallelism of eight for a model that needs none.
SLOW: Final = {"tensor": 8}


def best(job: Job) -> Plan:
    """The chosen plan."""
    return dsgen.search(job, top=1).plans[0]


def small(**keys: Any) -> Job:
    """Eight H100 for a model of 7 B parameters, with Megatron-LM or what `keys` say."""
    spec = {
        "framework": "megatron-lm",
        "model": "llama-2-7b",
        "cluster": "nvidia/dgx-h100",
        "gpus": 8,
        "training": {"sequence_length": 4096, "global_batch": 64, "precision": "bf16"},
    }
    return dsgen.load_job({**spec, **keys})


def test_the_price_of_pins_is_the_chosen_plan_without_them() -> None:
    """A pinned layout is compared with the plan of the same job without pins, in both times."""
    plan = best(small(layout=SLOW))
    free = unpinned(plan)
    assert free is not None
    chosen = best(replace(plan.job, pins=Pins()))
    assert free.layout == chosen.layout
    assert float(free.step_time.total_s) == float(chosen.step_time.total_s)

    shorter = float(free.step_time.total_s) / float(plan.step_time.total_s) - 1
    assert shorter < -0.04
    text = unpinned_text(plan, free)
    assert text.startswith("your layout: ")
    assert f"({shorter:+.0%})" in text


def test_pins_that_cost_nothing_have_no_price() -> None:
    """Neither a job without pins nor one that pins what is chosen has a price."""
    plan = best(small())
    assert unpinned(plan) is None
    same = small(layout={"tensor": plan.layout.tensor, "pipeline": plan.layout.pipeline})
    assert unpinned(best(same)) is None


def test_another_framework_is_named_with_its_own_estimate() -> None:
    """A framework that is over a tenth faster is named with its plan's time and what it takes."""
    model, sizes = "llama-3-70b", {"sequence_length": 4096, "global_batch": 256}
    plan = best(small(framework="deepspeed", model=model, gpus=64, training=sizes))
    other = elsewhere(plan, FRAMEWORKS.values())
    assert other is not None
    assert other.job.framework.name == "megatron-lm"
    job = small(framework="megatron-lm", model=model, gpus=64, training=sizes)
    assert float(other.step_time.total_s) == pytest.approx(float(best(job).step_time.total_s))
    assert float(other.step_time.total_s) < 0.9 * float(plan.step_time.total_s)

    text = elsewhere_text(plan, other)
    assert text.startswith("framework: megatron-lm ")
    assert "takes its pretrain_gpt.py and model code, tokenized data (.bin, .idx)" in text
    assert elsewhere(other, FRAMEWORKS.values()) is None


def test_a_framework_that_lacks_what_the_job_trains_is_not_named() -> None:
    """Adapters, which only one framework trains, keep the job where it is."""
    job = small(
        framework="huggingface",
        training={"sequence_length": 4096, "global_batch": 64, "lora": {"rank": 16}},
    )
    assert elsewhere(best(job), FRAMEWORKS.values()) is None
