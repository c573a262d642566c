"""What recomputation repeats: the share of the layers, or the modules of each."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..job.records import Job
from . import model_size
from .layout import LayoutLike, Modules, Recompute


def repeats(layout: LayoutLike, module: Modules) -> Any:
    """Whether selective recomputation repeats one of these modules."""
    return (layout.recompute == Recompute.SELECTIVE) & ((layout.recompute_modules & int(module)) > 0)


def full_share(job: Job, layout: LayoutLike) -> Any:
    """The share of the layers that full recomputation repeats: `recompute_layers` of each chunk, or all."""
    chunks = layout.pipeline * layout.virtual_pipeline
    share = np.minimum(layout.recompute_layers * chunks / job.model.layers, 1.0)
    return np.where(layout.recompute == Recompute.FULL, np.where(layout.recompute_layers > 0, share, 1.0), 0.0)


def keeps_scores(layout: LayoutLike) -> Any:
    """Whether a layer that isn't repeated as a whole keeps its attention scores."""
    return np.logical_not(repeats(layout, Modules.CORE_ATTN))


def repeated_layers(layout: LayoutLike, layers: Any) -> Any:
    """Of a stage's `layers`, those that full recomputation repeats."""
    in_blocks = np.minimum(layers, layout.recompute_layers * layout.virtual_pipeline)
    some = np.where(layout.recompute_layers > 0, in_blocks, layers)
    return np.where(layout.recompute == Recompute.FULL, some, 0)


def repeated_parameters(job: Job, layout: LayoutLike) -> Any:
    """Parameters that a token is multiplied with once more, over all layers, by selective recomputation."""
    model = job.model
    total = repeats(layout, Modules.MLP) * _dense_mlps(job)
    if model.is_mla:
        up = model.q_lora_rank * (model.qk_nope_head_dim + model.qk_rope_head_dim)
        up += model.kv_lora_rank * (model.qk_nope_head_dim + model.v_head_dim)
        total = total + repeats(layout, Modules.MLA_UP_PROJ) * model.layers * model.heads * up
    if model.is_moe:
        shared = model_size.shared_expert_parameters(model)
        active = model.experts_per_token * model_size.expert_parameters(model) + model_size.router_parameters(model)
        whole = repeats(layout, Modules.MOE)
        parts = whole * active + (whole | repeats(layout, Modules.SHARED_EXPERTS)) * shared
        total = total + parts * model_size.moe_layers(model)
    return total


def _dense_mlps(job: Job) -> int:
    return model_size.dense_layers(job.model) * model_size.mlp_parameters(job.model)
