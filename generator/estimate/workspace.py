"""Memory alive for a moment: a layer in its backward pass, logits and loss, gradients before they are added."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..job.records import Job
from .activations import (
    layer_bytes_per_token,
    local_tokens,
    mlp_bytes_per_token,
    repeated_bytes_per_token,
    score_bytes,
    scores_bytes_per_token,
    sequence_cut,
)
from .layout import LayoutLike, Modules, Recompute
from .recompute import repeats
from .states import weight_bytes

#: Bytes a logit at the loss's peak. Eager: the fp32 logits, their softmax and its gradient live at once; an encoder's
#: loss stays in 16 bit (both counted by tests/estimate/test_memory_tracker.py). Megatron: 16-bit logits and an fp32
#: copy, worked on in place (megatron/core/tensor_parallel/cross_entropy.py, core_v0.16.1), which Megatron-DeepSpeed's
#: older one (4efb479d) copies again to subtract the maximum. Fused: 16-bit logits, the gradient.
_EAGER_LOGIT_BYTES = 12
_EAGER_ENCODER_LOGIT_BYTES = 6
_UNFUSED_LOGIT_BYTES = 6
_COPIED_LOGIT_BYTES = 10
_FUSED_LOGIT_BYTES = 4
_EAGER_SCORE_BYTES = 6  #: an fp32 softmax and its 16-bit copy have gradients of the same types


def workspace_bytes(job: Job, layout: LayoutLike) -> Any:
    """Bytes alive only while one layer runs backward: what it recomputed, and its largest gradients.

    The MLP goes first; when attention's scores have their gradients, what the MLP kept is free. Under sequence
    parallelism the gathered input is back, whole, for the weight gradient (2205.05198 sec 4.2.2).
    """
    model, element, tokens = job.model, weight_bytes(job), local_tokens(job, layout)
    moe = model.is_moe
    pairs = model.heads * job.training.sequence_length / layout.tensor
    scores = scores_bytes_per_token(job, layout)
    repeated = np.maximum(*repeated_bytes_per_token(job, layout, moe=moe))
    recomputed = np.where(
        layout.recompute == Recompute.FULL,
        (layer_bytes_per_token(job, layout, moe=moe) + scores) * layout.recompute_group,
        repeated + np.where(repeats(layout, Modules.CORE_ATTN), scores, 0),
    )
    width = model.experts_per_token * model.moe_ffn + model.shared_ffn if moe else model.ffn
    mlp = tokens * element * _mlp_gradients(job) * width / layout.tensor + _whole_weight_bytes(job, layout)
    attention = tokens * (_score_gradient_bytes(job) * pairs - mlp_bytes_per_token(job, moe=moe) / layout.tensor)
    through = element * model.hidden * np.where(layout.sequence_parallel, 1 / layout.tensor + 1, 1)
    return tokens * (recomputed + through) + np.maximum(mlp, attention)


def _mlp_gradients(job: Job) -> int:
    """Gradients of MLP width alive at once: of gate and up, and in eager mode their product; else in and out."""
    scaled = job.training.lora is not None  # the gradient that goes on to an adapter
    return (3 if job.model.gated_mlp and not job.fuses_kernels and not job.model.is_moe else 2) + scaled


def _score_gradient_bytes(job: Job) -> float:
    """Bytes a score of the gradients before and after the softmax; fused softmax works in place."""
    if job.training.attention == "flash":
        return 0.0
    return score_bytes(job) if score_bytes(job) >= _EAGER_SCORE_BYTES else 2.0 * weight_bytes(job)


def _whole_weight_bytes(job: Job, layout: LayoutLike) -> Any:
    """What a backward product holds for its weight: the gradient, none of a frozen one, but its 16 bits if it has 4."""
    if job.training.lora is not None and job.training.lora.base == "unquantized":
        return 0.0 * layout.tensor
    return weight_gradient_bytes(job, layout)


def weight_gradient_bytes(job: Job, layout: LayoutLike) -> Any:
    """The largest product's weight gradient of a layer before it is added to the sum.

    Megatron adds inside the product, but hands autograd an empty tensor of that size all the same
    (megatron/core/tensor_parallel/layers.py, LinearWithGradAccumulationAndAsyncCommunication).
    """
    model = job.model
    ups = 2 if model.gated_mlp and job.fuses_kernels else 1
    if model.is_moe:
        widest = ups * model.moe_ffn * model.experts / (layout.expert * layout.expert_tensor)
    else:
        widest = ups * model.ffn / layout.tensor + 0 * layout.expert
    return weight_bytes(job) * model.hidden * widest


def table_gradient_bytes(job: Job, rows: Any) -> Any:
    """The embedding's or head's gradient before it is added, `rows` being the vocabulary rows of one rank."""
    return weight_bytes(job) * (job.model.embedding_width or job.model.hidden) * rows


def logit_bytes(job: Job) -> float:
    """Bytes a logit at the peak of the loss."""
    wide = weight_bytes(job) / 2
    kind = job.training.cross_entropy or job.framework.cross_entropy
    if kind == "fused":
        return _FUSED_LOGIT_BYTES * wide
    if job.fuses_kernels:
        return (_COPIED_LOGIT_BYTES if job.framework.runs("Megatron-DeepSpeed") else _UNFUSED_LOGIT_BYTES) * wide
    return _EAGER_LOGIT_BYTES if job.model.causal else _EAGER_ENCODER_LOGIT_BYTES * wide


def output_bytes(job: Job, layout: LayoutLike, rows: Any) -> Any:
    """Bytes of logits and loss on the last stage, `rows` being the vocabulary rows of one rank.

    The peak is the loss's, or the head's weight gradient with the logits and their gradient. A chunked loss holds as
    many logits at a time as a chunk's tokens make of the hidden size, and the gradient of its input (Liger's fused
    linear cross-entropy, ops/fused_linear_cross_entropy.py).
    """
    model, element = job.model, weight_bytes(job)
    fused = job.fuses_kernels
    chunked = (job.training.cross_entropy or "") == "chunked" or (fused and not job.framework.fused)
    logits = local_tokens(job, layout) * (model.hidden if chunked else rows)
    head = 2 * element * logits + table_gradient_bytes(job, rows) * (job.training.lora is None)
    final = 2 * element * model.hidden / sequence_cut(layout)
    return np.maximum(logit_bytes(job) * logits, head) + local_tokens(job, layout) * final
