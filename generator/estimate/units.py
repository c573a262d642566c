"""FSDP2: units of a model that are gathered and freed, their buffers and their traffic.

A unit is what one call of `fully_shard` takes: each layer, the embedding, and the head with the
norm before it, which stays gathered from its forward to its backward pass; with tied embeddings all
three are one unit, which stays gathered from the first layer on. Each parameter is cut by its rows.

States and collectives were counted with torch itself, on CPU (tests/programs/test_fsdp.py).

**Source**: torch 2.13, torch/distributed/fsdp/_fully_shard; accelerate 1.15, utils/fsdp_utils.py,
`fsdp2_prepare_model`.

**Symbols**: b bytes of a weight as computed with, r of a gradient as sent.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dataclass import dataclass
from ..job.records import Job
from .adapters import adapter_parameters, base_share, trained
from .backward import table_gradient_bytes, weight_gradient_bytes
from .collectives import all_gather_s, all_reduce_s
from .communication import Traffic
from .groups import group
from .layout import LayoutLike, Offload
from .model_size import embedding_parameters, final_parameters
from .products import exposed_s, stream_s
from .stages import StageContents
from .states import holds_whole_gradients, reduced_bytes, weight_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffers:
    """Device bytes of what is gathered and sent, at their peak beside a layer's backward pass."""

    layers: Any
    at_loss: Any = 0.0  #: bytes more, or fewer, beside the logits and the loss
    at_head: Any = 0.0  #: bytes more, or fewer, beside the head's gradients, when logits are gone


def expert_padding(job: Job, ranks: Any) -> Any:
    """Elements of stacked experts with those that fill up the parts, over those without.

    The experts of a layer are one tensor, of which each rank has as many whole experts as the first
    one. **Source**: torch 2.13, _fsdp_param.py, `_init_sharded_param`: torch.chunk along dimension
    0, padded to the size of the first part.
    """
    experts = max(job.model.experts, 1)
    return ranks * np.ceil(experts / ranks) / experts


def _layer_parameters(job: Job) -> int:
    """Parameters of the largest kind of layer."""
    return job.model.averaged.largest.parameters


def _trained_of_layer(job: Job) -> float:
    """Parameters of that layer which have gradients: of LoRA, an average layer's adapters."""
    if job.training.lora is None:
        return float(_layer_parameters(job))
    return adapter_parameters(job) / job.model.layers


def buffer_bytes(job: Job, layout: LayoutLike, held: StageContents, rows: Any) -> Buffers:
    """Bytes of gathered parameters and of gradients on their way, by what runs beside them.

    Backward, a layer has its parameters (b) and gradients (b) beside the gathered parameters of the
    next (b) and the gradients of the one before that are being sent (r). Forward there are three
    times b: the next layer's parameters arrive in a tensor of their own before they are copied
    apart. The activations' ledger has the largest weight gradient of a layer, which is left out
    here. Stage 2 gathers nothing backward: it frees a unit as its gradients are sent.

    **Source**: torch 2.13, _fsdp_param_group.py, `unshard`, `wait_for_unshard`, `post_backward`
    (one reduction in flight), _fsdp_collectives.py. **Assumes** that a unit's neighbours are as
    large as the largest layer.
    """
    b, r = weight_bytes(job), reduced_bytes(job)
    stored_share = base_share(job)
    trains_all = job.training.lora is None
    layer = b * stored_share * _layer_parameters(job)
    gradients = _trained_of_layer(job)  # elements
    table = table_gradient_bytes(job, rows)  # of b bytes each
    head_gradients = table * trains_all

    counted = weight_gradient_bytes(job, layout) if trains_all else 0.0
    own = np.maximum(b * gradients - counted, 0.0)
    of_layer = 2 * layer + own + r * gradients
    after_head = 2 * layer + own + r / b * head_gradients
    freed = np.maximum(np.maximum(of_layer, after_head), 3 * layer)
    at_loss = table + layer
    at_head = layer + (1 + r / b) * head_gradients
    if job.model.tied_embeddings:  # its gradient comes first and goes last
        freed = freed + table + head_gradients
        at_head = at_head + table

    parameters = b * stored_share * (held.shared + held.experts)
    sent = np.maximum(r * gradients, r / b * head_gradients)
    kept = parameters + np.maximum(layer, np.maximum(own, sent))
    stays = layout.zero_stage < 3
    layers = np.where(stays, kept, freed)
    return Buffers(
        layers=layers,
        at_loss=np.where(stays, parameters + layer, at_loss) - layers,
        at_head=np.where(stays, parameters + sent, at_head) - layers,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """Collectives of one micro-batch, and the elements of their whole tensors."""

    gathers: Any  #: in the forward pass
    gathered: Any
    gathers_again: Any  #: in the backward pass
    gathered_again: Any
    reductions: Any
    reduced: Any


def moved(job: Job, layout: LayoutLike, held: StageContents) -> Moved:
    """What units move: all parameters forward, at stage 3 all but the head's backward, and all
    gradients of what is trained.

    Padding of stacked experts counts as elements; a quantized base counts as the elements that
    would fill its bytes. With LoRA, layers alone have gradients.
    """
    ranks = layout.data * layout.context / layout.zero_copies
    padding, updated = expert_padding(job, ranks), trained(job, layout, held)
    ends = 1 if job.model.tied_embeddings else 2  # the embedding, and the head
    units = job.model.layers + ends + 0 * layout.data
    gathered = base_share(job) * (held.shared + padding * held.experts)
    head = embedding_parameters(job.model) + final_parameters(job.model)
    again = layout.zero_stage >= 3
    return Moved(
        gathers=units,
        gathered=gathered,
        gathers_again=again * (units - 1),
        gathered_again=again * np.maximum(gathered - head, 0.0),
        reductions=units if job.training.lora is None else units - ends,
        reduced=updated.shared + padding * updated.experts,
    )


def traffic(job: Job, layout: LayoutLike, held: StageContents) -> Traffic:
    """Seconds to gather all units once, forward and backward, and to reduce their gradients once.

    Copies of the shards (HSDP) sum theirs after each reduction, over the ranks that have the same
    part.

    **Source**: torch 2.13, _fsdp_param_group.py; the ranks of a shard group follow one another
    (accelerate 1.15, parallelism_config.py, `_get_mesh`).
    """
    ranks = layout.data * layout.context / layout.zero_copies
    ring = group(job, ranks, 1, layout)
    across = group(job, layout.zero_copies, ring.size, layout)
    b, units = weight_bytes(job), moved(job, layout, held)
    sent = reduced_bytes(job) * units.reduced
    part = all_reduce_s(job, across, sent / ranks / units.reductions)
    return Traffic(
        reduce_s=all_gather_s(job, ring, sent, units.reductions),
        across_s=np.where(layout.zero_copies > 1, units.reductions * part, 0.0),
        gather_s=all_gather_s(job, ring, b * units.gathered, units.gathers),
        near_s=all_gather_s(job, ring, b * units.gathered_again, units.gathers_again),
        messages=units.reductions,
    )


def data_s(
    job: Job,
    layout: LayoutLike,
    sent: Traffic,
    held: StageContents,
    forward_s: Any,
    backward_s: Any,
) -> Any:
    """Exposed gathers and reductions of a step, with the copies around them.

    Each micro-batch gathers every unit before its forward pass and, at stage 3, once more before
    its backward pass; recomputation gathers nothing more. One unit is gathered ahead. Backward,
    gathers and reductions share a communicator and follow one another, beside compute; the
    embedding's reduction comes last, beside nothing. Nothing is gathered after the update.
    Gradients that are whole until the last micro-batch are reduced in its backward pass alone.

    A gathered unit is copied apart (read and written), and its gradients are copied into the buffer
    that is sent.

    **Source**: torch 2.13, _fsdp_collectives.py (foreach_all_gather_copy_out, foreach_reduce),
    _fsdp_param_group.py (`_prefetch_unshard`, `all_gather_process_group`).
    **Symbols**: `forward_s` and `backward_s` are one micro-batch's compute, recomputation included
    in the latter.
    """
    m = layout.gradient_accumulation
    synced = np.where(holds_whole_gradients(job, layout), 1, m)
    b = weight_bytes(job)
    parameters = held.shared + held.experts
    # The embedding's share of all bytes: it is gathered first, before anything that could hide it.
    first = b * job.model.vocab * job.model.hidden / (b * np.maximum(parameters, 1.0))
    again = sent.near_s

    # A node's host waits for every reduced gradient that it updates itself.
    window = np.where(layout.offload == Offload.NONE, backward_s, 0.5 * backward_s)
    forward = exposed_s(job, sent.gather_s, forward_s, first * sent.gather_s)
    alone = exposed_s(job, again, backward_s)
    last = sent.reduce_s / sent.messages
    with_reduction = exposed_s(job, again + sent.reduce_s, window, last)
    across = exposed_s(job, sent.across_s, window, sent.across_s / sent.messages)

    copied = 2 * b * parameters * (1 + (layout.zero_stage >= 3))
    updated = trained(job, layout, held)
    reduced = (b + reduced_bytes(job)) * (updated.shared + updated.experts)
    copies = stream_s(job, m * copied + synced * reduced)
    return m * forward + (m - synced) * alone + synced * (with_reduction + across) + copies
