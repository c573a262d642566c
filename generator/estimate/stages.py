"""What each pipeline stage holds: layers, parameters, micro-batches in flight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ..catalog.records import Model
from ..job.records import Job
from . import model_size
from .layout import LayoutLike, once_each
from .split import dense_of, layers_of, split

#: The fields of a layout that decide what its stages hold.
HELD_BY: Final = (
    *("pipeline", "virtual_pipeline", "first_stage_layers", "last_stage_layers", "tensor", "expert", "expert_tensor"),
)


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


def stage_layers(job: Job, layout: LayoutLike, stage: Any) -> StageLayers:
    """Layers of `stage` (0-based, or several along the first axis); a model with experts has its dense layers first."""
    cut, model = split(job, layout), job.model
    layers = layers_of(cut, layout, stage)
    if not model.is_moe:
        return StageLayers(layers=layers, dense=layers, moe=0 * layers)
    dense = dense_of(cut, layout, stage, _dense_before(model)) if model.dense_layers else 0 * layers
    return StageLayers(layers=layers, dense=dense, moe=layers - dense)


def _dense_before(model: Model) -> Any:
    """Dense layers before each layer of a model with experts, and in all: the first ones, where no others are named."""
    is_dense = np.zeros(model.layers + 1, np.int64)
    is_dense[1 + np.array(model.dense_layer_indices or range(model.dense_layers))] = 1
    return np.cumsum(is_dense)


def inner_layers(job: Job, layout: LayoutLike) -> Any:
    """Layers of the second stage, which is the fullest inner one; of the first where the second is the last."""

    def counted(rows: LayoutLike) -> dict[str, Any]:
        return {"layers": layers_of(split(job, rows), rows, 1 * (rows.pipeline > 2))}

    return once_each(layout, HELD_BY, counted)["layers"]


def stage_parameters(job: Job, layout: LayoutLike, stage: Any) -> StageParameters:
    """Parameters of one rank of `stage`."""
    return held_parameters(job, layout, stage, stage_layers(job, layout, stage))


def held_parameters(job: Job, layout: LayoutLike, stage: Any, held: StageLayers) -> StageParameters:
    """Parameters of one rank of `stage`, which holds these layers.

    **Source**: Megatron-LM theoretical_memory_usage.py:215-267: attention and MLP are cut by `tensor`, norms and router
    replicated, experts cut by `expert * expert_tensor`; the embedding is on the first stage, the head on the last
    (tied: both hold one).
    """
    model, tensor = job.model, layout.tensor
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
