"""The memory ledger: bytes per GPU of the fullest pipeline stage, and host memory per node."""

from __future__ import annotations

from dataclasses import fields
from functools import reduce
from typing import Any

import numpy as np

from ..job.records import Job
from . import activations, model_size, workspace
from .buckets import bucket_elements, layer_elements
from .layout import Layout, LayoutLike, Offload
from .ledgers import Memory
from .rates import rates
from .stages import StageParameters, expert_replicas, in_flight, stage_layers, stage_parameters, vocabulary_rows
from .states import host_bytes, state_bytes, step_bytes, weight_bytes


def memory(job: Job, layout: LayoutLike) -> Memory:
    """Memory of the fullest stage.

    Only four stages can be the fullest: the first (embedding, most micro-batches in flight), the second (no embedding,
    but possibly one layer more), the first without dense layers (experts are larger), and the last (logits).
    """
    parts = [stage_memory(job, layout, stage) for stage in _candidate_stages(job, layout)]
    return _whole(job, layout, reduce(_fuller, parts)).corrected(job.calibration.memory_factor)


def every_stage(job: Job, layout: Layout) -> tuple[Memory, ...]:
    """Memory of each pipeline stage, first to last."""
    ledgers = (_whole(job, layout, stage_memory(job, layout, i)) for i in range(layout.pipeline))
    return tuple(ledger.corrected(job.calibration.memory_factor) for ledger in ledgers)


def _candidate_stages(job: Job, layout: LayoutLike) -> list[Any]:
    last = layout.pipeline - 1
    stages = [0 * last, np.minimum(1, last), last]
    if job.model.is_moe and model_size.dense_layers(job.model):
        per_chunk = job.model.layers / (layout.pipeline * layout.virtual_pipeline)
        all_moe = np.ceil(model_size.dense_layers(job.model) / per_chunk).astype(np.int64)
        stages.append(np.minimum(all_moe, last))
    return stages


def _fuller(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """Row by row, the stage with the larger peak; the earlier one on ties."""
    keep = a["allocated_bytes"] >= b["allocated_bytes"]
    return {key: np.where(keep, a[key], b[key]) for key in a}


def stage_memory(job: Job, layout: LayoutLike, stage: Any) -> dict[str, Any]:
    """Bytes of one stage (0-based), by cause, with the peak `allocated_bytes` and what the allocator holds for it."""
    flying = in_flight(layout, stage)
    held = stage_layers(job, layout, stage)
    count = stage_parameters(job, layout, stage)
    states, step = _states(job, layout, count)
    stored = activations.stored_bytes(job, layout, held, flying)
    stored = stored + activations.boundary_bytes(job, layout, stage, flying)
    backward = workspace.workspace_bytes(job, layout)
    rows = vocabulary_rows(job, layout)
    output = (stage == layout.pipeline - 1) * workspace.output_bytes(job, layout, rows)
    embedding = (stage == 0) * workspace.table_gradient_bytes(job, rows)
    buffers = _buffer_bytes(job, layout, count.shared + count.experts)
    # These never meet: logits end the forward pass, a layer's workspace and then, with a micro-batch less in flight,
    # the embedding's gradient follow in the backward pass, and the optimizer's step has no activations.
    forward = stored + np.maximum(backward, output)
    last = stored * (1 - 1 / np.maximum(flying, 1)) + embedding
    peak = np.maximum(np.maximum(forward, last), step)
    return {
        **states,
        "activations_bytes": stored + backward,
        "output_bytes": output,
        "buffers_bytes": buffers,
        "allocated_bytes": sum(states.values()) + buffers + peak,
        "held_bytes": sum(states.values()) + buffers + stored + backward + output + embedding + step,
        "stage": stage + 0 * flying,
    }


def _states(job: Job, layout: LayoutLike, count: StageParameters) -> tuple[dict[str, Any], Any]:
    """Model states by kind, and what the optimizer's step needs besides."""
    group, sharers = layout.data * layout.context, expert_replicas(layout)
    shared, experts = state_bytes(job, layout, group), state_bytes(job, layout, sharers)
    states = {
        f"{name}_bytes": count.shared * getattr(shared, name) + count.experts * getattr(experts, name)
        for name in ("parameters", "gradients", "optimizer")
    }
    step = step_bytes(job, layout, group, count.shared)
    return states, step + step_bytes(job, layout, sharers, count.experts)


def _buffer_bytes(job: Job, layout: LayoutLike, parameters: Any) -> Any:
    """DeepSpeed's reduce and all-gather buckets, and what ZeRO-3 gathers.

    **Source**: DeepSpeed docs/_pages/config-json.md: buckets are elements, twice with overlapping communication; ZeRO-3
    holds the layer in use and the one prefetched. The reduce bucket is allocated whole (stage_1_and_2.py,
    reduce_gradients), the all-gather fills what there is.
    """
    element = weight_bytes(job)
    largest = max(layer_elements(job.model), job.model.vocab * job.model.hidden)
    alone = (layout.data * layout.context == 1) & (layout.offload != Offload.OPTIMIZER_AND_PARAMETERS)
    gathered = np.where((layout.zero_stage >= 3) & np.logical_not(alone), 2 * largest / layout.tensor * element, 0.0)
    if not job.framework.runs("DeepSpeed engine"):
        return gathered + 0.0 * parameters
    reduce = bucket_elements(job, layout) * element
    gather = np.minimum(bucket_elements(job, layout), parameters) * element
    overlapping = np.where(layout.pipeline > 1, 1, 2)
    return np.where(layout.zero_stage >= 1, overlapping * reduce + gather, 0) + gathered


def _whole(job: Job, layout: LayoutLike, staged: dict[str, Any]) -> Memory:
    """A stage's bytes completed with what the allocator caches, context, capacity and the host's side."""
    world = layout.data * layout.tensor * layout.pipeline * layout.context
    constants = rates(job)
    context = constants.context_bytes + constants.nccl_bytes * (world > 1)
    # The allocator caches what the device has to spare, and frees its cache before it runs out. States come to lie
    # between blocks of an earlier phase, which then can't be joined again.
    spare = np.maximum(job.cluster.accelerator.memory_bytes - context, staged["allocated_bytes"])
    reserved = np.minimum(staged["held_bytes"] * constants.fragmentation_factor, spare)
    return Memory(
        **{f.name: staged[f.name] for f in fields(Memory) if f.name in staged},
        reserved_bytes=reserved,
        device_bytes=reserved + context,
        required_bytes=staged["allocated_bytes"] + context,
        capacity_bytes=job.cluster.accelerator.memory_bytes + 0 * reserved,
        host_bytes_per_node=_host_bytes_per_node(job, layout),
    )


def _host_bytes_per_node(job: Job, layout: LayoutLike) -> Any:
    """Host memory of a full node, by the fullest pipeline stage (its ranks may share the node)."""
    count = stage_parameters(job, layout, 0 * layout.pipeline)
    group = layout.data * layout.context
    share = count.shared / group + count.experts / expert_replicas(layout)
    world = layout.data * layout.tensor * layout.pipeline * layout.context
    return host_bytes(job, layout, share) * np.minimum(job.cluster.accelerators_per_node, world)
