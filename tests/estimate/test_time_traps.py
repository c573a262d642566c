"""What other planners got wrong about time, FLOPs and layouts; each test names the one that did."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dsgen
from dsgen.estimate.collectives import (
    all_gather_s,
    all_reduce_s,
    bandwidth,
    network_bytes_per_s,
)
from dsgen.estimate.communication import boundary_s
from dsgen.estimate.flops import (
    attention_flops_per_token,
    hardware_flops_per_step,
    model_flops_per_step,
)
from dsgen.estimate.groups import group
from dsgen.estimate.layout import Layout, Recompute
from dsgen.estimate.step_time import step_time, throughput
from dsgen.findings import Severity
from dsgen.job.records import Job
from dsgen.search.enumerate import Enumeration, joined
from dsgen.search.plan import Plan
from tests.jobs import job
from tests.models import changed

DEEPSPEED = {"framework": "deepspeed", "training__global_batch": 1024}


def seconds(whole: Job, part: str, **layout: Any) -> float:
    """One part of the ledger for one layout."""
    return float(getattr(step_time(whole, Layout(**layout)), f"{part}_s"))


def with_network(whole: Job, factor: float) -> Job:
    """The job on nodes with `factor` times the bandwidth between them."""
    rate = whole.cluster.network_bytes_per_s_per_node * factor
    return replace(whole, cluster=replace(whole.cluster, network_bytes_per_s_per_node=rate))


def with_nodes_of(whole: Job, gpus: int) -> Job:
    """The job on nodes of `gpus`."""
    return replace(
        whole, cluster=replace(whole.cluster, accelerators_per_node=gpus, link_domain=gpus)
    )


def errors(plan: Plan) -> set[str]:
    """The rules that make a plan illegal."""
    return {finding.rule for finding in plan.findings if finding.severity is Severity.ERROR}


# FLOPs


def test_flops_follow_the_width_exactly() -> None:
    """One more MLP column costs 6 FLOPs a token and weight: nothing is cut to whole multiples of
    the hidden size.

    Trap: cookbook calc_transformer_flops.py:117 takes int() of iterations x linears x expansion
    factor.
    """
    small = job(training__global_batch=1)
    wider = replace(small, model=changed(small.model, width=small.model.ffn + 1))
    more = 6 * 2048 * small.model.layers * 3 * small.model.hidden
    assert model_flops_per_step(wider) - model_flops_per_step(small) == pytest.approx(
        more, rel=1e-6
    )


def test_moe_flops_count_every_expert_of_a_token() -> None:
    """A second expert a token costs one expert's FLOPs in every MoE layer.

    Trap: cookbook calc_transformer_flops.py:123 takes top-1.
    """
    two = job(model="mixtral-8x7b", training__global_batch=1)
    one = replace(two, model=changed(two.model, per_token=1))
    more = 6 * 2048 * two.model.layers * two.model.feed_forward.expert_parameters
    assert two.model.feed_forward.per_token == 2
    assert model_flops_per_step(two) - model_flops_per_step(one) == pytest.approx(more, rel=1e-6)


def test_moe_time_grows_with_experts_of_a_token() -> None:
    """Top-2 spends twice the MLP time of top-1, and does not spend the time of all eight experts.

    Trap: cookbook :123; and the reverse, every parameter counted as active.
    """
    two = job(model="mixtral-8x7b", training__global_batch=16)
    by_count = {k: replace(two, model=changed(two.model, per_token=k)) for k in (1, 2, 3, 8)}
    times = {k: seconds(whole, "compute", data=1, micro_batch=4) for k, whole in by_count.items()}
    assert times[3] - times[2] == pytest.approx(times[2] - times[1], rel=0.1)
    assert times[2] < 0.5 * times[8]


def test_dense_layers_of_a_moe_model_have_no_experts() -> None:
    """Turning a MoE layer into a dense one swaps its active experts for the dense MLP.

    Trap: cookbook :123 ignores expert_interval, so every layer has experts.
    """
    moe = job(model="deepseek-v3", training__global_batch=1)
    model = moe.model
    dense, experts = model.stack.kinds
    stack = replace(model.stack, runs=((0, 4), (1, 57)))
    denser = replace(moe, model=replace(model, stack=stack))
    routed = experts.feed_forward.active_parameters
    change = 6 * 2048 * (dense.feed_forward.parameters - routed)
    assert model_flops_per_step(denser) - model_flops_per_step(moe) == pytest.approx(
        change, rel=1e-6
    )


# model, GPUs, batch, seconds, MFU, HFU of 2205.05198 table 5, sequence parallel + selective
KORTHIKANTI = [
    ("22b", 8, 4, 1.10, 41.7, 43.8),
    ("megatron-145.6b", 64, 64, 13.75, 51.4, 52.8),  # with 96 layers: 175B
    ("megatron-529.6b", 280, 280, 37.83, 56.0, 57.0),
    ("megatron-1008b", 512, 512, 71.49, 56.3, 57.0),
]


def _korthikanti(model: str, gpus: int, batch: int) -> Job:
    layers = {"22b": 48, "megatron-145.6b": 96}.get(model)
    known = "megatron-18.4b" if model == "22b" else model
    whole = job(model=known, gpus=gpus, training__global_batch=batch)
    return replace(whole, model=changed(whole.model, layers=layers)) if layers else whole


@pytest.mark.parametrize(("model", "gpus", "batch", "step_s", "mfu", "hfu"), KORTHIKANTI)
def test_utilisation_is_that_of_korthikanti(
    model: str, gpus: int, batch: int, step_s: float, mfu: float, hfu: float
) -> None:
    """Table 5's MFU is of our model FLOPs with the masked half counted, its HFU with attention
    counted twice.

    Trap: conventions mixed (2205.05198 sec 6.3: 72 B s l h^2 (1 + s/6h + V/12lh), hardware s/3h).
    Causal models need half of that attention, and selective recomputation repeats the forward pass
    alone: our own HFU is the lower.
    """
    whole = _korthikanti(model, gpus, batch)
    masked = 3 * attention_flops_per_token(whole) * whole.training.tokens_per_step
    percent = 100 / (step_s * gpus * 312e12)
    counted = model_flops_per_step(whole) + masked
    assert counted * percent == pytest.approx(mfu, abs=0.15)
    assert (counted + 2 * masked) * percent == pytest.approx(hfu, abs=0.15)
    ours = float(hardware_flops_per_step(whole, Layout(data=1, recompute=Recompute.SELECTIVE)))
    assert ours == pytest.approx(model_flops_per_step(whole) + masked / 3)


@pytest.mark.parametrize(
    ("model", "batch", "gpus", "measured", "step_s"),
    [("megatron-145.6b", 2304, 1536, 148, 24.82), ("mt-nlg-530b", 1920, 2240, 126, 60.1)],
)
def test_percent_of_peak_with_recomputation_is_hfu(
    model: str, batch: int, gpus: int, measured: float, step_s: float
) -> None:
    """Megatron's printed TFLOPS are hardware FLOPs, 4/3 of the model's, by 96 B s l h^2 (1 + s/6h +
    V/16lh).

    Trap: taking them for MFU (2104.04473 table 1; 2201.11990).
    """
    whole = job(model=model, gpus=gpus, training__global_batch=batch)
    core = attention_flops_per_token(whole) * whole.training.tokens_per_step
    hardware = (
        float(hardware_flops_per_step(whole, Layout(data=1, recompute=Recompute.FULL))) + 4 * core
    )
    assert hardware / step_s / gpus / 1e12 == pytest.approx(measured, rel=0.01)
    assert hardware / (model_flops_per_step(whole) + 3 * core) == pytest.approx(4 / 3, rel=0.01)


def test_unhalved_attention_is_told_apart() -> None:
    """Llama 3 70B at 8k is 449 GFLOP a token with causal attention halved, and 481 with 12 L h s,
    as NeMo counted it.

    Trap: the two conventions' TFLOPS mixed: the same speed, 7 % apart.
    """
    llama = job(model="llama-3-70b", training__sequence_length=8192)
    halved = model_flops_per_step(llama) / llama.training.tokens_per_step
    assert halved == pytest.approx(449e9, rel=2e-3)
    assert halved + 3 * attention_flops_per_token(llama) == pytest.approx(481e9, rel=2e-3)


def test_mfu_does_not_count_recomputation() -> None:
    """Full recomputation lowers MFU and leaves HFU a third above it.

    Trap: "% of peak" of a run with recomputation reported as MFU.
    """
    gpt = job(model="megatron-145.6b", gpus=64, training__global_batch=64)
    layout = Layout(
        data=1, tensor=8, pipeline=8, gradient_accumulation=64, recompute=Recompute.FULL
    )
    full = throughput(gpt, layout, step_time(gpt, layout))
    plain = replace(layout, recompute=Recompute.NONE)
    none = throughput(gpt, plain, step_time(gpt, plain))
    assert full.hfu / full.mfu == pytest.approx(4 / 3, rel=0.01)
    assert full.mfu < none.mfu == pytest.approx(none.hfu)


# What communicates how often


@pytest.mark.parametrize(("stage", "grows"), [(0, False), (1, False), (2, True), (3, True)])
def test_stages_2_and_3_communicate_with_every_micro_batch(stage: int, grows: bool) -> None:
    """DeepSpeed's ZeRO-2 and 3 move data with every micro-batch, stages 0 and 1 once a step.

    Trap: llm-analysis analysis.py:1326-1331 charges every stage alike; ZeRO (1910.02054 sec 7).
    """
    whole = job(**DEEPSPEED)
    few, many = (
        seconds(whole, "data", data=16, zero_stage=stage, gradient_accumulation=m) for m in (4, 32)
    )
    assert many > 3 * few if grows else many == pytest.approx(few)


def test_stages_differ_at_all() -> None:
    """With accumulation ZeRO-3 costs more communication than ZeRO-2, and that more than ZeRO-1.

    Trap: SimuMax config.py:680-687 ignores ZeRO-2 and 3 silently.
    """
    whole = job(**DEEPSPEED)
    one, two, three = (
        seconds(whole, "data", data=16, zero_stage=z, gradient_accumulation=8) for z in (1, 2, 3)
    )
    assert one < two < three


def test_what_compute_cannot_hide_is_added() -> None:
    """A step takes its compute and what of the gradients can't hide behind it, not the larger of
    the two.

    Trap: llm-analysis analysis.py:1326-1331, max(compute, all-gather) for every stage.
    """
    slow = with_network(job(**DEEPSPEED), 0.01)
    for stage in (0, 1):
        ledger = step_time(slow, Layout(data=16, zero_stage=stage, gradient_accumulation=64))
        work = float(ledger.compute_s)
        assert float(ledger.total_s) == pytest.approx(
            work + float(ledger.data_s + ledger.optimizer_s)
        )
        assert float(ledger.total_s) > 1.02 * max(work, float(ledger.data_s))


@pytest.mark.parametrize("framework", ["megatron-lm", "deepspeed"])
def test_overlap_is_never_perfect(framework: str) -> None:
    """Gradients cost time even when a micro-batch computes a hundred times longer than they travel.

    Trap: llm-analysis assumes perfect overlap (README).
    """
    whole = job(framework=framework, training__global_batch=4096)
    ledger = step_time(whole, Layout(data=2, micro_batch=256))
    assert float(ledger.compute_s) > 100 * float(ledger.data_s) > 0


def test_pipeline_sends_cost_time() -> None:
    """Stages that send to each other take longer on a slower network.

    Trap: llm-analysis ignores pipeline communication.
    """
    layout: dict[str, Any] = {"data": 1, "tensor": 8, "pipeline": 4, "gradient_accumulation": 48}
    gpt = job(model="megatron-18.4b", gpus=32)
    fast, slow = (seconds(with_network(gpt, f), "pipeline", **layout) for f in (1, 0.1))
    assert 0 < 5 * fast < slow


def test_more_chunks_fill_the_pipeline_by_more_sends() -> None:
    """With few micro-batches, chunks that are passed on while the pipeline fills and drains cost
    their sends.

    Megatron-LM waits for `2 (p - 1) + (v - 1) p` in each direction
    (core/pipeline_parallel/schedules.py).
    """
    layout: dict[str, Any] = {"data": 1, "tensor": 8, "pipeline": 4, "gradient_accumulation": 8}
    gpt = job(model="megatron-18.4b", gpus=32)
    send = float(boundary_s(gpt, Layout(**layout)))
    for chunks in (2, 5, 10):
        assert (
            seconds(gpt, "pipeline", virtual_pipeline=chunks, **layout)
            >= 2 * (6 + 4 * (chunks - 1)) * send
        )


def test_gradients_travel_by_tensor_rank() -> None:
    """Four tensor ranks send a quarter of the gradients each.

    Trap: llm-analysis analysis.py:1326 does not divide the gathered parameters by tensor
    parallelism.
    """
    gpt = job(model="megatron-18.4b", gpus=8)
    one, four = (
        seconds(gpt, "data", data=2, tensor=t, micro_batch=4, gradient_accumulation=6)
        for t in (1, 4)
    )
    assert four == pytest.approx(one / 4, rel=0.1)


# The bubble


@pytest.mark.parametrize("chunks", [2, 5, 10])
def test_interleaving_divides_the_bubble(chunks: int) -> None:
    """The bubble is there, (p-1)/m of the work without chunks, and v chunks divide it by v.

    Trap: llm-analysis has none (2104.04473 sec 2.2).
    """
    gpt = job(model="megatron-145.6b", gpus=64, training__global_batch=32)
    layout: dict[str, Any] = {"data": 1, "tensor": 8, "pipeline": 8, "gradient_accumulation": 32}
    plain = step_time(gpt, Layout(**layout))
    divided = seconds(gpt, "bubble", virtual_pipeline=chunks, **layout)
    assert divided == pytest.approx(float(plain.bubble_s) / chunks)
    work = float(plain.compute_s + plain.tensor_s)
    assert float(plain.bubble_s) == pytest.approx(7 / 32 * work, rel=0.1)


def test_more_micro_batches_shrink_the_bubble() -> None:
    """Four times the micro-batches have a quarter of the bubble's share.

    Trap: a bubble as a fixed loss, or none (llm-analysis).
    """
    gpt = job(model="megatron-145.6b", gpus=64)
    ledgers = [
        step_time(gpt, Layout(data=1, pipeline=8, gradient_accumulation=m)) for m in (16, 64)
    ]
    few, many = (float(ledger.bubble_s / ledger.compute_s) for ledger in ledgers)
    assert many == pytest.approx(few / 4) and many > 0


# Collectives and where their ranks sit


@pytest.mark.parametrize("ranks", [2, 4, 8, 64])
def test_a_ring_carries_its_bus_volume(ranks: int) -> None:
    """An all-reduce moves 2 (n-1)/n of its bytes through each rank, an all-gather half of that.

    Trap: S/B for every group size (nccl-tests PERFORMANCE.md: bus bandwidth).
    """
    whole = job()
    ring, size = group(whole, ranks, 1), 2**30
    rate = float(bandwidth(whole, ring))
    reduce = (
        float(all_reduce_s(whole, ring, 2 * size) - all_reduce_s(whole, ring, size)) * rate / size
    )
    gather = (
        float(all_gather_s(whole, ring, 2 * size) - all_gather_s(whole, ring, size)) * rate / size
    )
    assert reduce == pytest.approx(2 * (ranks - 1) / ranks)
    assert gather == pytest.approx((ranks - 1) / ranks)


@pytest.mark.parametrize(
    ("size", "stride", "node", "inside"),
    [(8, 1, 8, 8), (2, 8, 8, 1), (8, 2, 8, 4), (16, 1, 8, 8), (8, 1, 4, 4), (4, 2, 16, 4)],
)
def test_placement_decides_what_leaves_the_node(
    size: int, stride: int, node: int, inside: int
) -> None:
    """Which ranks share a node follows from the group's size, its stride and the node's size.

    Trap: llm-analysis analysis.py:1257 calls a group inter-node when dp * tp > 8, whatever the
    group or the node.
    """
    assert int(group(with_nodes_of(job(), node), size, stride).per_node) == inside


def test_tensor_ranks_of_a_node_ignore_the_network() -> None:
    """Tensor groups that fill nodes don't slow down with the network, however many replicas there
    are.

    Trap: llm-analysis :1257: dp * tp > 8 sends their all-reduces over the network.
    """
    gpt = job(model="megatron-18.4b", gpus=64, training__global_batch=64)
    layout: dict[str, Any] = {"data": 8, "tensor": 8, "gradient_accumulation": 8}
    fast, slow = (step_time(with_network(gpt, f), Layout(**layout)) for f in (1, 0.1))
    assert float(fast.tensor_s) == float(slow.tensor_s)
    assert float(fast.data_s) < float(slow.data_s)


def test_small_groups_across_nodes_use_the_network() -> None:
    """Eight ranks on nodes of four leave the node, and so do two replicas of a whole node.

    Trap: llm-analysis :1257: up to eight ranks are taken for one node.
    """
    gpt = with_nodes_of(job(model="megatron-1.7b", gpus=16), 4)
    layouts: tuple[dict[str, Any], ...] = ({"data": 8}, {"data": 2, "tensor": 4})
    for layout in layouts:
        fast, slow = (
            seconds(with_network(gpt, f), "data", micro_batch=1, **layout) for f in (1, 0.1)
        )
        assert slow > 2 * fast


def test_groups_of_a_node_share_its_network() -> None:
    """Rings side by side in a node never have more than its NICs between them, and one ring alone
    has them all.

    Trap: each rank given the whole node's bandwidth, or a lone data-parallel ring a single NIC.
    """
    whole = with_network(job(), 0.1)  # slow enough for the network to be the narrowest place
    for side_by_side in (1, 2, 4, 8):
        ring = group(whole, 16, side_by_side)
        assert float(bandwidth(whole, ring)) * side_by_side == pytest.approx(
            network_bytes_per_s(whole)
        )


def test_one_port_for_eight_gpus_is_an_eighth_each() -> None:
    """A node with one of eight NICs gives each ring an eighth (Azure ND40rs_v2: one 100 Gb port for
    8 GPUs).

    Trap: a NIC for every GPU assumed of every node.
    """
    one_port = with_network(job(), 1 / 8)
    assert network_bytes_per_s(one_port) == pytest.approx(network_bytes_per_s(job()) / 8)
    assert float(bandwidth(one_port, group(one_port, 16, 8))) == pytest.approx(
        network_bytes_per_s(one_port) / 8
    )


# Worlds, batches and sequences


def test_experts_take_no_ranks_of_their_own() -> None:
    """Expert parallelism is cut out of data x context: every legal layout of 16 GPUs multiplies to
    16 without it.

    Trap: NeMo's training_config.py:82 takes TP * PP * CP * EP for the ranks of a model.
    """
    rows = joined(Enumeration(job(model="mixtral-8x7b", gpus=16, training__global_batch=16)))
    assert np.all(rows.data * rows.tensor * rows.pipeline * rows.context == 16)
    assert np.any((rows.expert == 8) & (rows.tensor == 2))
    pins = {"layout__data": 8, "layout__tensor": 2, "layout__expert": 8}
    plan = dsgen.estimate(job(model="mixtral-8x7b", gpus=16, training__global_batch=16, **pins))
    assert plan.layout.world == 16
    assert "MLM001" not in errors(plan)


def test_context_and_tensor_take_ranks() -> None:
    """Replicas are what is left of the GPUs after tensor, pipeline and context together.

    Trap: Primus takes world / (EP * PP) replicas, tensor and context folded in.
    """
    plan = dsgen.estimate(job(layout__tensor=2, layout__pipeline=2, layout__context=2))
    assert (plan.layout.data, plan.layout.world) == (2, 16)


def test_a_layout_for_other_gpus_is_illegal() -> None:
    """A layout whose data x tensor x pipeline x context is not the number of GPUs is an error.

    Trap: ranks left over, or counted twice, in silence (NeMo training_config.py:82).
    """
    pins = {"layout__data": 8, "layout__tensor": 2, "layout__context": 2}
    assert "MLM001" in errors(dsgen.estimate(job(**pins)))


@pytest.mark.parametrize("micro", [1, 2, 4])
def test_accumulation_divides_by_the_micro_batch(micro: int) -> None:
    """Micro-batch x accumulation x replicas is the batch: larger micro-batches leave fewer passes.

    Trap: Primus language_model.py:603-606, ga = GBS // dp; DeepSpeed's elasticity v0.2 is off by
    tensor (PR 8395).
    """
    pins = {"layout__tensor": 4, "layout__micro_batch": micro}
    layout = dsgen.estimate(job(training__global_batch=64, **pins)).layout
    assert (layout.data, layout.gradient_accumulation) == (4, 16 // micro)


def test_every_layout_trains_the_batch() -> None:
    """No layout of the search has another global batch than the job's.

    Trap: DeepSpeed's autotuner ignores train_batch_size (README:113).
    """
    rows = joined(Enumeration(job()))
    assert np.all(rows.micro_batch * rows.gradient_accumulation * rows.data == 48)


@pytest.mark.parametrize("batch", [8, 50])
def test_a_batch_that_replicas_do_not_divide_is_illegal(batch: int) -> None:
    """16 replicas and 8 or 50 sequences are an error, and the step still has work in it.

    Trap: DeepSpeed config.py:955-964 floors the division in silence; Primus has 0 passes of a batch
    below the replicas.
    """
    plan = dsgen.estimate(job(training__global_batch=batch, layout__data=16))
    assert "MLM002" in errors(plan)
    assert float(plan.step_time.compute_s) > 0


def test_context_ranks_share_the_sequence() -> None:
    """Two context ranks compute half of a layer's tokens each, and start attention once more a step
    of the ring.

    Trap: Megatron-LM theoretical_memory_usage.py:317, the sequence not divided by context
    parallelism.
    """
    whole = job(training__sequence_length=16384)
    one, two = (seconds(whole, "compute", data=1, context=c) for c in (1, 2))
    assert one / 2 < two < 1.07 * one / 2


@pytest.mark.parametrize("sequence", [1000, 3072, 48000])
@pytest.mark.parametrize("cluster", ["azure/standard_nd96isr_h200_v5", "nvidia/dgx-a100-80gb"])
def test_any_sequence_on_any_memory(sequence: int, cluster: str) -> None:
    """Sequences off the powers of two and GPUs of other memories than 40 and 80 GB are estimated.

    Trap: NeMo's runner.py:116,130 whitelist both.
    """
    plan = dsgen.estimate(
        job(
            cluster=cluster,
            training__sequence_length=sequence,
            model__max_position_embeddings=65536,
        )
    )
    assert float(plan.step_time.total_s) > 0
