"""The step-time ledger: seconds of one optimizer step by cause, each the exposed part."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..dataclass import dataclass
from ..job.records import Job
from . import adapters, communication, compute, flops, muon, units
from .communication import TRAFFIC_BY, Traffic, boundary_s, traffic
from .compute import repeated, repeated_modules_s, repeated_share
from .layout import Layout, LayoutLike, Modules, Offload, distinct, once_each, spread
from .ledgers import StepTime, Throughput
from .products import exposed_s, stream_s
from .rates import rates
from .stages import HELD_BY, StageContents, expert_replicas, stage_contents, waiting_layers
from .states import (
    holds_whole_gradients,
    master_bytes,
    moment_bytes,
    second_shares,
    shard_bytes,
    summed_bytes,
    weight_bytes,
    whole_gradient_bytes,
)

#: The backward pass makes two products for the forward pass's one.
BACKWARD_SHARE = 2 / 3


def step_time(job: Job, layout: LayoutLike) -> StepTime:
    """Seconds of one step.

    The slowest stage sets the pace: `m * t_max` is work, the rest of `(m-1) * t_max + sum(t)` is
    bubble, divided by the model chunks under interleaving, which have to be equal for that: else
    stages wait for one another besides. **Source**: 2104.04473 sec 2.2.
    **Symbols**: m micro-batches, t seconds a micro-batch on a stage, forward and backward.
    """
    m, v = layout.gradient_accumulation, layout.virtual_pipeline
    parts, whole = per_layer(job, layout), job.model.layers
    stages = once_each(job, layout, (*HELD_BY, *TRAFFIC_BY), _stages)
    slowest, head = stages.slowest, parts.pop("head")
    layer_total = sum(seconds for cause, seconds in parts.items() if cause != "backward")
    output = _output_s(layout, stages, layer_total, head)

    # Work of the slowest stage for a micro-batch, and what the pipeline waits beside it.
    pace = slowest * layer_total + output
    bubble = np.where(layout.pipeline > 1, (whole * layer_total + head - pace) / v, 0.0)
    waits = m / layout.pipeline * stages.waiting * layer_total
    work = slowest * parts["compute"] + output
    back = slowest * parts["backward"] + output * BACKWARD_SHARE

    # Where the product doesn't add a gradient to the sum, it is read, and the sum read and written;
    # ZeRO 2 and 3 sum only their part.
    whole_sums = holds_whole_gradients(job, layout)
    sums_part = (layout.zero_stage >= 2) & np.logical_not(whole_sums)
    updated_parameters = np.where(sums_part, stages.updated, stages.trained)
    sum_bytes = np.where(whole_sums, whole_gradient_bytes(job), summed_bytes(job))
    summed = (weight_bytes(job) + 2 * sum_bytes) * updated_parameters
    sums = 0.0 if job.framework.sums_in_product else np.where(m > 1, stream_s(job, summed), 0.0)

    # The update is memory traffic: gradient, master weight and moments are read, all but the
    # gradient written.
    here = np.where(layout.offload == Offload.NONE, 1.0, 1.0 - layout.offload_fraction)
    updated = stages.updated * here
    moved = shard_bytes(job) + 2 * (master_bytes(job) + moment_bytes(job))
    moved = moved + (0 if job.engine.shards_masters else weight_bytes(job))

    times = {
        "compute_s": m * (work + sums),
        "recompute_s": m * slowest * parts["recompute"],
        "tensor_s": m * slowest * parts["tensor"],
        "context_s": m * slowest * parts["context"],
        "expert_s": m * slowest * parts["expert"],
        "pipeline_s": _pipeline_s(job, layout, pace),
        "bubble_s": np.maximum(bubble, 0.0) + waits,
        "data_s": _data_s(job, layout, stages, work - back, back + slowest * parts["recompute"]),
        "optimizer_s": stream_s(job, updated * moved)
        + stages.orthogonal_s
        + rates(job).step_start_s,
        "offload_s": _offload_s(job, layout, stages, work),
    }
    return StepTime(**times, total_s=sum(times.values()))


def _output_s(layout: LayoutLike, stages: _Stages, layer_total_s: Any, head_s: Any) -> Any:
    """Seconds of the output and its loss that the step waits for in each micro-batch.

    In a pipeline it is that by which the last stage, with the head, is slower than an inner one.
    """
    later = np.maximum(head_s - (stages.slowest - stages.last) * layer_total_s, 0.0)
    return np.where(layout.pipeline > 1, later, head_s)


#: What `compute_parts` divides the compute of a step into.
COMPUTE_PARTS = ("products", "attention", "experts", "output", "other")


def compute_parts(job: Job, layout: Layout) -> dict[str, float]:
    """Seconds of `compute_s` by kind of work, which add up to it.

    `products`: matrix products but those of routed experts; `attention`: the cores of mixers;
    `experts`: products of routed experts, with the router; `output`: the head and the loss, as far
    as the step waits for them; `other`: operations that move data, launches, sums of gradients.
    """
    parts, stack = per_layer(job, layout), job.model.averaged
    stages = once_each(job, layout, (*HELD_BY, *TRAFFIC_BY), _stages)
    head = parts.pop("head")
    layer_total = sum(seconds for cause, seconds in parts.items() if cause != "backward")

    of_layer = dict.fromkeys(("products", "attention", "experts"), 0.0)
    for count, layer, time in zip(
        stack.counts, stack.kinds, compute.layer_times(job, layout), strict=True
    ):
        share = count / len(stack)
        routed = _both(time.mlp) - _both(time.shared) if layer.feed_forward.experts else 0.0
        of_layer["products"] += share * (_both(time.products) - routed)
        of_layer["attention"] += share * _both(time.core)
        of_layer["experts"] += share * routed

    m = layout.gradient_accumulation
    found = {name: float(m * stages.slowest * seconds) for name, seconds in of_layer.items()}
    found["output"] = float(m * _output_s(layout, stages, layer_total, head))
    whole = float(step_time(job, layout).compute_s)
    return found | {"other": max(whole - sum(found.values()), 0.0)}


def _both(passes: Any) -> float:
    """Seconds of both passes of an operation."""
    return float(passes.forward_s + passes.backward_s)


def _data_s(job: Job, layout: LayoutLike, stages: _Stages, forward_s: Any, backward_s: Any) -> Any:
    """Exposed communication between replicas, by how the engine shards states."""
    if job.engine.sharding == "units":
        return units.data_s(job, layout, stages.sent, stages.held, forward_s, backward_s)
    return communication.data_s(job, layout, stages.sent, forward_s, backward_s)


#: Fields that the time of a layer depends on, beside the share of layers that is repeated.
_LAYER_BY = (
    *(
        "tensor",
        "context",
        "expert",
        "expert_tensor",
        "sequence_parallel",
        "micro_batch",
        "context_heads",
    ),
    *("recompute", "recompute_modules", "tensor_overlap", "expert_overlap"),
)


def _has_several_queues(job: Job, layout: LayoutLike) -> Any:
    """Where collectives of tensor parallelism start behind the product that they should run beside.

    Megatron's FSDP refuses the single hardware queue (CUDA_DEVICE_MAX_CONNECTIONS=1) that
    accelerators before Blackwell need for it. **Source**: Megatron-LM training/arguments.py:1049,
    1453-1479 @ core_v0.16.1.
    """
    refused = job.engine.several_queues_from
    if refused is None or not job.cluster.accelerator.generation.one_queue:
        return layout.zero_stage < 0
    return layout.zero_stage >= refused


def per_layer(job: Job, layout: LayoutLike) -> dict[str, Any]:
    """Seconds of an average layer and one micro-batch, by cause.

    MoE and dense layers are weighted by their number.

    `backward` is a part of `compute`; `head` is the output's, beside the layers.
    """
    rows, number, (again,) = distinct(layout, _LAYER_BY, repeated_share(job, layout))
    seconds = _per_layer(job, rows, again)
    if number is not None:
        seconds = spread(seconds, number, len(rows.data))
    waiting = seconds.pop("waiting")  # when nothing runs beside the collectives
    expert = communication.overlapped_s(layout, seconds.pop("apart"), seconds.pop("beside"))
    return {
        **seconds,
        "tensor": np.where(_has_several_queues(job, layout), waiting, seconds["tensor"]),
        "expert": (1 - job.model.dense_layers / job.model.layers) * expert,
    }


def _per_layer(job: Job, layout: LayoutLike, again: Any) -> dict[str, Any]:
    stack = job.model.averaged
    attention, experts = (
        repeated(layout, module, again) for module in (Modules.CORE_ATTN, Modules.MOE)
    )
    total: dict[str, Any] = {"apart": 0.0, "beside": 0.0}
    times = compute.layer_times(job, layout)
    routing, left = sum(stack.counts) - job.model.dense_layers, 1.0
    for place, (layer, time) in enumerate(zip(stack.kinds, times, strict=True)):
        count = stack.counts[place]
        share = count / len(stack) if place < len(stack.kinds) - 1 else left
        left = left - share
        tensor, waiting = communication.tensor_s(job, layout, time, again, layer)
        parts = {
            "compute": time.forward_s + time.backward_s,
            "backward": time.backward_s,
            "recompute": again * time.forward_s + repeated_modules_s(job, layout, time, layer),
            "tensor": tensor,
            "waiting": waiting,
        }
        total |= {key: total.get(key, 0.0) + share * seconds for key, seconds in parts.items()}
        if layer.feed_forward.experts:
            exchanges = communication.expert_s(job, layout, time, experts, layer.feed_forward)
            for key, seconds in zip(("apart", "beside"), exchanges, strict=True):
                total[key] = total[key] + count / routing * seconds
    context = once_each(job, layout, communication.CONTEXT_BY, communication.context_s, attention)
    return {**total, "context": context, "head": compute.head_time_s(job, layout)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stages:
    """The stages that the step waits for, whatever the micro-batches and the recomputation."""

    slowest: Any  #: layers of the fuller of the first and the second
    last: Any  #: layers of the last
    waiting: Any  #: layers for which all stages wait in a turn of the pipeline
    sent: Traffic  #: of the heavier of the first and the second
    held: StageContents  #: of these two
    own: Any  #: parameters of these that one rank has a share of
    updated: Any  #: of these, those that it updates
    trained: Any  #: parameters that have gradients, on all ranks that share them
    orthogonal_s: Any  #: seconds of Muon's products; 0 with other optimizers


def _stages(job: Job, layout: LayoutLike) -> _Stages:
    inner = 1 * (layout.pipeline > 2)  # the second stage where it is not the last, else the first
    stages = np.stack([0 * inner, inner, layout.pipeline - 1])
    contents = stage_contents(job, layout, stages)
    held = replace(
        contents,
        kinds=tuple(count[:2].max(axis=0) for count in contents.kinds),
        shared=contents.shared[:2].max(axis=0),
        experts=contents.experts[:2].max(axis=0),
    )
    trained = adapters.trained(job, layout, held)
    return _Stages(
        slowest=contents.layers[:2].max(axis=0),
        last=contents.layers[2],
        waiting=waiting_layers(job, layout),
        sent=(units.traffic if job.engine.sharding == "units" else traffic)(job, layout, held),
        held=held,
        own=_own_parameters(layout, held),
        updated=_own_parameters(layout, trained),
        trained=trained.shared + trained.experts,
        orthogonal_s=muon.orthogonal_s(
            job, layout, tuple(count[:2].max(axis=0) for count in contents.kinds)
        )
        if muon.is_muon(job)
        else 0.0 * trained.shared,
    )


def _pipeline_s(job: Job, layout: LayoutLike, pace_s: Any) -> Any:
    """Exposed sends: forward and backward of each micro-batch, and filling.

    Interleaved sends hide behind compute.

    Those with which an interleaved pipeline fills and drains are waited for. **Source**:
    Megatron-LM core/pipeline_parallel/schedules.py, forward_backward_pipelining_with_interleaving
    (`num_warmup_microbatches`; `overlap_p2p_comm_warmup_flush` is off unless asked for).
    """
    m, p, v = layout.gradient_accumulation, layout.pipeline, layout.virtual_pipeline
    send = communication.boundary_s(job, layout)
    plain = 2 * (m + p - 1) * send
    alone = np.minimum(2 * (p - 1) + (v - 1) * p, m * v)
    beside = exposed_s(job, send, pace_s / (2 * v), rates(job).send_exposed_share * send)
    hidden = 2 * (m * v - alone) * beside + 2 * alone * send
    return np.where(p > 1, np.where(v > 1, hidden, plain), 0.0)


def _own_parameters(layout: LayoutLike, held: StageContents) -> Any:
    """Parameters that one rank updates."""
    cut = layout.zero_copies * (
        held.shared / (layout.data * layout.context) + held.experts / expert_replicas(layout)
    )
    cut = np.minimum(cut, held.shared + held.experts)
    return np.where(layout.zero_stage >= 1, cut, held.shared + held.experts)


def _offload_s(job: Job, layout: LayoutLike, stages: _Stages, micro_batch_s: Any) -> Any:
    """Copies over the host link and the CPU's optimizer step.

    Fetches of parameters that compute doesn't hide are in it.
    """
    if not np.any(layout.offload):
        return 0.0
    updated, constants = stages.updated, rates(job)
    link = job.cluster.accelerator.pcie_bytes_per_s * constants.pcie_fraction

    # The shards that lie on the host are updated there, or are 16-bit weights beside such.
    element = shard_bytes(job) if job.engine.shards_masters else weight_bytes(job)
    copy = updated * element / link

    # Gradients go to the host, the CPU updates, and weights come back.
    per_node = np.minimum(job.cluster.accelerators_per_node, layout.world)
    update = updated * per_node * constants.cpu_adam_s
    m = layout.gradient_accumulation
    sums_part = (layout.zero_stage >= 2) & np.logical_not(holds_whole_gradients(job, layout))
    gradients = np.where(sums_part, m, 1) * copy
    moved = layout.offload_fraction * (gradients + copy + update)
    optimizer = np.where(layout.offload >= Offload.OPTIMIZER, moved, 0.0)

    # The backward pass fetches hpZ's second copy, where there is one: the mean of both passes.
    shares = (1 + np.maximum(second_shares(layout), 1)) / 2
    fetch = shares * stages.own * element / link
    fetches = m * np.maximum(
        2 * fetch - constants.fetch_overlap * micro_batch_s, constants.fetch_exposed_share * fetch
    )
    return optimizer + np.where(layout.offload == Offload.OPTIMIZER_AND_PARAMETERS, fetches, 0.0)


def throughput(job: Job, layout: Layout, time: StepTime) -> Throughput:
    """Rates of one layout.

    MFU and HFU are over the datasheet's dense peak of the training precision.
    """
    seconds, gpus = float(time.total_s), layout.world
    accelerator, precision = job.cluster.accelerator, job.training.precision
    peak = accelerator.flops_per_s.get(precision) or max(accelerator.flops_per_s.values())
    # A layout that breaks the batch identity still has rates: those of the sequences it does train
    # on.
    share = layout.global_batch / job.training.global_batch
    model_flops = flops.model_flops_per_step(job) * share
    hardware_flops = float(flops.hardware_flops_per_step(job, layout)) * share
    tokens_per_s = layout.global_batch * job.training.sequence_length / seconds
    return Throughput(
        tokens_per_s=tokens_per_s,
        tokens_per_s_per_gpu=tokens_per_s / gpus,
        model_flops_per_step=model_flops,
        model_tflops_per_gpu=model_flops / seconds / gpus / 1e12,
        hardware_tflops_per_gpu=hardware_flops / seconds / gpus / 1e12,
        mfu=model_flops / seconds / gpus / peak,
        hfu=hardware_flops / seconds / gpus / peak,
    )


Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """A micro-batch's seconds as spread over stages, and over its forward and its backward pass."""

    stages: Floats  #: of each stage, over those of the slowest
    backward_compute: float  #: share of compute that is the backward pass's
    backward_talk: float  #: share of the communication within layers that is the backward pass's
    send_s: float  #: one send of activations, or of their gradients, to the next stage

    @property
    def pace(self) -> int:
        """The stage that sets the pace."""
        return int(np.argmax(self.stages))


def passes(job: Job, layout: Layout) -> Passes:
    """Spread the seconds of a micro-batch in one layout.

    **Source**: the stages of `step_time`: layers, and on the last the head. **Assumes** that the
    backward pass sends what the forward pass sends, and what is recomputed once more.
    """
    parts = per_layer(job, layout)
    output_s = float(parts.pop("head"))
    layer_s = float(sum(seconds for cause, seconds in parts.items() if cause != "backward"))
    stages = np.arange(layout.pipeline)
    layers = np.asarray(stage_contents(job, layout, stages).layers, float)
    head = output_s * (stages == layout.pipeline - 1)
    each = layers * layer_s + head
    slowest = int(np.argmax(each))
    back = layers[slowest] * float(parts["backward"]) + head[slowest] * BACKWARD_SHARE
    again = float(repeated_share(job, layout))
    return Passes(
        stages=each / each[slowest],
        backward_compute=back / (layers[slowest] * float(parts["compute"]) + head[slowest]),
        backward_talk=(1 + again) / (2 + again),
        send_s=float(boundary_s(job, layout)),
    )
