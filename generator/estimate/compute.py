"""Compute: seconds of a layer and of the head on one rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..job.records import Job
from .activations import attention_widths, local_tokens, sequence_cut
from .adapter_time import adapter_kernels, adapter_products
from .attention_span import mean_keys
from .layout import LayoutLike
from .products import Passes, linear, tile_use
from .rates import rates
from .stages import vocabulary_rows
from .states import weight_bytes

#: 16-bit transfers of one attention score in a forward pass: written and read by product, softmax and dropout. Eager
#: mode scales and masks by themselves and has its softmax in fp32; counted from the operators, not measured.
_FUSED_SCORE_TRANSFERS = 6
_EAGER_SCORE_TRANSFERS = 18
#: Backward over forward for streaming kernels: reads the gradient and the saved input, writes one.
_STREAM_BACKWARD = 1.5
#: Flash attention's backward FLOPs over its forward's (2205.14135 appendix B: five products for two).
_FLASH_BACKWARD = 2.5
#: Streaming kernels of a fused layer's forward pass: norms, residual additions, rotary, activation; counted from
#: Megatron-LM's modules. Routing adds top-k, sort, permutation and its inverse.
_KERNELS = 7
_ROUTING_KERNELS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTime:
    """Seconds of one layer, one micro-batch, one rank."""

    forward_s: Any
    backward_s: Any
    attention_core_s: Any  #: the part of the forward pass that selective recomputation repeats


def stream_s(job: Job, traffic_bytes: Any) -> Any:
    """Seconds of kernels that only move `traffic_bytes` through device memory."""
    return traffic_bytes / (job.cluster.accelerator.memory_bytes_per_s * rates(job).streaming_fraction)


def layer_time(job: Job, layout: LayoutLike, *, moe: bool) -> LayerTime:
    """Seconds of one transformer layer, with a dense MLP or with experts."""
    tokens = local_tokens(job, layout)
    core = _attention_core(job, layout, tokens)
    products = _attention_products(job, layout, tokens) + _mlp_products(job, layout, tokens, moe=moe)
    whole = products + core + _streams(job, layout, tokens, moe=moe)
    launches = job.framework.kernels_per_layer * rates(job).launch_s
    if job.training.lora is not None:
        added, traffic = adapter_products(job, tokens, moe=moe)
        whole = whole + added + Passes(*(stream_s(job, size) for size in traffic))
        launches = launches + adapter_kernels(job, moe=moe) * rates(job).launch_s
    return LayerTime(
        forward_s=np.maximum(whole.forward_s, launches),
        backward_s=np.maximum(whole.backward_s, 2 * launches),
        attention_core_s=core.forward_s,
    )


def _attention_products(job: Job, layout: LayoutLike, tokens: Any) -> Passes:
    """Query, key, value and output projections; MLA goes through its low-rank latents."""
    model, tensor = job.model, layout.tensor
    queries, keys, values = attention_widths(model)
    output = linear(job, tokens, values / tensor, model.hidden)
    if not model.is_mla:
        return linear(job, tokens, model.hidden, (queries + 2 * keys) / tensor) + output
    down = linear(job, tokens, model.hidden, model.q_lora_rank + model.kv_lora_rank + model.qk_rope_head_dim)
    up_keys = model.heads * (model.qk_nope_head_dim + model.v_head_dim) / tensor
    return (
        down
        + linear(job, tokens, model.q_lora_rank or model.hidden, queries / tensor)
        + linear(job, tokens, model.kv_lora_rank, up_keys)
        + output
    )


def _mlp_products(job: Job, layout: LayoutLike, tokens: Any, *, moe: bool) -> Passes:
    """The MLP's products; a rank's experts one after the other, each with its share of the tokens (balanced router).

    Tensor ranks that don't cut the experts have other tokens each.
    """
    model, tensor, cut = job.model, layout.tensor, layout.expert_tensor
    ups = 2 if model.gated_mlp else 1

    def mlp(rows: Any, width: Any, count: Any = 1) -> Passes:
        up = linear(job, rows, model.hidden, ups * width, count)
        return up + linear(job, rows, width, model.hidden, count)

    if not moe:
        return mlp(tokens, model.ffn / tensor)
    held = model.experts / layout.expert
    routed = mlp(tokens * (cut / tensor) * model.experts_per_token / held, model.moe_ffn / cut, held)
    router = linear(job, tokens / sequence_cut(layout), model.hidden, model.experts)
    shared = mlp(tokens, model.shared_ffn / tensor) if model.shared_ffn else Passes(0.0, 0.0)
    return routed + router + shared


def _attention_core(job: Job, layout: LayoutLike, tokens: Any) -> Passes:
    """Softmax(QK)V: flash attention skips what is masked, unfused attention computes and stores it all."""
    accelerator, constants = job.cluster.accelerator, rates(job)
    queries, _, values = attention_widths(job.model)
    sequence = job.training.sequence_length
    per_key = 2 * tokens * (queries + values) / layout.tensor
    rate = accelerator.flops_per_s.get("bf16") or accelerator.flops_per_s["fp16"]
    rate = rate * tile_use(job.model.head_dim)
    if job.training.attention == "flash":
        work = per_key * mean_keys(job) / (rate * constants.attention_kernel_share)
        forward = work / constants.attention_forward_fraction + constants.attention_start_s
        backward = _FLASH_BACKWARD * work / constants.attention_backward_fraction + constants.attention_start_s
        return Passes(forward, backward)
    # Softmax with mask, dropout and the two products each read or write the scores.
    transfers = _FUSED_SCORE_TRANSFERS if job.framework.fused else _EAGER_SCORE_TRANSFERS
    scores = stream_s(job, tokens * sequence * job.model.heads / layout.tensor * 2 * transfers)
    products = per_key * sequence / (rate * constants.attention_forward_fraction)
    return Passes(products + scores, 2 * products + _STREAM_BACKWARD * scores)


def _streams(job: Job, layout: LayoutLike, tokens: Any, *, moe: bool) -> Passes:
    """Normalisation, residuals, activation, rotary, routing: kernels that only move data."""
    constants = rates(job)
    traffic = constants.streaming_passes * _elementwise_bytes(job, layout, moe=moe)
    kernels = constants.streaming_passes * (_KERNELS + _ROUTING_KERNELS * moe) * constants.kernel_start_s
    forward = stream_s(job, tokens * traffic) + kernels
    casts = Passes(0.0, 0.0)
    if job.training.precision == "fp8":
        casts = Passes(*(stream_s(job, tokens * size) for size in _cast_bytes(job, layout, moe=moe)))
    return Passes(forward, _STREAM_BACKWARD * forward) + casts


def _elementwise_bytes(job: Job, layout: LayoutLike, *, moe: bool) -> Any:
    """Device memory traffic a token of a layer's forward streaming kernels, each fused.

    Norms read and write the hidden vector, residual additions read two and write one, the activation reads its inputs
    and writes its product.
    """
    model, element = job.model, weight_bytes(job)
    queries, keys, _ = attention_widths(model)
    hidden = (2 * model.norms_per_layer + 6) * element * model.hidden
    width = model.experts_per_token * model.moe_ffn + model.shared_ffn if moe else model.ffn
    routed = 4 * element * model.hidden * model.experts_per_token if moe else 0
    activation = (3 if model.gated_mlp else 2) * element * width
    rotary = 2 * element * (queries + keys) if model.position_embedding == "rotary" else 0
    return (hidden + routed) / sequence_cut(layout) + (activation + rotary) / layout.tensor


def _cast_bytes(job: Job, layout: LayoutLike, *, moe: bool) -> tuple[Any, Any]:
    """Traffic a token of a layer's casts to fp8, forward and backward: 2 bytes read, a copy and its transpose written.

    Forward casts each product's input (the norms write theirs in fp8 already: only the transpose is left), backward
    each product's output gradient. **Source**: Transformer Engine, pytorch/module/linear.py.
    """
    model = job.model
    queries, keys, values = attention_widths(model)
    width = model.experts_per_token * model.moe_ffn + model.shared_ffn if moe else model.ffn
    ups = 2 if model.gated_mlp else 1
    times = model.experts_per_token if moe else 1
    forward = 2 * 2 * model.hidden / sequence_cut(layout) + 4 * (values + width) / layout.tensor
    backward = 4 * (1 + times) * model.hidden / sequence_cut(layout)
    return forward, backward + 4 * (queries + 2 * keys + ups * width) / layout.tensor


def head_time_s(job: Job, layout: LayoutLike) -> Any:
    """Forward and backward seconds of the output projection and the loss, on the last stage.

    The head stays in 16 bit under fp8.
    """
    tokens, rows = local_tokens(job, layout), vocabulary_rows(job, layout)
    traffic, usual = job.framework.loss_traffic_bytes, job.framework.cross_entropy
    loss = stream_s(job, tokens * rows * traffic.get(job.training.cross_entropy or usual, traffic[usual]))
    product = linear(job, tokens, job.model.hidden, rows, fp8=False)
    return product.forward_s + product.backward_s + loss
