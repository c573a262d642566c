"""The choice: which of the layouts that fit comes first, which others have a name, and why."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dsgen
from benchmarks.choice import violations
from dsgen.estimate.evidence import evidence, likeness, of_measured_kind
from dsgen.estimate.layout import Layout, Layouts, Offload
from dsgen.estimate.memory import memory
from dsgen.estimate.step_time import step_time
from dsgen.estimate.uncertainty import time_shares
from dsgen.search.choice import (
    LESS,
    SLOWER,
    TIME_BAND,
    collectives,
    named_rows,
    parts,
    ranking,
    why_first,
)
from dsgen.search.feasible import Estimates, limit_bytes, roomy_bytes
from dsgen.search.plan import Plan, SearchResult
from dsgen.search.search import search_with_estimates
from dsgen.search.suggestions import faster_nearby
from dsgen.units import GIB
from tests.jobs import job

JOBS: dict[str, dict[str, Any]] = {
    "megatron-lm": {"model": "llama-2-13b", "gpus": 16, "training__global_batch": 32},
    "experts": {"model": "mixtral-8x7b", "gpus": 16, "training__global_batch": 32},
    "megatron-deepspeed": {"framework": "megatron-deepspeed", "model": "gpt-neox-20b", "gpus": 16},
    "deepspeed": {
        "framework": "deepspeed",
        "model": "llama-2-7b",
        "gpus": 8,
        "training__global_batch": 64,
    },
    "huggingface": {
        "framework": "huggingface",
        "model": "llama-2-13b",
        "gpus": 8,
        "training__global_batch": 32,
    },
}


def found(**keys: Any) -> tuple[SearchResult, Estimates]:
    """The answer, and all layouts that it chose from."""
    answer, estimated = search_with_estimates(job(**keys))
    assert isinstance(answer, SearchResult)
    return answer, estimated


LONG: dict[str, Any] = {"training__sequence_length": 32768}
#: Jobs of which the choice once wasn't what it claims.
HARD: dict[str, dict[str, Any]] = {
    "overlap before heads": {
        "model": "mixtral-8x7b",
        "gpus": 8,
        "cluster": "nvidia/dgx-h100",
        **LONG,
    },
    "beaten measured plan": {
        **JOBS["megatron-deepspeed"],
        "cluster": "azure/standard_nd96amsr_a100_v4",
        **LONG,
    },
    "nothing under the limit": {"model": "deepseek-v3", "gpus": 256, "cluster": "aws/g5.48xlarge"},
}
for name, batch in zip(HARD, (1536, 64, 1024), strict=True):
    HARD[name]["training__global_batch"] = batch


@pytest.mark.parametrize("name", [*JOBS, *HARD])
def test_no_claim_of_the_choice_is_violated(name: str) -> None:
    """What `benchmarks.choice` asks of random jobs holds for every framework, for experts, and where it once failed."""
    assert list(violations(job(**{**JOBS, **HARD}[name]))) == []


@pytest.mark.parametrize("name", JOBS)
def test_names_equal_a_plain_loop(name: str) -> None:
    """Chosen, fastest and roomy are what loops over all pairs of layouts find by the rules of the documentation."""
    answer, estimated = found(**JOBS[name])
    own = answer.job
    seconds, device, need = estimated.total_s, estimated.device_bytes, estimated.required_bytes
    assert answer.named["fastest"].step_time.total_s == pytest.approx(seconds.min())
    if "roomy" in answer.named:
        roomy = seconds[device <= roomy_bytes(own)]
        assert answer.named["roomy"].step_time.total_s == pytest.approx(roomy.min())
    fits = device <= limit_bytes(own)
    sure = np.flatnonzero(
        fits & (device <= roomy_bytes(own)) & (likeness(own, estimated.layouts) > 0)
    )
    rows = np.flatnonzero(fits & (seconds <= 2 * seconds[fits].min()))
    beaten = np.array([(fits & (seconds < seconds[i]) & (need <= need[i])).any() for i in rows])
    rows = rows[~beaten]
    layouts, t, m = estimated.layouts.take(rows), seconds[rows], need[rows]
    level, used, spare = likeness(own, layouts), parts(layouts), device[rows] <= roomy_bytes(own)
    network = replace(
        own.cluster, network_bytes_per_s_per_node=own.cluster.network_bytes_per_s_per_node / SLOWER
    )
    slow = step_time(replace(own, cluster=network), estimated.layouts).total_s
    spans = np.broadcast_to(time_shares(own, estimated.layouts).high, len(seconds))

    def gives_way(i: int, j: int) -> bool:
        """Whether another one is as fast, needs much less memory, is as well measured and has no more parts."""
        as_good = t[j] <= t[i] * (1 + TIME_BAND) and level[j] >= level[i] and used[j] <= used[i]
        return bool(as_good and m[j] <= LESS * m[i])

    def order(i: int) -> tuple[Any, ...]:
        """The least comes first."""
        return (
            -level[i],
            used[i],
            int(np.log2(1 + float(collectives(own, layouts[i])))),
            m[i] * t[i],
        )

    usual, given = of_measured_kind(own, layouts, detailed=False), np.zeros(len(rows), np.bool_)
    every = likeness(own, estimated.layouts)
    near = [i for i in sure if seconds[i] <= seconds[sure].min() * (1 + TIME_BAND)]
    best = [
        i for i in near if not any(seconds[j] < seconds[i] and need[j] <= need[i] for j in near)
    ]
    for one in (
        i for i in best if every[i] == max(every[best]) or seconds[i] == min(seconds[best])
    ):
        beats = [(m <= need[one]) & (each[rows] <= each[one]) for each in (seconds, slow)]
        apart = (np.maximum(seconds[one] / seconds, slow[one] / slow) > spans * spans[one])[rows]
        if not (np.any(beats, axis=0) & (level == 0) & ~usual).any():
            given |= (level == 0) & ~apart & ~(usual & beats[0])
    left = np.flatnonzero(~given).tolist()
    tied = [i for i in left if t[i] <= min(t[left]) * (1 + TIME_BAND)]
    chosen = min((i for i in tied if not any(gives_way(i, j) for j in tied)), key=order)
    roomiest = min(np.flatnonzero(spare), key=lambda i: t[i], default=chosen)
    chosen = roomiest if gives_way(chosen, roomiest) else chosen
    assert answer.plans[0].layout == layouts[chosen]
    assert not any(
        gives_way(chosen, rows.tolist().index(i)) for i in listed(answer, estimated) if i in rows
    )


def listed(answer: SearchResult, estimated: Estimates) -> list[int]:
    """Row numbers of the plans of an answer."""
    keys = {layout: i for i, layout in enumerate(estimated.layouts)}
    return [keys[plan.layout] for plan in answer.plans]


def test_what_fills_the_card_is_not_chosen() -> None:
    """A faster layout of which the card may hold more than its limit gives way, and `bold` takes it."""
    tight = job(framework="huggingface", model="llama-2-13b", gpus=8, training__global_batch=32)
    answer, bold = dsgen.search(tight), dsgen.search(tight, bold=True)
    assert isinstance(answer, SearchResult) and isinstance(bold, SearchResult)
    assert device(answer.plans[0]) <= limit_bytes(tight)
    assert float(bold.plans[0].step_time.total_s) <= float(answer.plans[0].step_time.total_s) * (
        1 + TIME_BAND
    )


def test_what_holds_least_is_chosen_where_nothing_stays_under_the_limit() -> None:
    """Where even the smallest layout may fill the card, it is the smallest that is chosen, and it is said."""
    own = job(model="llama-2-7b", framework="deepspeed", gpus=8, training__global_batch=64)
    _, estimated = found(
        model="llama-2-7b", framework="deepspeed", gpus=8, training__global_batch=64
    )
    tight = replace(
        own, headroom=1 - float(estimated.device_bytes.min()) / own.cluster.accelerator.memory_bytes
    )
    (row,) = ranking(tight, estimated, 1)
    assert estimated.device_bytes[row] == estimated.device_bytes.min()


def faster(plan: Plan, share: float, *, level: int) -> Plan:
    """The same plan with a step that is shorter by that share, 5 % more memory, and another level of evidence."""
    seconds = replace(plan.step_time, total_s=float(plan.step_time.total_s) * (1 - share))
    need = replace(plan.memory, required_bytes=float(plan.memory.required_bytes) * 1.05)
    runs = replace(plan.uncertainty.evidence, level=level)
    return replace(
        plan, step_time=seconds, memory=need, uncertainty=replace(plan.uncertainty, evidence=runs)
    )


def test_reason_of_a_measured_kind_says_how_much_slower_it_is() -> None:
    """Only what is within the band is said to be so; a slower plan of a measured kind is said to be that."""
    plan = faster(found(**JOBS["megatron-lm"])[0].plans[0], 0, level=1)
    assert "12% is within the range of the estimates" in why_first(
        plan, faster(plan, 0.11, level=0)
    )
    assert why_first(plan, faster(plan, 0.11, level=1)).startswith("needs ")
    near = why_first(plan, faster(plan, 0.01, level=0))
    assert near == f"as fast within {TIME_BAND:.0%}, and closer to measured runs"


def test_bold_reason_names_no_limit() -> None:
    """What the card may hold decides where it is asked for, and not with `bold`."""
    plan = found(**JOBS["huggingface"])[0].plans[0]
    large = replace(plan.uncertainty.device, high=2 * float(plan.memory.capacity_bytes))
    other = faster(plan, 0.01, level=plan.uncertainty.evidence.level)
    other = replace(other, uncertainty=replace(other.uncertainty, device=large))
    assert "may run out of memory" in why_first(plan, other)
    assert "limit" not in why_first(plan, other, bold=True)


def device(plan: Plan) -> float:
    """What the card holds of a plan."""
    return float(plan.memory.device_bytes)


def test_device_memory_is_not_cut_off_at_the_card() -> None:
    """What the card would hold of a layout that is too large is more than the card has."""
    own = job(model="gpt3-175b", gpus=8, training__global_batch=8)
    ledger = memory(own, Layout(data=8, micro_batch=1))
    assert float(ledger.device_bytes) > 2 * float(ledger.capacity_bytes)


def test_evidence_is_of_the_program_the_stage_and_the_kinds_of_parallelism() -> None:
    """Runs of Megatron-LM speak for no ZeRO stage 2, no AutoTP, no experts under ZeRO-3, and none that are cut."""
    usual = Layout(data=8, tensor=8, zero_stage=1, sequence_parallel=True)
    dense, experts = (job(model=name, gpus=64) for name in ("llama-3-70b", "mixtral-8x7b"))
    assert evidence(dense, usual).level > 0
    assert (
        "ZeRO 2 in Megatron-LM with tensor" in evidence(dense, replace(usual, zero_stage=2)).beyond
    )
    sharded = Layout(data=64, zero_stage=3)
    assert "ZeRO 3 in Megatron-LM with a mixture of experts" in evidence(experts, sharded).beyond
    cut = Layout(data=32, tensor=2, expert=8, expert_tensor=2, zero_stage=1, sequence_parallel=True)
    assert (
        evidence(experts, replace(cut, expert_tensor=1)).level > evidence(experts, cut).level == 0
    )
    auto = evidence(
        job(framework="huggingface", model="llama-2-13b", gpus=8),
        Layout(data=1, tensor=8, zero_stage=1),
    )
    assert auto.level == 0 and "AutoTP" in auto.beyond[0]


def test_columns_are_as_well_measured_as_each_row() -> None:
    """The level of a column of layouts is that of each layout alone."""
    _, estimated = found(**JOBS["experts"])
    rows: Layouts = estimated.layouts.take(slice(0, None, max(len(estimated.total_s) // 60, 1)))
    own = job(**JOBS["experts"])
    assert likeness(own, rows).tolist() == [evidence(own, layout).level for layout in rows]


def test_full_sharding_counts_its_collectives_in_every_pass() -> None:
    """ZeRO-3 gathers and reduces a layer with each micro-batch, ZeRO-1 once a step; within a node nothing counts."""
    own = job(framework="megatron-deepspeed", model="gpt-neox-20b", gpus=96)
    layers = own.model.layers
    assert (
        collectives(own, Layout(data=96, zero_stage=3, gradient_accumulation=16)) == 3 * 16 * layers
    )
    assert collectives(own, Layout(data=96, zero_stage=1, gradient_accumulation=16)) == 2 * layers
    assert collectives(own, Layout(data=1, tensor=8, gradient_accumulation=16)) == 0


def test_every_model_chunk_counts_its_sends() -> None:
    """With four model chunks a stage, a micro-batch sends four times as often."""
    own = job(model="llama-2-13b", gpus=64)
    one, four = (
        collectives(own, Layout(data=1, tensor=8, pipeline=8, virtual_pipeline=v)) for v in (1, 4)
    )
    assert (one, four) == (2, 8)


def test_an_unmeasured_kind_gives_way_to_any_measured_plan_as_fast_as_the_fastest_of_these() -> (
    None
):
    """ZeRO 3 beats the fastest plan of a measured kind, but not a smaller one within the band, which is chosen."""
    keys = {
        "model": "opt-66b",
        "cluster": "nvidia/dgx-a100-80gb",
        "gpus": 144,
        "training__global_batch": 1152,
    }
    answer, estimated = found(framework="megatron-deepspeed", **keys)
    own, first, sharded = answer.job, answer.plans[0], answer.named["roomy"]
    roomy = np.flatnonzero(estimated.device_bytes <= roomy_bytes(own))
    measured = roomy[likeness(own, estimated.layouts.take(roomy)) > 0]
    fastest = measured[estimated.total_s[measured].argmin()]
    assert float(sharded.step_time.total_s) < estimated.total_s[fastest]
    assert float(sharded.memory.required_bytes) < estimated.required_bytes[fastest]
    assert (first.uncertainty.evidence.level, sharded.uncertainty.evidence.level) == (2, 0)
    assert float(first.step_time.total_s) <= estimated.total_s[fastest] * (1 + TIME_BAND)


def test_second_copies_of_offloaded_parameters_are_not_planned() -> None:
    """A second copy of parameters saves traffic for memory; with offloaded parameters it would lie on the host."""
    keys = {
        "model": "llama-3.1-405b",
        "cluster": "dgx-h100",
        "gpus": 512,
        "training__sequence_length": 8192,
    }
    _, estimated = found(framework="deepspeed", training__global_batch=512, **keys)
    offloaded = estimated.layouts.offload == Offload.OPTIMIZER_AND_PARAMETERS
    assert offloaded.any() and (estimated.layouts.zero_hpz[offloaded] == 1).all()


def test_a_key_that_saves_memory_is_offered_with_any_cut_of_a_program_without_stages() -> None:
    """Eight A100 need AutoTP for 32k tokens of a large vocabulary; with fused kernels it is faster without."""
    keys: dict[str, Any] = {
        "framework": "huggingface",
        "model": "llama-3.1-8b",
        "cluster": "nvidia/dgx-a100-80gb",
    }
    answer, _ = found(**keys, **LONG, gpus=8, training__global_batch=16)
    plan, offers = (
        answer.plans[0],
        {each.path: each.plan for each in faster_nearby(answer.plans[0])},
    )
    assert (plan.layout.tensor, offers["training.kernels"].layout.tensor) == (2, 1)


def test_keys_that_change_results_are_suggested_where_they_make_it_fit() -> None:
    """Where too little of the card may be used, number formats and kernels are offered with which there is a plan."""
    keys: dict[str, Any] = {
        "model": "gpt3-6.7b",
        "gpus": 2,
        "training__global_batch": 8,
        "layout__offload": "none",
    }
    _, estimated = found(**keys)
    most = (
        0.95 * float(estimated.required_bytes.min()) / job(**keys).cluster.accelerator.memory_bytes
    )
    answer = dsgen.search(job(**keys, memory__headroom=1 - most))
    assert not isinstance(answer, SearchResult)
    offers = [
        offer
        for offer in answer.suggestions
        if offer.path in ("training.gradient_dtype", "training.moment_dtype")
    ]
    assert offers
    for offer in offers:
        changed = {offer.path.replace(".", "__"): offer.value}
        assert dsgen.search(job(**keys, memory__headroom=1 - most, **changed)).plans


@pytest.mark.parametrize("framework", ["deepspeed", "huggingface"])
def test_context_parallelism_of_a_script_is_the_users(framework: str) -> None:
    """Where the script has to know of it, context parallelism is planned if pinned, and offered if nothing fits."""
    keys: dict[str, Any] = {
        "framework": framework,
        "model": "llama-3.1-8b",
        "gpus": 8,
        "training__global_batch": 8,
    }
    usual, _ = found(**keys, training__sequence_length=8192)
    pinned, _ = found(**keys, training__sequence_length=8192, layout__context=2)
    implied, _ = found(
        **keys, training__sequence_length=8192, layout__data=4, layout__tensor=1, layout__pipeline=1
    )
    assert {plan.layout.context for plan in (*usual.plans, *usual.named.values())} == {1}
    assert pinned.plans[0].layout.context == implied.plans[0].layout.context == 2
    none = dsgen.search(job(**keys, training__sequence_length=65536))
    assert not isinstance(none, SearchResult)
    (offer,) = (offer for offer in none.suggestions if offer.path == "layout.context")
    assert dsgen.search(
        job(**keys, training__sequence_length=65536, layout__context=offer.value)
    ).plans
    others = [
        dsgen.search(job(**keys, training__sequence_length=65536, layout__context=n))
        for n in (2, 4, 8)
    ]
    times = [
        other.plans[0].step_time.total_s for other in others if isinstance(other, SearchResult)
    ]
    assert float(offer.plan.step_time.total_s) == min(map(float, times))


def test_context_parallelism_that_other_pins_leave_is_not_asked_for() -> None:
    """Replicas and tensor parallelism of a Trainer's job leave half of the GPUs to context parallelism."""
    keys: dict[str, Any] = {
        "framework": "huggingface",
        "model": "llama-3.1-8b",
        "training__global_batch": 8,
    }
    usual, _ = found(
        **keys, gpus=8, training__sequence_length=8192, layout__data=4, layout__tensor=1
    )
    assert {plan.layout.context for plan in usual.plans} == {2}


@pytest.mark.parametrize(
    ("room_gib", "named"), [(40.01, ["chosen", "fastest"]), (39.8, ["chosen", "fastest", "roomy"])]
)
def test_a_roomy_plan_differs_by_what_is_shown(room_gib: float, named: list[str]) -> None:
    """A plan that leaves a fifth of the card is only named beside the chosen one where its memory reads differently."""
    held = GIB * np.array([70.0, 40.0, room_gib])
    found: Any = SimpleNamespace(
        total_s=np.array([1.0, 1.5, 1.4]), required_bytes=held, device_bytes=held
    )
    assert sorted(named_rows(job(cluster="dgx-a100-80gb"), found, 1)) == named
