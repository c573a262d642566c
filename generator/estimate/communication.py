"""Communication of a layout: seconds per layer, per micro-batch or per step, by dimension."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..job.records import Job
from .activations import attention_widths, local_tokens, sequence_cut
from .collectives import all_reduce_s, all_to_all_s, dispatch_s, group, send_s
from .layout import LayoutLike, Recompute
from .overlap import exposed_s
from .rates import rates
from .states import weight_bytes

#: Where DeepEP runs (deepseek-ai/DeepEP, README: Hopper; Megatron-LM takes it on Blackwell too).
_DEEPEP_GENERATIONS = ("hopper", "blackwell", "blackwell-ultra")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCommunication:
    """Seconds that one layer and one micro-batch spend in communication: forward and backward together."""

    tensor_s: Any
    context_s: Any
    expert_s: Any


def tensor_s(job: Job, layout: LayoutLike, column_gradient_s: Any) -> Any:
    """Two all-reduces forward, two backward, two more with full recomputation.

    Sequence parallelism moves as much, and gathers the inputs of the column-parallel products once more. Megatron-LM
    runs the backward collectives of those products beside their weight gradients (`column_gradient_s`), and the gathers
    that sequence parallelism adds beside the input gradients, which take as long.

    **Source**: 1909.08053 sec 3; 2205.05198 sec 4.2.2; Megatron-LM core/tensor_parallel/layers.py,
    LinearWithGradAccumulationAndAsyncCommunication.
    """
    ring = group(job, layout.tensor, 1)
    size = weight_bytes(job) * local_tokens(job, layout) * job.model.hidden
    one = all_reduce_s(job, ring, size)
    beside = job.framework.overlaps_tensor * np.where(layout.sequence_parallel, 1.5, 1) * 2
    calls = np.where(layout.recompute == Recompute.FULL, 6, 4) + np.where(layout.sequence_parallel, 1, 0)
    window = np.where(layout.sequence_parallel, 2, 1) * column_gradient_s
    return np.where(layout.tensor > 1, (calls - beside) * one + exposed_s(job, beside * one, window), 0.0)


def context_s(job: Job, layout: LayoutLike, attention_core_s: Any) -> Any:
    """Ring hidden behind attention, or Ulysses' all-to-alls, which are not.

    **Source**: ring: `(c-1)` sends of the local keys and values forward, twice that backward; Ulysses (2309.14509):
    queries, keys, values and output, each way.
    """
    ring = group(job, layout.context, layout.tensor)
    tokens, element = local_tokens(job, layout), weight_bytes(job)
    queries, keys, _ = attention_widths(job.model)
    passes = np.where(layout.recompute == Recompute.FULL, 3, 2)
    if job.framework.rings_context:
        crosses = ring.size > ring.per_node
        rounds = (layout.context - 1) * send_s(job, element * tokens * 2 * keys / layout.tensor, crosses)
        exposed = 3 * np.maximum(rounds - attention_core_s, rates(job).ring_exposed_share * rounds)
    else:
        exposed = passes * all_to_all_s(job, ring, element * tokens * (2 * queries + 2 * keys))
    return np.where(layout.context > 1, exposed, 0.0)


def expert_s(job: Job, layout: LayoutLike) -> Any:
    """Dispatch and combine all-to-alls of a MoE layer, forward and backward, once more with full recomputation.

    **Source**: each moves `tokens * top_k * hidden` elements per rank (2101.03961; SimuMax moe_module.py).
    """
    if not job.model.is_moe:
        return 0.0 * layout.expert
    ring = group(job, layout.expert, layout.expert_tensor)
    cut = layout.tensor if job.framework.routes_cut_sequences else sequence_cut(layout)
    tokens = local_tokens(job, layout) / cut
    size, copies = weight_bytes(job) * tokens * job.model.hidden, job.model.experts_per_token
    passes = np.where(layout.recompute == Recompute.FULL, 6, 4)
    once = sends_tokens_once_per_node(job, layout)
    one = np.where(once, dispatch_s(job, ring, size, copies), all_to_all_s(job, ring, size * copies))
    return np.where(layout.expert > 1, passes * one, 0.0)


def sends_tokens_once_per_node(job: Job, layout: LayoutLike) -> Any:
    """Whether experts on several nodes are reached by the flex dispatcher, which needs DeepEP in the image."""
    ring = group(job, layout.expert, layout.expert_tensor)
    possible = job.framework.dispatches_by_node and job.cluster.accelerator.generation in _DEEPEP_GENERATIONS
    return possible & (ring.size > ring.per_node)


def layer_communication(job: Job, layout: LayoutLike, attention_core_s: Any, column_gradient_s: Any) -> LayerCommunication:
    """All three, of one layer and one micro-batch."""
    return LayerCommunication(
        tensor_s=tensor_s(job, layout, column_gradient_s),
        context_s=context_s(job, layout, attention_core_s),
        expert_s=expert_s(job, layout),
    )


def boundary_s(job: Job, layout: LayoutLike) -> Any:
    """One send of a micro-batch's activations to the next stage.

    **Source**: 2104.04473 sec 4.1: the tensor is cut by sequence parallelism, whole otherwise; DeepSpeed's pipeline
    engine cuts it by tensor parallelism too (runtime/pipe/engine.py:137, `pipe_partitioned`).
    """
    cut = layout.tensor if job.framework.runs("DeepSpeed engine") else sequence_cut(layout)
    size = weight_bytes(job) * local_tokens(job, layout) * job.model.hidden / cut
    world = layout.data * layout.tensor * layout.pipeline * layout.context
    crosses = world > max(job.cluster.accelerators_per_node, job.cluster.link_domain)
    return np.where(layout.pipeline > 1, send_s(job, size, crosses), 0.0)
