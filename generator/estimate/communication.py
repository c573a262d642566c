"""Communication: seconds of collectives by message, group and place, of a replica by dimension, and
between replicas.

Seconds of a dimension are of one layer and one micro-batch, forward and backward together; sends
are of a micro-batch.
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
from .compute import LayerTime, busiest, core_time, repeated, repeated_share, ring_steps
from .groups import Group, group, sends_tokens_once_per_node, sends_tokens_once_per_rank
from .layout import LayoutLike, Modules, Offload, Recompute
from .products import exposed_s, spread_s, stream_s
from .rates import rates
from .stages import StageContents, expert_replicas
from .states import summed_bytes, weight_bytes


def link_bytes_per_s(job: Job, ring: Group) -> Any:
    """Bytes per second of each member inside its node."""
    cluster, accelerator = job.cluster, job.cluster.accelerator
    link = (
        accelerator.link_bytes_per_s
        if cluster.intra_node != "pcie"
        else accelerator.pcie_bytes_per_s
    )
    inside = (link or accelerator.pcie_bytes_per_s) * rates(job).link_fraction
    # each pair has its own link: a smaller group has fewer of them
    if cluster.intra_node == "mesh":
        peers = max(cluster.accelerators_per_node - 1, 1)
        return inside * np.minimum(np.maximum(ring.per_node - 1, 1), peers) / peers
    if cluster.intra_node == "pcie":
        crosses = 2 * ring.per_node * ring.stride > cluster.accelerators_per_node
        return inside * np.where(
            crosses & (ring.per_node > 1), rates(job).cross_socket_share / ring.stride, 1.0
        )
    return inside


def network_bytes_per_s(job: Job) -> float:
    """Bytes per second that one node sends, all its NICs together."""
    return max(job.cluster.network_bytes_per_s_per_node * float(rates(job).network_fraction), 1.0)


def bandwidth(job: Job, ring: Group) -> Any:
    """Bytes per second through the group's narrowest place.

    Inside a node the link; between nodes the group's share of all NICs, since every other group of
    the same kind communicates at the same time: `node rate * members per node / accelerators per
    node`. In a rack-scale domain the members' own nodes bring their NICs along.
    """
    inside = link_bytes_per_s(job, ring)
    outside = network_bytes_per_s(job) * (ring.per_node / job.cluster.accelerators_per_node)
    return np.where(ring.size > ring.per_node, np.minimum(inside, outside), inside)


def _latency(job: Job, ring: Group, hops: Any) -> Any:
    """Start inside the node, and `hops` more when the group leaves it."""
    constants = rates(job)
    outside = np.where(ring.size > ring.per_node, constants.hop_s * hops, 0.0)
    inside = constants.collective_start_s + constants.collective_member_s * ring.per_node
    return np.where(ring.size > 1, inside + outside, 0.0)


def all_reduce_s(job: Job, ring: Group, size_bytes: Any) -> Any:
    """Seconds of an all-reduce of `size_bytes` per rank: ring volume, tree latency between
    nodes.
    """
    volume = 2 * (ring.size - 1) / ring.size * size_bytes
    return volume / bandwidth(job, ring) + _latency(job, ring, 2 * np.log2(ring.nodes))


def all_gather_s(job: Job, ring: Group, size_bytes: Any, calls: Any = 1) -> Any:
    """Seconds of all-gathers (or reduce-scatters) of `size_bytes` in all, in `calls` collectives
    around the ring.

    A ring of n ranks on N nodes makes n - 1 steps, N - 1 of them between nodes. An all-reduce,
    whose latency was measured, makes twice as many.

    **Source**: NVIDIA/nccl src/graph/tuning.cc, ncclTopoTuneModel: `nInterSteps` of a ring is
    `nNodes - 1`, and the other steps have the latency of a link.
    """
    constants = rates(job)
    volume = (ring.size - 1) / ring.size * size_bytes
    steps_s = constants.collective_member_s / 2 * (ring.size - ring.nodes)
    hops_s = constants.hop_s * (ring.nodes - 1)
    latency = np.where(ring.size > 1, constants.collective_start_s + steps_s + hops_s, 0.0)
    return volume / bandwidth(job, ring) + calls * latency


def all_to_all_s(job: Job, ring: Group, size_bytes: Any) -> Any:
    """Seconds of an all-to-all in which every rank sends `size_bytes` in all, one part to each
    member.
    """
    leaves = ring.size > ring.per_node
    inside = (
        (ring.per_node - 1)
        / ring.size
        * size_bytes
        / (link_bytes_per_s(job, ring) * rates(job).all_to_all_share)
    )
    own = network_bytes_per_s(job) / job.cluster.accelerators_per_node
    outside = np.where(leaves, (ring.size - ring.per_node) / ring.size * size_bytes / own, 0.0)
    return np.maximum(inside, outside) + _latency(job, ring, np.log2(ring.nodes))


def dispatch_s(job: Job, ring: Group, token_bytes: Any, part: FeedForward) -> Any:
    """Seconds to send each token to the ranks of its experts, once per node that holds any of them.

    **Source**: DeepEP and Megatron-LM's flex dispatcher: tokens cross the network once per node and
    are forwarded inside it. Of N nodes, `N (1 - (1 - 1/N)^copies)` hold an expert of a token when
    the router is balanced; group-limited routing (DeepSeek) reaches no more nodes than groups.
    """
    nodes, copies = ring.nodes, part.per_token
    leaves = ring.size > ring.per_node
    reached = nodes * (1 - (1 - 1 / nodes) ** copies)
    if part.router_top_groups:
        reached = np.minimum(reached, part.router_top_groups)
    own = job.cluster.network_bytes_per_s_per_node / job.cluster.accelerators_per_node
    own = max(own * rates(job).dispatch_network_fraction, 1.0)
    outside = np.where(leaves, reached * (nodes - 1) / nodes * token_bytes / own, 0.0)
    inside = (
        copies * (ring.per_node - 1) / ring.per_node * token_bytes / link_bytes_per_s(job, ring)
    )
    return np.maximum(inside, outside) + _latency(job, ring, np.log2(nodes))


def send_s(job: Job, size_bytes: Any, crosses_nodes: Any) -> Any:
    """Seconds of a send between neighbouring stages, all accelerators of the node sending at
    once.
    """
    inside, across = Group(size=2, per_node=2), Group(size=2, per_node=1)
    rate = np.where(crosses_nodes, bandwidth(job, across), bandwidth(job, inside))
    return size_bytes / rate + rates(job).hop_s


#: Share of a layer's products by time that is cut by columns: queries, keys and values, the MLP's
#: first: half of GPT's, more with gated MLPs.
_COLUMN_SHARE = 0.5


def tensor_s(
    job: Job, layout: LayoutLike, time: LayerTime, again: Any, layer: Layer
) -> tuple[Any, Any]:
    """Seconds of all-reduces: those that are waited for, and all; a share `again` of the layers
    repeats its own.

    Two are forward, two backward, two more repeated; routed experts have none of the MLP's.
    Sequence parallelism moves as much, and gathers the inputs of the column-parallel products once
    more. Megatron-LM starts the backward collectives of those products beside their own arithmetic.
    User buffers cut every collective into chunks that run beside the product that makes or takes
    them: the first chunk waits.

    **Source**: 1909.08053 sec 3; 2205.05198 sec 4.2.2; Megatron-LM core/tensor_parallel/layers.py,
    LinearWithGradAccumulationAndAsyncCommunication; Transformer Engine, docs on `ub_overlap_ag` and
    `ub_overlap_rs`.
    """
    ring = group(job, layout.tensor, 1)
    size = weight_bytes(job) * local_tokens(job, layout) * job.model.hidden
    whole = bool(layer.mixer.parts) + bool(layer.feed_forward.width)
    pair = whole * all_reduce_s(job, ring, size)
    calls = 2 + again + 0.5 * layout.sequence_parallel
    beside = job.framework.overlaps_tensor * (1 + 0.5 * layout.sequence_parallel)
    window = (1 + layout.sequence_parallel) * _COLUMN_SHARE * time.products.backward_s / 2
    hidden = (
        rates(job).tensor_overlap
        * np.minimum(beside * pair, window)
        * (1 - rates(job).overlap_cost)
    )
    buffered = exposed_s(
        job,
        calls * pair,
        time.products.forward_s + time.products.backward_s,
        calls * pair / layout.tensor,
    )
    exposed = np.where(layout.tensor_overlap, buffered, calls * pair - hidden)
    return np.where(layout.tensor > 1, exposed, 0.0), np.where(layout.tensor > 1, calls * pair, 0.0)


#: Fields that the exchange of a layer's context depends on, beside the share that is repeated.
CONTEXT_BY = ("tensor", "context", "context_heads", "micro_batch")


def context_s(job: Job, layout: LayoutLike, again: Any) -> Any:
    """Seconds of the exchange of context in an average layer, a share `again` of which repeats its
    mixer.
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
    size = weight_bytes(job) * local_tokens(job, layout) / layout.tensor
    queries, _, values = mixer.widths
    own = (np.maximum(width, layout.tensor * least) for width, least in mixer.exchanged)
    ring, inner = group(job, chunks, layout.tensor * heads), group(job, heads, layout.tensor)
    first, *others, output = (size * width for width in (queries, *own, values))
    send = send_s(job, sum(others), ring.size > ring.per_node)
    core, more = core_time(job, layout, mixer), ring_steps(job, layout, mixer)
    beside, back = (core + more).forward_s / chunks, (core + more).backward_s / chunks
    steps = (1 + again) * exposed_s(job, send, beside) + exposed_s(job, 2 * send, back)
    sent = all_to_all_s(job, inner, first + sum(others)) + all_to_all_s(job, inner, output)
    copied = stream_s(job, 2 * (first + others[-1] + 2 * output)) + 4 * rates(job).kernel_start_s
    kernels = (1 + again) * more.forward_s + more.backward_s
    return (chunks - 1) * steps + kernels + np.where(heads > 1, (2 + again) * (sent + copied), 0.0)


def exchange_saves(job: Job, layout: LayoutLike) -> Any:
    """Share of `context_s` that is saved if the best number of ranks exchanges heads."""
    if not job.framework.rings_context or not np.any(layout.context > 1):
        return 0.0
    again = repeated(layout, Modules.CORE_ATTN, repeated_share(job, layout))
    return once_each(job, layout, CONTEXT_BY, _exchange_saves, again)


def _exchange_saves(job: Job, layout: LayoutLike, again: Any) -> Any:
    most = min(job.model.kv_heads, int(np.max(layout.context)))
    counts = [heads for heads in range(2, most + 1) if job.model.kv_heads % heads == 0]
    turned = (
        np.where(layout.context % heads == 0, heads, layout.context_heads) for heads in counts
    )
    turns = replace(layout, context_heads=np.stack([layout.context_heads, *turned]))
    each = context_s(job, turns, again)
    return 1 - each.min(axis=0) / np.maximum(each[0], 1e-12)


#: Seconds that compute loses to each second of DeepEP's kernels, which occupy 20 of 132
#: multiprocessors (2412.19437 sec 3.2.2; deepseek-ai/DeepEP, deep_ep/buffer.py, num_sms).
_DEEPEP_COST = 20 / (132 - 20)
#: The same of HybridEP's, which our files give 32 of 148, as NVIDIA's do (Megatron-Bridge v0.6.0,
#: perf_recipes/_common.py, moe_hybridep_num_sms).
_HYBRIDEP_COST = 32 / (148 - 32)


def _windows(time: LayerTime) -> Iterator[Any]:
    """Seconds of what runs beside each of the four exchanges: attention and experts, forward and
    backward.

    **Source**: Megatron-LM core/models/common/model_chunk_schedule_plan.py,
    TransformerLayerSchedulePlan.run @ core_v0.16.1: of two micro-batches, one's combination
    backward runs beside the other's attention forward, then dispatch beside experts backward,
    dispatch backward beside experts, and combination beside attention backward. **Assumes** that
    half of the kernels that only move data belong to attention.
    """
    passes = ("forward_s", "backward_s")
    for whole, core, products, mlp, shared in (
        (getattr(part, name) for part in (time, time.core, time.products, time.mlp, time.shared))
        for name in passes
    ):
        experts = mlp - shared + (whole - core - products) / 2
        yield from (experts, whole - experts)


def expert_s(
    job: Job, layout: LayoutLike, time: LayerTime, again: Any, part: FeedForward
) -> tuple[Any, Any]:
    """Seconds of dispatch and combine of a MoE layer, forward and backward, once more where it is
    done `again`.

    The rank with most tokens sets the pace. Experts that are cut gather their tokens after the
    dispatch, and scatter the sums before the combination. The second figure is where all-to-alls
    run beside the other pass of the next micro-batch.

    **Source**: each moves `tokens * top_k * hidden` elements per rank (2101.03961; SimuMax
    moe_module.py); Megatron-LM core/transformer/moe/token_dispatcher.py,
    core/pipeline_parallel/combined_1f1b.py.
    """
    ring, cut = group(job, layout.expert, layout.expert_tensor), group(job, layout.expert_tensor, 1)
    tokens = local_tokens(job, layout) / (
        layout.tensor if job.framework.routes_cut_sequences else sequence_cut(layout)
    )
    size, copies = weight_bytes(job) * tokens * part.routed_hidden, part.per_token
    most, passes = busiest(job, layout, part), 4 + 2 * again
    once = sends_tokens_once_per_node(job, layout)
    one = (
        np.where(once, dispatch_s(job, ring, size, part), all_to_all_s(job, ring, size * copies))
        * most
    )
    gathered = all_gather_s(job, cut, layout.expert_tensor * size * copies * most)
    whole = passes * (
        np.where(layout.expert > 1, one, 0.0) + np.where(layout.expert_tensor > 1, gathered, 0.0)
    )
    if not np.any(layout.expert_overlap):
        return whole, whole
    cost = _DEEPEP_COST * once
    if job.training.dispatcher == "hybridep":
        cost = _HYBRIDEP_COST * sends_tokens_once_per_rank(job, layout)
    return whole, sum(exposed_s(job, whole / 4, window, cost=cost) for window in _windows(time))


def overlapped_s(layout: LayoutLike, whole_s: Any, beside_s: Any) -> Any:
    """Seconds of `expert_s` where the passes that fill and empty the pipeline have no other to run
    beside.
    """
    m, p, v = layout.gradient_accumulation, layout.pipeline, layout.virtual_pipeline
    alone = np.minimum((2 * (p - 1) + (v - 1) * p + 1) / (m * v), 1.0)
    return np.where(layout.expert_overlap, alone * whole_s + (1 - alone) * beside_s, whole_s)


def boundary_s(job: Job, layout: LayoutLike) -> Any:
    """Seconds of one send of a micro-batch's activations to the next stage.

    **Source**: 2104.04473 sec 4.1: the tensor is cut by sequence parallelism, whole otherwise;
    DeepSpeed's pipeline engine cuts it by tensor parallelism too (runtime/pipe/engine.py:137,
    `pipe_partitioned`).
    """
    cut = layout.tensor if job.engine.cuts_sends else sequence_cut(layout)
    size = weight_bytes(job) * local_tokens(job, layout) * job.model.state_width / cut
    crosses = layout.world > job.cluster.accelerators_per_node * job.nodes_together
    return np.where(layout.pipeline > 1, send_s(job, size, crosses), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Seconds to reduce all gradients of a rank once, and to gather all its parameters once."""

    reduce_s: Any  #: to the ranks that share what ZeRO shards
    across_s: Any  #: between the copies of these
    gather_s: Any
    near_s: Any  #: the same within the ranks of ZeRO++'s second copy, where there is one
    messages: Any  #: for the gradients of a model chunk


#: Fields that traffic depends on, beside those that decide what stages hold.
TRAFFIC_BY = ("data", "context", "zero_stage", "zero_copies", "zero_hpz")


def traffic(job: Job, layout: LayoutLike, held: StageContents) -> Traffic:
    """Add the traffic of the parameters that all replicas share, and of the experts."""
    whole, updated = layout.data * layout.context, trained(job, layout, held)
    # Weights that several layers use are gathered for each.
    used = held.shared + held.again
    found = _seconds(job, layout, whole, layout.tensor, used, updated.shared)
    if job.model.experts:
        apart, replicas = layout.expert * layout.expert_tensor, expert_replicas(layout)
        experts = _seconds(job, layout, replicas, apart, held.experts, updated.experts)
        found = {name: found[name] + experts[name] for name in found}
    messages = np.ceil(updated.shared / layout.virtual_pipeline / _bucket(job, layout, whole))
    return Traffic(**found, messages=messages)


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
    m, p, v = layout.gradient_accumulation, layout.pipeline, layout.virtual_pipeline
    reduced = traffic.reduce_s + traffic.across_s
    once = spread_s(job, reduced, backward_s / v, v, p, traffic.messages)
    if job.engine.gathers_after_update:
        once = np.where(p > 1, reduced, once) + traffic.gather_s
    else:
        once = once + spread_s(job, traffic.gather_s, forward_s / v, v, p, traffic.messages)
    layers = job.model.layers / p
    window = np.where(layout.offload == Offload.NONE, backward_s, 0.0)
    again = np.where(layout.recompute == Recompute.FULL, _gathered_again(job), 0.0)
    both = (1 + again) * traffic.near_s + traffic.reduce_s
    three = exposed_s(job, traffic.gather_s, forward_s, traffic.gather_s / layers)
    three = three + exposed_s(job, both, window, both / layers)
    two = exposed_s(
        job, traffic.reduce_s, window, traffic.reduce_s / np.maximum(traffic.messages, 1)
    )
    each = (
        np.where(layout.zero_stage >= 3, m * three, m * two + traffic.gather_s) + traffic.across_s
    )
    exposed = np.where(layout.zero_stage >= 2, each, once)
    return np.where(layout.data * layout.context > 1, exposed, 0.0)


def _matrices(job: Job) -> tuple[int, ...]:
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
    sizes = _matrices(job)
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
    copies = np.where(layout.zero_stage > 0, np.minimum(layout.zero_copies, replicas), 1)
    ring = group(job, replicas / copies, stride)
    across = group(job, copies, stride * ring.size)
    element = weight_bytes(job)
    size = (summed_bytes(job) if job.engine.reduces_sums else element) * updated
    narrow = job.training.fp8_parameters and not job.training.gathers_wide
    kept = (0.5 if job.training.precision == "nvfp4" else 1) if narrow else element
    gathered = kept * np.where(layout.zero_stage >= 3, base_share(job) * count, updated)
    # Full buckets, or under stage 3 what is fetched at once, matrices at most.
    layers = job.model.layers / layout.pipeline
    fetches = np.ceil(count / layers / prefetch_elements(job, layout))
    by_layer = layers * np.minimum(np.maximum(fetches, 1), len(_matrices(job)))
    calls = np.where(
        layout.zero_stage >= 3, by_layer, np.ceil(updated / _bucket(job, layout, replicas))
    )
    scattered = all_gather_s(job, ring, size, calls)
    near = group(
        job,
        np.where(layout.zero_hpz > 1, np.minimum(layout.zero_hpz, ring.size), ring.size),
        stride,
    )
    sharded = layout.zero_stage > 0
    joined = by_layer * np.where(layout.zero_stage >= 3, _join_s(job) * ring.size, 0.0)
    joined_near = by_layer * np.where(layout.zero_stage >= 3, _join_s(job) * near.size, 0.0)
    return {
        "reduce_s": np.where(sharded, scattered, all_reduce_s(job, ring, size)),
        "across_s": np.where(copies > 1, all_reduce_s(job, across, size / ring.size), 0.0),
        "gather_s": np.where(sharded, all_gather_s(job, ring, gathered, calls) + joined, 0.0),
        "near_s": np.where(sharded, all_gather_s(job, near, gathered, calls) + joined_near, 0.0),
    }


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
