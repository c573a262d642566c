"""Comparisons: why not another layout, in rules, in memory, or in time by cause."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import dsgen
from dsgen.estimate.ledgers import Memory
from dsgen.search.compare import TIME_BAND, Comparison, compare, compare_row
from dsgen.search.feasible import feasible_layouts
from dsgen.search.nearby import neighbour
from dsgen.search.plan import Plan, SearchResult
from dsgen.search.refine import DETAILED
from dsgen.search.suggestions import best_plan
from tests.jobs import job

BIG = {"model": "gpt3-175b", "framework": "megatron-lm", "gpus": 512, "training__global_batch": 512}


def best(**overrides: Any) -> Plan:
    """The plan that the search chooses."""
    plan: Plan = dsgen.search(job(**overrides), top=1).plans[0]
    return plan


def asked(overrides: dict[str, Any], **keys: Any) -> Comparison:
    """A comparison of the job's best plan with the layout of these keys."""
    plan = best(**overrides)
    return compare(plan.job, keys, plan)


def test_causes_sum_to_the_difference() -> None:
    """The parts of the time sum to what the plans differ by, and the sentence begins with the one
    that costs most.
    """
    answer = asked({}, tensor=4)
    assert (
        answer.verdict == "slower" and answer.difference is not None and answer.theirs is not None
    )
    both = answer.difference
    step = float(both.theirs.step_time.total_s) - float(both.ours.step_time.total_s)
    assert sum(cause.more for cause in both.time) == pytest.approx(step)
    dominating = max(both.time, key=lambda cause: cause.more)
    assert f"{100 * both.slowdown:.2g}% slower: {dominating.says} +" in answer.text


def test_what_is_not_asked_about_stays_as_chosen() -> None:
    """The layout differs from the chosen one in what was asked and in keys that the answer names
    first, alone.
    """
    answer = asked(BIG, tensor=4, recompute="full")
    assert answer.ours is not None and answer.theirs is not None
    ours, theirs = answer.ours.layout.to_dict(), answer.theirs.layout.to_dict()
    differing = {name for name in ours if ours[name] != theirs[name]}
    assert differing == {*answer.changed, "tensor", "recompute"} and answer.changed
    assert answer.text.startswith("with ")


def test_a_detail_that_still_fits_stays_where_another_had_to_change() -> None:
    """Model chunks stay as chosen where only recomputation has to change for memory."""
    spec = {
        "model": "qwen2.5-32b",
        "framework": "megatron-lm",
        "cluster": "dgx-h100",
        "gpus": 64,
        "training": {"sequence_length": 8192, "global_batch": 512},
    }
    plan = dsgen.search(dsgen.load_job(spec), top=1).plans[0]
    answer = compare(plan.job, {"pipeline": 8, "tensor": 1}, plan)
    assert answer.theirs is not None and plan.layout.virtual_pipeline > 1
    assert answer.theirs.layout.virtual_pipeline == plan.layout.virtual_pipeline
    assert answer.theirs.layout.recompute != plan.layout.recompute


def test_open_keys_are_searched() -> None:
    """A key without a value is searched, and what isn't named stays as chosen."""
    answer = asked(BIG, tensor=4, recompute="full", micro_batch=None)
    assert answer.ours is not None and answer.theirs is not None
    kept = {
        f"layout__{name}": getattr(answer.ours.layout, name) for name in ("pipeline", "context")
    }
    pinned = best(**BIG, **kept, layout__tensor=4, layout__recompute="full")
    assert answer.theirs.layout == pinned.layout


def test_a_row_of_the_table_is_compared_as_it_is() -> None:
    """A plan of the answer, by the name of its row, is that plan."""
    answer = dsgen.search(job(**BIG))
    assert isinstance(answer, SearchResult)
    other = answer.plans[3]
    compared = compare_row("4", answer.plans[0], other)
    assert compared.theirs == other and compared.to_dict()["row"] == "4"


def test_the_chosen_plan_is_recognised() -> None:
    """Keys of the chosen plan give the chosen plan."""
    plan = best(**BIG)
    keys = {
        name: plan.layout.to_dict()[name]
        for name in ("tensor", "pipeline", "micro_batch", "recompute")
    }
    assert compare(plan.job, keys, plan).verdict == "same"


@pytest.mark.parametrize(
    ("keys", "rules"),
    [
        ({"tensor": 3}, {"MLM001"}),
        ({"pipeline": 128}, {"PIPE013"}),
        ({"tensor": 64, "pipeline": 2, "zero_stage": 3}, {"MLM004", "MLM042"}),
        ({"pipeline": 2, "zero_stage": 3}, {"MLM042"}),
        ({"tensor": 1, "pipeline": 1, "context": 1, "micro_batch": 2}, {"MLM002"}),
    ],
)
def test_a_rule_that_forbids_is_named(keys: dict[str, Any], rules: set[str]) -> None:
    """A layout that no rule allows is answered with the rule's own message, and both of its
    numbers.
    """
    answer = asked(BIG, **keys)
    assert answer.verdict == "forbidden"
    assert {finding.rule for finding in answer.findings} >= rules
    for finding in answer.findings:
        assert f"{finding.message} [{finding.rule}]" in answer.text


def test_a_forbidden_layout_is_estimated_all_the_same() -> None:
    """Where the keys make a whole layout, its time and memory are there beside the rule that it
    breaks.
    """
    answer = asked(BIG, pipeline=2, zero_stage=3)
    assert answer.theirs is not None and answer.theirs.layout.zero_stage == 3
    assert "; if it ran, " in answer.text and answer.difference is not None


def test_keys_that_contradict_the_job_have_no_layout() -> None:
    """Nothing is estimated where no layout has the asked keys on this number of GPUs."""
    answer = asked(BIG, tensor=3)
    assert answer.theirs is None and answer.difference is None
    assert "tensor: 3 does not divide gpus: 512" in answer.text


def test_data_that_follows_is_held_against_the_batch() -> None:
    """Degrees that leave a number of replicas that the batch can't be divided by are answered with
    that number.
    """
    answer = asked({"gpus": 16, "training__global_batch": 24}, tensor=1, pipeline=1, context=1)
    assert answer.verdict == "forbidden" and answer.theirs is None
    assert "data: 16 does not divide global_batch: 24" in answer.text


def test_memory_that_lacks_is_told_by_cause() -> None:
    """A layout that doesn't fit is answered with both sizes and with what needs more than ours."""
    answer = asked(BIG, tensor=1, pipeline=8, recompute="none", offload="none")
    assert answer.verdict == "too large"
    assert [finding.rule for finding in answer.findings] == ["MEM001"]
    assert "needs up to" in answer.text and "more than the chosen plan: " in answer.text
    assert answer.difference is not None
    assert sum(cause.more for cause in answer.difference.memory) > 0


def test_what_a_slower_plan_spends_to_fit_is_said() -> None:
    """Where the asked keys force recomputation, the memory that it saves is named with its
    limit.
    """
    answer = asked(BIG, tensor=2, pipeline=8, context=1, micro_batch=None)
    assert answer.ours is not None and answer.ours.layout.recompute.label == "none"
    assert answer.theirs is not None and answer.theirs.layout.recompute.label == "full"
    assert "; with recompute: none it needs up to " in answer.text and answer.text.endswith(" GiB")


def test_pins_of_the_job_hold_unless_asked_otherwise() -> None:
    """A pin stays where the question doesn't name its key; `None` opens it; one that is overruled
    is named.
    """
    pinned = {**BIG, "layout__tensor": 4, "layout__recompute": "full"}
    kept = asked(pinned, zero_stage=1)
    assert kept.theirs is not None and kept.theirs.layout.tensor == 4
    opened = asked(pinned, recompute=None)
    assert opened.theirs is not None and opened.theirs.layout.recompute.label != "full"
    assert opened.verdict == "faster" and "the job pins recompute: full" in opened.text


def test_a_pin_that_follows_from_the_asked_keys_gives_way() -> None:
    """Where micro-batch and accumulation are both pinned, the one that wasn't asked about follows
    from the batch, and the answer names it; no other key changes.
    """
    sizes = {"layout__micro_batch": 1, "layout__gradient_accumulation": 4}
    pinned = {"framework": "deepspeed", "model": "llama-2-7b", "gpus": 8, **sizes}
    for keys, other in (
        ({"micro_batch": 2}, "gradient_accumulation"),
        ({"gradient_accumulation": 2}, "micro_batch"),
        ({"micro_batch": None}, "gradient_accumulation"),
    ):
        answer = asked({**pinned, "training__global_batch": 32}, **keys)
        assert answer.theirs is not None and answer.changed == (other,)
        assert answer.text.startswith(f"with {other}: ")


def test_what_cannot_be_told_apart_is_said_to_be_equal() -> None:
    """Plans within the band of the ordering are equal, whichever has the lower number."""
    plan = best(**BIG)
    for micro in (1, 2, 4):
        answer = compare(plan.job, {"micro_batch": micro}, plan)
        if answer.difference is not None and answer.verdict in ("equal", "slower", "faster"):
            assert (answer.verdict == "equal") == (abs(answer.difference.slowdown) <= TIME_BAND)


def test_a_job_without_a_plan_is_answered_too() -> None:
    """Where the job has no plan, a question is answered with what stands in the way of the asked
    layout.
    """
    tight = job(model="gpt3-175b", gpus=8, training__global_batch=64)
    answer = compare(tight, {"tensor": 8}, None)
    assert answer.verdict == "too large" and answer.difference is None
    assert isinstance(answer.theirs and answer.theirs.memory, Memory)


def test_details_that_cannot_stay_are_chosen_again() -> None:
    """Where a value leaves no room for the chosen details, the layout has the best ones that it
    can have with all else as it is.
    """
    experts = dsgen.load_job(
        {
            "framework": "megatron-lm",
            "model": "kimi-k2",
            "cluster": "nvidia/dgx-h100",
            "gpus": 2048,
            "training": {"sequence_length": 4096, "global_batch": 8192},
        }
    )
    best = best_plan(experts, feasible_layouts(experts))
    assert best is not None
    for asked in ({"tensor": 1}, {"sequence_parallel": False}):
        near = neighbour(experts, best.layout, asked)
        assert near is not None
        values = near.layout.to_dict()
        rest = {name: value for name, value in values.items() if name not in DETAILED}
        pinned = replace(experts, pins=replace(experts.pins, **rest))
        answer = best_plan(pinned, feasible_layouts(pinned))
        assert answer is not None
        assert answer.layout == near.layout
