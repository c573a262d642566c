"""FLOPs of a step: those that the model needs, and those that the hardware does."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..catalog.model import Model
from ..job.records import Job
from .activations import repeats
from .adapters import adapter_parameters
from .layout import LayoutLike, Modules, Recompute
from .model_size import over_layers


def active_matrix_parameters(job: Job) -> float:
    """Parameters that a token is multiplied with.

    Of experts the active ones count, of the embedding the head and not the lookup.
    """
    model = job.model
    layers = over_layers(model, lambda layer: layer.active_matrix_parameters)
    return float(layers + model.vocab * model.hidden)


def layer_flops(job: Job) -> float:
    """FLOPs a token of an average layer's products, forward."""
    head = job.model.vocab * job.model.hidden
    return 2.0 * (active_matrix_parameters(job) - head) / job.model.layers


def model_flops_per_step(job: Job) -> float:
    """FLOPs of one step that the model needs: causal attention counted as half, no recomputation.

    **Source**: 6 FLOPs per token and active matrix parameter; attention 6 L s a dh per token when
    causal, twice that when not (Megatron-LM training.py, num_floating_point_operations). A frozen
    parameter has 4, for no product makes its gradient, and an adapter's 6.
    """
    tokens = job.training.tokens_per_step
    matrices = active_matrix_parameters(job)
    matrices += job.training.mtp_depths * job.model.depth_matrix_parameters
    attention = attention_flops_per_token(job)
    if job.training.lora is not None:
        return tokens * (4.0 * matrices + 6.0 * adapter_parameters(job) + 3.0 * attention)
    return 6.0 * tokens * matrices + 3.0 * tokens * attention


def attention_flops_per_token(job: Job) -> float:
    """Forward FLOPs a token of the cores, all layers, those of depths among them."""
    sequence, depths = job.training.sequence_length, job.training.mtp_depths
    further = sum(layer.core_flops(sequence) for layer in job.model.depth_layers)
    whole = over_layers(job.model, lambda layer: layer.core_flops(sequence))
    return whole + depths * further


def hardware_flops_per_step(job: Job, layout: LayoutLike) -> Any:
    """FLOPs of one step that the hardware does: those of the model, and recomputed forward passes.

    The head is never recomputed.
    """
    model, tokens = job.model, job.training.tokens_per_step
    matrices = active_matrix_parameters(job) - model.vocab * model.hidden
    core = tokens * attention_flops_per_token(job)
    # Full recomputation repeats `recompute_layers` of each chunk, or all.
    chunks = layout.pipeline * layout.virtual_pipeline
    some = np.minimum(layout.recompute_layers * chunks / model.layers, 1.0)
    share = np.where(layout.recompute_layers > 0, some, 1.0)
    full = np.where(layout.recompute == Recompute.FULL, share, 0.0)
    again = full * (2.0 * tokens * (matrices + adapter_parameters(job)) + core)
    parts = repeats(layout, Modules.CORE_ATTN) * core
    parts = parts + 2.0 * tokens * _repeated_parameters(model, layout)
    return model_flops_per_step(job) + again + parts


def _repeated_parameters(model: Model, layout: LayoutLike) -> Any:
    """Parameters that selective recomputation multiplies a token with again, over all layers."""
    total: Any = 0
    for layer, count in zip(model.averaged.kinds, model.averaged.counts, strict=True):
        latent, part = layer.mixer.repeated_parameters, layer.feed_forward
        if latent:
            total = total + repeats(layout, Modules.MLA_UP_PROJ) * count * latent

        if not part.experts:
            total = total + repeats(layout, Modules.MLP) * count * part.whole_parameters
            continue
        active = part.per_token * part.expert_parameters + part.router_parameters
        whole = repeats(layout, Modules.MOE)
        shared = (whole | repeats(layout, Modules.SHARED_EXPERTS)) * part.whole_parameters
        total = total + (whole * active + shared) * count
    return total
