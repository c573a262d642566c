"""What recomputation repeats of a layer's forward pass."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..job.records import Job
from .activations import local_tokens, sequence_cut
from .compute import LayerTime, stream_s
from .layout import LayoutLike, Modules, Recompute
from .recompute import repeated_layers, repeats
from .stages import inner_layers
from .states import weight_bytes


def repeated_share(job: Job, layout: LayoutLike, module: Modules | None = None) -> Any:
    """Share of an inner stage's layers whose forward pass, or whose `module`, runs twice.

    **Source**: Megatron-LM `--recompute-method block` with `--recompute-num-layers`: the first layers of each chunk
    (core/transformer/transformer_block.py, _checkpointed_forward).
    """
    whole = 1.0 * (layout.recompute == Recompute.FULL)
    if np.any(layout.recompute_layers):
        held = np.maximum(inner_layers(job, layout), 1)
        whole = repeated_layers(layout, held) / held
    return whole if module is None else np.where(repeats(layout, module), 1.0, whole)


def repeated_modules_s(job: Job, layout: LayoutLike, time: LayerTime, *, moe: bool) -> Any:
    """Seconds of the modules that selective recomputation repeats in one layer; kinds that a layer lacks take none."""
    model, tokens, element = job.model, local_tokens(job, layout), weight_bytes(job)
    width = (model.experts_per_token * model.moe_ffn if moe else 0) / layout.tensor
    activation = stream_s(job, tokens * (3 if model.gated_mlp else 2) * element * width)
    norms = stream_s(job, tokens * 2 * model.norms_per_layer * element * model.hidden / sequence_cut(layout))
    parts = {
        Modules.CORE_ATTN: time.core.forward_s,
        Modules.LAYERNORM: norms,
        Modules.MLA_UP_PROJ: time.latents.forward_s,
    }
    if moe:  # whose activation and shared experts are parts of the module moe
        parts[Modules.MOE | Modules.MOE_ACT] = activation
        parts[Modules.MOE | Modules.SHARED_EXPERTS] = time.shared.forward_s
        parts[Modules.MOE] = time.mlp.forward_s - time.shared.forward_s
    else:
        parts[Modules.MLP] = time.mlp.forward_s
    return sum(np.where(repeats(layout, module), seconds, 0.0) for module, seconds in parts.items())
