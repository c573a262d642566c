"""Communication: seconds of a replica's collectives by dimension, and of those between replicas.

Seconds of a dimension are of one layer and one micro-batch, forward and backward together; sends
are of a micro-batch. `collectives` has those of a single message.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ..catalog.layers.feed_forward import FeedForward
from ..catalog.layers.mixer import Mixer
from ..catalog.layers.stack import Layer
from ..dataclass import dataclass
from ..job.records import Job
from .activations import local_tokens, sequence_cut
from .adapters import base_share, trained
from .alike import once_each
from .buffers import MAX_LIVE_ELEMENTS, bucket_elements, prefetch_elements
from .collectives import all_gather_s, all_reduce_s, all_to_all_s, dispatch_s, send_s
from .compute import LayerTime, busiest, core_time, repeated, repeated_share, ring_steps
from .groups import (
    Group,
    group,
    segment,
    sends_tokens_once_per_node,
    sends_tokens_once_per_rank,
)
from .layout import LayoutLike, Modules, Offload, Recompute
from .products import exposed_s, spread_s, stream_s
from .rates import rates
from .stages import StageContents, expert_replicas
from .states import summed_bytes, weight_bytes

#: Share of a layer's products by time that is cut by columns: queries, keys and values, the MLP's
#: first: half of GPT's, more with gated MLPs.
_COLUMN_SHARE = 0.5


def tensor_s(
    job: Job, layout: LayoutLike, time: LayerTime, again: Any, layer: Layer
) -> tuple[Any, Any]:
    """Seconds of all-reduces: what they add to the step, and what they take where nothing runs
    beside them. A share `again` of the layers repeats its own.

    Two are forward, two backward, two more repeated; routed experts have none of the MLP's.
    Sequence parallelism moves as much, and gathers the inputs of the column-parallel products once
    more. Megatron-LM starts the backward collectives of those products beside their own arithmetic.
    User buffers cut every collective into chunks that run beside the product that makes or takes
    them: the first chunk waits.

    **Source**: 1909.08053 sec 3; 2205.05198 sec 4.2.2; Megatron-LM core/tensor_parallel/layers.py,
    LinearWithGradAccumulationAndAsyncCommunication; Transformer Engine, docs on `ub_overlap_ag` and
    `ub_overlap_rs`.
    """
    ring = group(job, layout.tensor, 1, layout)
    size = weight_bytes(job) * local_tokens(job, layout) * job.model.hidden
    parts = bool(layer.mixer.parts) + bool(layer.feed_forward.width)
    of_pass = parts * all_reduce_s(job, ring, size)
    passes = 2 + again + 0.5 * layout.sequence_parallel
    total = passes * of_pass

    # Without user buffers some backward collectives run beside products.
    beside = job.framework.overlaps_tensor * (1 + 0.5 * layout.sequence_parallel)
    window = (1 + layout.sequence_parallel) * _COLUMN_SHARE * time.products.backward_s / 2
    overlapped = rates(job).tensor_overlap * np.minimum(beside * of_pass, window)
    hidden = overlapped * (1 - rates(job).overlap_cost)

    # With them, all but the first chunk does.
    products = time.products.forward_s + time.products.backward_s
    buffered = exposed_s(job, total, products, total / layout.tensor)

    exposed = np.where(layout.tensor_overlap, buffered, total - hidden)
    return np.where(layout.tensor > 1, exposed, 0.0), np.where(layout.tensor > 1, total, 0.0)


#: Fields that the exchange of a layer's context depends on, beside the share that is repeated and
#: the segment.
CONTEXT_BY = ("tensor", "context", "context_heads", "micro_batch")


def context_s(job: Job, layout: LayoutLike, again: Any, _segment: Any = None) -> Any:
    """Seconds of the exchange of context in an average layer; a share `again` of layers repeats its
    mixer. Layouts that are alike have the same segment, which follows from them.
    """
    model, total = job.model, 0.0 * layout.context
    for mixer, count in model.averaged.mixers.items():
        total = total + count / model.layers * _context_s(job, layout, again, mixer)
    return total


def _context_s(job: Job, layout: LayoutLike, again: Any, mixer: Mixer) -> Any:
    """Seconds of a ring's sends, hidden behind attention step by step, its further kernels, and
    all-to-alls of heads.

    A ring of c ranks makes c-1 steps, each beside the attention of one chunk; zigzag chunks share
    the causal half evenly. Only heads of keys and values move, at least one on each tensor rank;
    latent ones are expanded before. A mixer without scores exchanges heads alone. Backward, keys
    and values move together with their gradients. All-to-alls move queries, keys and values, then
    the output; each is copied before and after, beside another's exchange but for the first, the
    last, and the output's two.

    **Source**: ring: Megatron-LM and Transformer Engine,
    attention/dot_product_attention/context_parallel.py (p2p, a2a and a2a+p2p,
    flash_attn_a2a_communicate); Ulysses (2309.14509).
    """
    rings = job.framework.rings_context and mixer.has_scores
    heads = layout.context_heads if rings else layout.context
    chunks = layout.context / heads
    width_bytes = weight_bytes(job) * local_tokens(job, layout) / layout.tensor
    query_width, _, value_width = mixer.widths
    moved_widths = (np.maximum(width, layout.tensor * least) for width, least in mixer.exchanged)
    queries, *keys_and_values, output = (
        width_bytes * width for width in (query_width, *moved_widths, value_width)
    )

    # The ring: each step's send runs beside the attention of a chunk.
    ring = group(job, chunks, layout.tensor * heads, layout)
    send = send_s(job, sum(keys_and_values), ring.size > ring.per_node)
    further = ring_steps(job, layout, mixer)  # kernels
    attention = core_time(job, layout, mixer) + further
    forward_s, backward_s = attention.forward_s / chunks, attention.backward_s / chunks
    step = (1 + again) * exposed_s(job, send, forward_s) + exposed_s(job, 2 * send, backward_s)
    kernels = (1 + again) * further.forward_s + further.backward_s

    # All-to-alls of heads, and the copies that they wait for.
    inner = group(job, heads, layout.tensor, layout)
    inputs = all_to_all_s(job, inner, queries + sum(keys_and_values))
    sent = inputs + all_to_all_s(job, inner, output)
    copies_bytes = 2 * (queries + keys_and_values[-1] + 2 * output)
    copied = stream_s(job, copies_bytes) + 4 * rates(job).kernel_start_s
    exchange = np.where(heads > 1, (2 + again) * (sent + copied), 0.0)
    return (chunks - 1) * step + kernels + exchange


def exchange_saves(job: Job, layout: LayoutLike) -> Any:
    """Share of `context_s` that is saved if the best number of ranks exchanges heads."""
    if not job.framework.rings_context or not np.any(layout.context > 1):
        return 0.0
    again = repeated(layout, Modules.CORE_ATTN, repeated_share(job, layout))
    return once_each(job, layout, CONTEXT_BY, _exchange_saves, again, segment(job, layout))


def _exchange_saves(job: Job, layout: LayoutLike, again: Any, _segment: Any) -> Any:
    """The same, computed: with one row for each number of ranks, the layout's own first."""
    most = min(job.model.kv_heads, int(np.max(layout.context)))
    counts = [heads for heads in range(2, most + 1) if job.model.kv_heads % heads == 0]
    choices = (
        np.where(layout.context % heads == 0, heads, layout.context_heads) for heads in counts
    )
    all_choices = replace(layout, context_heads=np.stack([layout.context_heads, *choices]))
    seconds = context_s(job, all_choices, again)
    return 1 - seconds.min(axis=0) / np.maximum(seconds[0], 1e-12)


#: Seconds that compute loses to each second of DeepEP's kernels, which occupy 20 of 132
#: multiprocessors (2412.19437 sec 3.2.2; deepseek-ai/DeepEP, deep_ep/buffer.py, num_sms).
_DEEPEP_COST = 20 / (132 - 20)
#: The same of HybridEP's, which our files give 32 of 148, as NVIDIA's do (Megatron-Bridge v0.6.0,
#: perf_recipes/_common.py, moe_hybridep_num_sms).
_HYBRIDEP_COST = 32 / (148 - 32)


#: Bytes of the weight that goes with a token's copy to an expert.
_WEIGHT_BYTES = 4


def _windows(time: LayerTime) -> Iterator[Any]:
    """Seconds of what runs beside each of the four exchanges: attention and experts, forward and
    backward.

    **Source**: Megatron-LM core/models/common/model_chunk_schedule_plan.py,
    TransformerLayerSchedulePlan.run @ core_v0.16.1: of two micro-batches, one's combination
    backward runs beside the other's attention forward, then dispatch beside experts backward,
    dispatch backward beside experts, and combination beside attention backward. **Assumes** that
    half of the kernels that only move data belong to attention.
    """
    for name in ("forward_s", "backward_s"):
        whole = getattr(time, name)
        moving = whole - getattr(time.core, name) - getattr(time.products, name)
        experts = getattr(time.mlp, name) - getattr(time.shared, name) + moving / 2
        yield experts
        yield whole - experts


def expert_s(
    job: Job, layout: LayoutLike, time: LayerTime, again: Any, part: FeedForward
) -> tuple[Any, Any]:
    """Seconds of dispatch and combine of a MoE layer, forward and backward: by themselves, and
    beside the other pass of the next micro-batch.

    What is computed `again` is sent once more.

    The rank with most tokens sets the pace. Experts that are cut gather their tokens after the
    dispatch, and scatter the sums before the combination.

    **Source**: each moves `tokens * top_k * hidden` elements per rank (2101.03961; SimuMax
    moe_module.py); Megatron-LM core/transformer/moe/token_dispatcher.py,
    core/pipeline_parallel/combined_1f1b.py.
    """
    token_cut = layout.tensor if job.framework.routes_cut_sequences else sequence_cut(layout)
    tokens = local_tokens(job, layout) / token_cut
    size, copies = weight_bytes(job) * tokens * part.routed_hidden, part.per_token
    load = busiest(job, layout, part)

    ring = group(job, layout.expert, layout.expert_tensor)
    once_per_node = sends_tokens_once_per_node(job, layout)
    deduplicated = dispatch_s(job, ring, size, part)
    exchange = np.where(once_per_node, deduplicated, all_to_all_s(job, ring, size * copies)) * load
    cut = group(job, layout.expert_tensor, 1, layout)
    gathered = all_gather_s(job, cut, layout.expert_tensor * size * copies * load)
    exchanges = 4 + 2 * again
    alone = exchanges * (
        np.where(layout.expert > 1, exchange, 0.0)
        + np.where(layout.expert_tensor > 1, gathered, 0.0)
    ) + _counts_s(job, layout, ring, copies * tokens * load, again)
    if not np.any(layout.expert_overlap):
        return alone, alone
    cost = _DEEPEP_COST * once_per_node
    if job.training.dispatcher == "hybridep":
        cost = _HYBRIDEP_COST * sends_tokens_once_per_rank(job, layout)
    return alone, sum(exposed_s(job, alone / 4, window, cost=cost) for window in _windows(time))


def _counts_s(job: Job, layout: LayoutLike, ring: Group, copies: Any, again: Any) -> Any:
    """Seconds of the small messages beside all-to-alls of tokens: all ranks first gather how many
    go where, and weights in fp32 follow their tokens, with gradients backward.

    **Source**: Megatron-LM core/transformer/moe/token_dispatcher.py, MoEAlltoAllTokenDispatcher
    (preprocess, token_dispatch) @ core_v0.16.1. Flex dispatchers send both with the tokens.
    """
    members = group(job, layout.expert * layout.expert_tensor, 1, layout)
    gathered = all_gather_s(job, members, 0.0)
    weights = all_to_all_s(job, ring, _WEIGHT_BYTES * copies)
    apart = np.logical_not(sends_tokens_once_per_rank(job, layout)) & (layout.expert > 1)
    return np.where(apart, (1 + again) * (gathered + weights) + weights, 0.0)


def overlapped_s(layout: LayoutLike, alone_s: Any, beside_s: Any) -> Any:
    """The mean of both figures of `expert_s`: the passes that fill and empty the pipeline have no
    other pass to run beside.
    """
    m, p, v = layout.gradient_accumulation, layout.pipeline, layout.virtual_pipeline
    share_alone = np.minimum((2 * (p - 1) + (v - 1) * p + 1) / (m * v), 1.0)
    mean_s = share_alone * alone_s + (1 - share_alone) * beside_s
    return np.where(layout.expert_overlap, mean_s, alone_s)


def boundary_s(job: Job, layout: LayoutLike) -> Any:
    """Seconds of one send of a micro-batch's activations to the next stage.

    **Source**: 2104.04473 sec 4.1: the tensor is cut by sequence parallelism, whole otherwise;
    DeepSpeed's pipeline engine cuts it by tensor parallelism too (runtime/pipe/engine.py:137,
    `pipe_partitioned`).
    """
    cut = layout.tensor if job.engine.cuts_sends else sequence_cut(layout)
    size = weight_bytes(job) * local_tokens(job, layout) * job.model.state_width / cut
    crosses = layout.world > job.cluster.accelerators_per_node * segment(job, layout)
    return np.where(layout.pipeline > 1, send_s(job, size, crosses), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Seconds to reduce all gradients of a rank once, and to gather all its parameters once."""

    reduce_s: Any  #: among the ranks that share one copy of what ZeRO shards
    across_s: Any  #: between these copies (MiCS), for their sum
    gather_s: Any
    near_s: Any  #: to gather within the ranks of ZeRO++'s second copy, where there is one
    messages: Any  #: for the gradients of a model chunk


#: Fields that traffic depends on, beside those that decide what stages hold.
TRAFFIC_BY = ("data", "context", "zero_stage", "zero_copies", "zero_hpz")


def traffic(job: Job, layout: LayoutLike, held: StageContents) -> Traffic:
    """Add the traffic of the parameters that all replicas share, and of the experts."""
    whole, updated = layout.data * layout.context, trained(job, layout, held)
    # Weights that several layers use are gathered for each.
    used = held.shared + held.again
    seconds = _seconds(job, layout, whole, layout.tensor, used, updated.shared)
    if job.model.experts:
        apart, replicas = layout.expert * layout.expert_tensor, expert_replicas(layout)
        experts = _seconds(job, layout, replicas, apart, held.experts, updated.experts)
        seconds = {name: seconds[name] + experts[name] for name in seconds}
    messages = np.ceil(updated.shared / layout.virtual_pipeline / _bucket(job, layout, whole))
    return Traffic(**seconds, messages=messages)


def data_s(job: Job, layout: LayoutLike, traffic: Traffic, forward_s: Any, backward_s: Any) -> Any:
    """Exposed gradient and parameter communication of a step.

    Stages 0 and 1 reduce gradients beside the last micro-batch's backward passes, and gather
    parameters beside the first's forward passes; DeepSpeed gathers after the update, and its
    pipeline engine overlaps nothing. Stages 2 and 3 communicate with every micro-batch, behind its
    compute but for the first or the last layer; stage 2 gathers the parameters once, after the
    update. Where the optimizer is offloaded the host waits for every reduced gradient, so that
    nothing is hidden behind backward passes. Copies of what is sharded (MiCS) are summed after the
    last micro-batch; ZeRO++'s second copy serves the gathers of backward passes.

    **Source**: ZeRO (1910.02054 sec 7): an all-reduce for stage 0, reduce-scatter and all-gather
    for stage 1 per step; DeepSpeed reduces per micro-batch in stage 2 and gathers twice per
    micro-batch in stage 3. Megatron-LM `--overlap-grad-reduce`, `--overlap-param-gather`; DeepSpeed
    runtime/engine.py:2390 @ 0.19.6; DeepSpeed 0.16.9 runtime/zero/partitioned_param_coordinator.py
    (fetch_sub_module prefetches what comes next), stage3.py:1461 (partition_grads copies to the
    host and blocks); FSDP prefetches alike; 2205.00119 sec 3 (MiCS); 2306.10209 sec 3.2 (ZeRO++).
    **Symbols**: `forward_s` and `backward_s` are one micro-batch's compute on the stage,
    recomputation included in the latter.
    """
    once_a_step = _once_a_step_s(job, layout, traffic, forward_s, backward_s)
    m = layout.gradient_accumulation
    window = np.where(layout.offload == Offload.NONE, backward_s, 0.0)

    last_message = traffic.reduce_s / np.maximum(traffic.messages, 1)
    of_stage_2 = m * exposed_s(job, traffic.reduce_s, window, last_message) + traffic.gather_s

    layers = job.model.layers / layout.pipeline
    again = np.where(layout.recompute == Recompute.FULL, _gathered_again(job), 0.0)
    backward = (1 + again) * traffic.near_s + traffic.reduce_s
    micro_batch = exposed_s(job, traffic.gather_s, forward_s, traffic.gather_s / layers)
    micro_batch = micro_batch + exposed_s(job, backward, window, backward / layers)

    each = np.where(layout.zero_stage >= 3, m * micro_batch, of_stage_2) + traffic.across_s
    exposed = np.where(layout.zero_stage >= 2, each, once_a_step)
    return np.where(layout.data * layout.context > 1, exposed, 0.0)


def _once_a_step_s(
    job: Job, layout: LayoutLike, traffic: Traffic, forward_s: Any, backward_s: Any
) -> Any:
    """Exposed seconds of stages 0 and 1, which communicate once a step."""
    p, v = layout.pipeline, layout.virtual_pipeline
    reduced = traffic.reduce_s + traffic.across_s
    reduction = spread_s(job, reduced, backward_s / v, v, p, traffic.messages)
    if job.engine.gathers_after_update:
        return np.where(p > 1, reduced, reduction) + traffic.gather_s
    return reduction + spread_s(job, traffic.gather_s, forward_s / v, v, p, traffic.messages)


def _matrix_sizes(job: Job) -> tuple[int, ...]:
    """Elements of the matrices of a layer with a dense MLP, in the order of use."""
    layer, ffn = job.model.averaged.largest, job.model.ffn
    queries, keys, values = layer.mixer.widths
    mlp = (p.inputs * p.outputs for p in layer.feed_forward.products(ffn))
    sizes = (layer.hidden * (queries + 2 * keys), layer.hidden * values, *mlp)
    return tuple(size for size in sizes if size)


def _gathered_again(job: Job) -> float:
    """Share of a layer that is released between its recomputed forward pass and its backward pass.

    **Source**: DeepSpeed 0.16.9 runtime/zero/partitioned_param_coordinator.py:525-555: a parameter
    is kept where it is used again within `stage3_max_reuse_distance` (1e9) elements; between lie
    the matrices after it, in both passes.
    """
    sizes = _matrix_sizes(job)
    released = [
        size for i, size in enumerate(sizes) if 2 * sum(sizes[i + 1 :]) >= MAX_LIVE_ELEMENTS
    ]
    return sum(released) / sum(sizes)


def _seconds(
    job: Job, layout: LayoutLike, replicas: Any, stride: Any, count: Any, updated: Any
) -> dict[str, Any]:
    """Traffic of `count` parameters of a rank that `replicas` ranks, `stride` apart, hold;
    `updated` have gradients.

    Of a frozen base, stage 3 gathers all, and the other stages what they updated.

    **Source**: Megatron-LM `--num-distributed-optimizer-instances`,
    core/distributed/param_and_grad_buffer.py: scattered inside an instance, the shards all-reduced
    across instances; fp8 parameters lie in buffers of one byte, and are gathered from these
    (core/distributed/distributed_data_parallel.py:139-146 @ core_v0.16.1), but for MXFP8's.
    **Assumes** that embeddings, which stay in 16 bits, weigh little.
    """
    is_sharded, is_stage_3 = layout.zero_stage > 0, layout.zero_stage >= 3
    copies = np.where(is_sharded, np.minimum(layout.zero_copies, replicas), 1)
    ring = group(job, replicas / copies, stride, layout)
    across = group(job, copies, stride * ring.size, layout)
    near_size = np.where(layout.zero_hpz > 1, np.minimum(layout.zero_hpz, ring.size), ring.size)
    near = group(job, near_size, stride, layout)

    gradients = (summed_bytes(job) if job.engine.reduces_sums else weight_bytes(job)) * updated
    gathered = _gathered_bytes(job) * np.where(is_stage_3, base_share(job) * count, updated)

    # Full buckets, or under stage 3 what is fetched at once, matrices at most.
    layers = job.model.layers / layout.pipeline
    fetches = np.ceil(count / layers / prefetch_elements(job, layout))
    fetches_of_stage = layers * np.minimum(np.maximum(fetches, 1), len(_matrix_sizes(job)))
    buckets = np.ceil(updated / _bucket(job, layout, replicas))
    calls = np.where(is_stage_3, fetches_of_stage, buckets)

    scattered = all_gather_s(job, ring, gradients, calls)
    joined = fetches_of_stage * np.where(is_stage_3, _join_s(job) * ring.size, 0.0)
    joined_near = fetches_of_stage * np.where(is_stage_3, _join_s(job) * near.size, 0.0)
    return {
        "reduce_s": np.where(is_sharded, scattered, all_reduce_s(job, ring, gradients)),
        "across_s": np.where(copies > 1, all_reduce_s(job, across, gradients / ring.size), 0.0),
        "gather_s": np.where(is_sharded, all_gather_s(job, ring, gathered, calls) + joined, 0.0),
        "near_s": np.where(is_sharded, all_gather_s(job, near, gathered, calls) + joined_near, 0.0),
    }


def _gathered_bytes(job: Job) -> float:
    """Bytes of a parameter that is gathered: of fp8 or nvfp4, unless it is gathered wide."""
    if not job.training.fp8_parameters or job.training.gathers_wide:
        return weight_bytes(job)
    return 0.5 if job.training.precision == "nvfp4" else 1


def _join_s(job: Job) -> float:
    """Seconds of the host for each rank's part of what is gathered at once, where it joins them
    itself.
    """
    return rates(job).gather_part_s if job.engine.joins_parts else 0.0


def _bucket(job: Job, layout: LayoutLike, replicas: Any) -> Any:
    """Elements of one message of stages 1 and 2."""
    if job.engine.message_elements is None:
        return bucket_elements(job, layout)
    least, a_replica = job.engine.message_elements
    return np.maximum(least, a_replica * replicas)
