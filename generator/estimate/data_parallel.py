"""Communication between model replicas: gradients and parameters, and what of it compute hides."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dataclass import dataclass
from ..job.records import Job
from .adapters import base_share, trained
from .buffers import MAX_LIVE_ELEMENTS, bucket_elements, prefetch_elements
from .communication import all_gather_s, all_reduce_s
from .groups import group
from .layout import LayoutLike, Offload, Recompute
from .model_size import attention_widths
from .products import exposed_s, spread_s
from .stages import StageParameters, expert_replicas
from .states import summed_bytes, weight_bytes


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


def traffic(job: Job, layout: LayoutLike, held: StageParameters) -> Traffic:
    """Add the traffic of the parameters that all replicas share, and of the experts."""
    whole, updated = layout.data * layout.context, trained(job, held)
    found = _seconds(job, layout, whole, layout.tensor, held.shared, updated.shared)
    if job.model.is_moe:
        apart, replicas = layout.expert * layout.expert_tensor, expert_replicas(layout)
        experts = _seconds(job, layout, replicas, apart, held.experts, updated.experts)
        found = {name: found[name] + experts[name] for name in found}
    messages = np.ceil(updated.shared / layout.virtual_pipeline / _bucket(job, layout, whole))
    return Traffic(**found, messages=messages)


def data_s(job: Job, layout: LayoutLike, traffic: Traffic, forward_s: Any, backward_s: Any) -> Any:
    """Exposed gradient and parameter communication of a step.

    Stages 0 and 1 reduce gradients beside the last micro-batch's backward passes, and gather parameters beside the
    first's forward passes; DeepSpeed gathers after the update, and its pipeline engine overlaps nothing. Stages 2 and 3
    communicate with every micro-batch, behind its compute but for the first or the last layer; stage 2 gathers the
    parameters once, after the update. Where the optimizer is offloaded the host waits for every reduced gradient, so
    that nothing is hidden behind backward passes. Copies of what is sharded (MiCS) are summed after the last
    micro-batch; ZeRO++'s second copy serves the gathers of backward passes.

    **Source**: ZeRO (1910.02054 sec 7): an all-reduce for stage 0, reduce-scatter and all-gather for stage 1 per step;
    DeepSpeed reduces per micro-batch in stage 2 and gathers twice per micro-batch in stage 3. Megatron-LM
    `--overlap-grad-reduce`, `--overlap-param-gather`; DeepSpeed runtime/engine.py:2390 @ 0.19.6; DeepSpeed 0.16.9
    runtime/zero/partitioned_param_coordinator.py (fetch_sub_module prefetches what comes next), stage3.py:1461
    (partition_grads copies to the host and blocks); FSDP prefetches alike; 2205.00119 sec 3 (MiCS); 2306.10209 sec 3.2
    (ZeRO++). **Symbols**: `forward_s` and `backward_s` are one micro-batch's compute on the stage, recomputation
    included in the latter.
    """
    m, p, v = layout.gradient_accumulation, layout.pipeline, layout.virtual_pipeline
    reduced = traffic.reduce_s + traffic.across_s
    once = spread_s(job, reduced, backward_s / v, v, p, traffic.messages)
    if job.framework.runs("DeepSpeed engine"):
        once = np.where(p > 1, reduced, once) + traffic.gather_s
    else:
        once = once + spread_s(job, traffic.gather_s, forward_s / v, v, p, traffic.messages)
    layers = job.model.layers / p
    window = np.where(layout.offload == Offload.NONE, backward_s, 0.0)
    again = np.where(layout.recompute == Recompute.FULL, _gathered_again(job), 0.0)
    both = (1 + again) * traffic.near_s + traffic.reduce_s
    three = exposed_s(job, traffic.gather_s, forward_s, traffic.gather_s / layers)
    three = three + exposed_s(job, both, window, both / layers)
    two = exposed_s(job, traffic.reduce_s, window, traffic.reduce_s / np.maximum(traffic.messages, 1))
    each = np.where(layout.zero_stage >= 3, m * three, m * two + traffic.gather_s) + traffic.across_s
    exposed = np.where(layout.zero_stage >= 2, each, once)
    return np.where(layout.data * layout.context > 1, exposed, 0.0)


def _matrices(job: Job) -> tuple[int, ...]:
    """Elements of a dense layer's matrices, in the order of use."""
    model = job.model
    queries, keys, values = attention_widths(model)
    ups = 2 if model.gated_mlp else 1
    hidden = model.hidden
    return (hidden * (queries + 2 * keys), hidden * values, hidden * ups * model.ffn, hidden * model.ffn)


def _gathered_again(job: Job) -> float:
    """Share of a layer that is released between its recomputed forward pass and its backward pass.

    **Source**: DeepSpeed 0.16.9 runtime/zero/partitioned_param_coordinator.py:525-555: a parameter is kept where it is
    used again within `stage3_max_reuse_distance` (1e9) elements; between lie the matrices after it, in both passes.
    """
    sizes = _matrices(job)
    released = [size for i, size in enumerate(sizes) if 2 * sum(sizes[i + 1 :]) >= MAX_LIVE_ELEMENTS]
    return sum(released) / sum(sizes)


def _seconds(job: Job, layout: LayoutLike, replicas: Any, stride: Any, count: Any, updated: Any) -> dict[str, Any]:
    """Traffic of `count` parameters of a rank that `replicas` ranks, `stride` apart, hold; `updated` have gradients.

    Of a frozen base, stage 3 gathers all, and the other stages what they updated.

    **Source**: Megatron-LM `--num-distributed-optimizer-instances`, core/distributed/param_and_grad_buffer.py:
    scattered inside an instance, the shards all-reduced across instances; fp8 parameters lie in buffers of one byte,
    and are gathered from these (core/distributed/distributed_data_parallel.py:139-146 @ core_v0.16.1).
    **Assumes** that embeddings, which stay in 16 bits, weigh little.
    """
    copies = np.where(layout.zero_stage > 0, np.minimum(layout.zero_copies, replicas), 1)
    ring = group(job, replicas / copies, stride)
    across = group(job, copies, stride * ring.size)
    element = weight_bytes(job)
    size = (element if job.framework.runs("DeepSpeed engine") else summed_bytes(job)) * updated
    kept = 1 if job.training.fp8_parameters else element
    gathered = kept * np.where(layout.zero_stage >= 3, base_share(job) * count, updated)
    # Full buckets, or under stage 3 what is fetched at once, matrices at most.
    layers = job.model.layers / layout.pipeline
    fetches = np.ceil(count / layers / prefetch_elements(job, layout))
    by_layer = layers * np.minimum(np.maximum(fetches, 1), len(_matrices(job)))
    calls = np.where(layout.zero_stage >= 3, by_layer, np.ceil(updated / _bucket(job, layout, replicas)))
    scattered = all_gather_s(job, ring, size, calls)
    near = group(job, np.where(layout.zero_hpz > 1, np.minimum(layout.zero_hpz, ring.size), ring.size), stride)
    sharded = layout.zero_stage > 0
    return {
        "reduce_s": np.where(sharded, scattered, all_reduce_s(job, ring, size)),
        "across_s": np.where(copies > 1, all_reduce_s(job, across, size / ring.size), 0.0),
        "gather_s": np.where(sharded, all_gather_s(job, ring, gathered, calls), 0.0),
        "near_s": np.where(sharded, all_gather_s(job, near, gathered, calls), 0.0),
    }


def _bucket(job: Job, layout: LayoutLike, replicas: Any) -> Any:
    """Elements of one message of stages 1 and 2.

    **Source**: Megatron-LM core/distributed/distributed_data_parallel.py: max(40e6, 1e6 × ranks).
    """
    if job.framework.runs("DeepSpeed engine"):
        return bucket_elements(job, layout)
    return np.maximum(40e6, 1e6 * replicas)
