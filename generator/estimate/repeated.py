"""What recomputation repeats of a layer's forward pass."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..job.records import Job
from .activations import local_tokens, sequence_cut
from .compute import LayerTime, stream_s
from .layout import LayoutLike, Modules, Recompute
from .stages import stage_layers
from .states import weight_bytes


def repeated_layers(job: Job, layout: LayoutLike) -> Any:
    """Share of a stage's layers that full recomputation repeats: so many of each model chunk, or all.

    **Source**: Megatron-LM `--recompute-method block` with `--recompute-num-layers`: the first layers of each chunk
    (core/transformer/transformer_block.py, _checkpointed_forward).
    """
    held = np.maximum(stage_layers(job, layout, 1 * (layout.pipeline > 2)).layers, 1)
    some = np.minimum(layout.recompute_layers * layout.virtual_pipeline / held, 1.0)
    return np.where(layout.recompute_layers > 0, some, 1.0)


def repeated_share(job: Job, layout: LayoutLike, module: Modules | None = None) -> Any:
    """Share of the layers whose forward pass, or whose `module`, runs twice."""
    whole = np.where(layout.recompute == Recompute.FULL, repeated_layers(job, layout), 0.0)
    if module is None:
        return whole
    chosen = np.bitwise_and(layout.recompute_modules, int(module)) > 0
    return np.where((layout.recompute == Recompute.SELECTIVE) & chosen, 1.0, whole)


def repeated_modules_s(job: Job, layout: LayoutLike, time: LayerTime, *, moe: bool) -> Any:
    """Seconds of the modules that selective recomputation repeats in one layer; kinds that a layer lacks take none."""
    model, tokens, element = job.model, local_tokens(job, layout), weight_bytes(job)
    width = (model.experts_per_token * model.moe_ffn if moe else 0) / layout.tensor
    activation = stream_s(job, tokens * (3 if model.gated_mlp else 2) * element * width)
    norms = stream_s(job, tokens * 2 * model.norms_per_layer * element * model.hidden / sequence_cut(layout))
    parts = {
        Modules.CORE_ATTN: time.core.forward_s,
        Modules.MOE_ACT: activation,
        Modules.LAYERNORM: norms,
        Modules.MLA_UP_PROJ: time.latents.forward_s,
        Modules.MLP: 0.0 if moe else time.mlp.forward_s,
        Modules.MOE: time.mlp.forward_s + activation if moe else 0.0,
        Modules.SHARED_EXPERTS: time.shared.forward_s if moe else 0.0,
    }
    chosen = layout.recompute_modules
    return sum(np.where(np.bitwise_and(chosen, int(module)) > 0, seconds, 0.0) for module, seconds in parts.items())
