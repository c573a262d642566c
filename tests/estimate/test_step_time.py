"""The step-time ledger: FLOPs of the literature, laws, and published runs within the tolerance of a
first version.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

import dsgen
from dsgen.estimate.flops import hardware_flops_per_step, model_flops_per_step
from dsgen.estimate.layout import Layout, Recompute
from dsgen.estimate.memory import memory
from dsgen.estimate.step_time import step_time
from dsgen.programs.job_rules import check_job
from dsgen.search.enumerate import Enumeration, joined
from tests.jobs import job

PARTS = (
    "compute",
    "recompute",
    "tensor",
    "context",
    "expert",
    "pipeline",
    "bubble",
    "data",
    "optimizer",
    "offload",
)


def test_parts_sum_to_the_total_and_none_is_negative() -> None:
    """The ledger adds up on every legal layout of a dense and of a MoE job."""
    for overrides in ({}, {"model": "mixtral-8x7b", "training__global_batch": 16}):
        small = job(**overrides)
        rows = joined(Enumeration(small))
        ledger = step_time(small, rows)
        parts = [np.broadcast_to(getattr(ledger, f"{name}_s"), len(rows)) for name in PARTS]
        assert all((part >= 0).all() and np.isfinite(part).all() for part in parts)
        assert np.allclose(np.sum(parts, axis=0), ledger.total_s, rtol=1e-12)


@pytest.mark.parametrize(("model", "batch"), [("megatron-145.6b", 2304), ("megatron-1008b", 3072)])
def test_flops_are_those_of_megatron(model: str, batch: int) -> None:
    """With full recomputation and unmasked attention counted, 96 B s l h² (1 + s/6h + V/16lh)
    (2104.04473 eq 3).
    """
    gpt = job(model=model, gpus=1536, training__global_batch=batch)
    m, s = gpt.model, 2048
    closed = (
        96
        * batch
        * s
        * m.layers
        * m.hidden**2
        * (1 + s / (6 * m.hidden) + m.vocab / (16 * m.layers * m.hidden))
    )
    ours = float(hardware_flops_per_step(gpt, Layout(data=1, recompute=Recompute.FULL)))
    # the half of causal attention that the closed form counts
    masked = 8 * batch * s * s * m.layers * m.hidden
    assert ours + masked == pytest.approx(closed, rel=2e-4)


def test_llama_flops_per_token() -> None:
    """Llama 3 70B at 8k takes 449 GFLOP a token with causal attention halved, as Megatron-Bridge
    counts it.
    """
    llama = job(model="llama-3-70b", training__sequence_length=8192)
    per_token = model_flops_per_step(llama) / llama.training.tokens_per_step
    assert per_token == pytest.approx(449e9, rel=5e-3)


def test_bubble_is_that_of_1f1b() -> None:
    """The bubble is (p-1)/m of the work for even stages, and interleaving divides it by the
    chunks.
    """
    small = job(model="megatron-145.6b", gpus=8, training__global_batch=64)
    plain, chunked = (
        step_time(small, Layout(data=1, pipeline=8, virtual_pipeline=v, gradient_accumulation=64))
        for v in (1, 5)
    )
    assert float(chunked.bubble_s) == pytest.approx(float(plain.bubble_s) / 5)
    work = float(plain.compute_s)
    # the head makes the last stage longer
    assert float(plain.bubble_s) / work == pytest.approx(7 / 64, rel=0.15)


@pytest.mark.parametrize("recompute", [Recompute.SELECTIVE, Recompute.FULL])
def test_recomputation_costs_time(recompute: Recompute) -> None:
    """Recomputing is never free."""
    small = job()
    none, some = (
        step_time(small, Layout(data=16, gradient_accumulation=3, recompute=r))
        for r in (0, recompute)
    )
    assert float(some.total_s) > float(none.total_s)


def test_a_faster_network_is_never_slower() -> None:
    """More bandwidth between nodes never lengthens a step."""
    fast, slow = job(cluster="nvidia/dgx-a100-80gb"), job(cluster="idris/jean-zay-a100-node")
    rows = joined(Enumeration(fast))
    assert np.all(step_time(fast, rows).total_s <= step_time(slow, rows).total_s * (1 + 1e-12))


A100 = "nvidia/dgx-a100-80gb"
#: Published runs: source, job, layout, and the printed TFLOPS per GPU (hardware) or seconds.
PUBLISHED: dict[str, tuple[dict[str, Any], dict[str, Any], str, float]] = {
    "Megatron 145.6B (2104.04473 table 1)": (
        {"model": "megatron-145.6b", "gpus": 1536, "training__global_batch": 2304},
        {"data": 24, "tensor": 8, "pipeline": 8, "gradient_accumulation": 96},
        "tflops",
        148,
    ),
    "Megatron 1T (2104.04473 table 1)": (
        {"model": "megatron-1008b", "gpus": 3072, "training__global_batch": 3072},
        {"data": 6, "tensor": 8, "pipeline": 64, "gradient_accumulation": 512},
        "tflops",
        163,
    ),
    "MT-NLG 530B (2201.11990)": (
        {
            "model": "mt-nlg-530b",
            "gpus": 2240,
            "training__global_batch": 1920,
            "framework": "megatron-deepspeed",
        },
        {"data": 8, "tensor": 8, "pipeline": 35, "gradient_accumulation": 240, "zero_stage": 1},
        "seconds",
        60.1,
    ),
    "BLOOM (bigscience tr11)": (
        {
            "model": "bloom-176b",
            "gpus": 384,
            "training__global_batch": 2048,
            "framework": "megatron-deepspeed",
            "cluster": "idris/jean-zay-a100-node",
        },
        {
            "data": 8,
            "tensor": 4,
            "pipeline": 12,
            "micro_batch": 2,
            "gradient_accumulation": 128,
            "zero_stage": 1,
        },
        "seconds",
        105,
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_runs(name: str) -> None:
    """Four large published runs come out within 25 %: sane, not yet accurate."""
    overrides, layout, kind, expected = PUBLISHED[name]
    run = job(**{"cluster": A100, "training__attention": "unfused", **overrides})
    whole = Layout(recompute=Recompute.FULL, **layout)
    seconds = float(step_time(run, whole).total_s)
    m, s = run.model, 2048
    closed = 96 * whole.global_batch * s * m.layers * m.hidden**2
    closed *= 1 + s / (6 * m.hidden) + m.vocab / (16 * m.layers * m.hidden)
    value = closed / seconds / whole.world / 1e12 if kind == "tflops" else seconds
    assert value == pytest.approx(expected, rel=0.25)


def test_what_is_known_of_other_rows_changes_no_figure() -> None:
    """Rows have the same time and memory alone, among others, after others, and after those of
    another job.
    """
    deepseek = job(
        model="deepseek-v3", framework="megatron-lm", gpus=512, training__global_batch=512
    )
    rows = joined(Enumeration(deepseek)).take(slice(0, None, 509))
    values = {
        "virtual_pipeline": np.minimum(2, rows.pipeline),
        "tensor_overlap": np.broadcast_to(True, len(rows)),
    }
    turned = replace(rows, **values, recompute_layers=1 * (rows.recompute == Recompute.FULL))

    def figures(layouts: Any) -> Any:
        ledgers = step_time(deepseek, layouts), memory(deepseek, layouts)
        return [
            np.broadcast_to(getattr(part, f.name), len(layouts))
            for part in ledgers
            for f in fields(part)
        ]

    whole = figures(rows)
    other = figures(turned)
    step_time(job(model="mixtral-8x7b"), rows)
    for all_rows, expected in ((turned, other), (rows, whole)):
        for start in (0, 50, 300):
            alone = figures(all_rows.take(slice(start, start + 50)))
            np.testing.assert_array_equal(
                alone, [column[start : start + 50] for column in expected]
            )


@pytest.mark.parametrize(
    ("keys", "narrow"),
    [
        ({"framework": "megatron-lm"}, True),
        ({"framework": "deepspeed"}, False),
        ({"framework": "huggingface"}, False),
        ({"framework": "huggingface", "training__sharding": "fsdp2"}, False),
    ],
)
def test_precision_is_that_of_the_framework_s_layers(keys: dict[str, Any], narrow: bool) -> None:
    """With ordinary layers fp8 costs what bf16 does, in time, memory and share of the peak, as
    these compute in bf16; layers of Transformer Engine are faster in it.
    """
    wide, asked = (
        dsgen.estimate(job(cluster="nvidia/dgx-h100", training__precision=name, **keys))
        for name in ("bf16", "fp8")
    )
    assert (asked.step_time.compute_s < wide.step_time.compute_s) is narrow
    assert (asked.to_dict()["memory"] != wide.to_dict()["memory"]) is narrow
    assert (asked.throughput.mfu == pytest.approx(wide.throughput.mfu)) is not narrow
    rules = {finding.rule for finding in check_job(asked.job)}
    assert ("PREC020" in rules) is not narrow
