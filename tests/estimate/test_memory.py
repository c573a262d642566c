"""The memory ledger: closed forms of the literature, and the laws of physics it obeys."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dsgen.estimate import model_size
from dsgen.estimate.activations import layer_bytes_per_token
from dsgen.estimate.backward import table_gradient_bytes
from dsgen.estimate.layout import Layout, Offload, Recompute
from dsgen.estimate.memory import every_stage, memory
from dsgen.estimate.stages import (
    chunk_sizes,
    in_flight,
    overlapped_layers,
    split,
    stage_contents,
    vocabulary_rows,
)
from dsgen.job.records import Job
from dsgen.search.enumerate import Enumeration, joined
from tests.jobs import job

GPT = {
    "model": "gpt3-175b",
    "training__attention": "unfused",
    "gpus": 1024,
    "training__global_batch": 1536,
}


def bytes_per_token_and_hidden(job: Job, **layout: Any) -> float:
    """Activations of one dense layer over tokens and hidden size."""
    whole = float(layer_bytes_per_token(job, Layout(data=1, **layout), job.model.stack.kinds[0]))
    return whole / job.model.hidden


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        ({}, 34 + 5 * 96 * 2048 / 12288),
        ({"tensor": 8}, 10 + 24 / 8 + 5 * 96 * 2048 / 12288 / 8),
        ({"tensor": 8, "sequence_parallel": True}, (34 + 5 * 96 * 2048 / 12288) / 8),
        ({"tensor": 8, "recompute": Recompute.SELECTIVE}, 10 + 24 / 8),
        ({"tensor": 8, "sequence_parallel": True, "recompute": Recompute.SELECTIVE}, 34 / 8),
    ],
    ids=["none", "tensor", "tensor+sequence", "tensor+selective", "tensor+sequence+selective"],
)
def test_activations_are_those_of_korthikanti(layout: dict[str, Any], expected: float) -> None:
    """GPT-3 with dropout keeps what 2205.05198, Table 2, says, for each of its five rows."""
    assert bytes_per_token_and_hidden(job(**GPT), **layout) == pytest.approx(expected, rel=1e-9)


def test_flash_attention_keeps_34() -> None:
    """With flash attention nothing is left for selective recomputation to save."""
    flash = job(**{**GPT, "training__attention": "flash"})
    assert bytes_per_token_and_hidden(flash) == 34
    assert bytes_per_token_and_hidden(flash, recompute=Recompute.SELECTIVE) == 34


@pytest.mark.parametrize(
    ("model", "expected", "grouped"),
    [("llama-3-8b", 34.0, 1 / 4), ("llama-2-7b", 32.12, 1), ("llama-2-70b", 33.5, 1 / 8)],
)
def test_fused_llama_layer(model: str, expected: float, grouped: float) -> None:
    """A fused Llama layer keeps 12 + 4g/a + 6f/h bytes, as autograd's saved tensors showed (34.00,
    32.12, 33.50).

    Megatron's values are a view of the packed product: the queries and keys before rotation stay
    with them.
    """
    packed = 2 * (1 + grouped)
    assert bytes_per_token_and_hidden(job(model=model)) == pytest.approx(
        expected + packed, abs=0.01
    )


def test_eager_llama_matches_fake_tensor_measurement() -> None:
    """An eager Hugging Face Llama-2 7B layer keeps what FakeTensorMode measured, within 4 %: 0.3635
    GiB at 2,048.
    """
    eager = job(model="llama-2-7b", framework="huggingface")
    whole = float(layer_bytes_per_token(eager, Layout(data=1), eager.model.stack.kinds[0])) * 2048
    assert whole == pytest.approx(0.3635 * 2**30, rel=0.04)


@pytest.mark.parametrize(
    ("framework", "precision", "stage", "expected"),
    [
        ("megatron-lm", "bf16", 0, lambda d: 18),
        ("megatron-lm", "bf16", 1, lambda d: 6 + 12 / d),
        ("megatron-lm", "fp16", 0, lambda d: 16),
        ("megatron-lm", "fp16", 1, lambda d: 4 + 12 / d),
        ("megatron-lm", "fp32", 1, lambda d: 8 + 8 / d),
        ("megatron-deepspeed", "bf16", 1, lambda d: 8 + 12 / d),
        ("megatron-deepspeed", "fp16", 1, lambda d: 4 + 12 / d),
        ("deepspeed", "bf16", 2, lambda d: 2 + 16 / d),
        ("deepspeed", "bf16", 3, lambda d: 18 / d),
        ("deepspeed", "fp16", 3, lambda d: 16 / d),
    ],
)
def test_states_per_parameter(framework: str, precision: str, stage: int, expected: Any) -> None:
    """Weights, gradients and optimizer take the documented bytes per parameter, d being data times
    context.
    """
    eight = job(framework=framework, training__precision=precision, gpus=16)
    ledger = memory(eight, Layout(data=8, context=2, zero_stage=stage, gradient_accumulation=2))
    states = ledger.parameters_bytes + ledger.gradients_bytes + ledger.optimizer_bytes
    parameters = model_size.parameter_count(eight.model) + _padding(eight)
    assert float(states) / parameters == pytest.approx(expected(16), rel=1e-6)


def _padding(job: Job) -> int:
    """Rows that Megatron adds to embedding and head."""
    rows = (
        int(model_size.padded_vocab(job.model.vocab, 1, job.framework.vocabulary_multiple))
        - job.model.vocab
    )
    return 2 * rows * job.model.hidden


def test_tensor_and_pipeline_share_all_parameters_out() -> None:
    """Over tensor ranks and stages, every parameter is held: norms once per tensor rank, nothing
    else twice.
    """
    small = job()
    layout = Layout(data=1, tensor=4, pipeline=4)
    held = sum(float(stage_contents(small, layout, stage).shared) for stage in range(4)) * 4
    norms = model_size.over_layers(small.model, lambda layer: layer.norm_parameters)
    norms += model_size.final_parameters(small.model)
    padded = (
        2
        * (int(model_size.padded_vocab(32000, 4, small.framework.vocabulary_multiple)) - 32000)
        * small.model.hidden
    )
    assert held == model_size.parameter_count(small.model) + 3 * norms + padded


def test_experts_are_cut_by_expert_parallelism() -> None:
    """Routed experts are divided by expert × tensor, the rest is not (the trap of dividing experts
    by tensor alone).
    """
    moe = job(model="mixtral-8x7b", training__global_batch=64)
    one, eight = (stage_contents(moe, Layout(data=16, expert=e), 0) for e in (1, 8))
    assert (
        float(eight.experts) * 8
        == float(one.experts)
        == 32 * 8 * moe.model.feed_forward.expert_parameters
    )
    assert float(eight.shared) == float(one.shared)


def test_every_stage_of_bloom_adds_up() -> None:
    """70 layers on 12 stages with the ends counted as layers: 5 + 10 × 6 + 5."""
    bloom = job(model="bloom-176b", framework="megatron-deepspeed")
    layout = Layout(data=1, pipeline=12)
    assert [int(stage_contents(bloom, layout, stage).layers) for stage in range(12)] == [
        5,
        *[6] * 10,
        5,
    ]


@pytest.mark.parametrize(
    ("m", "p", "v", "expected"),
    [(8, 4, 1, [4, 3, 2, 1]), (2, 4, 1, [2, 2, 2, 1]), (8, 4, 2, [11 / 2, 9 / 2, 7 / 2, 5 / 2])],
)
def test_micro_batches_in_flight(m: int, p: int, v: int, expected: list[float]) -> None:
    """1F1B keeps min(m, p - i) micro-batches; interleaving keeps 2(p-i-1) + (v-1)p + 1 chunks."""
    layout = Layout(data=1, pipeline=p, virtual_pipeline=v, gradient_accumulation=m)
    assert [float(in_flight(layout, i)) for i in range(p)] == expected


@pytest.mark.parametrize("layers", [22, 29, 30, 31, 37])
@pytest.mark.parametrize("v", [2, 4])
def test_layers_in_flight_of_unequal_chunks(layers: int, v: int) -> None:
    """Before its first backward pass a stage has run so many chunks as interleaving warms up with,
    in turns of `pipeline` for each row.
    """
    p, m = 4, 8
    whole = job(model__num_hidden_layers=layers)
    layout = Layout(data=1, pipeline=p, virtual_pipeline=v, gradient_accumulation=m)
    sizes = chunk_sizes(whole, layout)
    for stage in range(p):
        warm = min(m * v, 2 * (p - stage - 1) + (v - 1) * p + 1)
        rows = [chunk // p % v for chunk in range(warm)]
        held = sum(sizes[row * p + stage] for row in rows)
        share = held / sum(sizes[stage::p])
        assert float(in_flight(layout, stage, split(whole, layout))) == pytest.approx(share)


@pytest.mark.parametrize(
    ("overrides", "layout"),
    [
        (GPT, {"data": 8, "tensor": 8, "pipeline": 16, "gradient_accumulation": 192}),
        (
            {"model": "bloom-176b", "framework": "megatron-deepspeed"},
            {"data": 1, "pipeline": 12, "zero_stage": 1},
        ),
        (
            {"model": "deepseek-v3", "training__sequence_length": 4096},
            {"data": 16, "pipeline": 61, "expert": 16},
        ),
        ({"model": "llama-3-8b"}, {"data": 1, "pipeline": 16, "gradient_accumulation": 4}),
    ],
    ids=["gpt", "bloom", "deepseek", "llama"],
)
def test_fullest_stage_is_the_fullest_of_all(
    overrides: dict[str, Any], layout: dict[str, Any]
) -> None:
    """The four candidate stages contain the maximum over every stage of the pipeline."""
    whole = job(**overrides)
    stages = every_stage(whole, Layout(**layout))
    reported = memory(whole, Layout(**layout))
    peaks = [float(stage.allocated_bytes) for stage in stages]
    assert float(reported.allocated_bytes) == max(peaks)
    assert int(reported.stage) == peaks.index(max(peaks))


def test_allocated_is_at_most_the_sum_of_parts() -> None:
    """The peak never exceeds its parts and the embedding's gradient, and falls short where parts
    don't coexist.
    """
    small = job()
    rows = joined(Enumeration(small))
    ledger = memory(small, rows)
    states = ledger.parameters_bytes + ledger.gradients_bytes + ledger.optimizer_bytes
    total = states + ledger.activations_bytes + ledger.output_bytes + ledger.buffers_bytes
    embedding = table_gradient_bytes(small, vocabulary_rows(small, rows)) * (ledger.stage == 0)
    assert np.all(ledger.allocated_bytes <= (total + embedding) * (1 + 1e-12))
    assert np.all(
        ledger.allocated_bytes
        >= total - np.minimum(ledger.activations_bytes, ledger.output_bytes) - 1
    )
    assert np.all(ledger.device_bytes >= ledger.required_bytes)


@pytest.mark.parametrize("framework", ["deepspeed", "megatron-deepspeed"])
def test_model_states_shrink_with_the_stage(framework: str) -> None:
    """All else equal, a higher ZeRO stage never holds more states."""
    small = job(framework=framework, gpus=8, training__global_batch=64)
    ledgers = [memory(small, Layout(data=8, zero_stage=stage)) for stage in range(1, 4)]
    states = [float(m.parameters_bytes + m.gradients_bytes + m.optimizer_bytes) for m in ledgers]
    assert states == sorted(states, reverse=True)


@pytest.mark.parametrize(
    ("field", "values"),
    [("micro_batch", (1, 2, 4)), ("gradient_accumulation", (1, 2, 4, 8, 16))],
)
def test_memory_grows_with_the_batch(field: str, values: tuple[int, ...]) -> None:
    """More sequences at once, or more micro-batches in flight, never need less."""
    small, layout = job(), Layout(data=1, pipeline=4)
    peaks = [
        float(memory(small, replace(layout, **{field: value})).allocated_bytes) for value in values
    ]
    assert peaks == sorted(peaks)


def test_offload_moves_the_optimizer_to_the_host() -> None:
    """Offloading the optimizer empties its device part and fills the host, 20 bytes a parameter and
    pinned buffers.
    """
    eight = job(framework="deepspeed", gpus=8, training__global_batch=64)
    ledger = memory(eight, Layout(data=8, zero_stage=3, offload=Offload.OPTIMIZER))
    assert float(ledger.optimizer_bytes) == 0
    per_parameter = float(ledger.host_bytes_per_node) / model_size.parameter_count(eight.model)
    assert per_parameter == pytest.approx(20 * 1.5, rel=1e-6)


def test_two_trillion_parameters_need_no_petabyte() -> None:
    """2T parameters on 1,024 GPUs ask for hundreds of GB a node, not the petabyte of multiplying by
    GPUs.
    """
    huge = job(
        model="megatron-deepspeed-2t",
        framework="megatron-deepspeed",
        cluster="azure/standard_nd96amsr_a100_v4",
        gpus=1024,
        training__global_batch=1024,
        training__sequence_length=1024,
    )
    layout = Layout(data=1024, zero_stage=3, recompute=Recompute.FULL, offload=Offload.OPTIMIZER)
    assert 200e9 < float(memory(huge, layout).host_bytes_per_node) < 600e9


def test_deepseek_shortens_its_last_stage() -> None:
    """61 layers on 16 stages of Megatron-LM: fifteen of 4 and a last of 1, three dense ones on the
    first.
    """
    deepseek = job(model="deepseek-v3", training__global_batch=64)
    layout = Layout(data=1, pipeline=16)
    stages = [stage_contents(deepseek, layout, stage) for stage in range(16)]
    assert [int(stage.layers) for stage in stages] == [*[4] * 15, 1]
    assert [int(stage.kinds[0]) for stage in stages] == [3, *[0] * 15]


def test_overlapped_experts_hold_a_layer_more() -> None:
    """With expert overlap the forward pass is one layer ahead: 1/12 of a stage of 12 layers,
    nothing of one pass.
    """
    layout = Layout(data=8, expert=4, gradient_accumulation=4, expert_overlap=True)
    held = stage_contents(job(), layout, 0)
    assert float(overlapped_layers(layout, held)) == pytest.approx(1 / 12)
    assert float(overlapped_layers(replace(layout, gradient_accumulation=1), held)) == 0
    assert float(overlapped_layers(replace(layout, expert_overlap=False), held)) == 0
