"""The memory ledger: bytes per GPU of the fullest pipeline stage, and host memory per node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..dataclass import dataclass
from ..job.records import Job
from . import activations, adapters, allocator, backward, buffers, muon, stages, units
from .alike import by_column, distinct, once_each, spread
from .layout import FIELDS, Layout, LayoutLike, Offload
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakParts:
    """What decides which stage is the fullest. Bytes, of one GPU of each stage."""

    stage: Any  #: 0-based
    resident_bytes: Any  #: model states and the workspaces of libraries: always there
    kept_per_token: Any  #: for the backward pass, of a micro-batch in flight
    copied_per_token: Any  #: kept as well where a micro-batch has several sequences
    layers_ahead: Any  #: micro-batches in flight beyond the schedule's, in parts of one
    workspace_per_token: Mapping[str, Any]  #: of the layer that runs backward
    vocabulary_rows: Any  #: of the head and the embedding, on one rank
    first_gradient_bytes: Any  #: the embedding's gradient, which comes last in the backward pass
    returning_bytes: Any  #: gradients that each backward pass makes anew
    buffers_bytes: Any  #: buckets and gathered parameters, beside a layer
    loss_buffers_bytes: Any  #: what the buffers beside the loss have more than those (or less)
    head_buffers_bytes: Any  #: the same when the logits are gone
    step_end_bytes: Any  #: reduction or update, whichever is larger
    loaded_bytes: Any  #: while the model is loaded, before anything else


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerParts:
    """What the ledger says of the fullest stage alone, in bytes."""

    stage: Any
    parameters_bytes: Any
    gradients_bytes: Any
    optimizer_bytes: Any
    resident_bytes: Any
    first_gradient_bytes: Any
    buffers_bytes: Any
    reduction_bytes: Any  #: copies in which gradients are reduced
    reduced_bytes: Any  #: the same with the buckets
    update_bytes: Any  #: gradients in the forms that the update asks for
    context_bytes: Any  #: CUDA's and NCCL's, outside the allocator
    host_bytes_per_node: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class LastingMemory:
    """What stages hold whatever the sizes of micro-batches are, with stages along the first axis.

    It differs between micro-batches of one sequence and of several, and between steps of one
    micro-batch and of several.
    """

    peak: PeakParts
    ledger: LedgerParts

    @property
    def layouts(self) -> int:
        """The number of layouts that it is of."""
        return int(self.peak.stage.size // len(self.peak.stage))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Peaks:
    """Device bytes of stages at their peak, and what is large then."""

    activations_bytes: Any
    output_bytes: Any
    allocated_bytes: Any


def memory(
    job: Job,
    layout: LayoutLike,
    lasting: LastingMemory | None = None,
    places: NDArray[np.intp] | None = None,
) -> Memory:
    """Memory of the fullest pipeline stage of each layout.

    `lasting` is given where it is known already. It may be that of fewer layouts: `places` then
    says which of them each layout is like.
    """
    if lasting is None:
        # It matters whether a step has several micro-batches, and these several sequences; not how
        # many.
        once = distinct(
            replace(
                layout,
                gradient_accumulation=np.minimum(layout.gradient_accumulation, 2),
                micro_batch=np.minimum(layout.micro_batch, 2),
            ),
            FIELDS,
        )
        lasting, places = lasting_memory(job, once.layout), once.places
    count = lasting.layouts
    parts = lasting.peak if places is None else spread(lasting.peak, places, count)
    peaks = _peaks(job, layout, parts)

    # Figures have a row for each stage, and in it a column for each layout. Those of the fullest
    # stage are taken by their place in the flat array, which is indexed: np.take refuses 64-bit
    # places where pointers have 32, as in a browser.
    fullest = np.argmax(peaks.allocated_bytes, axis=0)
    column = np.arange(fullest.size).reshape(fullest.shape)
    flat_place = fullest * fullest.size + column
    flat_place_in_lasting = fullest * count + (column if places is None else places)

    def of_fullest(figure: Any) -> Any:
        if np.ndim(figure) == lasting.peak.stage.ndim:
            return figure.ravel()[flat_place_in_lasting]
        return figure if places is None else spread(figure, places, count)

    return _ledger(
        job,
        layout,
        by_column(of_fullest, lasting.ledger),
        by_column(lambda figure: figure.ravel()[flat_place], peaks),
    )


def lasting_memory(job: Job, layout: LayoutLike) -> LastingMemory:
    """What lasts in the stages that can be the fullest.

    These are at most four: the first (embedding, most micro-batches in flight), the second (no
    embedding, but possibly one layer more), the first without dense layers (experts are larger),
    and the last (logits).
    """
    stage, held = once_each(job, layout, stages.HELD_BY, _fullest_stages)
    return _lasting(job, layout, stage, held, held.at(0))


def _fullest_stages(job: Job, layout: LayoutLike) -> tuple[Any, StageContents]:
    """The stages that can be the fullest, and what they hold."""
    last, model = layout.pipeline - 1, job.model
    candidates = [0 * last, np.minimum(1, last), last]
    if model.experts and model.dense_layers:
        layers_per_chunk = model.layers / (layout.pipeline * layout.virtual_pipeline)
        first_of_experts = np.ceil(model.dense_layers / layers_per_chunk).astype(np.int64)
        candidates.append(np.minimum(first_of_experts, last))
    stage = np.stack(candidates)
    return stage, stages.stage_contents(job, layout, stage)


def every_stage(job: Job, layout: Layout) -> tuple[Memory, ...]:
    """Memory of each pipeline stage, first to last."""
    contents = [stages.stage_contents(job, layout, stage) for stage in range(layout.pipeline)]
    lasting = [
        _lasting(job, layout, stage, held, contents[0]) for stage, held in enumerate(contents)
    ]
    return tuple(
        _ledger(job, layout, each.ledger, _peaks(job, layout, each.peak)) for each in lasting
    )


def _lasting(
    job: Job, layout: LayoutLike, stage: Any, held: StageContents, first: StageContents
) -> LastingMemory:
    """The memory that lasts on a device of `stage`, and on its host.

    `held` are the contents of the stage; the host's memory goes by those of the `first`.
    """
    trained = adapters.trained(job, layout, held)
    states = _states(job, layout, held, trained)
    resident = sum(states.values()) + workspace_bytes(job)
    rows = stages.vocabulary_rows(job, layout)
    first_gradient = _first_gradient_bytes(job, layout, stage, rows)

    buckets = bucket_bytes(job, layout, trained.shared + trained.experts)
    sent = buffers.sent_bytes(job, layout, buffers.bucket_elements(job, layout))
    gathered = _gathered(job, layout, held, rows)
    held_buffers = buckets + sent * (layout.zero_stage == 2) + gathered.layers

    step_end = _step_end(job, layout, trained, states["gradients_bytes"])
    kept_first = first_gradient * ((layout.zero_stage == 2) & (sent > 0)) if np.any(sent) else 0.0
    reduction = step_end.reduction + sent + kept_first

    peak = PeakParts(
        stage=stage,
        resident_bytes=resident,
        kept_per_token=activations.kept_per_token(job, layout, held)
        + activations.ends_per_token(job, layout, stage),
        copied_per_token=activations.copied_per_token(job, layout, held),
        layers_ahead=stages.overlapped_layers(layout, held),
        workspace_per_token=backward.workspace_per_token(job, layout),
        vocabulary_rows=rows,
        first_gradient_bytes=first_gradient,
        returning_bytes=buffers.returning_bytes(
            job, layout, states["gradients_bytes"], trained.shared + trained.experts
        ),
        buffers_bytes=held_buffers,
        loss_buffers_bytes=gathered.at_loss,
        head_buffers_bytes=gathered.at_head,
        step_end_bytes=np.maximum(buckets + reduction, step_end.update - step_end.freed),
        loaded_bytes=_loaded_bytes(job, held),
    )
    ledger = LedgerParts(
        **states,
        stage=stage,
        resident_bytes=resident,
        first_gradient_bytes=first_gradient,
        buffers_bytes=held_buffers,
        reduction_bytes=reduction,
        reduced_bytes=buckets + reduction,
        update_bytes=step_end.update,
        context_bytes=rates(job).context_bytes + rates(job).nccl_bytes * (layout.world > 1),
        host_bytes_per_node=_host_bytes_per_node(job, layout, first),
    )
    return LastingMemory(peak=peak, ledger=ledger)


class _StepEnd(NamedTuple):
    """Bytes at a step's end, where gradients are copied to be reduced, and then to update with."""

    reduction: Any
    update: Any
    freed: Any  #: gradients that nothing needs by the time of the update


def _step_end(job: Job, layout: LayoutLike, trained: StageContents, gradients: Any) -> _StepEnd:
    """The copies of `trained` parameters' gradients, which take `gradients` bytes themselves."""
    by_sharers = tuple(zip(_sharers(job, layout), (trained.shared, trained.experts), strict=True))
    share = sum(count / sharers for sharers, count in by_sharers)
    return _StepEnd(
        reduction=sum(
            buffers.reduction_bytes(job, layout, sharers, count) for sharers, count in by_sharers
        ),
        update=sum(
            buffers.step_bytes(job, layout, sharers, count) for sharers, count in by_sharers
        ),
        freed=buffers.freed_bytes(job, layout, share, gradients),
    )


def _loaded_bytes(job: Job, held: StageContents) -> Any:
    """Bytes of a quantized model while it is loaded: whole on every rank, before ZeRO-3 shards it.

    **Source**: transformers 5.23, modeling_utils.py, get_init_context: no zero.Init for it.
    """
    whole = adapters.base_share(job) * weight_bytes(job)
    return whole * (held.shared + held.experts) if adapters.has_4bit_base(job) else 0.0


def loading_bytes(job: Job, layout: Layout) -> float:
    """Bytes of a quantized model while it is loaded, where no part of a step needs more; else 0."""
    if not adapters.has_4bit_base(job):
        return 0.0
    parts = lasting_memory(job, layout).peak
    allocated = _peaks(job, layout, parts).allocated_bytes
    loaded = float(np.max(parts.loaded_bytes))
    return loaded if loaded >= float(np.max(allocated)) else 0.0


def _gathered(job: Job, layout: LayoutLike, held: StageContents, rows: Any) -> units.Buffers:
    """Bytes of gathered parameters, by when they are there.

    An engine that shards by units frees and gathers some between the backward passes of the head
    and of the layers.
    """
    if job.engine.sharding == "units":
        return units.buffer_bytes(job, layout, held, rows)
    return units.Buffers(layers=_gathered_bytes(job, layout, held, rows))


def _peaks(job: Job, layout: LayoutLike, parts: PeakParts) -> _Peaks:
    """The peak of each stage over a step, with the micro-batches of `layout`."""
    # Only interleaved stages have chunks, and need the split.
    cut = stages.split(job, layout) if np.any(layout.virtual_pipeline > 1) else None
    in_flight = stages.in_flight(layout, parts.stage, cut) + parts.layers_ahead
    kept = parts.kept_per_token + parts.copied_per_token * (layout.micro_batch > 1)
    stored = in_flight * activations.local_tokens(job, layout) * kept
    workspace = backward.workspace_bytes(job, layout, parts.workspace_per_token)
    is_last = parts.stage == layout.pipeline - 1
    output = is_last * backward.output_bytes(job, layout, parts.vocabulary_rows)

    # A step goes through these in turn, so that no two of them meet. Logits end the forward pass; a
    # layer's workspace is needed in the backward pass, which ends with the embedding's gradient
    # and one micro-batch less in flight; reduction and update have no activations beside them.
    head = np.maximum(output + parts.loss_buffers_bytes, parts.head_buffers_bytes)
    fullest_pass = stored + np.maximum(workspace, head)
    last_gradient = stored * (1 - 1 / np.maximum(in_flight, 1)) + parts.first_gradient_bytes
    # Gradients that each backward pass makes anew take the place of the activations that it frees.
    returning = parts.returning_bytes
    if np.any(returning):
        last_gradient = np.maximum(last_gradient, workspace * (returning > 0))
    passes = np.maximum(fullest_pass - returning, last_gradient)

    resident = parts.resident_bytes + activations.score_buffer_bytes(job, layout)
    peak = resident + np.maximum(parts.buffers_bytes + passes, parts.step_end_bytes)
    return _Peaks(
        activations_bytes=stored + workspace,
        output_bytes=output,
        allocated_bytes=np.maximum(peak, parts.loaded_bytes),
    )


def _sharers(job: Job, layout: LayoutLike) -> tuple[Any, Any]:
    """Ranks over which states are sharded: those of shared parameters, and those of experts."""
    replicas, expert_replicas = layout.data * layout.context, stages.expert_replicas(layout)
    shared = replicas / layout.zero_copies
    experts = expert_replicas / np.minimum(layout.zero_copies, expert_replicas)
    if job.engine.sharding == "units":
        experts = experts / units.expert_padding(job, experts)
    return shared, experts


def _states(
    job: Job, layout: LayoutLike, held: StageContents, trained: StageContents
) -> dict[str, Any]:
    """Bytes of model states by kind. A frozen base has neither gradients nor optimizer states."""
    sharers = _sharers(job, layout)
    shared, experts = (state_bytes(job, layout, ranks) for ranks in sharers)  # per parameter
    states = {
        f"{name}_bytes": trained.shared * getattr(shared, name)
        + trained.experts * getattr(experts, name)
        for name in ("parameters", "gradients", "optimizer")
    }
    if muon.is_muon(job):
        per_parameter = master_bytes(job) * (weight_bytes(job) < FP32) + moment_bytes(job)
        states["optimizer_bytes"] = muon.optimizer_bytes(
            job, layout, trained, per_parameter, sharers
        )
    if job.training.lora is not None:
        base = held.shared * shared.parameters + held.experts * experts.parameters
        # Masters that are sharded are wider than the frozen base, which keeps its own type.
        narrowing = weight_bytes(job) / shard_bytes(job) if job.engine.shards_masters else 1.0
        base = narrowing * adapters.base_share(job) * base
        states["parameters_bytes"] = states["parameters_bytes"] + base
    return states


def _first_gradient_bytes(job: Job, layout: LayoutLike, stage: Any, rows: Any) -> Any:
    """The embedding's gradient, which comes last in the backward pass, before it joins the sum.

    BF16_Optimizer converts each gradient to fp32 before it adds it: then the largest one counts.
    """
    if job.training.lora is not None:
        return 0.0
    embedding = backward.table_gradient_bytes(job, rows)
    largest_elements = np.maximum(
        embedding * (stage == 0), backward.weight_gradient_bytes(job, layout)
    ) / weight_bytes(job)
    converts = has_flat_gradients(job, layout) & (layout.zero_stage == 1)
    return np.maximum((stage == 0) * embedding, np.where(converts, FP32 * largest_elements, 0))


def bucket_bytes(job: Job, layout: LayoutLike, parameters: Any) -> Any:
    """The engine's own buckets: those that gradients are reduced through, and old gather buckets.

    **Source**: DeepSpeed 0.19.8: `setup_buckets` allocates them whole (stage_1_and_2.py), twice
    where communication overlaps, which a pipeline engine switches off; in fp32 where stage 1 sums
    in it. Stage 3 has one (stage3.py). BF16_Optimizer has none. Parameters are gathered in place
    since pull request 4705, and before it by a bucket.
    """
    if not job.engine.has_buckets:
        return 0.0
    stage, element = layout.zero_stage, weight_bytes(job)
    bucket = buffers.bucket_elements(job, layout)
    sum_element = np.where(stage == 1, summed_bytes(job), element)
    count = np.where(stage >= 1, np.where((stage >= 3) | (layout.pipeline > 1), 1, 2), 0)
    reduce_bytes = np.where(has_flat_gradients(job, layout), 0, count * sum_element * bucket)

    gathers_by_bucket = job.deepspeed_version < _GATHERS_IN_PLACE
    gather_elements = np.minimum(bucket, parameters) * gathers_by_bucket
    return reduce_bytes + np.where(stage >= 1, element * gather_elements, 0)


def _gathered_bytes(job: Job, layout: LayoutLike, held: StageContents, rows: Any) -> Any:
    """Parameters that ZeRO-3 and FSDP gather, at most.

    **Source**: DeepSpeed 0.19.8, partitioned_param_coordinator.py: every use of a module prefetches
    a further bucket, until as many elements as stage3_max_live_parameters are gathered; the largest
    module is gathered whole. What a bucket's last parameter fills arrives in one tensor and is
    copied apart (partition_parameters.py, AllGatherCoalescedHandle). FSDP holds the layer in use
    and the one prefetched.
    """
    element = weight_bytes(job)
    embedding = backward.table_gradient_bytes(job, rows)  # as large as its gradient
    layers_at_once = job.engine.gathered_layers
    if layers_at_once is None:
        parameters = adapters.base_share(job) * (held.shared + held.experts)
        live = element * np.minimum(buffers.max_live_elements(job, layout), parameters)
        largest = backward.weight_gradient_bytes(job, layout)
        arriving = np.minimum(element * buffers.prefetch_elements(job, layout) + largest, live)
        gathered = np.maximum(live + arriving, np.maximum(embedding, largest))
    else:
        layer = element * buffers.layer_elements(job.model) / layout.tensor
        gathered = layers_at_once * np.maximum(layer, embedding)

    # A rank that shares its parameters with no other has them whole, unless they're on the host.
    is_whole = (layout.data * layout.context == 1) & (
        layout.offload != Offload.OPTIMIZER_AND_PARAMETERS
    )
    return np.where((layout.zero_stage >= 3) & np.logical_not(is_whole), gathered, 0.0)


def _host_bytes_per_node(job: Job, layout: LayoutLike, first: StageContents) -> Any:
    """Host memory of a node whose ranks are all of the `first` stage, the fullest on the host."""
    shared, experts = _sharers(job, layout)
    share = first.shared / shared + first.experts / experts
    if job.training.lora is None:
        rank_bytes = host_bytes(job, layout, share)
    else:
        base = np.where(
            layout.offload == Offload.OPTIMIZER_AND_PARAMETERS, weight_bytes(job) * share, 0
        )
        trained_share = adapters.trained(job, layout, first).shared / shared
        rank_bytes = host_bytes(job, layout, trained_share) + base * host_factor(job)
    return rank_bytes * np.minimum(job.cluster.accelerators_per_node, layout.world)


def _ledger(job: Job, layout: LayoutLike, parts: LedgerParts, peaks: _Peaks) -> Memory:
    """A stage's ledger: its parts and peak, with the allocator's cache, context and capacity."""
    # Without segments that grow, the allocator holds what all phases of a step ask for.
    in_passes = (
        peaks.activations_bytes
        + peaks.output_bytes
        + parts.first_gradient_bytes
        + parts.update_bytes
    )
    phases = (
        parts.resident_bytes + parts.buffers_bytes + np.maximum(parts.reduction_bytes, in_passes)
    )
    # Near the end of the card it frees its cache instead, at the cost of time.
    reserved = allocator.reserved_bytes(job, layout, peaks.allocated_bytes, phases)
    return Memory(
        parameters_bytes=parts.parameters_bytes,
        gradients_bytes=parts.gradients_bytes,
        optimizer_bytes=parts.optimizer_bytes,
        activations_bytes=peaks.activations_bytes,
        output_bytes=peaks.output_bytes,
        buffers_bytes=np.maximum(parts.buffers_bytes, parts.reduced_bytes) + workspace_bytes(job),
        allocated_bytes=peaks.allocated_bytes,
        reserved_bytes=reserved,
        device_bytes=reserved + parts.context_bytes,
        required_bytes=peaks.allocated_bytes + parts.context_bytes,
        capacity_bytes=job.cluster.accelerator.memory_bytes + 0 * reserved,
        host_bytes_per_node=parts.host_bytes_per_node,
        stage=parts.stage,
    ).corrected(job.calibration.memory_factor)
