"""Memory alive for a moment: a layer in its backward pass, logits and loss, gradients before they are added."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..spec.job import Job
from .activations import layer_bytes_per_token, local_tokens, score_bytes, sequence_cut
from .layout import LayoutLike, Recompute
from .states import weight_bytes
from .traits import FRAMEWORKS, uses_fused_kernels

#: Bytes a logit at the loss's peak. Eager: the fp32 logits, their softmax and its gradient live at once; an encoder's
#: loss stays in 16 bit (both counted by tests/estimate/test_memory_tracker.py). Megatron: 16-bit logits and an fp32
#: copy, worked on in place (megatron/core/tensor_parallel/cross_entropy.py). Fused: 16-bit logits, the gradient.
_EAGER_LOGIT_BYTES = 12
_EAGER_ENCODER_LOGIT_BYTES = 6
_UNFUSED_LOGIT_BYTES = 6
_FUSED_LOGIT_BYTES = 4


def workspace_bytes(job: Job, layout: LayoutLike) -> Any:
    """Bytes alive only while one layer runs backward: what it recomputed, and its largest gradients.

    Under sequence parallelism the gathered input is back, whole, for the weight gradient (2205.05198 sec 4.2.2).
    """
    model, element = job.model, weight_bytes(job)
    moe = model.is_moe
    again = layer_bytes_per_token(job, layout, moe=moe)
    scores = score_bytes(job) * model.heads * job.training.sequence_length / layout.tensor
    width = model.experts_per_token * model.moe_ffn + model.shared_ffn if moe else model.ffn
    gradients = element * (2 if model.gated_mlp else 1) * width / layout.tensor
    gathered = np.where(layout.sequence_parallel, element * model.hidden, 0)
    layer = np.where(
        layout.recompute == Recompute.FULL,
        # A layer that keeps its scores has them in `again` already only when nothing is recomputed.
        again + scores,
        np.where(layout.recompute == Recompute.SELECTIVE, scores, 0),
    )
    return local_tokens(job, layout) * (layer + gradients + gathered) + _weight_gradient_bytes(job, layout)


def _weight_gradient_bytes(job: Job, layout: LayoutLike) -> Any:
    """The largest product's weight gradient of a layer before it is added to the sum.

    Megatron adds inside the product, but hands autograd an empty tensor of that size all the same
    (megatron/core/tensor_parallel/layers.py, LinearWithGradAccumulationAndAsyncCommunication).
    """
    model = job.model
    ups = 2 if model.gated_mlp and uses_fused_kernels(job) else 1
    if model.is_moe:
        widest = ups * model.moe_ffn * model.experts / layout.expert
    else:
        widest = ups * model.ffn + 0 * layout.expert
    return weight_bytes(job) * model.hidden * widest / layout.tensor


def table_gradient_bytes(job: Job, rows: Any) -> Any:
    """The embedding's or head's gradient before it is added, `rows` being the vocabulary rows of one rank."""
    return weight_bytes(job) * (job.model.embedding_width or job.model.hidden) * rows


def logit_bytes(job: Job) -> float:
    """Bytes a logit at the peak of the loss, in 16-bit training."""
    kind = job.training.cross_entropy or FRAMEWORKS[job.framework].cross_entropy
    if kind == "fused":
        return _FUSED_LOGIT_BYTES
    if uses_fused_kernels(job):
        return _UNFUSED_LOGIT_BYTES
    return _EAGER_LOGIT_BYTES if job.model.causal else _EAGER_ENCODER_LOGIT_BYTES


def output_bytes(job: Job, layout: LayoutLike, rows: Any) -> Any:
    """Bytes of logits and loss on the last stage, `rows` being the vocabulary rows of one rank.

    A chunked loss holds as many logits at a time as a chunk's tokens make of the hidden size, and the gradient of its
    input (Liger's fused linear cross-entropy, ops/fused_linear_cross_entropy.py).
    """
    model, element = job.model, weight_bytes(job)
    fused = uses_fused_kernels(job)
    chunked = (job.training.cross_entropy or "") == "chunked" or (fused and not FRAMEWORKS[job.framework].fused)
    width = model.hidden if chunked else rows
    final = 2 * element * model.hidden / sequence_cut(layout)
    return local_tokens(job, layout) * (logit_bytes(job) * element / 2 * width + final)
