"""Compute: seconds of a layer and of the head on one rank."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..catalog.layers.feed_forward import FeedForward
from ..catalog.layers.mixer import Mixer
from ..catalog.layers.softmax import SoftmaxAttention
from ..catalog.layers.stack import Layer
from ..dataclass import dataclass
from ..job.records import Job
from .activations import (
    local_tokens,
    repeated_layers,
    repeats,
    routed_bytes_per_token,
    sequence_cut,
)
from .alike import once_each
from .groups import sends_tokens_once_per_rank
from .host import ROUTING_KERNELS, start_s, with_launches
from .layout import LayoutLike, Modules, Recompute
from .products import (
    Passes,
    adapter_products,
    datasheet_flops_per_s,
    linear,
    stream_s,
    tile_use,
)
from .rates import rates
from .stages import inner_layers, vocabulary_rows
from .states import fp8_copies, product_bytes, weight_bytes


def busiest(job: Job, layout: LayoutLike, part: FeedForward) -> Any:
    """Tokens of the expert rank that has most, over the mean.

    A router without preferences throws `n = tokens * top_k` balls into e ranks: a rank's load has
    the mean n/e and the variance n/e (1 - 1/e); the largest of e normal variables lies `sqrt(2 ln
    e)` standard deviations above the mean. **Assumes** the balance that the auxiliary losses aim
    at; 2 is what a rank has at most when capacity is bounded.
    """
    if not part.experts:
        return 1.0 + 0.0 * layout.expert
    ranks = layout.expert
    group_tokens = local_tokens(job, layout) * ranks * layout.expert_tensor / layout.tensor
    mean = group_tokens * part.per_token / ranks
    return np.minimum(1 + np.sqrt(2 * np.log(ranks) * (1 - 1 / ranks) / mean), 2.0)


#: 16-bit transfers of one attention score in a forward pass: written and read by product, softmax
#: and dropout. Eager mode scales and masks by themselves and has its softmax in fp32; counted from
#: the operators, not measured.
_FUSED_SCORE_TRANSFERS = 6
_EAGER_SCORE_TRANSFERS = 18
#: Backward over forward for streaming kernels: reads the gradient and the saved input, writes one.
_STREAM_BACKWARD = 1.5
#: Flash attention's backward FLOPs over its forward's (2205.14135 appendix B: five products for
#: two).
_FLASH_BACKWARD = 2.5
#: Exponentials a second (2407.08608 sec 3.1, H100; of this order on A100 and B200), and the head
#: size that attention's rates were measured with.
_EXPONENTIALS_PER_S = 3.9e12
_USUAL_HEAD = 128
#: Streaming kernels of a fused layer's forward pass: norms, residual additions, rotary, activation;
#: counted from Megatron-LM's modules.
_KERNELS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTime:
    """Seconds of one layer, one micro-batch, one rank."""

    forward_s: Any
    backward_s: Any
    core: Passes  #: attention's core, which selective recomputation repeats
    products: Passes  #: all matrix products
    mlp: Passes  #: of these the MLP's or the experts', shared ones included
    shared: Passes  #: of these the shared experts'
    latents: Passes  #: of these the products of states narrower than the hidden one


#: Speed of kernels that carry a state along the sequence, over what flash attention's rates and
#: the memory's allow: Triton's, by chunks, with states in fp32 between them. **Source**: Nemotron 3
#: Nano and 3.5 Lightning on B200, B300, GB200, GB300 and H100, tokens per second in
#: docs/performance-summary.md of NVIDIA-NeMo/Megatron-Bridge @ 067f987df: 0.21 to 0.41 by machine;
#: each machine's steps are within 10 % with the mean of the others, as `benchmarks.hybrid`
#: prints.
_SCAN_SHARE: Final = 0.25

#: Fields that the products of a layer depend on, beside its tokens.
_PRODUCTS_BY = ("tensor", "expert", "expert_tensor", "sequence_parallel", "expert_overlap")


def layer_times(job: Job, layout: LayoutLike) -> tuple[LayerTime, ...]:
    """Seconds of one layer of each kind that the model has."""
    return once_each(job, layout, _PRODUCTS_BY, _layer_times, local_tokens(job, layout))


def _layer_times(job: Job, layout: LayoutLike, tokens: Any) -> tuple[LayerTime, ...]:
    stack = job.model.averaged
    mixed = once_each(job, layout, ("tensor",), _mixers, tokens)
    by_mixer = dict(zip(stack.mixers, mixed, strict=True))
    return tuple(
        _layer_time(job, layout, tokens, layer, *by_mixer[layer.mixer]) for layer in stack.kinds
    )


def _mixers(job: Job, layout: LayoutLike, tokens: Any) -> tuple[tuple[Passes, Passes, Passes], ...]:
    """Seconds of each kind of mixer: its core, all its products, and of these those of narrower
    states.
    """
    return tuple(_mixer(job, layout, tokens, mixer) for mixer in job.model.averaged.mixers)


def _mixer(
    job: Job, layout: LayoutLike, tokens: Any, mixer: Mixer
) -> tuple[Passes, Passes, Passes]:
    products = latents = Passes(0.0, 0.0)
    for product in mixer.products:
        products = products + linear(job, tokens, *product.of_rank(layout.tensor))
    for product in mixer.latent_products:
        latents = latents + linear(job, tokens, *product.of_rank(layout.tensor))
    return core_time(job, layout, mixer), products + latents, latents


def _layer_time(
    job: Job,
    layout: LayoutLike,
    tokens: Any,
    layer: Layer,
    core: Passes,
    products: Passes,
    latents: Passes,
) -> LayerTime:
    """Add to a mixer the rest of a layer."""
    mlp, shared = _feed_forward(job, layout, tokens, layer.feed_forward)
    products = products + mlp
    whole = products + core + _streams(job, layout, tokens, layer)
    if job.training.lora is not None:
        added, moved = adapter_products(job, layout, tokens, layer)
        whole = whole + added + moved
    experts = Passes(mlp.forward_s - shared.forward_s, mlp.backward_s - shared.backward_s)
    launched = with_launches(job, layout, layer, whole, experts)
    return LayerTime(
        forward_s=launched.forward_s,
        backward_s=launched.backward_s,
        core=core,
        products=products,
        mlp=mlp,
        shared=shared,
        latents=latents,
    )


def _mlp(
    job: Job, part: FeedForward, rows: Any, width: Any, count: Any = 1, hidden: int | None = None
) -> Passes:
    """Seconds of both products of an MLP, `count` times."""
    first, second = part.products(width, hidden)
    return linear(job, rows, first.inputs, first.outputs, count) + linear(
        job, rows, second.inputs, second.outputs, count
    )


def _feed_forward(
    job: Job, layout: LayoutLike, tokens: Any, part: FeedForward
) -> tuple[Passes, Passes]:
    """A feed-forward's products, and of these those of shared experts.

    A rank's experts run one after the other, each with its share of the tokens of the busiest rank.
    Tensor ranks that don't cut the experts have other tokens each.
    """
    whole = Passes(0.0, 0.0)
    if part.width:
        whole = _mlp(job, part, tokens, part.width / layout.tensor)
    if not part.experts:
        return whole, Passes(0.0, 0.0)

    tensor, cut, held = layout.tensor, layout.expert_tensor, part.experts / layout.expert
    constants = rates(job)
    rows = tokens * busiest(job, layout, part) * (cut / tensor) * part.per_token / held
    routed = _mlp(job, part, rows, part.expert_width / cut, held, part.routed_hidden)
    if job.replays_experts:  # one kernel has all experts
        saved = (held - 1) * constants.product_start_s
        routed = routed + Passes(-2 * saved, -4 * saved)
    for inputs, outputs in part.latent_products:
        routed = routed + linear(job, tokens / sequence_cut(layout), inputs, outputs)
    router = linear(job, tokens / sequence_cut(layout), part.hidden, part.experts)
    return routed + router + whole, whole


def core_time(job: Job, layout: LayoutLike, mixer: Mixer) -> Passes:
    """Seconds of a mixer's core, or of those side by side."""
    total = Passes(0.0, 0.0)
    for part in mixer.parts:
        if isinstance(part, SoftmaxAttention):
            total = total + _attention(job, layout, part)
        else:
            total = total + _scan(job, layout, part)
    return total


def _scan(job: Job, layout: LayoutLike, mixer: Mixer) -> Passes:
    """Seconds of a core without softmax: its arithmetic at attention's rates, or what it moves,
    both over the share that its kernels reach; in fp32 at the rates of products.

    **Assumes** that kernels of all kinds with a state reach the share of Mamba-2's, which alone
    were measured.
    """
    accelerator, constants = job.cluster.accelerator, rates(job)
    tokens, sequence = local_tokens(job, layout) / layout.tensor, job.training.sequence_length
    flops, elements = mixer.computed_flops(sequence), mixer.core_elements(sequence)
    if not flops:
        return Passes(0.0, 0.0)
    rate = accelerator.flops_per_s.get("bf16") or accelerator.flops_per_s["fp16"]
    moved = stream_s(job, tokens * elements * weight_bytes(job))
    moved_back = stream_s(job, tokens * mixer.backward_elements(sequence) * weight_bytes(job))
    start = constants.attention_start_s
    if mixer.core_precision == "fp32":
        rate = accelerator.flops_per_s.get("fp32") or rate
        work = tokens * flops / (rate * constants.product_fraction)
        return Passes(work + moved + start, (2 * work + moved_back) * mixer.core_trains)
    work = tokens * flops / rate / constants.attention_kernel_share / _SCAN_SHARE
    if not any(mixer.stepwise):  # else the kernels are torch's own
        moved, moved_back = moved / _SCAN_SHARE, moved_back / _SCAN_SHARE
    return Passes(
        np.maximum(work / constants.attention_forward_fraction, moved) + start,
        np.maximum(2 * work / constants.attention_backward_fraction, moved_back) + start,
    )


def _attention(job: Job, layout: LayoutLike, mixer: SoftmaxAttention) -> Passes:
    """Seconds of softmax(QK)V: flash attention skips what is masked, unfused attention computes and
    stores it all.
    """
    accelerator, constants, tokens = job.cluster.accelerator, rates(job), local_tokens(job, layout)
    queries, _, values = mixer.widths
    sequence = job.training.sequence_length
    per_key = 2 * tokens * (queries + values) / layout.tensor
    rate = accelerator.flops_per_s.get("bf16") or accelerator.flops_per_s["fp16"]
    rate = rate * tile_use(mixer.head_dim)
    if job.training.attention == "flash":
        rate = rate * constants.attention_kernel_share / _exponential_slowdown(job, mixer, rate)
        work = per_key * mixer.span.computed_keys(sequence) / rate
        forward_fraction = constants.attention_forward_fraction
        backward_fraction = constants.attention_backward_fraction
        if queries > _USUAL_HEAD * mixer.heads:
            forward_fraction = constants.wide_forward_share * forward_fraction
            backward_fraction = constants.wide_backward_share * backward_fraction
        return Passes(
            work / forward_fraction + constants.attention_start_s,
            _FLASH_BACKWARD * work / backward_fraction + constants.attention_start_s,
        )
    # Softmax with mask, dropout and the two products each read or write the scores.
    transfers = _FUSED_SCORE_TRANSFERS if job.framework.fused else _EAGER_SCORE_TRANSFERS
    scores = stream_s(job, tokens * sequence * mixer.heads / layout.tensor * 2 * transfers)
    products = per_key * sequence / (rate * constants.attention_forward_fraction)
    return Passes(products + scores, 2 * products + _STREAM_BACKWARD * scores)


def _exponential_slowdown(job: Job, mixer: SoftmaxAttention, peak_flops_per_s: Any) -> Any:
    """Seconds of flash attention with narrow heads, or products in fp8, over seconds with heads of
    128 in 16 bits, for the same products.

    Each score takes `4 d` FLOPs and one exponential. **Source**: 2407.08608 sec 3.1: an H100 makes
    3.9e12 exponentials a second, and narrow heads reach 0.77 of the rate there (fig. 5), which the
    sum of both times gives.
    """
    share = 1 / (1 + 4 * _USUAL_HEAD * _EXPONENTIALS_PER_S / peak_flops_per_s)
    products = 1 - share
    if job.training.fp8_attention and job.cluster.accelerator.supports("fp8"):
        products = products * datasheet_flops_per_s(job, "bf16") / datasheet_flops_per_s(job, "fp8")
    return products + share * np.maximum(_USUAL_HEAD / mixer.head_dim, 1)


def ring_steps(job: Job, layout: LayoutLike, mixer: Mixer) -> Passes:
    """Seconds that a ring adds to flash attention: a kernel for each further chunk, and its result
    added to the sum.

    **Source**: Transformer Engine, attention/dot_product_attention/context_parallel.py
    (AttnFuncWithCPAndKVP2P): output forward, gradients of queries, keys and values backward, each
    read, added and written.
    """
    queries, keys, values = mixer.widths
    if not job.framework.rings_context or job.training.attention != "flash":
        return Passes(0.0, 0.0)
    more = layout.context / layout.context_heads - 1
    size = 3 * weight_bytes(job) * local_tokens(job, layout) / layout.tensor
    start = rates(job).attention_start_s
    forward = stream_s(job, size * values)
    backward = stream_s(job, size * (queries + keys + values))
    return Passes(more * (start + forward), more * (start + backward))


def _streams(job: Job, layout: LayoutLike, tokens: Any, layer: Layer) -> Passes:
    """Normalisation, residuals, activation, rotary, routing: fused kernels that only move data.

    Norms read and write the hidden vector, residual additions read two and write one, the
    activation reads its inputs and writes its product.
    """
    element, constants, part = weight_bytes(job), rates(job), layer.feed_forward
    hidden = (2 * layer.norms + 3 * layer.blocks) * element * layer.hidden
    if layer.streams:
        hidden = hidden + layer.mixings * element * layer.streams.moved_elements
    activation = (1 + part.ups) * element * _unfused_width(job, part)
    rotated = (mixer.widths for mixer in layer.mixer.parts if mixer.rotary)
    rotary = 2 * element * sum(width.queries + width.keys for width in rotated)
    traffic = hidden / sequence_cut(layout) + (activation + rotary) / layout.tensor
    launched = _KERNELS + ROUTING_KERNELS * (part.experts > 0)
    kernels = constants.streaming_passes * launched * start_s(job)
    forward = stream_s(job, tokens * (constants.streaming_passes * traffic)) + kernels
    if layer.streams:
        rates_per_s = job.cluster.accelerator.flops_per_s
        wide = rates_per_s.get("bf16") or rates_per_s["fp16"]
        rate = rates_per_s.get(layer.streams.precision) or wide
        work = 2.0 * layer.stream_parameters / (rate * constants.product_fraction)
        forward = forward + tokens * work / sequence_cut(layout)
    routed = casts = Passes(0.0, 0.0)
    if part.experts:
        routed = _routed_streams(job, layout, tokens, part)
    if job.is_narrow:
        forward_bytes, backward_bytes = _cast_bytes(job, layout, layer)
        casts = Passes(
            stream_s(job, tokens * forward_bytes), stream_s(job, tokens * backward_bytes)
        )
    clamped = _clamping(job, layout, tokens, part)
    return Passes(forward, _STREAM_BACKWARD * forward) + routed + casts + clamped


def _clamping(job: Job, layout: LayoutLike, tokens: Any, part: FeedForward) -> Passes:
    """Seconds of kernels that clamp what a gated activation takes, where that isn't fused."""
    if part.clamp is None or job.replays_experts:
        return Passes(0.0, 0.0)
    width = part.active_width / layout.tensor
    forward_bytes, backward_bytes = job.engine.clamp_traffic_bytes
    return Passes(
        stream_s(job, tokens * forward_bytes * width),
        stream_s(job, tokens * backward_bytes * width),
    )


def _unfused_width(job: Job, part: FeedForward) -> int:
    """Widths that a token meets whose activation is a kernel of its own, and its cast.

    **Source**: Transformer Engine 2.14, ops/fused (fuse_grouped_mlp_ops): of experts in a graph,
    the first product's kernel has the activation, and gives what the second takes.
    """
    return part.width if job.replays_experts else part.active_width


def _routed_streams(job: Job, layout: LayoutLike, tokens: Any, part: FeedForward) -> Passes:
    """Sorting tokens by expert and back, what goes into the stash and back, and biases."""
    constants, width = rates(job), part.routed_hidden / sequence_cut(layout)
    stashed = 2 * routed_bytes_per_token(job, part) / layout.tensor if job.stashes_experts else 0.0
    moved = permuted_copies(job, layout, part) * weight_bytes(job) * width / constants.permute_share
    sorting = stream_s(job, tokens * (constants.streaming_passes * moved + stashed))
    if not part.expert_bias or job.replays_experts:
        return Passes(sorting, sorting)
    engine, held = job.engine, part.experts / layout.expert
    added = (
        stream_s(job, tokens * part.per_token * size * width) + kernels * held * start_s(job)
        for size, kernels in zip(
            engine.expert_bias_traffic_bytes, engine.expert_bias_kernels, strict=True
        )
    )
    return Passes(sorting, sorting) + Passes(*added)


def permuted_copies(job: Job, layout: LayoutLike, part: FeedForward) -> Any:
    """Copies of a token that a MoE layer's permutations read and write in a forward pass; backward
    it is as many.

    Tokens are sorted by expert, and back. All-to-alls sort a rank's own tokens by rank, and those
    that came by expert; the flex dispatcher sends a token once to each rank, which makes the
    copies.

    **Source**: Megatron-LM core/transformer/moe/token_dispatcher.py, MoEAlltoAllTokenDispatcher
    (permute, then sort_chunks_by_idxs where a rank has several experts, be it the only one),
    MoEFlexTokenDispatcher; moe_utils.py.
    """
    copies, ranks = part.per_token, layout.expert
    once = sends_tokens_once_per_rank(job, layout)
    arrive = np.where(once, ranks * (1 - (1 - 1 / ranks) ** copies), 1.0)
    has_several_experts = ranks < part.experts
    sorts_at_all = (ranks > 1) | job.engine.sorts_local_experts
    sorts = np.logical_not(once) & sorts_at_all & has_several_experts
    return 2 * (arrive + copies) + np.where(sorts, 4 * copies, 0)


def _cast_bytes(job: Job, layout: LayoutLike, layer: Layer) -> tuple[Any, Any]:
    """Traffic a token of a layer's casts to 8 or 4 bits, forward and backward: 2 bytes read, one or
    two copies written.

    Forward casts each product's input (the norms write theirs in fp8 already: only a transpose is
    left), backward each product's output gradient. Scaling by the tensor's own maximum reads it
    once before. NVFP4's copy for the weight gradient, a product of Hadamard's matrix, is read for
    again, and norms write 16 bits. **Source**: Transformer Engine 2.9, pytorch/module/linear.py;
    common/recipe/current_scaling.cu:121 (compute_amax_impl); pytorch/csrc/quantizer.cpp
    (NVFP4Quantizer::quantize_impl).
    """
    part, hidden = layer.feed_forward, layer.hidden
    queries, keys, values = layer.mixer.widths
    width, times = _unfused_width(job, part), part.per_token or 1
    reads = {"tensorwise": 4, "nvfp4": 6}.get(job.training.scaling, 2)
    written = fp8_copies(job) * (product_bytes(job) if job.training.precision == "nvfp4" else 1)
    cast = reads + written
    normed = cast if job.training.precision == "nvfp4" else reads - 2 + 2 * (fp8_copies(job) - 1)
    forward = cast * (values + width)
    backward = cast * (queries + 2 * keys + part.ups * width)
    if job.training.fp8_attention:  # its own inputs, and the gradient of its output
        forward = forward + 3 * (queries + keys + values)
        backward = backward + 3 * values
    return (
        2 * normed * hidden / sequence_cut(layout) + forward / layout.tensor,
        cast * (1 + times) * hidden / sequence_cut(layout) + backward / layout.tensor,
    )


def head_time_s(job: Job, layout: LayoutLike) -> Any:
    """Forward and backward seconds of the output projection, in 16 bit also under fp8, and of the
    loss; the same for each depth that predicts a further token, and the product before it.
    """
    tokens = local_tokens(job, layout)
    rows = vocabulary_rows(job, layout)
    # Transformer Engine's kernel reads and writes as the fused one does.
    traffic, usual = job.framework.loss_traffic_bytes, job.framework.cross_entropy
    bytes_per_logit = traffic.get(job.training.cross_entropy or usual, traffic[usual])
    loss = stream_s(job, tokens * rows * bytes_per_logit)
    product = linear(job, tokens, job.model.hidden, rows, narrow=False)
    head = product.forward_s + product.backward_s + loss
    depths = job.training.mtp_depths
    if not depths:
        return head
    joined = linear(job, tokens, 2 * job.model.hidden, job.model.hidden / layout.tensor)
    return head + depths * (head + joined.forward_s + joined.backward_s)


def repeated_share(job: Job, layout: LayoutLike) -> Any:
    """Share of an inner stage's layers whose forward pass runs twice.

    **Source**: Megatron-LM `--recompute-method block` with `--recompute-num-layers`: the first
    layers of each chunk (core/transformer/transformer_block.py, _checkpointed_forward).
    """
    if not np.any(layout.recompute_layers):
        return 1.0 * (layout.recompute == Recompute.FULL)
    held = np.maximum(inner_layers(job, layout), 1)
    return repeated_layers(layout, held) / held


def repeated(layout: LayoutLike, module: Modules, whole: Any) -> Any:
    """Share of an inner stage's layers whose `module` runs twice, a share `whole` being repeated
    with all modules.
    """
    return np.where(repeats(layout, module), 1.0, whole)


def repeated_modules_s(job: Job, layout: LayoutLike, time: LayerTime, layer: Layer) -> Any:
    """Seconds of the modules that selective recomputation repeats in one layer.

    Modules that the layer lacks take none.
    """
    part, tokens, element = layer.feed_forward, local_tokens(job, layout), weight_bytes(job)
    width = part.per_token * part.expert_width / layout.tensor
    activation = stream_s(job, tokens * (1 + part.ups) * element * width)
    activation = activation + _clamping(job, layout, tokens, part).forward_s
    norms = stream_s(job, tokens * 2 * layer.norms * element * layer.hidden / sequence_cut(layout))
    parts = {
        Modules.CORE_ATTN: time.core.forward_s * layer.mixer.has_scores,
        Modules.LAYERNORM: norms,
        Modules.MLA_UP_PROJ: time.latents.forward_s,
    }
    if part.experts:  # whose activation and shared experts are parts of the module moe
        parts[Modules.MOE | Modules.MOE_ACT] = activation
        parts[Modules.MOE | Modules.SHARED_EXPERTS] = time.shared.forward_s
        parts[Modules.MOE] = time.mlp.forward_s - time.shared.forward_s
    else:
        parts[Modules.MLP] = time.mlp.forward_s
    return sum(np.where(repeats(layout, module), seconds, 0.0) for module, seconds in parts.items())
