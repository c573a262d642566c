"""Communication inside a replica: seconds per layer and micro-batch, or per micro-batch, by dimension."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..job.records import Job
from .activations import attention_widths, local_tokens, sequence_cut
from .collectives import all_gather_s, all_reduce_s, all_to_all_s, dispatch_s, group, send_s
from .compute import LayerTime
from .experts import busiest
from .layout import LayoutLike, Modules
from .overlap import exposed_s
from .rates import rates
from .repeated import repeated_share
from .states import weight_bytes

#: Where DeepEP runs (deepseek-ai/DeepEP, README: Hopper; Megatron-LM takes it on Blackwell too).
_DEEPEP_GENERATIONS = ("hopper", "blackwell", "blackwell-ultra")
#: Of a layer's products by time, those cut by columns: queries, keys and values, and the MLP's first: half of a GPT's,
#: more with gated MLPs.
_COLUMN_SHARE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCommunication:
    """Seconds that one layer and one micro-batch spend in communication: forward and backward together."""

    tensor_s: Any
    context_s: Any
    expert_s: Any


def layer_communication(job: Job, layout: LayoutLike, time: LayerTime, *, moe: bool) -> LayerCommunication:
    """All three, of one layer and one micro-batch which computes for `time`."""
    return LayerCommunication(
        tensor_s=tensor_s(job, layout, time, moe=moe),
        context_s=context_s(job, layout, time),
        expert_s=expert_s(job, layout, time) if moe else 0.0 * layout.expert,
    )


def tensor_s(job: Job, layout: LayoutLike, time: LayerTime, *, moe: bool = False) -> Any:
    """Two all-reduces forward, two backward, two more with full recomputation; routed experts have none of the MLP's.

    Sequence parallelism moves as much, and gathers the inputs of the column-parallel products once more. Megatron-LM
    starts the backward collectives of those products beside their own arithmetic. User buffers cut every collective
    into chunks that run beside the product that makes or takes them: the first chunk waits.

    **Source**: 1909.08053 sec 3; 2205.05198 sec 4.2.2; Megatron-LM core/tensor_parallel/layers.py,
    LinearWithGradAccumulationAndAsyncCommunication; Transformer Engine, docs on `ub_overlap_ag` and `ub_overlap_rs`.
    """
    ring = group(job, layout.tensor, 1)
    size = weight_bytes(job) * local_tokens(job, layout) * job.model.hidden
    pair = (1 if moe and not job.model.shared_ffn else 2) * all_reduce_s(job, ring, size)
    calls = 2 + repeated_share(job, layout) + 0.5 * layout.sequence_parallel
    beside = job.framework.overlaps_tensor * (1 + 0.5 * layout.sequence_parallel)
    window = (1 + layout.sequence_parallel) * _COLUMN_SHARE * time.products.backward_s / 2
    hidden = rates(job).tensor_overlap * np.minimum(beside * pair, window) * (1 - rates(job).overlap_cost)
    buffered = exposed_s(
        job, calls * pair, time.products.forward_s + time.products.backward_s, calls * pair / layout.tensor
    )
    return np.where(layout.tensor > 1, np.where(layout.tensor_overlap, buffered, calls * pair - hidden), 0.0)


def context_s(job: Job, layout: LayoutLike, time: LayerTime) -> Any:
    """Ring hidden behind attention step by step, and all-to-alls of heads, which are not.

    A ring of c ranks makes c-1 steps, each beside the attention of one chunk; zigzag chunks share the causal half
    evenly. Only heads of keys and values move, at least one on each tensor rank; MLA's are expanded before. Backward,
    keys and values move together with their gradients. All-to-alls move queries, keys, values and output.

    **Source**: ring: Megatron-LM and Transformer Engine, attention/dot_product_attention/context_parallel.py (p2p, a2a
    and a2a+p2p); Ulysses (2309.14509).
    """
    heads = layout.context_heads if job.framework.rings_context else layout.context
    chunks = layout.context / heads
    tokens, element = local_tokens(job, layout), weight_bytes(job)
    queries, keys, values = attention_widths(job.model)
    both = keys + values if job.model.is_mla else 2 * np.maximum(keys, layout.tensor * job.model.head_dim)
    again = repeated_share(job, layout)
    ring, inner = group(job, chunks, layout.tensor * heads), group(job, heads, layout.tensor)
    send = send_s(job, element * tokens * both / layout.tensor, ring.size > ring.per_node)
    core, back = time.core.forward_s / chunks, time.core.backward_s / chunks
    steps = (1 + again) * exposed_s(job, send, core) + exposed_s(job, 2 * send, back)
    exchange = all_to_all_s(job, inner, element * tokens * (queries + both + values) / layout.tensor)
    return (chunks - 1) * steps + np.where(heads > 1, (2 + again) * exchange, 0.0)


def expert_s(job: Job, layout: LayoutLike, time: LayerTime) -> Any:
    """Dispatch and combine of a MoE layer, forward and backward, once more with full recomputation.

    The rank with most tokens sets the pace. Experts that are cut gather their tokens after the dispatch, and scatter
    the sums before the combination. With overlap, the all-to-alls run beside the other pass of the next micro-batch,
    but for the passes that fill and empty the pipeline.

    **Source**: each moves `tokens * top_k * hidden` elements per rank (2101.03961; SimuMax moe_module.py); Megatron-LM
    core/transformer/moe/token_dispatcher.py, core/pipeline_parallel/combined_1f1b.py.
    """
    if not job.model.is_moe:
        return 0.0 * layout.expert
    ring, cut = group(job, layout.expert, layout.expert_tensor), group(job, layout.expert_tensor, 1)
    tokens = local_tokens(job, layout) / (layout.tensor if job.framework.routes_cut_sequences else sequence_cut(layout))
    size, copies = weight_bytes(job) * tokens * job.model.hidden, job.model.experts_per_token
    most = busiest(job, layout)
    passes = 4 + 2 * repeated_share(job, layout, Modules.MOE)
    once = sends_tokens_once_per_node(job, layout)
    one = np.where(once, dispatch_s(job, ring, size, copies), all_to_all_s(job, ring, size * copies)) * most
    gathered = all_gather_s(job, cut, layout.expert_tensor * size * copies * most)
    whole = passes * (np.where(layout.expert > 1, one, 0.0) + np.where(layout.expert_tensor > 1, gathered, 0.0))
    m, p, v = layout.gradient_accumulation, layout.pipeline, layout.virtual_pipeline
    alone = np.minimum((2 * (p - 1) + (v - 1) * p + 1) / (m * v), 1.0)
    beside = exposed_s(job, whole, time.forward_s + time.backward_s)
    return np.where(layout.expert_overlap, alone * whole + (1 - alone) * beside, whole)


def sends_tokens_once_per_node(job: Job, layout: LayoutLike) -> Any:
    """Whether experts on several nodes are reached by the flex dispatcher, which needs DeepEP in the image."""
    ring = group(job, layout.expert, layout.expert_tensor)
    possible = job.framework.dispatches_by_node and job.cluster.accelerator.generation in _DEEPEP_GENERATIONS
    return possible & (ring.size > ring.per_node)


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
