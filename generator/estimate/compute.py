"""Compute: seconds of a layer and of the head on one rank."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dataclass import dataclass
from ..job.records import Job
from .activations import local_tokens, repeated_layers, repeats, sequence_cut
from .adapters import adapted
from .groups import sends_tokens_once_per_rank
from .layout import LayoutLike, Modules, Recompute, once_each
from .model_size import (
    attention_widths,
    dense_layers,
    input_product,
    latent_products,
    mean_keys,
    moe_layers,
)
from .products import Passes, adapter_products, linear, stream_s, tile_use
from .rates import rates
from .stages import inner_layers, vocabulary_rows
from .states import fp8_copies, weight_bytes


def busiest(job: Job, layout: LayoutLike) -> Any:
    """Tokens of the expert rank that has most, over the mean.

    A router without preferences throws `n = tokens * top_k` balls into e ranks: a rank's load has the mean n/e and the
    variance n/e (1 - 1/e); the largest of e normal variables lies `sqrt(2 ln e)` standard deviations above the mean.
    **Assumes** the balance that the auxiliary losses aim at; 2 is what a rank has at most when capacity is bounded.
    """
    if not job.model.is_moe:
        return 1.0 + 0.0 * layout.expert
    ranks = layout.expert
    group_tokens = local_tokens(job, layout) * ranks * layout.expert_tensor / layout.tensor
    mean = group_tokens * job.model.experts_per_token / ranks
    return np.minimum(1 + np.sqrt(2 * np.log(ranks) * (1 - 1 / ranks) / mean), 2.0)


#: 16-bit transfers of one attention score in a forward pass: written and read by product, softmax and dropout. Eager
#: mode scales and masks by themselves and has its softmax in fp32; counted from the operators, not measured.
_FUSED_SCORE_TRANSFERS = 6
_EAGER_SCORE_TRANSFERS = 18
#: Backward over forward for streaming kernels: reads the gradient and the saved input, writes one.
_STREAM_BACKWARD = 1.5
#: Flash attention's backward FLOPs over its forward's (2205.14135 appendix B: five products for two).
_FLASH_BACKWARD = 2.5
#: Exponentials a second (2407.08608 sec 3.1, H100; of this order on A100 and B200), and the head size that attention's
#: rates were measured with.
_EXPONENTIALS_PER_S = 3.9e12
_USUAL_HEAD = 128
#: Streaming kernels of a fused layer's forward pass: norms, residual additions, rotary, activation; counted from
#: Megatron-LM's modules. Routing adds top-k, sort, permutation and its inverse.
_KERNELS = 7
_ROUTING_KERNELS = 12
#: Kernels of an adapter's forward pass: two products, the scale, the sum (peft 0.21, tuners/lora/layer.py, forward).
_ADAPTER_KERNELS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTime:
    """Seconds of one layer, one micro-batch, one rank."""

    forward_s: Any
    backward_s: Any
    core: Passes  #: attention's core, which selective recomputation repeats
    products: Passes  #: all matrix products
    mlp: Passes  #: of these the MLP's or the experts', shared ones included
    shared: Passes  #: of these the shared experts'
    latents: Passes  #: of these the products from MLA's latents


#: Fields that the products of a layer depend on, beside its tokens.
_PRODUCTS_BY = ("tensor", "expert", "expert_tensor", "sequence_parallel")


def layer_times(job: Job, layout: LayoutLike) -> dict[bool, LayerTime]:
    """Seconds of one transformer layer of the kinds that the model has: with a dense MLP, and with experts (`True`)."""
    return once_each(job, layout, _PRODUCTS_BY, _layer_times, local_tokens(job, layout))


def _layer_times(job: Job, layout: LayoutLike, tokens: Any) -> dict[bool, LayerTime]:
    attention = once_each(job, layout, ("tensor",), _attention, tokens)
    kinds = ((False, dense_layers(job.model)), (True, moe_layers(job.model)))
    return {
        moe: _layer_time(job, layout, tokens, *attention, moe=moe) for moe, count in kinds if count
    }


def _attention(job: Job, layout: LayoutLike, tokens: Any) -> tuple[Passes, Passes, Passes]:
    """Seconds of attention in one layer: its core, all its products, and of these those from MLA's latents."""
    model, tensor = job.model, layout.tensor
    width, is_cut = input_product(model)
    products = linear(job, tokens, model.hidden, width / tensor if is_cut else width)
    products = products + linear(job, tokens, attention_widths(model)[2] / tensor, model.hidden)
    latents = Passes(0.0, 0.0)
    for inputs, outputs in latent_products(model):
        latents = latents + linear(job, tokens, inputs, outputs / tensor)
    return attention_core(job, layout), products + latents, latents


def _layer_time(
    job: Job,
    layout: LayoutLike,
    tokens: Any,
    core: Passes,
    products: Passes,
    latents: Passes,
    *,
    moe: bool,
) -> LayerTime:
    """Add to attention the rest of a layer.

    **Source** of the launches: Transformer Engine, pytorch/module/grouped_linear.py: a product for each expert that the
    rank holds, forward and for its second matrix.
    """
    model, tensor, shared = job.model, layout.tensor, Passes(0.0, 0.0)
    if moe and model.shared_ffn:
        shared = _mlp(job, tokens, model.shared_ffn / tensor)
    mlp = _mlp_products(job, layout, tokens, moe=moe) + shared
    products = products + mlp
    whole = products + core + _streams(job, layout, tokens, moe=moe)
    # The host launches a layer's kernels, and for experts those of routing and two products each.
    experts = 2 * model.experts / layout.expert + _ROUTING_KERNELS if moe else 0
    launches = (job.framework.kernels_per_layer + experts) * rates(job).launch_s
    if job.training.lora is not None:
        added, moved = adapter_products(job, tokens, moe=moe)
        whole = whole + added + moved
        launches = launches + _ADAPTER_KERNELS * len(adapted(job, moe=moe)) * rates(job).launch_s
    return LayerTime(
        forward_s=np.maximum(whole.forward_s, launches),
        backward_s=np.maximum(whole.backward_s, 2 * launches),
        core=core,
        products=products,
        mlp=mlp,
        shared=shared,
        latents=latents,
    )


def _mlp(job: Job, rows: Any, width: Any, count: Any = 1) -> Passes:
    """Seconds of both products of an MLP, `count` times."""
    ups = 2 if job.model.gated_mlp else 1
    return linear(job, rows, job.model.hidden, ups * width, count) + linear(
        job, rows, width, job.model.hidden, count
    )


def _mlp_products(job: Job, layout: LayoutLike, tokens: Any, *, moe: bool) -> Passes:
    """The MLP's products; a rank's experts one after the other, each with its share of the tokens of the busiest rank.

    Tensor ranks that don't cut the experts have other tokens each.
    """
    model, tensor, cut = job.model, layout.tensor, layout.expert_tensor
    if not moe:
        return _mlp(job, tokens, model.ffn / tensor)
    held = model.experts / layout.expert
    rows = tokens * busiest(job, layout) * (cut / tensor) * model.experts_per_token / held
    return _mlp(job, rows, model.moe_ffn / cut, held) + linear(
        job, tokens / sequence_cut(layout), model.hidden, model.experts
    )


def attention_core(job: Job, layout: LayoutLike) -> Passes:
    """Seconds of softmax(QK)V: flash attention skips what is masked, unfused attention computes and stores it all."""
    accelerator, constants, tokens = job.cluster.accelerator, rates(job), local_tokens(job, layout)
    queries, _, values = attention_widths(job.model)
    sequence = job.training.sequence_length
    per_key = 2 * tokens * (queries + values) / layout.tensor
    rate = accelerator.flops_per_s.get("bf16") or accelerator.flops_per_s["fp16"]
    rate = rate * tile_use(job.model.head_dim)
    if job.training.attention == "flash":
        rate = rate * constants.attention_kernel_share / _exponentials(job, rate)
        work = per_key * mean_keys(job.model, job.training.sequence_length) / rate
        wide = queries > _USUAL_HEAD * job.model.heads
        shares = (
            (constants.wide_forward_share, constants.wide_backward_share) if wide else (1.0, 1.0)
        )
        forward = (
            work / (shares[0] * constants.attention_forward_fraction) + constants.attention_start_s
        )
        work = _FLASH_BACKWARD * work
        backward = (
            work / (shares[1] * constants.attention_backward_fraction) + constants.attention_start_s
        )
        return Passes(forward, backward)
    # Softmax with mask, dropout and the two products each read or write the scores.
    transfers = _FUSED_SCORE_TRANSFERS if job.framework.fused else _EAGER_SCORE_TRANSFERS
    scores = stream_s(job, tokens * sequence * job.model.heads / layout.tensor * 2 * transfers)
    products = per_key * sequence / (rate * constants.attention_forward_fraction)
    return Passes(products + scores, 2 * products + _STREAM_BACKWARD * scores)


def _exponentials(job: Job, peak_flops_per_s: Any) -> Any:
    """Seconds of flash attention with narrow heads over seconds with heads of 128, for the same products.

    Each score takes `4 d` FLOPs and one exponential. **Source**: 2407.08608 sec 3.1: an H100 makes 3.9e12 exponentials
    a second, and narrow heads reach 0.77 of the rate there (fig. 5), which the sum of both times gives.
    """
    share = 1 / (1 + 4 * _USUAL_HEAD * _EXPONENTIALS_PER_S / peak_flops_per_s)
    return 1 - share + share * np.maximum(_USUAL_HEAD / job.model.head_dim, 1)


def ring_steps(job: Job, layout: LayoutLike) -> Passes:
    """Seconds that a ring adds to flash attention: a kernel for each further chunk, and its result added to the sum.

    **Source**: Transformer Engine, attention/dot_product_attention/context_parallel.py (AttnFuncWithCPAndKVP2P): output
    forward, gradients of queries, keys and values backward, each read, added and written.
    """
    queries, keys, values = attention_widths(job.model)
    if not job.framework.rings_context or job.training.attention != "flash":
        return Passes(0.0, 0.0)
    more = layout.context / layout.context_heads - 1
    size = 3 * weight_bytes(job) * local_tokens(job, layout) / layout.tensor
    start = rates(job).attention_start_s
    forward, backward = (
        stream_s(job, size * values),
        stream_s(job, size * (queries + keys + values)),
    )
    return Passes(more * (start + forward), more * (start + backward))


def _streams(job: Job, layout: LayoutLike, tokens: Any, *, moe: bool) -> Passes:
    """Normalisation, residuals, activation, rotary, routing: fused kernels that only move data.

    Norms read and write the hidden vector, residual additions read two and write one, the activation reads its inputs
    and writes its product.
    """
    model, element, constants = job.model, weight_bytes(job), rates(job)
    queries, keys, _ = attention_widths(model)
    hidden = (2 * model.norms_per_layer + 6) * element * model.hidden
    width = model.experts_per_token * model.moe_ffn + model.shared_ffn if moe else model.ffn
    activation = (3 if model.gated_mlp else 2) * element * width
    rotary = 2 * element * (queries + keys) if model.position_embedding == "rotary" else 0
    traffic = hidden / sequence_cut(layout) + (activation + rotary) / layout.tensor
    kernels = (
        constants.streaming_passes * (_KERNELS + _ROUTING_KERNELS * moe) * constants.kernel_start_s
    )
    forward = stream_s(job, tokens * (constants.streaming_passes * traffic)) + kernels
    routed = _routed_streams(job, layout, tokens) if moe else Passes(0.0, 0.0)
    casts = Passes(0.0, 0.0)
    if job.training.precision == "fp8":
        casts = Passes(
            *(stream_s(job, tokens * size) for size in _cast_bytes(job, layout, moe=moe))
        )
    return Passes(forward, _STREAM_BACKWARD * forward) + routed + casts


def _routed_streams(job: Job, layout: LayoutLike, tokens: Any) -> Passes:
    """Sorting tokens by expert and back, and the biases of experts."""
    model, constants = job.model, rates(job)
    width = model.hidden / sequence_cut(layout)
    moved = permuted_copies(job, layout) * weight_bytes(job) * width / constants.permute_share
    sorting = stream_s(job, tokens * (constants.streaming_passes * moved))
    if not (model.expert_bias and any(job.engine.expert_bias_traffic_bytes)):
        return Passes(sorting, sorting)
    added = (
        stream_s(job, tokens * model.experts_per_token * size * width)
        for size in job.engine.expert_bias_traffic_bytes
    )
    return Passes(sorting, sorting) + Passes(*added)


def permuted_copies(job: Job, layout: LayoutLike) -> Any:
    """Copies of a token that a MoE layer's permutations read and write in a forward pass; backward it is as many.

    Tokens are sorted by expert, and back. All-to-alls sort a rank's own tokens by rank, and those that came by expert;
    the flex dispatcher sends a token once to each rank, which makes the copies.

    **Source**: Megatron-LM core/transformer/moe/token_dispatcher.py, MoEAlltoAllTokenDispatcher (permute, then
    sort_chunks_by_idxs where a rank has several experts, be it the only one), MoEFlexTokenDispatcher; moe_utils.py.
    """
    copies, ranks = job.model.experts_per_token, layout.expert
    once = sends_tokens_once_per_rank(job, layout)
    arrive = np.where(once, ranks * (1 - (1 - 1 / ranks) ** copies), 1.0)
    sorts = (
        np.logical_not(once)
        & ((ranks > 1) | job.engine.sorts_local_experts)
        & (ranks < job.model.experts)
    )
    return 2 * (arrive + copies) + np.where(sorts, 4 * copies, 0)


def _cast_bytes(job: Job, layout: LayoutLike, *, moe: bool) -> tuple[Any, Any]:
    """Traffic a token of a layer's casts to fp8, forward and backward: 2 bytes read, one or two copies written.

    Forward casts each product's input (the norms write theirs in fp8 already: only a transpose is left), backward each
    product's output gradient. Scaling by the tensor's own maximum reads it once before. **Source**: Transformer Engine
    2.9, pytorch/module/linear.py; common/recipe/current_scaling.cu:121 (compute_amax_impl).
    """
    model = job.model
    queries, keys, values = attention_widths(model)
    width = model.experts_per_token * model.moe_ffn + model.shared_ffn if moe else model.ffn
    ups = 2 if model.gated_mlp else 1
    times = model.experts_per_token if moe else 1
    reads = 4 if job.training.fp8_recipe == "tensorwise" else 2
    cast, normed = reads + fp8_copies(job), reads - 2 + 2 * (fp8_copies(job) - 1)
    forward = (
        2 * normed * model.hidden / sequence_cut(layout) + cast * (values + width) / layout.tensor
    )
    backward = cast * (1 + times) * model.hidden / sequence_cut(layout)
    return forward, backward + cast * (queries + 2 * keys + ups * width) / layout.tensor


def head_time_s(job: Job, layout: LayoutLike) -> Any:
    """Forward and backward seconds of the output projection, in 16 bit also under fp8, and of the loss."""
    tokens = local_tokens(job, layout)
    rows = vocabulary_rows(job, layout)
    traffic, usual = job.framework.loss_traffic_bytes, job.framework.cross_entropy
    loss = stream_s(
        job, tokens * rows * traffic.get(job.training.cross_entropy or usual, traffic[usual])
    )
    product = linear(job, tokens, job.model.hidden, rows, fp8=False)
    return product.forward_s + product.backward_s + loss


def repeated_share(job: Job, layout: LayoutLike) -> Any:
    """Share of an inner stage's layers whose forward pass runs twice.

    **Source**: Megatron-LM `--recompute-method block` with `--recompute-num-layers`: the first layers of each chunk
    (core/transformer/transformer_block.py, _checkpointed_forward).
    """
    if not np.any(layout.recompute_layers):
        return 1.0 * (layout.recompute == Recompute.FULL)
    held = np.maximum(inner_layers(job, layout), 1)
    return repeated_layers(layout, held) / held


def repeated(layout: LayoutLike, module: Modules, whole: Any) -> Any:
    """Share of an inner stage's layers whose `module` runs twice, a share `whole` being repeated with all modules."""
    return np.where(repeats(layout, module), 1.0, whole)


def repeated_modules_s(job: Job, layout: LayoutLike, time: LayerTime, *, moe: bool) -> Any:
    """Seconds of the modules that selective recomputation repeats in one layer; kinds that a layer lacks take none."""
    model, tokens, element = job.model, local_tokens(job, layout), weight_bytes(job)
    width = (model.experts_per_token * model.moe_ffn if moe else 0) / layout.tensor
    activation = stream_s(job, tokens * (3 if model.gated_mlp else 2) * element * width)
    norms = stream_s(
        job, tokens * 2 * model.norms_per_layer * element * model.hidden / sequence_cut(layout)
    )
    parts = {
        Modules.CORE_ATTN: time.core.forward_s,
        Modules.LAYERNORM: norms,
        Modules.MLA_UP_PROJ: time.latents.forward_s,
    }
    if moe:  # whose activation and shared experts are parts of the module moe
        parts[Modules.MOE | Modules.MOE_ACT] = activation
        parts[Modules.MOE | Modules.SHARED_EXPERTS] = time.shared.forward_s
        parts[Modules.MOE] = time.mlp.forward_s - time.shared.forward_s
    else:
        parts[Modules.MLP] = time.mlp.forward_s
    return sum(np.where(repeats(layout, module), seconds, 0.0) for module, seconds in parts.items())
