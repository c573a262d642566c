"""The search: exhaustive against a brute-force loop, deterministic, ranked as it says."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

import dsgen
from dsgen.estimate.expected_time import expected_s
from dsgen.estimate.layout import (
    DEFAULTS,
    FIELDS,
    Layout,
    Layouts,
    Modules,
    Offload,
    Recompute,
)
from dsgen.estimate.ledgers import Memory
from dsgen.estimate.memory import memory
from dsgen.estimate.step_time import step_time
from dsgen.estimate.uncertainty import host_band, required_band
from dsgen.findings import Severity
from dsgen.job.records import Job, Pins
from dsgen.rules.run import FIT_RULES, LAYOUT_RULES
from dsgen.rules.violations import divisors
from dsgen.search.enumerate import STAGES, Enumeration, joined
from dsgen.search.feasible import Floats, feasible_layouts, fitting
from dsgen.search.plan import Infeasible
from dsgen.search.refine import DETAILS, chunk_choices, least_s, refined
from dsgen.search.search import search_with_estimates
from tests.jobs import job

JOBS = {
    "megatron-lm": {},
    "uneven world": {"gpus": 24, "training__global_batch": 36},
    "megatron-deepspeed": {"framework": "megatron-deepspeed", "gpus": 8},
    "deepspeed with offload": {"framework": "deepspeed", "gpus": 4, "training__global_batch": 12},
    "huggingface": {"framework": "huggingface", "gpus": 8},
    "moe": {"model": "mixtral-8x7b", "gpus": 8, "training__global_batch": 16},
    "pinned": {"layout__tensor": 2, "layout__zero_stage": 1, "layout__gradient_accumulation": 3},
}


SINKS = {
    "model": "gpt-oss-20b",
    "gpus": 8,
    "training__global_batch": 8,
    "layout__tensor": 1,
    "layout__pipeline": 1,
}


def every_layout(job: Job) -> list[Layout]:
    """All layouts of the two identities, by loops: slow, obvious."""
    layouts = []
    batch, world = job.training.global_batch, job.gpus
    experts = divisors(job.model.experts) if job.model.experts > 0 else (1,)
    for tensor, pipeline, context in itertools.product(divisors(world), repeat=3):
        if world % (tensor * pipeline * context):
            continue
        data = world // (tensor * pipeline * context)
        if batch % data:
            continue
        cuts = (
            sorted({1, tensor} if job.framework.name == "megatron-lm" else {tensor})
            if job.model.experts > 0
            else [1]
        )
        for rest in itertools.product(
            experts, cuts, (False, True), range(4), divisors(batch // data), Recompute, Offload
        ):
            e, cut, sp, zero, micro, recompute, offload = rest
            layouts.append(
                Layout(
                    data=data,
                    tensor=tensor,
                    pipeline=pipeline,
                    virtual_pipeline=job.pins.virtual_pipeline or 1,
                    context=context,
                    expert=e,
                    expert_tensor=cut,
                    sequence_parallel=sp,
                    zero_stage=zero,
                    micro_batch=micro,
                    gradient_accumulation=batch // data // micro,
                    recompute=recompute,
                    offload=offload,
                )
            )
    pins = {f.name: getattr(job.pins, f.name) for f in fields(job.pins)}
    pins = {name: value for name, value in pins.items() if value is not None}
    return [
        layout
        for layout in layouts
        if all(getattr(layout, name) == value for name, value in pins.items())
    ]


def legal_layouts(job: Job, layouts: list[Layout]) -> list[Layout]:
    """The layouts that pass every rule that removes layouts, one by one."""
    rules = [
        rule.columns
        for rule in LAYOUT_RULES
        if rule.severity is Severity.ERROR and rule.columns.binds(job)
    ]
    return [layout for layout in layouts if all(bool(rule.holds(job, layout)) for rule in rules)]


def cells(layouts: Layouts) -> set[Layout]:
    """The rows as a set."""
    return set(layouts)


@pytest.mark.parametrize("name", JOBS)
def test_search_equals_brute_force(name: str) -> None:
    """The staged columns keep exactly the layouts that a plain loop over rules and estimates keeps,
    and count all.
    """
    small = job(**JOBS[name])
    everything = every_layout(small)
    legal = legal_layouts(small, everything)
    found = Enumeration(small)
    layouts = joined(found)
    assert found.considered == len(everything)
    assert sum(found.rejected_by.values()) == len(everything) - len(legal)
    assert len(layouts) == len(legal)
    assert cells(layouts) == set(legal)
    feasible = feasible_layouts(small)
    kept = cells(feasible.layouts)
    asks_script = small.engine.context == "script" and small.pins.context is None
    sample = [layout for layout in legal if not asks_script or layout.context == 1]
    sample = sample[:: max(len(sample) // 40, 1)]
    assert not asks_script or all(layout.context == 1 for layout in kept)
    for layout in sample:
        free = replace(layout, recompute=Recompute.NONE, offload=Offload.NONE)
        assert (layout in kept) == fits(small, layout) or (fits(small, layout) and free in kept)


def fits(small: Job, layout: Layout) -> bool:
    """Whether one layout passes every rule on capacities."""
    ledger = memory(small, layout)
    return all(bool(rule.columns.holds(small, layout, ledger)) for rule in FIT_RULES)


#: Jobs with details to turn: everything fits; only with some time given for memory; only with the
#: host's memory.
DETAILED: dict[str, dict[str, Any]] = {
    "dense": {},
    "experts": {
        "model": "mixtral-8x7b",
        "gpus": 16,
        "training__global_batch": 32,
        "layout__offload": "none",
    },
    "long": {
        "model": "llama-3-8b",
        "gpus": 16,
        "training__global_batch": 16,
        "training__sequence_length": 8192,
    },
    "tight": {"model": "llama-2-13b", "gpus": 8, "training__global_batch": 16},
    "offloaded": {"model": "llama-2-70b", "gpus": 16, "training__global_batch": 32},
    "offloaded experts": {"model": "mixtral-8x7b", "gpus": 8, "training__global_batch": 16},
}


def with_details(job: Job) -> Layouts:
    """Every legal layout with every setting of model chunks, recomputation, offload and overlap, by
    loops.
    """
    rules = [
        rule.columns
        for rule in LAYOUT_RULES
        if rule.severity is Severity.ERROR and rule.columns.binds(job)
    ]
    rows = joined(Enumeration(job))
    looped = {"recompute", "offload", "tensor_overlap", "expert_overlap"}
    for settings in (
        chunk_choices,
        *(detail.settings for detail in DETAILS if detail.turns[0] in looped),
    ):
        turned = [
            Layouts(
                **{
                    name: np.broadcast_to(setting.get(name, getattr(rows, name)), len(rows))
                    for name in FIELDS
                }
            )
            for setting in settings(job, rows)
        ]
        rows = joined([rows, *turned])
        rows = rows.take(np.all([rule.holds(job, rows) for rule in rules], axis=0))
    return rows


@pytest.mark.parametrize("name", DETAILED)
def test_refinement_misses_nothing(name: str) -> None:
    """The fastest and the chosen layout are what a loop over all settings of all layouts finds,
    within 0.1 %.
    """
    wanted = job(**DETAILED[name])
    rows = with_details(wanted)
    parts = [rows.take(slice(start, start + 16384)) for start in range(0, len(rows), 16384)]
    fitted = joined(part.take(fitting(wanted, part)[0]) for part in parts)
    times, ledger = step_time(wanted, fitted).total_s, memory(wanted, fitted)
    numbers = expected_s(wanted, fitted, times, ledger.required_bytes, ledger.device_bytes)
    found = refined(wanted, feasible_layouts(wanted), top=1)
    assert found.total_s.min() == pytest.approx(times.min(), rel=1e-3)
    assert found.expected_s.min() == pytest.approx(numbers.min(), rel=1e-3)
    best = dsgen.search(wanted, top=1).plans[0]
    assert not [finding for finding in best.findings if finding.severity is Severity.ERROR]


def test_no_overlap_is_below_the_bound() -> None:
    """The least time that a layout is said to come to is never more than what it takes with any
    overlap on or off: one of them may cost more than it hides.
    """
    hybrid = dsgen.load_job(
        {
            "framework": "megatron-lm",
            "model": "nemotron-3-ultra-550b-a55b",
            "cluster": "gb300-nvl72",
            "gpus": 1152,
            "training": {"sequence_length": 8192, "global_batch": 3072, "precision": "nvfp4"},
        }
    )
    feasible = feasible_layouts(hybrid)
    rows = np.unique(np.linspace(0, len(feasible.layouts) - 1, 40, dtype=np.int64))
    for row in rows.tolist():
        bound = least_s(hybrid, feasible.take(np.array([row])))
        for tensor, expert in itertools.product((False, True), repeat=2):
            layout = replace(feasible.layouts[row], tensor_overlap=tensor, expert_overlap=expert)
            assert bound <= step_time(hybrid, layout).total_s * (1 + 1e-9)


def test_no_number_of_chunks_is_better() -> None:
    """With any number of model chunks pinned, a job expects no less time than without, within the
    0.1 % that a detail has to gain.
    """
    open_job = dsgen.load_job(
        {
            "framework": "megatron-lm",
            "model": "qwen3-235b-a22b",
            "cluster": "azure/standard_nd96isr_h200_v5",
            "nodes": 32,
            "training": {"sequence_length": 4096, "global_batch": 64},
        }
    )
    best = dsgen.search(open_job, top=1).plans[0].choice.decides_s
    for count in range(6, 13):
        pinned = replace(open_job, pins=replace(open_job.pins, virtual_pipeline=count))
        answer = dsgen.search(pinned, top=1)
        assert all(plan.choice.decides_s >= best * (1 - 1e-3) for plan in answer.plans)


_PINNED_AGAIN = {
    "expert overlap, modules, chunks": {
        "framework": "megatron-lm",
        "model": "glm-4.5",
        "cluster": "azure/standard_nd96isr_h200_v5",
        "gpus": 512,
        "training": {"sequence_length": 4096, "global_batch": 1024},
    },
    "full recomputation of some layers": {
        "framework": "megatron-lm",
        "model": "llama-3.1-70b",
        "cluster": "azure/standard_nd96asr_v4",
        "gpus": 64,
        "training": {"sequence_length": 8192, "global_batch": 128},
    },
    "the optimizer offloaded": {
        "framework": "deepspeed",
        "model": "llama-3.1-70b",
        "cluster": "nvidia/dgx-h100",
        "gpus": 8,
        "training": {"sequence_length": 4096, "global_batch": 64},
    },
}


@pytest.mark.parametrize("spec", _PINNED_AGAIN.values(), ids=_PINNED_AGAIN)
def test_what_was_chosen_may_be_pinned(spec: dict[str, Any]) -> None:
    """With any value of the chosen plan pinned, a job expects no more time than without."""
    open_job = dsgen.load_job(spec)
    chosen = dsgen.search(open_job, top=1).plans[0]
    for pin in _pins_of(chosen.layout):
        best = dsgen.search(replace(open_job, pins=Pins(**pin)), top=1).plans[0]
        assert best.choice.decides_s <= chosen.choice.decides_s * (1 + 1e-3), pin


def _pins_of(layout: Layout) -> Iterator[dict[str, Any]]:
    """Each field of a layout as a pin, in the spelling of a job."""
    for name in FIELDS:
        value = getattr(layout, name)
        if name == "recompute_modules":
            if layout.recompute == Recompute.SELECTIVE:
                yield {name: tuple(Modules(value).labels)}
        elif name in ("recompute", "offload"):
            yield {name: (Recompute if name == "recompute" else Offload)(value).label}
        elif name not in ("recompute_layers", "recompute_group", "offload_fraction") or (
            value != DEFAULTS[name]  # which says something only where its whole is done
        ):
            yield {name: value}


def test_columns_estimate_what_scalars_do() -> None:
    """One formula: a row of the columns has the same memory and time as the same layout alone."""
    small = job()
    rows = joined(Enumeration(small))
    sizes, times = memory(small, rows), step_time(small, rows)
    for index in range(0, len(rows), max(len(rows) // 50, 1)):
        for columns, scalar in (
            (sizes, memory(small, rows[index])),
            (times, step_time(small, rows[index])),
        ):
            for f in fields(columns):
                column = np.broadcast_to(getattr(columns, f.name), len(rows))
                assert float(column[index]) == pytest.approx(
                    float(getattr(scalar, f.name)), rel=1e-12
                ), f.name


def test_search_is_deterministic() -> None:
    """The same job gives the same plans in the same order."""
    first, second = (dsgen.search(job()) for _ in range(2))
    assert [plan.layout for plan in first.plans] == [plan.layout for plan in second.plans]


def test_more_memory_never_removes_a_plan() -> None:
    """Every layout that fits with headroom fits without."""
    tight, loose = job(memory__headroom=0.6), job(memory__headroom=0.0)
    assert cells(feasible_layouts(tight).layouts) <= cells(feasible_layouts(loose).layouts)


def test_reasons_name_each_decision() -> None:
    """A plan says what each decision was worth against the next value, and which were pinned."""
    result = dsgen.search(job(layout__tensor=2))
    text = "\n".join(result.plans[0].reasons)
    assert "pinned: tensor: 2" in text
    assert "pipeline: 1; step time with 2 (with data 4, gradient_accumulation 2) +" in text


INFEASIBLE = {
    "model too large": {
        "model": "gpt3-175b",
        "framework": "megatron-lm",
        "gpus": 8,
        "training__global_batch": 64,
    },
    "world that doesn't divide": {
        "gpus": 1000,
        "training__global_batch": 1536,
        "model": "gpt3-175b",
    },
    "pinned too tight": {
        "model": "llama-2-7b",
        "framework": "deepspeed",
        "gpus": 8,
        "training__global_batch": 64,
        "layout__zero_stage": 0,
        "layout__tensor": 1,
        "layout__context": 1,
    },
}


@pytest.mark.parametrize("name", INFEASIBLE)
def test_infeasible_suggestions_are_true(name: str) -> None:
    """When nothing fits, the binding rule is named and each suggested change, made, gives a
    plan.
    """
    result = dsgen.search(job(**INFEASIBLE[name]))
    assert isinstance(result, Infeasible)
    assert result.binding_rule in result.rejected_by
    assert result.considered >= sum(result.rejected_by.values()) > 0
    assert result.suggestions
    for suggestion in result.suggestions:
        change = (
            {suggestion.path.replace(".", "__"): suggestion.value}
            if suggestion.path != "layout"
            else {}
        )
        changed = dsgen.search(job(**{**INFEASIBLE[name], **change}))
        assert changed.plans or not change, suggestion.text


def test_nearest_miss_is_over_capacity() -> None:
    """When memory binds, the nearest miss is a legal layout that needs more than there is."""
    result = dsgen.search(job(**INFEASIBLE["model too large"]))
    assert isinstance(result, Infeasible) and result.nearest is not None
    capacity = result.nearest.memory.capacity_bytes * (1 - result.job.headroom)
    assert result.nearest.uncertainty.required.high > capacity


def test_rejections_are_counted_by_the_first_rule_in_the_tables_order() -> None:
    """Each removed layout is counted once, by the first rule, in growing order, that it breaks."""
    small = job(**JOBS["megatron-deepspeed"])
    order = dict.fromkeys(DEFAULTS, 0) | {name: step for step, name in enumerate(STAGES)}
    order["gradient_accumulation"] = order["micro_batch"]
    rules = [
        rule
        for rule in LAYOUT_RULES
        if rule.severity is Severity.ERROR and rule.columns.binds(small)
    ]
    rules.sort(key=lambda rule: max(order.get(name, 0) for name in rule.columns.reads))
    counts: Counter[str] = Counter()
    for layout in every_layout(small):
        counts.update(
            [rule.id for rule in rules if not bool(rule.columns.holds(small, layout))][:1]
        )
    found = Enumeration(small)
    joined(found)
    assert dict(found.rejected_by) == dict(counts)


def test_attention_with_sinks_is_planned_with_heads_exchanged() -> None:
    """Context ranks of a model with sinks all exchange heads, where the others keep a ring: no
    layout of it is lost.
    """
    layouts = joined(Enumeration(job(**SINKS)))
    assert set(layouts.context.tolist()) == {1, 2, 4, 8}
    assert (layouts.context_heads == layouts.context).all()
    assert (joined(Enumeration(job(gpus=8, training__global_batch=8))).context_heads == 1).all()


def test_several_wrong_pins_are_changed_together() -> None:
    """When no single pin is to blame, pairs of them are offered, and the plan of each has the other
    pins as written.
    """
    pins = {
        "zero_stage": 0,
        "micro_batch": 64,
        "tensor": 1,
        "recompute": "none",
        "context": 1,
        "offload": "none",
    }
    wanted = job(
        framework="deepspeed",
        model="llama-2-7b",
        gpus=8,
        training__global_batch=512,
        **{f"layout__{name}": value for name, value in pins.items()},
    )
    result = dsgen.search(wanted)
    assert isinstance(result, Infeasible)
    pairs = [s for s in result.suggestions if s.path == "layout"]
    assert 0 < len(pairs) <= 3
    for suggestion in pairs:
        chosen = suggestion.plan.layout.to_dict()
        changed = {name for name, value in pins.items() if chosen[name] != value}
        assert len(changed) == 2
        assert all(f"layout.{name}: " in suggestion.text for name in changed)


@pytest.mark.parametrize(
    ("pins", "expected"),
    [
        ({}, (16, 1, 3)),
        ({"gradient_accumulation": 1}, (16, 3, 1)),
        ({"micro_batch": 3}, (16, 3, 1)),
        ({"tensor": 4}, (4, 1, 12)),
        ({"tensor": 4, "gradient_accumulation": 5}, (4, 1, 5)),
    ],
)
def test_estimate_completes_what_is_pinned(
    pins: dict[str, int], expected: tuple[int, int, int]
) -> None:
    """Data, micro batch and accumulation follow from the identities; what can't is a finding, not
    an error.
    """
    plan = dsgen.estimate(job(**{f"layout__{name}": value for name, value in pins.items()}))
    assert (
        plan.layout.data,
        plan.layout.micro_batch,
        plan.layout.gradient_accumulation,
    ) == expected
    whole = plan.layout.global_batch == plan.job.training.global_batch
    assert any(f.rule == "MLM002" for f in plan.findings) == (not whole)


def test_nearest_miss_is_the_least_in_both_memories() -> None:
    """Of layouts that miss the tighter memory by as much, the nearest needs least of the other."""
    tight = job(
        model="gpt3-175b", framework="megatron-deepspeed", gpus=8, training__global_batch=64
    )
    answer = dsgen.search(tight)
    assert isinstance(answer, Infeasible) and answer.nearest is not None
    host = tight.cluster.host_memory_bytes

    def demand(ledger: Memory) -> Floats:
        """Need over what may be used, of both memories: the tighter first."""
        device = required_band(ledger).high / (ledger.capacity_bytes * (1 - tight.headroom))
        low = host_band(tight, ledger).low / host
        return np.sort(np.broadcast_arrays(device, low), axis=0)[::-1]

    every = demand(memory(tight, joined(Enumeration(tight))))
    least = np.lexsort((every[1], every[0]))[0]
    assert demand(answer.nearest.memory) == pytest.approx(every[:, least])
    assert every[0, least] > 1


def test_the_rule_that_binds_is_the_one_in_the_way() -> None:
    """When one rule alone leaves no layout, it is named, however many layouts others remove."""
    answer = dsgen.search(
        job(
            model="mixtral-8x7b",
            framework="megatron-deepspeed",
            layout__zero_stage=3,
            layout__pipeline=1,
        )
    )
    assert isinstance(answer, Infeasible)
    assert answer.binding_rule == "MOE002"
    assert max(answer.rejected_by, key=lambda rule: answer.rejected_by[rule]) != "MOE002"


def test_part_of_a_node_grows_within_it() -> None:
    """A job too large for one GPU is offered two of the same node before whole nodes."""
    result = dsgen.search(
        job(
            model="llama-2-7b",
            framework="deepspeed",
            gpus=1,
            training__global_batch=64,
            layout__offload="none",
        )
    )
    assert isinstance(result, Infeasible)
    assert [s.value for s in result.suggestions if s.path == "gpus"] == [2]


@pytest.mark.parametrize(
    ("duration", "steps", "tokens"),
    [({"steps": 10}, 10, 10 * 35 * 2048), ({"tokens": 35 * 2048 * 7}, 7, 35 * 2048 * 7)],
)
def test_estimate_counts_the_batch_that_it_trains(
    duration: dict[str, int], steps: int, tokens: int
) -> None:
    """Where the pins miss the global batch, tokens and steps of the run are those of the batch of
    the layout.
    """
    pins = {"layout__micro_batch": 5, "layout__gradient_accumulation": 7, "layout__data": 1}
    plan = dsgen.estimate(job(**pins, training__duration=duration))
    assert plan.layout.global_batch == 35
    assert plan.run is not None
    assert (plan.run.steps, plan.run.tokens) == (steps, tokens)
    assert plan.throughput.tokens_per_s == pytest.approx(35 * 2048 / plan.step_time.total_s)


def test_every_batch_of_a_ramp_up_divides() -> None:
    """Under a batch ramp-up the search keeps to layouts whose micro_batch × data divides all
    batches on the way.
    """
    ramp = {"start": 6, "increment": 6, "samples": 10_000}
    free, ramped = (
        dsgen.search(job(**keys), top=50) for keys in ({}, {"training__batch_ramp": ramp})
    )
    assert any(6 % (plan.layout.micro_batch * plan.layout.data) for plan in free.plans)
    assert ramped.plans
    assert all(6 % (plan.layout.micro_batch * plan.layout.data) == 0 for plan in ramped.plans)


def test_memory_of_a_search_is_that_of_its_layouts() -> None:
    """What a search keeps of rows that differ in the micro-batch alone is the ledger of each."""
    spread = job(framework="megatron-lm", gpus=16, training__global_batch=64)
    _, found = search_with_estimates(spread)
    assert len(np.unique(found.layouts.micro_batch)) > 2
    ledger = memory(spread, found.layouts)
    assert found.required_bytes == pytest.approx(ledger.required_bytes)
    assert found.device_bytes == pytest.approx(ledger.device_bytes)
