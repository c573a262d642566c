"""The memory ledger: bytes per GPU of the fullest pipeline stage, and host memory per node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..job.records import Job
from . import activations, adapters, allocator, buffers, muon, stages, units
from .layout import FIELDS, Layout, LayoutLike, Offload, distinct, once_each, spread
from .ledgers import Memory
from .rates import rates
from .stages import StageContents
from .states import (
    FP32,
    has_flat_gradients,
    host_bytes,
    host_factor,
    master_bytes,
    moment_bytes,
    shard_bytes,
    state_bytes,
    summed_bytes,
    weight_bytes,
)
from .workspaces import workspace_bytes

_GATHERS_IN_PLACE = (0, 13)  #: DeepSpeed's first release with pull request 4705


def memory(
    job: Job,
    layout: LayoutLike,
    found: Mapping[str, Any] | None = None,
    number: NDArray[np.intp] | None = None,
) -> Memory:
    """Memory of the fullest pipeline stage of each layout.

    `found` is the answer of `lasting` where it is known already: of these rows, or of fewer, with
    the `number` of one of these for each row.
    """
    if found is None:
        # Of the micro-batches, all but activations depends on no more than whether a step has
        # several, and of their sequences on no more than whether one has several.
        rows = replace(
            layout,
            gradient_accumulation=np.minimum(layout.gradient_accumulation, 2),
            micro_batch=np.minimum(layout.micro_batch, 2),
        )
        rows, number, _ = distinct(rows, FIELDS)
        found = lasting(job, rows)
    count = found["stage"].size // len(found["stage"])

    def every(name: str) -> Any:
        return found[name] if number is None else spread(found[name], number, count)

    # Find the fullest stage, then take its bytes alone.
    peaks = _peaks(job, layout, {name: every(name) for name in _AT_PEAK})
    fullest = np.argmax(peaks["allocated_bytes"], axis=0)
    row = np.arange(fullest.size).reshape(fullest.shape)

    # By index: np.take refuses 64-bit places where pointers have 32, as in a browser.
    here = fullest * fullest.size + row
    there = fullest * count + (row if number is None else number)
    staged = {name: part.ravel()[here] for name, part in peaks.items()}
    staged |= {
        name: found[name].ravel()[there]
        if np.ndim(found[name]) == found["stage"].ndim
        else every(name)
        for name in _AFTER_PEAK
    }
    return _whole(job, layout, staged)


def lasting(job: Job, layout: LayoutLike) -> dict[str, Any]:
    """Bytes by cause that the micro-batch doesn't change, unless from one sequence to several, of
    the stages that can be the fullest along the first axis.

    These are four: the first (embedding, most micro-batches in flight), the second (no embedding,
    but possibly one layer more), the first without dense layers (experts are larger), and the last
    (logits).
    """
    stage, held = once_each(job, layout, stages.HELD_BY, _fullest)
    first = held.at(0)
    return _lasting(job, layout, stage, held, first)


def _fullest(job: Job, layout: LayoutLike) -> tuple[Any, StageContents]:
    """The stages that can be the fullest, and what they hold."""
    last, model = layout.pipeline - 1, job.model
    each = [0 * last, np.minimum(1, last), last]
    if model.experts and model.dense_layers:
        per_chunk = model.layers / (layout.pipeline * layout.virtual_pipeline)
        all_moe = np.ceil(model.dense_layers / per_chunk).astype(np.int64)
        each.append(np.minimum(all_moe, last))
    return np.stack(each), stages.stage_contents(job, layout, np.stack(each))


def every_stage(job: Job, layout: Layout) -> tuple[Memory, ...]:
    """Memory of each pipeline stage, first to last."""
    held = [stages.stage_contents(job, layout, stage) for stage in range(layout.pipeline)]
    found = (_lasting(job, layout, stage, each, held[0]) for stage, each in enumerate(held))
    return tuple(_whole(job, layout, parts | _peaks(job, layout, parts)) for parts in found)


def _lasting(
    job: Job, layout: LayoutLike, stage: Any, held: StageContents, first: StageContents
) -> dict[str, Any]:
    """Bytes of stages with what they hold, and of the host: states, buffers, activations a
    token.
    """
    trained = adapters.trained(job, layout, held)
    states = _states(job, layout, held, trained)
    rows = stages.vocabulary_rows(job, layout)
    embedding = _first_gradient_bytes(job, layout, stage, rows)
    buckets = bucket_bytes(job, layout, trained.shared + trained.experts)
    # A step's end needs copies to reduce, and to update, beside the states, less the gradients that
    # are gone.
    parts = tuple(zip(_sharers(job, layout), (trained.shared, trained.experts), strict=True))
    reduction = sum(buffers.reduction_bytes(job, layout, d, count) for d, count in parts)
    step = sum(buffers.step_bytes(job, layout, d, count) for d, count in parts)
    net = step - buffers.freed_bytes(
        job, layout, sum(count / d for d, count in parts), states["gradients_bytes"]
    )
    sent = buffers.sent_bytes(job, layout, buffers.bucket_elements(job, layout))
    reduction = (
        reduction
        + sent
        + (embedding * ((layout.zero_stage == 2) & (sent > 0)) if np.any(sent) else 0.0)
    )
    # A quantized model is loaded whole on every rank, before ZeRO-3 shards it (transformers 5.23,
    # modeling_utils.py, get_init_context: no zero.Init for it).
    whole = adapters.base_share(job) * weight_bytes(job)
    loaded = whole * (held.shared + held.experts) if adapters.has_4bit_base(job) else 0.0
    # Units of a model are freed and gathered between the backward passes of head and layers.
    gathered = units.Buffers(layers=_gathered_bytes(job, layout, held, rows))
    if job.engine.sharding == "units":
        gathered = units.buffer_bytes(job, layout, held, rows)
    return {
        **states,
        **activations.workspace_per_token(job, layout),
        "stage": stage,
        "whole": sum(states.values()) + workspace_bytes(job),
        "ahead": stages.overlapped_layers(layout, held),
        "copied": activations.copied_per_token(job, layout, held),
        "kept": activations.kept_per_token(job, layout, held)
        + activations.ends_per_token(job, layout, stage),
        "vocabulary": rows,
        "embedding": embedding,
        "buffers": buckets + sent * (layout.zero_stage == 2) + gathered.layers,
        "at_loss": gathered.at_loss,
        "at_head": gathered.at_head,
        "reduction": reduction,
        "step": step,
        "end": np.maximum(buckets + reduction, net),
        "reduced": buckets + reduction,
        "due": buffers.returning_bytes(
            job, layout, states["gradients_bytes"], trained.shared + trained.experts
        ),
        "loaded": loaded,
        "context": rates(job).context_bytes + rates(job).nccl_bytes * (layout.world > 1),
        "host": _host_bytes_per_node(job, layout, first),
    }


#: What decides which stage is the fullest, and what is asked of that one alone.
_AT_PEAK = (
    *(
        "stage",
        "ahead",
        "copied",
        "kept",
        "repeated",
        "mlp",
        "attention",
        "weight_gradient",
        "vocabulary",
        "embedding",
        "due",
    ),
    *("whole", "buffers", "at_loss", "at_head", "end", "loaded"),
)
_AFTER_PEAK = (
    *(
        "parameters_bytes",
        "gradients_bytes",
        "optimizer_bytes",
        "stage",
        "whole",
        "buffers",
        "embedding",
        "reduction",
    ),
    *("reduced", "step", "context", "host"),
)


def _peaks(job: Job, layout: LayoutLike, found: Mapping[str, Any]) -> dict[str, Any]:
    """Bytes of activations and logits of stages of which `_lasting` was found, and the peak that
    these come to.
    """
    stage, embedding, due = found["stage"], found["embedding"], found["due"]
    # Only interleaved stages have chunks, and need the split.
    cut = stages.split(job, layout) if np.any(layout.virtual_pipeline > 1) else None
    flying = stages.in_flight(layout, stage, cut) + found["ahead"]
    several = layout.micro_batch > 1
    kept = found["kept"] + found["copied"] * several
    stored = flying * activations.local_tokens(job, layout) * kept
    backward = activations.workspace_bytes(job, layout, found)
    output = (stage == layout.pipeline - 1) * activations.output_bytes(
        job, layout, found["vocabulary"]
    )
    # These never meet: logits end the forward pass, a layer's workspace and then, with a
    # micro-batch less in flight, the first parameter's gradient follow in the backward pass;
    # reduction and update have no activations.
    head = np.maximum(output + found["at_loss"], found["at_head"])
    forward = stored + np.maximum(backward, head)
    last = stored * (1 - 1 / np.maximum(flying, 1)) + embedding
    # Gradients that come and go with a micro-batch take the place of activations in the backward
    # pass.
    passes = np.maximum(
        forward - due, np.maximum(last, backward * (due > 0)) if np.any(due) else last
    )
    lasting = found["whole"] + activations.score_buffer_bytes(job, layout)
    peak = np.maximum(
        lasting + np.maximum(found["buffers"] + passes, found["end"]), found["loaded"]
    )
    return {"activations_bytes": stored + backward, "output_bytes": output, "allocated_bytes": peak}


def _sharers(job: Job, layout: LayoutLike) -> tuple[Any, Any]:
    """Ranks over which states are sharded: of a parameter of all replicas, and of an expert's."""
    group, experts = layout.data * layout.context, stages.expert_replicas(layout)
    shared, of_experts = (
        group / layout.zero_copies,
        experts / np.minimum(layout.zero_copies, experts),
    )
    if job.engine.sharding == "units":
        return shared, of_experts / units.expert_padding(job, of_experts)
    return shared, of_experts


def _states(
    job: Job, layout: LayoutLike, held: StageContents, trained: StageContents
) -> dict[str, Any]:
    """Model states by kind; a frozen base has neither gradients nor the optimizer's."""
    sharers = _sharers(job, layout)
    shared, experts = (state_bytes(job, layout, ranks) for ranks in sharers)
    states = {
        f"{name}_bytes": trained.shared * getattr(shared, name)
        + trained.experts * getattr(experts, name)
        for name in ("parameters", "gradients", "optimizer")
    }
    if muon.is_muon(job):
        each = master_bytes(job) * (weight_bytes(job) < FP32) + moment_bytes(job)
        states["optimizer_bytes"] = muon.optimizer_bytes(job, layout, trained, each, sharers)
    if job.training.lora is not None:
        base = held.shared * shared.parameters + held.experts * experts.parameters
        # A frozen base keeps its own type, whatever that of the weights that are trained.
        narrow = weight_bytes(job) / shard_bytes(job) if job.engine.shards_masters else 1.0
        base = narrow * adapters.base_share(job) * base
        states["parameters_bytes"] = states["parameters_bytes"] + base
    return states


def _first_gradient_bytes(job: Job, layout: LayoutLike, stage: Any, rows: Any) -> Any:
    """The embedding's gradient, which comes last, before it is added; the largest in fp32 as
    BF16_Optimizer adds it.
    """
    if job.training.lora is not None:
        return 0.0
    table = activations.table_gradient_bytes(job, rows)
    widest = np.maximum(
        table * (stage == 0), activations.weight_gradient_bytes(job, layout)
    ) / weight_bytes(job)
    converted = has_flat_gradients(job, layout) & (layout.zero_stage == 1)
    return np.maximum((stage == 0) * table, np.where(converted, FP32 * widest, 0))


def bucket_bytes(job: Job, layout: LayoutLike, parameters: Any) -> Any:
    """The engine's own buckets that gradients are reduced through.

    **Source**: DeepSpeed 0.19.8: `setup_buckets` allocates them whole (stage_1_and_2.py), twice
    where communication overlaps, which a pipeline engine switches off; in fp32 where stage 1 sums
    in it. Stage 3 has one (stage3.py). BF16_Optimizer has none. Parameters are gathered in place
    since pull request 4705, and before it by a bucket.
    """
    if not job.engine.has_buckets:
        return 0.0
    gather = np.minimum(buffers.bucket_elements(job, layout), parameters) * (
        job.deepspeed_version < _GATHERS_IN_PLACE
    )
    stage, element = layout.zero_stage, weight_bytes(job)
    summed = np.where(stage == 1, summed_bytes(job), element)
    count = np.where(stage >= 1, np.where((stage >= 3) | (layout.pipeline > 1), 1, 2), 0)
    buckets = np.where(
        has_flat_gradients(job, layout), 0, count * summed * buffers.bucket_elements(job, layout)
    )
    return buckets + np.where(stage >= 1, element * gather, 0)


def _gathered_bytes(job: Job, layout: LayoutLike, count: StageContents, rows: Any) -> Any:
    """Parameters that ZeRO-3 and FSDP gather.

    **Source**: DeepSpeed 0.19.8, partitioned_param_coordinator.py: every use of a module prefetches
    a further bucket, until as many elements as stage3_max_live_parameters are gathered; the largest
    module is gathered whole. What a bucket's last parameter fills arrives in one tensor and is
    copied apart (partition_parameters.py, AllGatherCoalescedHandle). FSDP holds the layer in use
    and the one prefetched.
    """
    element = weight_bytes(job)
    alone = (layout.data * layout.context == 1) & (
        layout.offload != Offload.OPTIMIZER_AND_PARAMETERS
    )
    table = activations.table_gradient_bytes(job, rows)
    layers = job.engine.gathered_layers
    if layers is None:
        held = adapters.base_share(job) * (count.shared + count.experts)
        live = element * np.minimum(buffers.max_live_elements(job, layout), held)
        widest = activations.weight_gradient_bytes(job, layout)
        arriving = np.minimum(element * buffers.prefetch_elements(job, layout) + widest, live)
        gathered = np.maximum(live + arriving, np.maximum(table, widest))
    else:
        gathered = layers * np.maximum(
            element * buffers.layer_elements(job.model) / layout.tensor, table
        )
    return np.where((layout.zero_stage >= 3) & np.logical_not(alone), gathered, 0.0)


def _host_bytes_per_node(job: Job, layout: LayoutLike, first: StageContents) -> Any:
    """Host memory for the `first` stage: the fullest one's ranks may share a node."""
    shared, experts = _sharers(job, layout)
    share = first.shared / shared + first.experts / experts
    if job.training.lora is None:
        host = host_bytes(job, layout, share)
    else:
        base = np.where(
            layout.offload == Offload.OPTIMIZER_AND_PARAMETERS, weight_bytes(job) * share, 0
        )
        own_bytes = host_bytes(job, layout, adapters.trained(job, layout, first).shared / shared)
        host = own_bytes + base * host_factor(job)
    return host * np.minimum(job.cluster.accelerators_per_node, layout.world)


def _whole(job: Job, layout: LayoutLike, found: Mapping[str, Any]) -> Memory:
    """A stage's bytes completed with the allocator's cache, context and capacity."""
    buffers, allocated = found["buffers"], found["allocated_bytes"]
    alive = found["activations_bytes"] + found["output_bytes"] + found["embedding"] + found["step"]
    held = found["whole"] + buffers + np.maximum(found["reduction"], alive)
    # Near the end of the card the allocator frees its cache instead, at the cost of time.
    reserved = allocator.reserved_bytes(job, layout, allocated, held)
    return Memory(
        **{f.name: found[f.name] for f in fields(Memory) if f.name in found},
        buffers_bytes=np.maximum(buffers, found["reduced"]) + workspace_bytes(job),
        reserved_bytes=reserved,
        device_bytes=reserved + found["context"],
        required_bytes=allocated + found["context"],
        capacity_bytes=job.cluster.accelerator.memory_bytes + 0 * reserved,
        host_bytes_per_node=found["host"],
    ).corrected(job.calibration.memory_factor)
