"""Communication of a layout: seconds per layer, per micro-batch or per step, by dimension."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..job.records import Job
from .activations import attention_widths, local_tokens, sequence_cut
from .adapters import base_share, trained
from .buckets import bucket_elements
from .collectives import Group, all_gather_s, all_reduce_s, all_to_all_s, dispatch_s, group, send_s
from .layout import LayoutLike, Recompute
from .rates import rates
from .stages import StageParameters, expert_replicas
from .states import sums_gradients_in_fp32, weight_bytes

#: ZeRO-3 gathers and reduces each matrix by itself: query-key-value, output, and the MLP's two.
_MATRICES_PER_LAYER = 4
#: Bytes of a gradient summed in fp32.
_SUMMED_GRADIENT_BYTES = 4
#: Where DeepEP runs (deepseek-ai/DeepEP, README: Hopper; Megatron-LM takes it on Blackwell too).
_DEEPEP_GENERATIONS = ("hopper", "blackwell", "blackwell-ultra")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCommunication:
    """Seconds that one layer and one micro-batch spend in communication: forward and backward together."""

    tensor_s: Any
    context_s: Any
    expert_s: Any


def tensor_s(job: Job, layout: LayoutLike, backward_s: Any) -> Any:
    """Two all-reduces forward, two backward, two more with full recomputation.

    Sequence parallelism moves as much, and gathers the inputs of the column-parallel products once more. Megatron-LM
    runs the backward collectives of those products beside their own arithmetic, half of the layer's `backward_s`.

    **Source**: 1909.08053 sec 3; 2205.05198 sec 4.2.2; Megatron-LM core/tensor_parallel/layers.py,
    LinearWithGradAccumulationAndAsyncCommunication.
    """
    ring = group(job, layout.tensor, 1)
    size = weight_bytes(job) * local_tokens(job, layout) * job.model.hidden
    one = all_reduce_s(job, ring, size) + rates(job).tensor_call_s
    calls = np.where(layout.recompute == Recompute.FULL, 6, 4) + np.where(layout.sequence_parallel, 1, 0)
    hidden = rates(job).tensor_overlap * np.minimum(2 * one, backward_s / 2)
    return np.where(layout.tensor > 1, calls * one - hidden, 0.0)


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


def layer_communication(job: Job, layout: LayoutLike, attention_core_s: Any, backward_s: Any) -> LayerCommunication:
    """All three, of one layer and one micro-batch."""
    return LayerCommunication(
        tensor_s=tensor_s(job, layout, backward_s),
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


def data_s(job: Job, layout: LayoutLike, held: StageParameters, micro_batch_s: Any) -> Any:
    """Exposed gradient and parameter communication of a step.

    **Source**: ZeRO (1910.02054 sec 7): an all-reduce for stage 0, reduce-scatter and all-gather for stage 1 per step;
    DeepSpeed reduces per micro-batch in stage 2 and gathers twice per micro-batch in stage 3. `micro_batch_s` is the
    compute that can hide it: one micro-batch's for per-step traffic, every micro-batch's own otherwise.
    """
    constants = rates(job)
    whole, stage = layout.data * layout.context, layout.zero_stage
    updated = trained(job, held)
    traffic = _data_traffic(job, layout, group(job, whole, layout.tensor), held.shared, updated.shared)
    if job.model.is_moe:
        ring = group(job, expert_replicas(layout), layout.expert * layout.expert_tensor)
        experts = _data_traffic(job, layout, ring, held.experts, updated.experts)
        traffic = tuple(a + b for a, b in zip(traffic, experts, strict=True))
    once, each_pass, last = traffic
    overlap = np.where(_pipelined_deepspeed(job, layout), 0.0, constants.data_overlap)
    per_pass = layout.gradient_accumulation * exposed_s(each_pass, micro_batch_s, constants.data_overlap) + last
    exposed = np.where(stage >= 2, per_pass, exposed_s(once, micro_batch_s, overlap))
    return np.where(whole > 1, exposed, 0.0)


def _data_traffic(job: Job, layout: LayoutLike, ring: Group, count: Any, updated: Any) -> tuple[Any, Any, Any]:
    """Seconds once a step (stages 0 and 1), with every micro-batch (2 and 3), and after the last one (2).

    `count`: parameters of the rank that the ring shares; `updated`: those with gradients. A frozen base is gathered.
    """
    stage, element = layout.zero_stage, weight_bytes(job)
    narrow = job.framework.runs("DeepSpeed engine") or not sums_gradients_in_fp32(job)
    gradient = element if narrow else _SUMMED_GRADIENT_BYTES
    by_matrix = _MATRICES_PER_LAYER * job.model.layers
    calls = np.where(stage >= 3, by_matrix, np.ceil(updated / _bucket(job, layout, ring)))
    share = np.where(stage >= 3, rates(job).full_sharding_share, 1.0)
    reduce = all_gather_s(job, ring, gradient * updated / share, calls)
    gathered = np.where(stage >= 3, base_share(job) * count, updated)
    gather = all_gather_s(job, ring, element * gathered / share, calls)
    once = np.where(stage == 0, all_reduce_s(job, ring, gradient * updated), reduce + gather)
    return once, np.where(stage >= 3, reduce + 2 * gather, reduce), np.where(stage == 2, gather, 0.0)


def _bucket(job: Job, layout: LayoutLike, ring: Group) -> Any:
    """Elements of one message of stages 1 and 2.

    **Source**: Megatron-LM core/distributed/distributed_data_parallel.py: max(40e6, 1e6 × ranks).
    """
    if job.framework.runs("DeepSpeed engine"):
        return bucket_elements(job, layout)
    return np.maximum(40e6, 1e6 * ring.size)


def exposed_s(communication_s: Any, window_s: Any, overlap: Any) -> Any:
    """What is left of communication beside `window_s` of compute, of which a share `overlap` can run at once."""
    return communication_s - overlap * np.minimum(communication_s, window_s)


def _pipelined_deepspeed(job: Job, layout: LayoutLike) -> Any:
    """DeepSpeed's pipeline engine does not overlap gradient communication (engine.py:2390 @ 0.19.6)."""
    return (layout.pipeline > 1) & job.framework.runs("DeepSpeed engine")
