"""The step-time ledger: seconds of one optimizer step by cause, each the exposed part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..catalog.layers.stack import Stack
from ..dataclass import dataclass
from ..job.records import Job
from . import adapters, communication, compute, flops, muon, units
from .alike import distinct, once_each
from .communication import TRAFFIC_BY, Traffic, boundary_s, traffic
from .compute import repeated, repeated_modules_s, repeated_share
from .groups import segment
from .layout import Layout, LayoutLike, Modules, Offload
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
    layer = per_layer(job, layout)
    head = layer.pop("head")
    layer_total = _layer_total_s(layer)
    stages = once_each(job, layout, (*HELD_BY, *TRAFFIC_BY), _stages)
    slowest = stages.slowest
    output = _output_s(layout, stages, layer_total, head)

    # A micro-batch on the slowest stage, and what the pipeline waits beside it.
    pace = slowest * layer_total + output
    compute = slowest * layer["compute"] + output
    backward = slowest * layer["backward"] + output * BACKWARD_SHARE
    recompute = slowest * layer["recompute"]
    all_stages = job.model.layers * layer_total + head
    bubble = np.where(layout.pipeline > 1, (all_stages - pace) / v, 0.0)
    waits = m / layout.pipeline * stages.waiting * layer_total

    times = {
        "compute_s": m * (compute + _sums_s(job, layout, stages)),
        "recompute_s": m * recompute,
        "tensor_s": m * slowest * layer["tensor"],
        "context_s": m * slowest * layer["context"],
        "expert_s": m * slowest * layer["expert"],
        "pipeline_s": _pipeline_s(job, layout, pace),
        "bubble_s": np.maximum(bubble, 0.0) + waits,
        "data_s": _data_s(job, layout, stages, compute - backward, backward + recompute),
        "optimizer_s": _optimizer_s(job, layout, stages),
        "offload_s": _offload_s(job, layout, stages, compute),
    }
    return StepTime(**times, total_s=sum(times.values()))


def _layer_total_s(layer: Mapping[str, Any]) -> Any:
    """Seconds of a layer, of its causes together: `backward` is a part of `compute`."""
    return sum(seconds for cause, seconds in layer.items() if cause != "backward")


def _sums_s(job: Job, layout: LayoutLike, stages: _Stages) -> Any:
    """Seconds in which a micro-batch's gradients are added to those of the ones before it.

    Where the product doesn't add them, the gradient is read, and the sum read and written. ZeRO 2
    and 3 sum only their part.
    """
    if job.framework.sums_in_product:
        return 0.0
    sums_whole = holds_whole_gradients(job, layout)
    sums_part = (layout.zero_stage >= 2) & np.logical_not(sums_whole)
    parameters = np.where(sums_part, stages.updated, stages.trained)
    sum_bytes = np.where(sums_whole, whole_gradient_bytes(job), summed_bytes(job))
    moved = (weight_bytes(job) + 2 * sum_bytes) * parameters
    return np.where(layout.gradient_accumulation > 1, stream_s(job, moved), 0.0)


def _optimizer_s(job: Job, layout: LayoutLike, stages: _Stages) -> Any:
    """Seconds of the update on the device, which is memory traffic, with Muon's products.

    Gradient, master weight and moments are read, all but the gradient written.
    """
    share_here = np.where(layout.offload == Offload.NONE, 1.0, 1.0 - layout.offload_fraction)
    moved = shard_bytes(job) + 2 * (master_bytes(job) + moment_bytes(job))
    moved = moved + (0 if job.engine.shards_masters else weight_bytes(job))
    update = stream_s(job, stages.updated * share_here * moved)
    return update + stages.orthogonal_s + rates(job).step_start_s


def _output_s(layout: LayoutLike, stages: _Stages, layer_total_s: Any, head_s: Any) -> Any:
    """Seconds of the head and its loss that the step waits for in each micro-batch.

    In a pipeline it waits for what makes the last stage slower than the others.
    """
    excess = np.maximum(head_s - (stages.slowest - stages.last) * layer_total_s, 0.0)
    return np.where(layout.pipeline > 1, excess, head_s)


#: What `compute_parts` divides the compute of a step into.
COMPUTE_PARTS = ("products", "attention", "experts", "output", "other")


def compute_parts(job: Job, layout: Layout) -> dict[str, float]:
    """Seconds of `compute_s` by kind of work, which add up to it.

    `products`: matrix products but those of routed experts; `attention`: the cores of mixers;
    `experts`: products of routed experts, with the router; `output`: the head and the loss, as far
    as the step waits for them; `other`: operations that move data, launches, sums of gradients.
    """
    stages = once_each(job, layout, (*HELD_BY, *TRAFFIC_BY), _stages)
    stack, m = job.model.averaged, layout.gradient_accumulation
    of_layer = dict.fromkeys(("products", "attention", "experts"), 0.0)
    for count, kind, time in zip(
        stack.counts, stack.kinds, compute.layer_times(job, layout), strict=True
    ):
        share = count / len(stack)
        routed = _both(time.mlp) - _both(time.shared) if kind.feed_forward.experts else 0.0
        of_layer["products"] += share * (_both(time.products) - routed)
        of_layer["attention"] += share * _both(time.core)
        of_layer["experts"] += share * routed
    parts = {name: float(m * stages.slowest * seconds) for name, seconds in of_layer.items()}

    layer = per_layer(job, layout)
    head = layer.pop("head")
    parts["output"] = float(m * _output_s(layout, stages, _layer_total_s(layer), head))
    all_compute = float(step_time(job, layout).compute_s)
    return parts | {"other": max(all_compute - sum(parts.values()), 0.0)}


def _both(passes: Any) -> float:
    """Seconds of both passes of an operation."""
    return float(passes.forward_s + passes.backward_s)


def _data_s(job: Job, layout: LayoutLike, stages: _Stages, forward_s: Any, backward_s: Any) -> Any:
    """Exposed communication between replicas, by how the engine shards states."""
    if job.engine.sharding == "units":
        return units.data_s(job, layout, stages.sent, stages.held, forward_s, backward_s)
    return communication.data_s(job, layout, stages.sent, forward_s, backward_s)


def _has_several_queues(job: Job, layout: LayoutLike) -> Any:
    """Tell where collectives can't be made to start before the product that they run beside.

    Before Blackwell that takes a single hardware queue (CUDA_DEVICE_MAX_CONNECTIONS=1), which
    Megatron's FSDP refuses. **Source**: Megatron-LM training/arguments.py:1049, 1453-1479 @
    core_v0.16.1.
    """
    refused_from = job.engine.several_queues_from
    if refused_from is None or not job.cluster.accelerator.generation.one_queue:
        return layout.zero_stage < 0  # nowhere
    return layout.zero_stage >= refused_from


#: Fields that an average layer's time depends on, beside the share of layers that is repeated.
_LAYER_TIME_BY = (
    "tensor",
    "context",
    "context_heads",
    "expert",
    "expert_tensor",
    "sequence_parallel",
    "micro_batch",
    "recompute",
    "recompute_modules",
    "tensor_overlap",
    "expert_overlap",
)


def per_layer(job: Job, layout: LayoutLike) -> dict[str, Any]:
    """Seconds of an average layer and one micro-batch, by cause.

    The model's kinds of layers are weighted by their number. `backward` is a part of `compute`;
    `head` is the output's, beside the layers.
    """
    # Layouts in other segments differ in what their groups reach.
    once = distinct(layout, _LAYER_TIME_BY, repeated_share(job, layout), segment(job, layout))
    seconds = once.spread(_average_layer(job, once.layout, once.columns[0]))

    # What is left depends on fields that `_average_layer` doesn't read.
    tensor_waiting = seconds.pop("tensor_waiting")
    expert = communication.overlapped_s(
        layout, seconds.pop("expert_waiting"), seconds.pop("expert_overlapped")
    )
    expert_share = 1 - job.model.dense_layers / job.model.layers
    return {
        **seconds,
        "tensor": np.where(_has_several_queues(job, layout), tensor_waiting, seconds["tensor"]),
        "expert": expert_share * expert,
    }


def _average_layer(job: Job, layout: LayoutLike, again: Any) -> dict[str, Any]:
    """Seconds by cause of an average layer, of which a share `again` repeats its forward pass.

    Collectives come in two ways: as they are exposed, and as they are where nothing runs beside
    them (`waiting`). Of experts they are those of an average layer with experts.
    """
    stack = job.model.averaged
    repeats_attention = repeated(layout, Modules.CORE_ATTN, again)
    repeats_experts = repeated(layout, Modules.MOE, again)
    layers_with_experts = len(stack) - job.model.dense_layers

    causes = ("compute", "backward", "recompute", "tensor", "tensor_waiting")
    total: dict[str, Any] = dict.fromkeys((*causes, "expert_waiting", "expert_overlapped"), 0.0)
    for share, count, layer, time in zip(
        _shares(stack), stack.counts, stack.kinds, compute.layer_times(job, layout), strict=True
    ):
        tensor, tensor_waiting = communication.tensor_s(job, layout, time, again, layer)
        repeated_s = again * time.forward_s + repeated_modules_s(job, layout, time, layer)
        of_kind = {
            "compute": share * (time.forward_s + time.backward_s),
            "backward": share * time.backward_s,
            "recompute": share * repeated_s,
            "tensor": share * tensor,
            "tensor_waiting": share * tensor_waiting,
        }
        if layer.feed_forward.experts:
            waiting, overlapped = communication.expert_s(
                job, layout, time, repeats_experts, layer.feed_forward
            )
            of_kind["expert_waiting"] = count / layers_with_experts * waiting
            of_kind["expert_overlapped"] = count / layers_with_experts * overlapped
        total |= {cause: total[cause] + seconds for cause, seconds in of_kind.items()}
    context = once_each(
        job,
        layout,
        communication.CONTEXT_BY,
        communication.context_s,
        repeats_attention,
        segment(job, layout),
    )
    return {**total, "context": context, "head": compute.head_time_s(job, layout)}


def _shares(stack: Stack) -> list[float]:
    """The share of each kind among the layers, which add up to 1 in floating point too."""
    *shares, _ = (count / len(stack) for count in stack.counts)
    last = 1.0
    for share in shares:
        last -= share
    return [*shares, last]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stages:
    """The stages that the step waits for, whatever the micro-batches and the recomputation.

    The slowest is the first or the second: by each figure the larger of these two.
    """

    slowest: Any  #: layers of the slowest
    last: Any  #: layers of the last
    waiting: Any  #: layers for which all stages wait in a turn of the pipeline
    sent: Traffic  #: of the slowest
    held: StageContents  #: what the slowest holds
    own: Any  #: its parameters that lie on one rank
    updated: Any  #: its parameters that one rank updates
    trained: Any  #: its parameters that have gradients, on all ranks that share them
    orthogonal_s: Any  #: seconds of Muon's products; 0 with other optimizers


def _stages(job: Job, layout: LayoutLike) -> _Stages:
    inner = 1 * (layout.pipeline > 2)  # the second stage where it is not the last, else the first
    contents = stage_contents(job, layout, np.stack([0 * inner, inner, layout.pipeline - 1]))
    held = replace(
        contents,
        kinds=tuple(count[:2].max(axis=0) for count in contents.kinds),
        shared=contents.shared[:2].max(axis=0),
        again=contents.again[:2].max(axis=0),
        experts=contents.experts[:2].max(axis=0),
    )
    trained = adapters.trained(job, layout, held)
    orthogonal_s = 0.0 * trained.shared
    if muon.is_muon(job):
        orthogonal_s = muon.orthogonal_s(job, layout, held.kinds)
    traffic_of = units.traffic if job.engine.sharding == "units" else traffic
    return _Stages(
        slowest=contents.layers[:2].max(axis=0),
        last=contents.layers[2],
        waiting=waiting_layers(job, layout),
        sent=traffic_of(job, layout, held),
        held=held,
        own=_own_parameters(layout, held),
        updated=_own_parameters(layout, trained),
        trained=trained.shared + trained.experts,
        orthogonal_s=orthogonal_s,
    )


def _pipeline_s(job: Job, layout: LayoutLike, pace_s: Any) -> Any:
    """Exposed sends: forward and backward of each micro-batch, and those that fill the pipeline.

    Interleaved sends hide behind compute, but for those that fill and drain the pipeline.
    **Source**: Megatron-LM core/pipeline_parallel/schedules.py,
    forward_backward_pipelining_with_interleaving (`num_warmup_microbatches`;
    `overlap_p2p_comm_warmup_flush` is off unless asked for).
    """
    m, p, v = layout.gradient_accumulation, layout.pipeline, layout.virtual_pipeline
    send = communication.boundary_s(job, layout)
    plain = 2 * (m + p - 1) * send
    waited_for = np.minimum(2 * (p - 1) + (v - 1) * p, m * v)
    hidden_send = exposed_s(job, send, pace_s / (2 * v), rates(job).send_exposed_share * send)
    interleaved = 2 * (m * v - waited_for) * hidden_send + 2 * waited_for * send
    return np.where(p > 1, np.where(v > 1, interleaved, plain), 0.0)


def _own_parameters(layout: LayoutLike, held: StageContents) -> Any:
    """The share of one rank in parameters that ZeRO cuts; all of them where it cuts nothing."""
    whole = held.shared + held.experts
    share = layout.zero_copies * (
        held.shared / (layout.data * layout.context) + held.experts / expert_replicas(layout)
    )
    return np.where(layout.zero_stage >= 1, np.minimum(share, whole), whole)


def _offload_s(job: Job, layout: LayoutLike, stages: _Stages, micro_batch_s: Any) -> Any:
    """Copies over the host link, the CPU's update, and fetches that compute doesn't hide."""
    if not np.any(layout.offload):
        return 0.0
    constants, m = rates(job), layout.gradient_accumulation
    link = job.cluster.accelerator.pcie_bytes_per_s * constants.pcie_fraction

    # What moves is of the type in which shards are computed with: masters, or weights beside them.
    element = shard_bytes(job) if job.engine.shards_masters else weight_bytes(job)
    weights = stages.updated * element / link

    # Gradients go to the host, the CPUs of a node update for all its ranks, and weights come back.
    ranks_per_node = np.minimum(job.cluster.accelerators_per_node, layout.world)
    update = stages.updated * ranks_per_node * constants.cpu_adam_s
    sums_part = (layout.zero_stage >= 2) & np.logical_not(holds_whole_gradients(job, layout))
    gradients = np.where(sums_part, m, 1) * weights
    offloaded = layout.offload_fraction * (gradients + weights + update)
    optimizer = np.where(layout.offload >= Offload.OPTIMIZER, offloaded, 0.0)

    # The backward pass fetches hpZ's second copy, where there is one: the mean of both passes.
    shares = (1 + np.maximum(second_shares(layout), 1)) / 2
    fetch = shares * stages.own * element / link
    not_overlapped = 2 * fetch - constants.fetch_overlap * micro_batch_s
    fetches = m * np.maximum(not_overlapped, constants.fetch_exposed_share * fetch)
    return optimizer + np.where(layout.offload == Offload.OPTIMIZER_AND_PARAMETERS, fetches, 0.0)


def throughput(job: Job, layout: Layout, time: StepTime) -> Throughput:
    """Rates of one layout.

    MFU and HFU are over the datasheet's dense peak of the precision that layers compute in.
    """
    seconds, gpus = float(time.total_s), layout.world
    accelerator, precision = job.cluster.accelerator, job.computes_in
    peak = accelerator.flops_per_s.get(precision) or max(accelerator.flops_per_s.values())
    # A layout that breaks the batch identity trains on other than the job's batch.
    batch_share = layout.global_batch / job.training.global_batch
    model_flops = flops.model_flops_per_step(job) * batch_share
    hardware_flops = float(flops.hardware_flops_per_step(job, layout)) * batch_share
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
    """How a micro-batch's seconds spread over stages, and over its forward and backward pass."""

    stages: Floats  #: of each stage, over those of the slowest
    backward_compute: float  #: share of compute that is the backward pass's
    backward_talk: float  #: share of the communication within layers that is the backward pass's
    send_s: float  #: one send of activations, or of their gradients, to the next stage

    @property
    def pace(self) -> int:
        """The stage that sets the pace."""
        return int(np.argmax(self.stages))


def passes(job: Job, layout: Layout) -> Passes:
    """How a micro-batch's seconds spread over stages and passes in one layout.

    **Source**: the stages of `step_time`: layers, and on the last the head. **Assumes** that the
    backward pass sends what the forward pass sends, and what is recomputed once more.
    """
    layer = per_layer(job, layout)
    output_s = float(layer.pop("head"))
    layer_s = float(_layer_total_s(layer))
    layers = np.asarray(stage_contents(job, layout, np.arange(layout.pipeline)).layers, float)
    head = output_s * (np.arange(layout.pipeline) == layout.pipeline - 1)
    stage_s = layers * layer_s + head

    slowest = int(np.argmax(stage_s))
    compute_s = layers[slowest] * float(layer["compute"]) + head[slowest]
    backward_s = layers[slowest] * float(layer["backward"]) + head[slowest] * BACKWARD_SHARE
    again = float(repeated_share(job, layout))
    return Passes(
        stages=stage_s / stage_s[slowest],
        backward_compute=backward_s / compute_s,
        backward_talk=(1 + again) / (2 + again),
        send_s=float(boundary_s(job, layout)),
    )
