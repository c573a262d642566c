"""Compute: seconds of a layer and of the head on one rank, and the FLOPs of a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..spec.job import Job
from ..units import MICROSECOND
from . import model_size
from .activations import attention_widths, local_tokens, sequence_cut
from .layout import LayoutLike, Recompute
from .stages import vocabulary_rows
from .states import weight_bytes
from .traits import FRAMEWORKS, accelerator_traits

#: Shapes off a multiple of 64 waste the rest of the tile (head size 150 or width 14400/8 cost 20-27 % in BigScience's
#: runs on A100).
_TILE = 64
#: Host time to launch one kernel; assumed, the order of PyTorch's dispatch.
_LAUNCH_S = 5 * MICROSECOND
#: 16-bit transfers of one attention score in a forward pass: written and read by product, softmax and dropout. Eager
#: mode scales and masks by themselves and has its softmax in fp32; counted from the operators, not measured.
_FUSED_SCORE_TRANSFERS = 6
_EAGER_SCORE_TRANSFERS = 18
#: Passes of eager PyTorch over the data of one fused kernel; assumed.
_EAGER_PASSES = 2.5
#: Backward over forward for streaming kernels: reads the gradient and the saved input, writes one.
_STREAM_BACKWARD = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTime:
    """Seconds of one layer, one micro-batch, one rank."""

    forward_s: Any
    backward_s: Any
    attention_core_s: Any  #: the part of the forward pass that selective recomputation repeats


def _tile_use(width: Any) -> Any:
    """Share of useful work when `width` is rounded up to whole tiles."""
    return width / (np.ceil(width / _TILE) * _TILE)


def gemm_s(job: Job, m: Any, k: Any, n: Any, *, grouped: bool = False) -> Any:
    """Seconds of an m×k by k×n product: roofline of arithmetic and memory traffic, and a fixed start.

    `grouped`: the m rows are spread over experts, each with a small product of its own.

    **Source**: constants and their fit in `traits`; tile quantisation on the two weight dimensions.
    """
    accelerator, traits = job.cluster.accelerator, accelerator_traits(job.cluster.accelerator)
    precision = job.training.precision if accelerator.supports(job.training.precision) else "fp16"
    rate = accelerator.flops_per_s.get(precision) or max(accelerator.flops_per_s.values())
    fraction = traits.fp8_gemm_fraction if precision == "fp8" else traits.gemm_fraction
    fraction = fraction * (traits.grouped_share if grouped else 1)
    arithmetic = 2 * m * k * n / (rate * fraction * _tile_use(k) * _tile_use(n))
    traffic = weight_bytes(job) * (m * k + k * n + m * n)
    streaming = traffic / (accelerator.memory_bytes_per_s * traits.memory_fraction)
    return np.maximum(arithmetic, streaming) + traits.gemm_overhead_s


def stream_s(job: Job, traffic_bytes: Any) -> Any:
    """Seconds of kernels that only move `traffic_bytes` through device memory."""
    accelerator = job.cluster.accelerator
    return traffic_bytes / (accelerator.memory_bytes_per_s * accelerator_traits(accelerator).memory_fraction)


def layer_time(job: Job, layout: LayoutLike, *, moe: bool) -> LayerTime:
    """Seconds of one transformer layer, with a dense MLP or with experts."""
    tokens = local_tokens(job, layout)
    products = _attention_products_s(job, layout, tokens) + _mlp_products_s(job, layout, tokens, moe=moe)
    core_forward, core_backward = _attention_core_s(job, layout, tokens)
    streams = stream_s(job, tokens * _elementwise_bytes(job, layout, moe=moe))
    launches = FRAMEWORKS[job.framework].kernels_per_layer * _LAUNCH_S
    return LayerTime(
        forward_s=np.maximum(products + core_forward + streams, launches),
        backward_s=np.maximum(2 * products + core_backward + _STREAM_BACKWARD * streams, 2 * launches),
        attention_core_s=core_forward,
    )


def _attention_products_s(job: Job, layout: LayoutLike, tokens: Any) -> Any:
    """Query, key, value and output projections; MLA goes through its low-rank latents."""
    model, tensor = job.model, layout.tensor
    queries, keys, values = attention_widths(model)
    output = gemm_s(job, tokens, values / tensor, model.hidden)
    if not model.is_mla:
        return gemm_s(job, tokens, model.hidden, (queries + 2 * keys) / tensor) + output
    down = gemm_s(job, tokens, model.hidden, model.q_lora_rank + model.kv_lora_rank + model.qk_rope_head_dim)
    up_keys = model.heads * (model.qk_nope_head_dim + model.v_head_dim) / tensor
    return (
        down
        + gemm_s(job, tokens, model.q_lora_rank or model.hidden, queries / tensor)
        + gemm_s(job, tokens, model.kv_lora_rank, up_keys)
        + output
    )


def _mlp_products_s(job: Job, layout: LayoutLike, tokens: Any, *, moe: bool) -> Any:
    """The MLP's products; experts as grouped products over the tokens that reach this rank (balanced router)."""
    model, tensor = job.model, layout.tensor
    ups = 2 if model.gated_mlp else 1

    def mlp_s(rows: Any, width: Any, *, grouped: bool = False) -> Any:
        up = gemm_s(job, rows, model.hidden, ups * width / tensor, grouped=grouped)
        return up + gemm_s(job, rows, width / tensor, model.hidden, grouped=grouped)

    if not moe:
        return mlp_s(tokens, model.ffn)
    routed = mlp_s(tokens * model.experts_per_token, model.moe_ffn, grouped=True)
    router = gemm_s(job, tokens / sequence_cut(layout), model.hidden, model.experts)
    return routed + router + (mlp_s(tokens, model.shared_ffn) if model.shared_ffn else 0)


def _attention_core_s(job: Job, layout: LayoutLike, tokens: Any) -> tuple[Any, Any]:
    """Forward and backward seconds of softmax(QK)V: flash skips the masked half, unfused computes and stores it all."""
    accelerator, traits = job.cluster.accelerator, accelerator_traits(job.cluster.accelerator)
    queries, _, values = attention_widths(job.model)
    sequence = job.training.sequence_length
    span = min(sequence, job.model.sliding_window or sequence)
    flops = 2 * tokens * span * (queries + values) / layout.tensor
    rate = accelerator.flops_per_s.get("bf16") or accelerator.flops_per_s["fp16"]
    if job.training.attention == "flash":
        work = flops * (0.5 if job.model.causal else 1)
        return (
            work / (rate * traits.attention_forward_fraction),
            2.5 * work / (rate * traits.attention_backward_fraction),
        )
    # Softmax with mask, dropout and the two products each read or write the scores.
    transfers = _FUSED_SCORE_TRANSFERS if FRAMEWORKS[job.framework].fused else _EAGER_SCORE_TRANSFERS
    scores = stream_s(job, tokens * sequence * job.model.heads / layout.tensor * 2 * transfers)
    products = flops / (rate * traits.attention_forward_fraction)
    return products + scores, 2 * products + _STREAM_BACKWARD * scores


def _elementwise_bytes(job: Job, layout: LayoutLike, *, moe: bool) -> Any:
    """Device memory traffic a token of a layer's forward streaming kernels.

    Norms read and write the hidden vector, residual additions read two and write one, the activation reads its inputs
    and writes its product; eager PyTorch makes more passes over the same data.
    """
    model, element = job.model, weight_bytes(job)
    queries, keys, _ = attention_widths(model)
    hidden = (2 * model.norms_per_layer + 6) * element * model.hidden
    width = model.experts_per_token * model.moe_ffn + model.shared_ffn if moe else model.ffn
    routed = 4 * element * model.hidden * model.experts_per_token if moe else 0
    activation = (3 if model.gated_mlp else 2) * element * width
    rotary = 2 * element * (queries + keys) if model.position_embedding == "rotary" else 0
    passes = 1.0 if FRAMEWORKS[job.framework].fused else _EAGER_PASSES
    return passes * ((hidden + routed) / sequence_cut(layout) + (activation + rotary) / layout.tensor)


def head_time_s(job: Job, layout: LayoutLike) -> Any:
    """Forward and backward seconds of the output projection and the loss, on the last stage."""
    tokens, rows = local_tokens(job, layout), vocabulary_rows(job, layout)
    loss = stream_s(job, tokens * rows * 2 * FRAMEWORKS[job.framework].logit_bytes)
    return 3 * gemm_s(job, tokens, job.model.hidden, rows) + loss


def active_matrix_parameters(job: Job) -> float:
    """Parameters a token is multiplied with: active experts only, the head once, no embedding lookup."""
    model = job.model
    dense = model_size.dense_layers(model) * model_size.mlp_parameters(model)
    routed = 0
    if model.is_moe:
        active = model.experts_per_token * model_size.expert_parameters(model)
        per_layer = active + model_size.shared_expert_parameters(model) + model_size.router_parameters(model)
        routed = model_size.moe_layers(model) * per_layer
    attention = model.layers * model_size.attention_parameters(model)
    return float(attention + dense + routed + model.vocab * model.hidden)


def model_flops_per_step(job: Job) -> float:
    """FLOPs of one step that the model needs: causal attention counted as half, no recomputation.

    **Source**: 6 FLOPs per token and active matrix parameter; attention 6 L s a dh per token when causal, twice that
    when not (Megatron-LM training.py, num_floating_point_operations).
    """
    tokens = job.training.tokens_per_step
    matrices = active_matrix_parameters(job)
    return 6.0 * tokens * matrices + 3.0 * tokens * attention_flops_per_token(job)


def attention_flops_per_token(job: Job) -> float:
    """Forward FLOPs a token of the attention core, all layers."""
    model = job.model
    queries, _, values = attention_widths(model)
    span = min(job.training.sequence_length, model.sliding_window or job.training.sequence_length)
    return model.layers * 2.0 * span * (queries + values) * (0.5 if model.causal else 1.0)


def hardware_flops_per_step(job: Job, layout: LayoutLike) -> Any:
    """Model FLOPs and the recomputed forward passes of the layers (the head is never recomputed)."""
    model, tokens = job.model, job.training.tokens_per_step
    matrices = active_matrix_parameters(job) - model.vocab * model.hidden
    core = tokens * attention_flops_per_token(job)
    again = np.where(
        layout.recompute == Recompute.FULL,
        2.0 * tokens * matrices + core,
        np.where(layout.recompute == Recompute.SELECTIVE, core, 0.0),
    )
    return model_flops_per_step(job) + again
