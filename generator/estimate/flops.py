"""FLOPs of a step: what the model needs, and what the hardware does."""

from __future__ import annotations

from typing import Any

from ..job.records import Job
from . import model_size
from .activations import attention_widths, full_share, repeated_parameters, repeats
from .adapters import adapter_parameters
from .layout import LayoutLike, Modules


def mean_keys(job: Job) -> float:
    """Keys that a query attends to, in the mean over positions and layers.

    **Source**: counted from the masks of transformers' masking_utils.py (causal, sliding window, chunked).
    **Symbols**: s sequence, w window or chunk: s/2 where attention is whole and causal (s where it isn't), w - w²/2s
    where the window slides, w/2 where the sequence is cut into chunks.
    """
    model, sequence = job.model, job.training.sequence_length
    whole = sequence / 2 if model.causal else float(sequence)
    window = model.sliding_window
    if window is None or window >= sequence:
        return whole
    part = window / 2 if model.chunked_attention else window - window**2 / (2 * sequence)
    share = len(model.full_attention_layers) / model.layers
    return share * whole + (1 - share) * part


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


def layer_flops(job: Job) -> float:
    """FLOPs a token of an average layer's products, forward."""
    return 2.0 * (active_matrix_parameters(job) - job.model.vocab * job.model.hidden) / job.model.layers


def model_flops_per_step(job: Job) -> float:
    """FLOPs of one step that the model needs: causal attention counted as half, no recomputation.

    **Source**: 6 FLOPs per token and active matrix parameter; attention 6 L s a dh per token when causal, twice that
    when not (Megatron-LM training.py, num_floating_point_operations). A frozen parameter has 4, for no product makes
    its gradient, and an adapter's 6.
    """
    tokens = job.training.tokens_per_step
    matrices = active_matrix_parameters(job)
    if job.training.lora is not None:
        return tokens * (4.0 * matrices + 6.0 * adapter_parameters(job) + 3.0 * attention_flops_per_token(job))
    return 6.0 * tokens * matrices + 3.0 * tokens * attention_flops_per_token(job)


def attention_flops_per_token(job: Job) -> float:
    """Forward FLOPs a token of the attention core, all layers."""
    model = job.model
    queries, _, values = attention_widths(model)
    return model.layers * 2.0 * mean_keys(job) * (queries + values)


def hardware_flops_per_step(job: Job, layout: LayoutLike) -> Any:
    """Model FLOPs and the recomputed forward passes of the layers (the head is never recomputed)."""
    model, tokens = job.model, job.training.tokens_per_step
    matrices = active_matrix_parameters(job) - model.vocab * model.hidden
    core = tokens * attention_flops_per_token(job)
    again = full_share(job, layout) * (2.0 * tokens * (matrices + adapter_parameters(job)) + core)
    parts = repeats(layout, Modules.CORE_ATTN) * core + 2.0 * tokens * repeated_parameters(job, layout)
    return model_flops_per_step(job) + again + parts
