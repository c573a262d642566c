"""Communication of a layout: seconds per layer, per micro-batch or per step, by dimension."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..spec.job import Job
from .activations import attention_widths, local_tokens, sequence_cut
from .collectives import all_gather_s, all_reduce_s, all_to_all_s, dispatch_s, group, send_s
from .layout import LayoutLike, Recompute
from .rates import rates
from .stages import StageParameters
from .states import weight_bytes
from .traits import FRAMEWORKS

#: Share of a run of messages that overlap never hides, the first and the last of them; assumed.
_EXPOSED = 0.1
#: ZeRO-3 gathers and reduces each matrix by itself: query-key-value, output, and the MLP's two.
_MATRICES_PER_LAYER = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCommunication:
    """Seconds that one layer and one micro-batch spend in communication: forward and backward together."""

    tensor_s: Any
    context_s: Any
    expert_s: Any


def tensor_s(job: Job, layout: LayoutLike) -> Any:
    """Two all-reduces forward, two backward, two more with full recomputation; sequence parallelism moves as much.

    **Source**: 1909.08053 sec 3; 2205.05198 sec 4.2.2 (reduce-scatter and all-gather have an all-reduce's volume).
    """
    ring = group(job, layout.tensor, 1)
    size = weight_bytes(job) * local_tokens(job, layout) * job.model.hidden
    calls = np.where(layout.recompute == Recompute.FULL, 6, 4)
    return np.where(layout.tensor > 1, calls * all_reduce_s(job, ring, size), 0.0)


def context_s(job: Job, layout: LayoutLike, attention_core_s: Any) -> Any:
    """Ring (Megatron-LM) hidden behind attention, or Ulysses' all-to-alls (DeepSpeed), which are not.

    **Source**: ring: `(c-1)` sends of the local keys and values forward, twice that backward; Ulysses (2309.14509):
    queries, keys, values and output, each way.
    """
    ring = group(job, layout.context, layout.tensor)
    tokens, element = local_tokens(job, layout), weight_bytes(job)
    queries, keys, _ = attention_widths(job.model)
    passes = np.where(layout.recompute == Recompute.FULL, 3, 2)
    if job.framework == "megatron-lm":
        crosses = ring.size > ring.per_node
        one = send_s(job, element * tokens * 2 * keys / layout.tensor, crosses)
        rounds = (layout.context - 1) * one
        exposed = 3 * np.maximum(rounds - attention_core_s, _EXPOSED * rounds)
    else:
        exposed = passes * all_to_all_s(job, ring, element * tokens * (2 * queries + 2 * keys))
    return np.where(layout.context > 1, exposed, 0.0)


def expert_s(job: Job, layout: LayoutLike) -> Any:
    """Dispatch and combine all-to-alls of a MoE layer, forward and backward, once more with full recomputation.

    **Source**: each moves `tokens * top_k * hidden` elements per rank (2101.03961; SimuMax moe_module.py).
    """
    if not job.model.is_moe:
        return 0.0 * layout.expert
    ring = group(job, layout.expert, layout.tensor)
    tokens = local_tokens(job, layout) / sequence_cut(layout)
    size = weight_bytes(job) * tokens * job.model.hidden
    passes = np.where(layout.recompute == Recompute.FULL, 6, 4)
    one = dispatch_s(job, ring, size, job.model.experts_per_token)
    return np.where(layout.expert > 1, passes * one, 0.0)


def layer_communication(job: Job, layout: LayoutLike, attention_core_s: Any) -> LayerCommunication:
    """All three, of one layer and one micro-batch."""
    return LayerCommunication(
        tensor_s=tensor_s(job, layout),
        context_s=context_s(job, layout, attention_core_s),
        expert_s=expert_s(job, layout),
    )


def boundary_s(job: Job, layout: LayoutLike) -> Any:
    """One send of a micro-batch's activations to the next stage.

    **Source**: 2104.04473 sec 4.1: the tensor is cut by sequence parallelism, whole otherwise.
    """
    size = weight_bytes(job) * local_tokens(job, layout) * job.model.hidden / sequence_cut(layout)
    world = layout.data * layout.tensor * layout.pipeline * layout.context
    crosses = world > max(job.cluster.accelerators_per_node, job.cluster.link_domain)
    return np.where(layout.pipeline > 1, send_s(job, size, crosses), 0.0)


def data_s(job: Job, layout: LayoutLike, held: StageParameters, micro_batch_s: Any) -> Any:
    """Exposed gradient and parameter communication of a step.

    **Source**: ZeRO (1910.02054 sec 7): an all-reduce for stage 0, reduce-scatter and all-gather for stage 1 per step;
    DeepSpeed reduces per micro-batch in stage 2 and gathers twice per micro-batch in stage 3. `micro_batch_s` is the
    compute that can hide it: one micro-batch's for per-step traffic, every micro-batch's own otherwise.
    """
    constants = rates(job)
    ring = group(job, layout.data * layout.context, layout.tensor)
    element = weight_bytes(job)
    gradient = element if FRAMEWORKS[job.framework].deepspeed or job.training.precision == "fp16" else 4
    count = held.shared + held.experts
    stage, passes = layout.zero_stage, layout.gradient_accumulation
    calls = np.where(stage >= 3, _MATRICES_PER_LAYER * job.model.layers, 1)
    share = np.where(stage >= 3, constants.full_sharding_share, 1.0)
    reduce = all_gather_s(job, ring, gradient * count / share, calls)
    gather = all_gather_s(job, ring, element * count / share, calls)
    whole = all_reduce_s(job, ring, gradient * count)
    per_step = np.where(stage == 0, whole, reduce + gather)
    overlap = np.where(_pipelined_deepspeed(job, layout), 0.0, constants.data_overlap)
    per_pass = np.where(stage >= 3, reduce + 2 * gather, reduce)
    final_gather = np.where(stage == 2, gather, 0.0)
    each = passes * exposed_s(per_pass, micro_batch_s, constants.data_overlap) + final_gather
    exposed = np.where(stage >= 2, each, exposed_s(per_step, micro_batch_s, overlap))
    return np.where(layout.data * layout.context > 1, exposed, 0.0)


def exposed_s(communication_s: Any, window_s: Any, overlap: Any) -> Any:
    """What is left of communication beside `window_s` of compute, of which a share `overlap` can run at once."""
    return communication_s - overlap * np.minimum(communication_s, window_s)


def _pipelined_deepspeed(job: Job, layout: LayoutLike) -> Any:
    """DeepSpeed's pipeline engine does not overlap gradient communication (engine.py:2390 @ 0.19.6)."""
    return (layout.pipeline > 1) & FRAMEWORKS[job.framework].deepspeed
