"""Bytes alive for a moment: a layer's in its backward pass, logits and loss, and gradients before
they are added.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..catalog.layers.stack import Layer
from ..job.records import Job
from .activations import (
    EAGER_SCORE_BYTES,
    feed_forward_bytes_per_token,
    layer_bytes_per_token,
    local_tokens,
    repeated_bytes_per_token,
    repeats,
    routed_bytes_per_token,
    score_bytes,
    scores_bytes_per_token,
    sequence_cut,
)
from .layout import LayoutLike, Modules, Recompute
from .states import FP32, weight_bytes

#: Bytes a logit at the loss's peak. Eager: the fp32 logits, their softmax and its gradient live at
#: once; an encoder's loss stays in 16 bit (both counted by tests/estimate/test_memory_tracker.py).
#: Megatron: 16-bit logits and an fp32 copy, worked on in place
#: (megatron/core/tensor_parallel/cross_entropy.py, core_v0.16.1), or more as the engine says.
#: Transformer Engine's: 16-bit logits, which become their gradient, and what its kernel writes
#: (pytorch/cross_entropy.py @ 2.9).
_EAGER_LOGIT_BYTES = 12
_EAGER_ENCODER_LOGIT_BYTES = 6
_IN_PLACE_LOGIT_BYTES = 4


def workspace_bytes(
    job: Job, layout: LayoutLike, per_token: Mapping[str, Any] | None = None
) -> Any:
    """Bytes alive only while one layer runs backward: what it recomputed, and its largest
    gradients.

    The MLP goes first; when attention's scores have their gradients, what the MLP kept is free.
    `per_token` has the figures of `workspace_per_token`, where they are known already.
    """
    sizes, tokens = per_token or workspace_per_token(job, layout), local_tokens(job, layout)
    gradients = np.maximum(
        tokens * sizes["mlp"] + sizes["weight_gradient"], tokens * sizes["attention"]
    )
    return tokens * sizes["repeated"] + gradients


def workspace_per_token(job: Job, layout: LayoutLike) -> dict[str, Any]:
    """Bytes a token of a layer's workspace by cause, and those of its largest weight gradient: of
    layers with several mixers, the one that needs most.
    """
    largest, *others = (
        _workspace_of(job, layout, layer) for layer in job.model.averaged.largest_by_mixer
    )
    for sizes in others:
        is_larger = workspace_bytes(job, layout, sizes) > workspace_bytes(job, layout, largest)
        largest = {
            cause: np.where(is_larger, sizes[cause], size) for cause, size in largest.items()
        }
    return largest


def _workspace_of(job: Job, layout: LayoutLike, layer: Layer) -> dict[str, Any]:
    """The workspace of one kind of layer, as `workspace_per_token` has it."""
    element, part = weight_bytes(job), layer.feed_forward
    # One layer's experts work in a buffer for the most that a rank may get, before the stash.
    buffer = job.training.rank_capacity * routed_bytes_per_token(job, part) / layout.tensor
    # Under sequence parallelism the gathered input is back, whole, for the weight gradient
    # (2205.05198 sec 4.2.2).
    gathered = np.where(layout.sequence_parallel, 1 / layout.tensor + 1, 1)
    state = element * job.model.state_width * gathered
    # What the feed-forward kept is free by the time that attention runs backward.
    freed = feed_forward_bytes_per_token(job, part) / layout.tensor
    if layer.streams:
        freed = freed + element * layer.streams.kept_elements / sequence_cut(layout)
    # A frozen weight has no gradient; one in 4 bits is unpacked to 16, which are as many bytes.
    needs_none = job.training.lora is not None and job.training.lora.base == "unquantized"
    return {
        "repeated": _recomputed_per_token(job, layout, layer)
        + state
        + buffer * job.stashes_experts,
        "mlp": element * _mlp_gradients(job, layer) * part.active_width / layout.tensor,
        "attention": _mixer_gradients_per_token(job, layout, layer) - freed,
        "weight_gradient": 0.0 if needs_none else weight_gradient_bytes(job, layout, layer),
    }


def _recomputed_per_token(job: Job, layout: LayoutLike, layer: Layer) -> Any:
    """Bytes a token that a layer, or a group of them, makes again before its backward pass."""
    scores = scores_bytes_per_token(job, layout, layer.mixer)
    modules = np.maximum(*repeated_bytes_per_token(job, layout, layer))
    return np.where(
        layout.recompute == int(Recompute.FULL),
        (layer_bytes_per_token(job, layout, layer) + scores) * layout.recompute_group,
        modules + np.where(repeats(layout, Modules.CORE_ATTN), scores, 0),
    )


def _mlp_gradients(job: Job, layer: Layer) -> int:
    """Gradients of MLP width: of gate and up, and in eager mode their product, else in and out; and
    LoRA's, scaled.
    """
    part = layer.feed_forward
    has_product = part.gated and not job.fuses_kernels and not part.experts
    return (3 if has_product else 2) + (job.training.lora is not None)


def _mixer_gradients_per_token(job: Job, layout: LayoutLike, layer: Layer) -> Any:
    """Bytes a token of the gradients of scores, and of states.

    Scores have gradients before and after the softmax; a fused softmax works in place. Between its
    chunks a mixer with a state has fp32 states, and in the backward pass their gradients.
    """
    mixer, sequence = layer.mixer, job.training.sequence_length
    pairs = mixer.scores(sequence) / layout.tensor
    states = 2 * FP32 * mixer.state_elements(sequence) / layout.tensor
    if job.training.attention == "flash":
        score = 0.0
    elif score_bytes(job) >= EAGER_SCORE_BYTES:
        score = score_bytes(job)
    else:
        score = 2.0 * weight_bytes(job)
    return score * pairs + states


def weight_gradient_bytes(job: Job, layout: LayoutLike, layer: Layer | None = None) -> Any:
    """The largest product's weight gradient of a layer (the largest one) before it is added to the
    sum.

    Megatron adds inside the product, but hands autograd an empty tensor of that size all the same
    (megatron/core/tensor_parallel/layers.py, LinearWithGradAccumulationAndAsyncCommunication).
    """
    layer = layer or job.model.averaged.largest
    part = layer.feed_forward
    ups = part.ups if job.fuses_kernels else 1
    if part.experts:
        widest = ups * part.expert_width * part.experts / (layout.expert * layout.expert_tensor)
        widest = widest * part.routed_hidden / part.hidden
    else:
        widest = ups * part.width / layout.tensor + 0 * layout.expert
        if not part.width:  # a mixer alone
            products = (p.inputs * p.outputs for p in layer.mixer.products)
            widest = max(products) / part.hidden / layout.tensor + 0 * layout.expert
    return weight_bytes(job) * part.hidden * widest


def table_gradient_bytes(job: Job, rows: Any) -> Any:
    """The embedding's or head's gradient before it is added, `rows` being the vocabulary rows of
    one rank.
    """
    return weight_bytes(job) * (job.model.embedding_width or job.model.hidden) * rows


def output_bytes(job: Job, layout: LayoutLike, rows: Any) -> Any:
    """Bytes of logits and loss on the last stage, `rows` being the vocabulary rows of one rank.

    The peak is the loss's, or the head's weight gradient with the logits and their gradient. Each
    depth that predicts a further token has its loss before the main one, which then keeps what its
    backward pass takes: the fp32 softmax, or the gradient in Transformer Engine's
    (megatron/core/transformer/multi_token_prediction.py, process_mtp_loss, and
    tensor_parallel/cross_entropy.py @ core_v0.19.0). A chunked loss holds as many logits at a time
    as a chunk's tokens make of the hidden size, and the gradient of its input (Liger's fused linear
    cross-entropy, ops/fused_linear_cross_entropy.py).
    """
    model, element, depths = job.model, weight_bytes(job), job.training.mtp_depths
    is_chunked = job.training.cross_entropy == "chunked" or (
        job.fuses_kernels and not job.framework.fused
    )
    logits = local_tokens(job, layout) * (model.hidden if is_chunked else rows)
    head = 2 * element * logits + table_gradient_bytes(job, rows) * (job.training.lora is None)
    kept = (element if _loss_kernel(job) == "te" else FP32) * logits
    final_norm = 2 * element * model.hidden / sequence_cut(layout)
    norms = (1 + depths) * local_tokens(job, layout) * final_norm
    return depths * kept + np.maximum(_logit_bytes(job) * logits, head) + norms


def _loss_kernel(job: Job) -> str | None:
    """The kernel of the cross entropy, where it is a fused one or Transformer Engine's."""
    return job.training.cross_entropy or job.framework.cross_entropy


def _logit_bytes(job: Job) -> float:
    """Bytes a logit at the loss's peak; the figures above are those of 16-bit training."""
    kernel, widened = _loss_kernel(job), weight_bytes(job) / 2
    if kernel == "fused":
        return job.engine.fused_logit_bytes * widened
    if kernel == "te":
        return _IN_PLACE_LOGIT_BYTES * widened
    if job.fuses_kernels:
        return job.engine.unfused_logit_bytes * widened
    return _EAGER_LOGIT_BYTES if job.model.causal else _EAGER_ENCODER_LOGIT_BYTES * widened
