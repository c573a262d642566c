"""Activations kept for the backward pass: bytes per token and layer, by framework, attention and recomputation."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..catalog.records import Model
from ..spec.job import Job
from .layout import LayoutLike, Recompute
from .stages import StageLayers
from .states import weight_bytes
from .traits import FRAMEWORKS


def local_tokens(job: Job, layout: LayoutLike) -> Any:
    """Tokens of one micro-batch on one rank: micro_batch * sequence / context."""
    return layout.micro_batch * job.training.sequence_length / layout.context


def sequence_cut(layout: LayoutLike) -> Any:
    """By how much sequence parallelism divides what tensor parallelism replicates."""
    return np.where(layout.sequence_parallel, layout.tensor, 1)


def attention_widths(model: Model) -> tuple[int, int, int]:
    """Widths in elements per token of queries, keys and attention output (values), all heads together."""
    if model.is_mla:
        query = model.heads * (model.qk_nope_head_dim + model.qk_rope_head_dim)
        return query, query, model.heads * model.v_head_dim
    return model.heads * model.head_dim, model.kv_heads * model.head_dim, model.heads * model.head_dim


def layer_bytes_per_token(job: Job, layout: LayoutLike, *, moe: bool) -> Any:
    """Bytes a token that one layer keeps when nothing is recomputed.

    **Source**: 2205.05198 Table 2 (34 bytes × hidden for GPT with dropout, 10 of them replicated under tensor
    parallelism) taken apart by tensor; the Llama sum 12 + 4g/a + 6f/h was checked with autograd's saved-tensor hooks.
    **Assumes** flash attention keeps no scores; a balanced router.
    """
    model, traits = job.model, FRAMEWORKS[job.framework]
    element = weight_bytes(job)
    queries, keys, values = attention_widths(model)
    norms = model.norms_per_layer * (element * model.hidden + _norm_upcast(job) * model.hidden)
    masks = 2 * model.hidden * (model.dropout > 0)
    replicated = norms + 2 * element * model.hidden + masks
    value_keys = model.heads * model.v_head_dim if model.is_mla else keys
    sharded = element * (queries + keys + value_keys + values) + element * (model.q_lora_rank + model.kv_lora_rank)
    scores = _score_bytes(job) * model.heads * job.training.sequence_length * (layout.recompute == Recompute.NONE)
    mlp_width = _mlp_copies(model, traits.fused) * element
    if moe:
        routed = model.experts_per_token * (2 * element * model.hidden + mlp_width * model.moe_ffn)
        sharded = sharded + routed + mlp_width * model.shared_ffn
    else:
        sharded = sharded + mlp_width * model.ffn
    return replicated / sequence_cut(layout) + (sharded + scores) / layout.tensor


def _norm_upcast(job: Job) -> int:
    """Extra bytes an element that an eager RMSNorm keeps for its fp32 copy."""
    eager = not FRAMEWORKS[job.framework].fused
    return 4 if eager and job.model.norm == "rmsnorm" and job.training.precision != "fp32" else 0


def _score_bytes(job: Job) -> float:
    """Bytes kept per attention score: none with flash attention."""
    if job.training.attention == "flash":
        return 0.0
    dropout = 3 if job.model.attention_dropout > 0 else 0  # a mask byte and the 16-bit result (2205.05198 sec 4.1)
    return FRAMEWORKS[job.framework].score_bytes + dropout


def _mlp_copies(model: Model, fused: bool) -> int:
    """Tensors of MLP width that are kept: gate, up and product, and eager SiLU's own output."""
    if not model.gated_mlp:
        return 2
    return 3 if fused else 4


def stored_bytes(job: Job, layout: LayoutLike, held: StageLayers, flying: Any) -> Any:
    """Bytes kept by a stage for `flying` micro-batches in flight.

    **Source**: full recomputation keeps each layer's input, 2 bytes × hidden a token (2205.05198 sec 5; exactly that
    was measured with FakeTensorMode on Hugging Face Llama).
    """
    whole = held.dense * layer_bytes_per_token(job, layout, moe=False)
    if job.model.is_moe:
        whole = whole + held.moe * layer_bytes_per_token(job, layout, moe=True)
    inputs = held.layers * (weight_bytes(job) * job.model.hidden / sequence_cut(layout))
    return flying * local_tokens(job, layout) * np.where(layout.recompute == Recompute.FULL, inputs, whole)


def workspace_bytes(job: Job, layout: LayoutLike) -> Any:
    """Bytes alive only while one layer runs backward: its recomputed activations and its largest gradients."""
    model = job.model
    moe = model.is_moe
    none_recomputed = layer_bytes_per_token(job, layout, moe=moe)
    scores = _score_bytes(job) * model.heads * job.training.sequence_length / layout.tensor
    width = model.experts_per_token * model.moe_ffn + model.shared_ffn if moe else model.ffn
    gradients = weight_bytes(job) * (2 if model.gated_mlp else 1) * width / layout.tensor
    layer = np.where(
        layout.recompute == Recompute.FULL,
        none_recomputed + scores,
        np.where(layout.recompute == Recompute.SELECTIVE, scores, 0),
    )
    return local_tokens(job, layout) * (layer + gradients)


def output_bytes(job: Job, layout: LayoutLike, rows: Any) -> Any:
    """Bytes of logits and loss on the last stage, `rows` being the vocabulary rows of one rank."""
    per_logit = FRAMEWORKS[job.framework].logit_bytes * weight_bytes(job) / 2
    final = 2 * weight_bytes(job) * job.model.hidden / sequence_cut(layout)
    return local_tokens(job, layout) * (per_logit * rows + final)
