"""FLOPs of a step: those that the model needs, and those that the hardware does."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..catalog.records import Model
from ..job.records import Job
from . import model_size
from .activations import repeats
from .adapters import adapter_parameters
from .layout import LayoutLike, Modules, Recompute
from .model_size import attention_parameters, attention_widths, latent_products, mean_keys


def active_matrix_parameters(job: Job) -> float:
    """Parameters a token is multiplied with: active experts only, the head once, no embedding lookup."""
    model = job.model
    dense = model_size.dense_layers(model) * model_size.mlp_parameters(model)
    routed = 0
    if model.is_moe:
        active = model.experts_per_token * model_size.expert_parameters(model)
        per_layer = (
            active
            + model_size.shared_expert_parameters(model)
            + model_size.router_parameters(model)
        )
        routed = model_size.moe_layers(model) * per_layer
    attention = model.layers * attention_parameters(model)
    return float(attention + dense + routed + model.vocab * model.hidden)


def layer_flops(job: Job) -> float:
    """FLOPs a token of an average layer's products, forward."""
    return (
        2.0
        * (active_matrix_parameters(job) - job.model.vocab * job.model.hidden)
        / job.model.layers
    )


def model_flops_per_step(job: Job) -> float:
    """FLOPs of one step that the model needs: causal attention counted as half, no recomputation.

    **Source**: 6 FLOPs per token and active matrix parameter; attention 6 L s a dh per token when causal, twice that
    when not (Megatron-LM training.py, num_floating_point_operations). A frozen parameter has 4, for no product makes
    its gradient, and an adapter's 6.
    """
    tokens = job.training.tokens_per_step
    matrices = active_matrix_parameters(job)
    if job.training.lora is not None:
        return tokens * (
            4.0 * matrices + 6.0 * adapter_parameters(job) + 3.0 * attention_flops_per_token(job)
        )
    return 6.0 * tokens * matrices + 3.0 * tokens * attention_flops_per_token(job)


def attention_flops_per_token(job: Job) -> float:
    """Forward FLOPs a token of the attention core, all layers."""
    model = job.model
    queries, _, values = attention_widths(model)
    return (
        model.layers * 2.0 * mean_keys(job.model, job.training.sequence_length) * (queries + values)
    )


def hardware_flops_per_step(job: Job, layout: LayoutLike) -> Any:
    """Model FLOPs and the recomputed forward passes of the layers (the head is never recomputed)."""
    model, tokens = job.model, job.training.tokens_per_step
    matrices = active_matrix_parameters(job) - model.vocab * model.hidden
    core = tokens * attention_flops_per_token(job)
    # Full recomputation repeats `recompute_layers` of each chunk, or all.
    some = np.minimum(
        layout.recompute_layers * layout.pipeline * layout.virtual_pipeline / model.layers, 1.0
    )
    full = np.where(
        layout.recompute == Recompute.FULL, np.where(layout.recompute_layers > 0, some, 1.0), 0.0
    )
    again = full * (2.0 * tokens * (matrices + adapter_parameters(job)) + core)
    parts = repeats(layout, Modules.CORE_ATTN) * core + 2.0 * tokens * _repeated_parameters(
        model, layout
    )
    return model_flops_per_step(job) + again + parts


def _repeated_parameters(model: Model, layout: LayoutLike) -> Any:
    """Parameters that a token is multiplied with once more, over all layers, by selective recomputation."""
    total = (
        repeats(layout, Modules.MLP)
        * model_size.dense_layers(model)
        * model_size.mlp_parameters(model)
    )
    if model.is_mla:
        latent = latent_products(model)[
            0 if model.q_lora_rank else 1 :
        ]  # the other is of the hidden state
        total = total + repeats(layout, Modules.MLA_UP_PROJ) * model.layers * sum(
            k * n for k, n in latent
        )
    if model.is_moe:
        active = model.experts_per_token * model_size.expert_parameters(
            model
        ) + model_size.router_parameters(model)
        whole = repeats(layout, Modules.MOE)
        shared = (
            whole | repeats(layout, Modules.SHARED_EXPERTS)
        ) * model_size.shared_expert_parameters(model)
        total = total + (whole * active + shared) * model_size.moe_layers(model)
    return total
