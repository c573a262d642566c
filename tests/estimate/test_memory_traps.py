"""What other planners got wrong about memory; each test names the one that did."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dsgen.estimate import model_size
from dsgen.estimate.layout import Layout, Offload, Recompute
from dsgen.estimate.memory import every_stage, memory
from dsgen.estimate.stages import stage_contents
from dsgen.job.records import Job
from tests.jobs import job
from tests.models import changed

GPT3 = {"model": "gpt3-175b", "gpus": 1024, "training__global_batch": 1536}
ON_1024 = Layout(data=16, tensor=8, pipeline=8, zero_stage=0, gradient_accumulation=96)


def gpt3(**overrides: Any) -> Job:
    """GPT-3 175B on 1,024 GPUs."""
    return job(**{**GPT3, **overrides})


def test_gradients_are_cut_by_tensor_and_pipeline() -> None:
    """Without ZeRO, 175B in fp32 sums leave 700 / 64 GB a GPU, not 700 (cookbook,
    calc_transformer_mem.py:306).
    """
    gradients = float(memory(gpt3(), ON_1024).gradients_bytes)
    assert gradients == pytest.approx(4 * 175e9 / 64, rel=0.05)


def test_zero_3_divides_parameters_once() -> None:
    """ZeRO-3 divides by the replicas after tensor, not by all GPUs again (cookbook :294, DeepSpeed
    #6796).
    """
    whole = gpt3(framework="megatron-deepspeed", deepspeed_version="0.19.8")
    ledger = memory(
        whole, Layout(data=128, tensor=8, zero_stage=3, micro_batch=1, gradient_accumulation=12)
    )
    assert float(ledger.parameters_bytes) == pytest.approx(2 * 175e9 / 1024, rel=0.02)


@pytest.mark.parametrize(("axis", "share"), [("pipeline", 1 / 4), ("context", 1 / 4)])
def test_activations_are_cut_by(axis: str, share: float) -> None:
    """Four stages with one micro-batch, or four context ranks, keep a quarter (cookbook :349,
    Megatron-LM :317).
    """
    small = job()
    one, four = (float(_stored(small, Layout(data=1, **{axis: n}))) for n in (1, 4))
    assert four == pytest.approx(one * share, rel=1e-9)


def test_activations_are_cut_by_tensor() -> None:
    """Under sequence parallelism four tensor ranks keep a quarter each (cookbook :349)."""
    one = float(_stored(job(), Layout(data=1)))
    four = float(_stored(job(), Layout(data=1, tensor=4, sequence_parallel=True)))
    assert four == pytest.approx(one / 4, rel=1e-9)


def _stored(whole: Job, layout: Layout) -> Any:
    from dsgen.estimate.activations import kept_per_token, local_tokens

    return local_tokens(whole, layout) * kept_per_token(
        whole, layout, stage_contents(whole, layout, 0)
    )


def test_full_recomputation_keeps_layer_inputs() -> None:
    """Full recomputation keeps 2 bytes × hidden a layer and token, not selective's 34 (cookbook
    :349).
    """
    small = job()
    kept = float(_stored(small, Layout(data=1, recompute=Recompute.FULL)))
    assert kept == 2 * 1024 * 12 * 2048


def test_distributed_optimizer_spans_context() -> None:
    """The distributed optimizer shards over data × context: 12 bytes over 16 ranks, not 8
    (Megatron's report :296).
    """
    small = job()
    wide, narrow = (memory(small, Layout(data=8, context=c, zero_stage=1)) for c in (2, 1))
    assert float(narrow.optimizer_bytes) == 2 * float(wide.optimizer_bytes)


def test_master_weights_count_whole() -> None:
    """The fp32 master and two moments are 12 bytes a parameter, not 10 (Primus)."""
    ledger = memory(job(), Layout(data=1))
    assert float(ledger.optimizer_bytes) == 6 * float(ledger.parameters_bytes)


def test_optimizer_is_counted_at_all() -> None:
    """bf16 training with Adam holds 18 bytes a parameter in Megatron, not 8 (accelerate
    estimate-memory).
    """
    ledger = memory(job(), Layout(data=1))
    states = ledger.parameters_bytes + ledger.gradients_bytes + ledger.optimizer_bytes
    assert float(states) == 9 * float(ledger.parameters_bytes)


def test_expert_activations_have_the_experts_width() -> None:
    """A routed token's activations follow moe_ffn, not the dense layer's width (Megatron-LM
    #1784).
    """
    moe = job(model="deepseek-v3", training__global_batch=64)
    kinds = moe.model.stack.kinds
    mlp = replace(kinds[0].feed_forward, width=2 * moe.model.ffn)  # type: ignore[type-var]
    stack = replace(moe.model.stack, kinds=(replace(kinds[0], feed_forward=mlp), kinds[1]))
    wider = replace(moe, model=replace(moe.model, stack=stack))
    both = replace(moe, model=changed(moe.model, expert_width=2 * moe.model.moe_ffn))
    layout = Layout(data=1, pipeline=61)

    def last(whole: Job) -> float:
        return float(every_stage(whole, layout)[-1].activations_bytes)

    assert last(wider) == last(moe) < last(both)


def test_experts_are_cut_by_expert_and_tensor() -> None:
    """Routed experts are held once in expert × tensor ranks (Megatron-Bridge PR 3744 divided by
    tensor alone).
    """
    moe = job(model="mixtral-8x7b", training__global_batch=64)
    held = float(
        stage_contents(moe, Layout(data=8, tensor=2, expert=4, expert_tensor=2), 0).experts
    )
    assert held == 32 * 8 * moe.model.feed_forward.expert_parameters / 8


def test_the_last_stage_counts_its_logits() -> None:
    """The last of several stages holds logits too (Megatron's report adds them only without
    pipeline).
    """
    stages = every_stage(job(), Layout(data=1, pipeline=4))
    assert [float(stage.output_bytes) > 0 for stage in stages] == [False, False, False, True]


def test_uneven_stages_are_not_averaged() -> None:
    """61 layers on 16 stages put 4 on the fullest, 5 % above the average (Megatron-Bridge PR 5077:
    31.8 % too low).
    """
    deepseek = job(model="deepseek-v3", training__global_batch=64)
    assert float(stage_contents(deepseek, Layout(data=1, pipeline=16), 1).layers) == 4 > 61 / 16


def test_small_batches_keep_activations() -> None:
    """A batch of one sequence still has activations (Primus: accumulation floors to 0, and so do
    they).
    """
    assert float(memory(job(training__global_batch=1), Layout(data=1)).activations_bytes) > 0


def test_offload_is_counted() -> None:
    """Offloading the optimizer frees its bytes (DeepSpeed's autotuner ignores it, issue 3478)."""
    small = job(framework="deepspeed", gpus=8, training__global_batch=64)
    kept, moved = (
        memory(small, Layout(data=8, zero_stage=2, offload=o))
        for o in (Offload.NONE, Offload.OPTIMIZER)
    )
    assert float(moved.allocated_bytes) < float(kept.allocated_bytes)


def test_dropout_masks_are_counted() -> None:
    """Dropout keeps a byte an element (SimuMax ignores it silently)."""
    plain = job(model="gpt3-175b")
    dry = replace(plain, model=replace(plain.model, dropout=0.0))
    assert float(_stored(plain, Layout(data=1))) > float(_stored(dry, Layout(data=1)))


def test_host_memory_is_shared_out() -> None:
    """1,024 GPUs need 30 bytes a parameter of host memory in all, not as much for every GPU
    (DeepSpeed's estimator).
    """
    whole = gpt3(framework="deepspeed")
    ledger = memory(whole, Layout(data=1024, zero_stage=3, offload=Offload.OPTIMIZER))
    nodes = 1024 // whole.cluster.accelerators_per_node
    assert float(ledger.host_bytes_per_node) * nodes == pytest.approx(30 * 175e9, rel=0.02)


@pytest.mark.parametrize(("length", "fits"), [(128, 148), (512, 23)])
def test_bert_large_on_v100(length: int, fits: int) -> None:
    """BERT-large's largest batch on a 32 GB V100 is within 10 % of ONNX Runtime's published
    limit.
    """
    largest = max(b for b in range(1, 2 * fits) if _bert_fits(length, b))
    assert largest == pytest.approx(fits, rel=0.1)


def _bert_fits(length: int, batch: int) -> bool:
    v100 = {
        "accelerator": "v100-32gb-sxm",
        "accelerators_per_node": 16,
        "network_gbits_per_s_per_node": 800,
    }
    whole = job(
        framework="huggingface",
        model="bert-large",
        cluster=v100,
        gpus=1,
        training__precision="fp16",
        training__optimizer="lamb",
        training__attention="unfused",
        training__sequence_length=length,
        training__global_batch=batch,
    )
    ledger = memory(whole, Layout(data=1, micro_batch=batch))
    # PyTorch's mixed precision of that time (Apex O2) keeps fp32 gradients beside the 16-bit ones.
    gradients = 4 * model_size.parameter_count(whole.model)
    return bool(ledger.required_bytes + gradients <= ledger.capacity_bytes)
