"""What each pipeline stage holds: layers, parameters, micro-batches in flight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..job.records import Job
from . import model_size
from .layout import LayoutLike


@dataclass(frozen=True, slots=True, kw_only=True)
class StageLayers:
    """Layers of one stage, by kind; all virtual chunks together."""

    layers: Any
    dense: Any  #: of these, with a dense MLP
    moe: Any  #: of these, with experts


@dataclass(frozen=True, slots=True, kw_only=True)
class StageParameters:
    """Parameters held by one rank of a stage when nothing is cut by data parallelism."""

    shared: Any  #: everything that data × context replicates
    experts: Any  #: routed experts, replicated `expert` times less


def counts_embedding_as_layer(job: Job, layout: LayoutLike) -> Any:
    """Whether embedding and loss count as one layer each, so that `layers + 2` divide evenly.

    **Source**: Megatron-LM `--account-for-embedding-in-pipeline-split` (training/arguments.py:997 @ d98e8a64);
    DeepSpeed partition method `type:transformer|embedding`, as BLOOM used (70 layers on 12 stages).
    """
    _, rest = _divided(job, layout)
    return (rest > 0) & (rest == layout.pipeline - 2)


def shortens_last_stage(job: Job, layout: LayoutLike) -> Any:
    """Whether the last stage, which has the head to compute, holds fewer layers than the others, and at least one.

    **Source**: Megatron-LM `--decoder-last-pipeline-num-layers` (core/transformer/transformer_config.py,
    num_layers_in_last_pipeline_stage): the other stages share the rest evenly. DeepSeek-V3 needs it (61 layers).
    """
    share, rest = _divided(job, layout)
    uneven = (rest > 0) & (rest != layout.pipeline - 2)
    return uneven & ((share + 1) * (layout.pipeline - 1) < job.model.layers) & job.framework.shortens_last_stage


def _divided(job: Job, layout: LayoutLike) -> tuple[Any, Any]:
    """Layers over stages: the quotient and the rest."""
    share = job.model.layers // layout.pipeline
    return share, job.model.layers - share * layout.pipeline


def stage_layers(job: Job, layout: LayoutLike, stage: Any) -> StageLayers:
    """Layers of `stage` (0-based). Where nothing divides, the fullest stage's count, rounded up.

    DeepSpeed then balances embedding and loss as a layer each (runtime/utils.py, partition_balanced).
    """
    layers, pipeline = job.model.layers, layout.pipeline
    share, rest = _divided(job, layout)
    balanced = (rest > 0) & job.framework.runs("DeepSpeed engine")
    padded = (rest > 0) & (rest == pipeline - 2) | balanced
    full = share + (rest > 0) + (balanced & (rest == pipeline - 1))
    edge = (stage == 0) * 1 + (stage == pipeline - 1)
    missing = np.where(shortens_last_stage(job, layout), full * pipeline - layers, 0)
    count = full - padded * edge - missing * (stage == pipeline - 1)
    chunk = count / layout.virtual_pipeline
    start = stage * (full / layout.virtual_pipeline) - padded * (stage > 0)
    dense = np.clip(model_size.dense_layers(job.model) - start, 0, chunk if job.model.is_moe else count)
    if job.model.dense_layer_indices:
        dense = _scattered_dense(job, layout, stage, start, count)
    return StageLayers(layers=count, dense=dense, moe=count - dense)


def _scattered_dense(job: Job, layout: LayoutLike, stage: Any, start: Any, count: Any) -> Any:
    """Dense layers of a stage where they aren't the model's first, counted chunk by chunk: `start` is the first's.

    Rows that are cut alike are counted once.
    """
    layers = job.model.layers
    before = np.zeros(layers + 1, dtype=np.int64)  # dense layers before each
    before[np.array(job.model.dense_layer_indices) + 1] = 1
    before = np.cumsum(before)
    cut = np.broadcast_arrays(layout.virtual_pipeline, stage, start * layout.virtual_pipeline, count)
    shape, (chunks, at, scaled, held) = cut[0].shape, (part.ravel().astype(np.int64) for part in cut)
    code = ((chunks * (layers + 1) + at) * (2 * layers * layers + 2) + scaled) * (layers + 2) + held
    _, rows, inverse = np.unique(code, return_index=True, return_inverse=True)
    found = [_dense_in_chunks(before, int(chunks[r]), scaled[r] / chunks[r], int(held[r])) for r in rows]
    return np.array(found)[inverse].reshape(shape)


def _dense_in_chunks(before: Any, chunks: int, start: float, count: int) -> int:
    """Dense layers in every `chunks`-th part of the model, each `count / chunks` layers from `start` on."""
    layers = len(before) - 1
    firsts = [start + chunk * layers / chunks for chunk in range(chunks)]
    ends = [(min(layers, round(first)), min(layers, round(first + count / chunks))) for first in firsts]
    return int(sum(before[max(0, last)] - before[max(0, first)] for first, last in ends))


def stage_parameters(job: Job, layout: LayoutLike, stage: Any) -> StageParameters:
    """Parameters of one rank of `stage`.

    **Source**: Megatron-LM theoretical_memory_usage.py:215-267: attention and MLP are cut by `tensor`, norms and router
    replicated, experts cut by `expert * expert_tensor`; the embedding is on the first stage, the head on the last
    (tied: both hold one).
    """
    model = job.model
    held = stage_layers(job, layout, stage)
    tensor = layout.tensor
    per_layer = model_size.attention_parameters(model) / tensor + model_size.norm_parameters(model)
    shared = held.layers * per_layer + held.dense * (model_size.mlp_parameters(model) / tensor)
    experts = np.zeros_like(shared)
    if model.is_moe:
        moe_shared = model_size.shared_expert_parameters(model) / tensor + model_size.router_parameters(model)
        shared = shared + held.moe * moe_shared
        routed = model.experts * model_size.expert_parameters(model)
        experts = held.moe * (routed / (layout.expert * layout.expert_tensor))
    return StageParameters(shared=shared + _ends(job, layout, stage), experts=experts)


def expert_replicas(layout: LayoutLike) -> Any:
    """Ranks that hold the same experts: those of a stage over expert × expert_tensor.

    **Source**: Megatron-LM core/parallel_state.py, initialize_model_parallel: the expert ranks are cut out of
    tensor × context × data.
    """
    return layout.data * layout.context * layout.tensor / (layout.expert * layout.expert_tensor)


def vocabulary_rows(job: Job, layout: LayoutLike) -> Any:
    """Rows of the embedding (and of the head) on one rank, padding included."""
    rows = model_size.padded_vocab(job.model.vocab, layout.tensor, job.framework.vocabulary_multiple)
    return rows / layout.tensor if job.framework.shards_vocabulary else rows


def _ends(job: Job, layout: LayoutLike, stage: Any) -> Any:
    """Embedding and head parameters, on the stages that hold them."""
    model = job.model
    first, last = stage == 0, stage == layout.pipeline - 1
    table = vocabulary_rows(job, layout) * (model.embedding_width or model.hidden)
    head = np.where(model.tied_embeddings & (layout.pipeline == 1), 0, table)
    return first * (table + model_size.position_parameters(model)) + last * (head + model_size.final_parameters(model))


def in_flight(layout: LayoutLike, stage: Any) -> Any:
    """Micro-batches whose activations `stage` keeps at its peak, in whole stages (chunks over `virtual_pipeline`).

    **Source**: 1F1B `min(m, p-i)`; interleaved `min(mv, 2(p-i-1) + (v-1)p + 1)` chunks
    (Megatron-LM pipeline_parallel/schedules.py:957-970). **Symbols**: m micro-batches, p stages, i stage, v chunks.
    """
    m, p, v = layout.gradient_accumulation, layout.pipeline, layout.virtual_pipeline
    plain = np.minimum(m, p - stage)
    interleaved = np.minimum(m * v, 2 * (p - stage - 1) + (v - 1) * p + 1) / v
    return np.where(v > 1, interleaved, plain)


def overlapped_layers(layout: LayoutLike, held: StageLayers) -> Any:
    """What `in_flight` grows by where experts' all-to-alls overlap: the forward pass goes one layer ahead.

    Layer by layer a micro-batch goes forward while another goes backward, so that one layer is held twice. Interleaved,
    the micro-batch that is warmed up beyond the others is the one that would go forward before the first backward pass.
    **Source**: NVIDIA/Megatron-LM core_v0.16.1, megatron/core/models/common/model_chunk_schedule_plan.py:473-487, and
    pipeline_parallel/schedules.py:775-779. **Assumes** that a layer's activations are freed at its end.
    """
    return layout.expert_overlap * (layout.gradient_accumulation > 1) / np.maximum(held.layers, 1)
