"""Activations: bytes kept for the backward pass, by framework and recomputation, and bytes alive
for a moment.

The latter are a layer's in its backward pass, logits and loss, and gradients before they are added.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from ..catalog.layers.feed_forward import FeedForward
from ..catalog.layers.mixer import Mixer
from ..catalog.layers.stack import Layer
from ..job.records import Job
from .adapters import gathered_elements, is_fused, unsaved_elements
from .layout import LayoutLike, Modules, Recompute
from .stages import StageContents
from .states import FP32, product_bytes, weight_bytes
from .workspaces import copies_attention, fuses_softmax, is_local


def repeats(layout: LayoutLike, module: Modules) -> Any:
    """Tell where selective recomputation repeats one of these modules."""
    return (layout.recompute == int(Recompute.SELECTIVE)) & (
        (layout.recompute_modules & int(module)) > 0
    )


def repeated_layers(layout: LayoutLike, layers: Any) -> Any:
    """Layers of a stage's `layers` that full recomputation repeats."""
    in_blocks = np.minimum(layers, layout.recompute_layers * layout.virtual_pipeline)
    some = np.where(layout.recompute_layers > 0, in_blocks, layers)
    return np.where(layout.recompute == int(Recompute.FULL), some, 0)


#: Room of a paged stash over an even load's activations, Megatron-Core's default.
_STASH_ROOM: Final = 1.1
#: Hugging Face's eager attention: an fp32 softmax and its 16-bit copy; these families' softmax
#: stays in 16 bit, as that of models with sinks.
_EAGER_SCORE_BYTES = 6
_NARROW_SOFTMAX = frozenset({"gpt2", "bert"})
#: Tensors of MLP width that one activation keeps. `gelu_new` is made of many operators in eager
#: mode.
_EAGER_NEW_GELU = 5
# Both, and every eager figure below, follow from the allocator's count of the real models
# (tests/estimate/test_memory_tracker.py).


def local_tokens(job: Job, layout: LayoutLike) -> Any:
    """Tokens of one micro-batch on one rank: micro_batch * sequence / context."""
    return layout.micro_batch * job.training.sequence_length / layout.context


def sequence_cut(layout: LayoutLike) -> Any:
    """Ranks over which sequence parallelism divides what tensor parallelism replicates."""
    return np.where(layout.sequence_parallel, layout.tensor, 1)


def layer_bytes_per_token(job: Job, layout: LayoutLike, layer: Layer) -> Any:
    """Bytes a token that one layer keeps when no more than its scores are recomputed.

    **Source**: 2205.05198 Table 2 (34 bytes × hidden for GPT with dropout, 10 of them replicated
    under tensor parallelism) taken apart by tensor; the Llama sum 12 + 4g/a + 6f/h was checked with
    autograd's saved-tensor hooks. **Assumes** flash attention keeps no scores; a balanced router.
    """
    model, element = job.model, weight_bytes(job)
    # An eager RMSNorm keeps its input in fp32, and the result before the weight.
    upcast = 4 if not job.fuses_kernels and layer.norm.kind == "rmsnorm" else 0
    norms = layer.norms * (element + upcast) * model.hidden
    # Norms of queries and keys keep as much, but for those of views into a product that stays.
    is_kept_anyway = job.framework.packs_attention
    head_norms = 0 if is_kept_anyway else (element + upcast) * layer.mixer.normed_elements
    dropped = layer.blocks * model.hidden * (model.dropout > 0)
    # An fp8 product keeps its input in fp8; attention keeps its result, the output product's input,
    # for itself.
    inputs = input_bytes(job)
    routing = layer.feed_forward.routing_bytes * (not job.engine.weighs_output)
    streams = element * layer.mixings * layer.streams.kept_elements if layer.streams else 0
    replicated = norms + sum(_state_bytes(job, layer)) + dropped + routing + streams
    copied = inputs * layer.mixer.widths.values * (inputs < element)
    kept = layer.mixer.kept_elements(
        repeats_keys=job.training.attention == "unfused" and not job.framework.fused,
        packs=job.framework.packs_attention,
    )
    sharded = element * kept + head_norms + copied
    # Tokens come to a routed expert whole: gathered where its own ranks cut it.
    part = layer.feed_forward
    sharded = (
        sharded
        + feed_forward_bytes_per_token(job, part)
        + _gathered_per_token(job, part) * (layout.expert_tensor - 1)
        - element * unsaved_elements(job, layer)
    )
    whole = (layout.recompute == int(Recompute.FULL)) | repeats(layout, Modules.CORE_ATTN)
    scores = scores_bytes_per_token(job, layout, layer.mixer) * np.logical_not(whole)
    masks = element * layer.mixer.kept_of_sequence(job.training.sequence_length)
    whole_inputs = element * gathered_elements(job, layout, layer)
    cut = replicated / sequence_cut(layout) + sharded / layout.tensor
    return cut + whole_inputs + scores + masks


def _state_bytes(job: Job, layer: Layer) -> tuple[float, float]:
    """Bytes a token of the normalised state that the mixer keeps, and the feed-forward.

    Products of one state share it, but for those in fp8, which keep a narrow copy each; a router
    then keeps the wide one.
    """
    element, inputs = weight_bytes(job), input_bytes(job)
    mixer, part = layer.mixer, layer.feed_forward
    has_part = bool(part.width or part.experts)
    if inputs < element:
        first, second = inputs * mixer.reads, inputs * part.reads + element * (part.experts > 0)
    else:
        first, second = element * bool(mixer.parts), element * has_part
    return first * job.model.hidden, second * job.model.hidden


def _gathered_per_token(job: Job, part: FeedForward) -> float:
    """Bytes that a layer's experts keep of a token's states, of each rank that cuts an expert."""
    kinds = weight_bytes(job), input_bytes(job)
    return part.per_token * part.token_bytes(*kinds, weighs_output=job.engine.weighs_output)


def scores_bytes_per_token(job: Job, layout: LayoutLike, mixer: Mixer) -> Any:
    """Bytes a token of one layer's attention scores."""
    return score_bytes(job) * mixer.scores(job.training.sequence_length) / layout.tensor


def repeated_bytes_per_token(job: Job, layout: LayoutLike, layer: Layer) -> tuple[Any, Any]:
    """Bytes a token that selective recomputation doesn't keep in one layer: of its attention, of
    its MLP or experts.

    Repeating the dense MLP frees the normalised input too, which is made in the same module. The
    other normalisations are modules of their own before latent attention and before experts only.

    **Source**: Megatron-LM core_v0.16.1: core/transformer/transformer_layer.py:383-447 (layernorm,
    mlp); core/models/gpt/gpt_layer_specs.py (where a layernorm is fused);
    core/transformer/moe/experts.py:738 (moe_act keeps the first product); moe/moe_layer.py:294, 432
    (shared_experts and moe keep their input); multi_latent_attention.py:838 (mla_up_proj keeps the
    latents).
    """
    element, inputs = weight_bytes(job), input_bytes(job)
    mixer, part = layer.mixer, layer.feed_forward
    normed, taken = (size / sequence_cut(layout) for size in _state_bytes(job, layer))
    up = element * mixer.rebuilt_elements / layout.tensor
    before = repeats(layout, Modules.LAYERNORM) * normed * ("layernorm" in mixer.modules)
    attention = repeats(layout, Modules.MLA_UP_PROJ) * up + before
    whole = feed_forward_bytes_per_token(job, part) / layout.tensor
    if not part.experts:
        return attention, repeats(layout, Modules.MLP) * (taken + whole)

    norm = element * job.model.hidden / sequence_cut(layout)
    routing = part.routing_bytes * (not job.engine.weighs_output) / sequence_cut(layout)
    whole = whole + _gathered_per_token(job, part) * (layout.expert_tensor - 1) / layout.tensor
    whole = whole + taken - norm + routing

    copies = _mlp_copies(job, part)
    more = part.expert_copies(copies, weighs_output=job.engine.weighs_output)
    again = part.width_bytes(more, element, inputs) - part.ups * element
    activation = again * part.per_token * part.expert_width / layout.tensor
    shared = part.width_bytes(copies, element, inputs) * part.width / layout.tensor + taken - norm
    some = repeats(layout, Modules.MOE_ACT) * activation
    some = some + repeats(layout, Modules.SHARED_EXPERTS) * shared
    after = repeats(layout, Modules.LAYERNORM) * norm
    return attention, np.where(repeats(layout, Modules.MOE), whole, some) + after


def feed_forward_bytes_per_token(job: Job, part: FeedForward) -> float:
    """Bytes a token that one layer's MLP, or its experts, keep over all tensor ranks."""
    kept = part.kept_bytes(
        _mlp_copies(job, part),
        weight_bytes(job),
        input_bytes(job),
        weighs_output=job.engine.weighs_output,
    )
    return kept + (_static_room(job) - 1) * routed_bytes_per_token(job, part)


def _static_room(job: Job) -> float:
    """Bytes that routed experts keep, over those of an even load: a graph's sizes are static.

    A stash has a tenth more than an even load; without one, each layer has room for the most that
    a rank may get. **Source**: megatron/core/transformer/transformer_config.py,
    moe_paged_stash_buffer_size_factor_cuda, and transformer/moe/paged_stash.py @ core_v0.19.0.
    """
    if not job.replays_experts:
        return 1.0
    return _STASH_ROOM if job.stashes_experts else job.training.rank_capacity


def routed_bytes_per_token(job: Job, part: FeedForward) -> float:
    """Bytes a token that routed experts keep of it, over all ranks that cut them."""
    kinds = weight_bytes(job), input_bytes(job)
    copies = part.expert_copies(_mlp_copies(job, part), weighs_output=job.engine.weighs_output)
    token = part.token_bytes(*kinds, weighs_output=job.engine.weighs_output)
    return part.per_token * (token + part.width_bytes(copies, *kinds) * part.expert_width)


def input_bytes(job: Job) -> float:
    """Bytes an element of a linear layer's input, kept for its weight's gradient: with its scale
    where the product is narrow.

    **Source**: Transformer Engine 2.9, pytorch/module/linear.py:372-390,
    layernorm_linear.py:404-415 and grouped_linear.py:196-205: the input is saved quantized, in one
    copy, which is what the weight gradient takes.
    """
    return product_bytes(job)


def score_bytes(job: Job) -> float:
    """Bytes kept per attention score: none with flash attention."""
    if job.training.attention == "flash":
        return 0.0
    # a mask byte and the 16-bit result (2205.05198 sec 4.1)
    dropout = 3 if job.model.attention_dropout > 0 else 0
    narrow = job.model.family in _NARROW_SOFTMAX or job.model.attention_sinks
    upcasts = not job.framework.fused and not narrow
    if is_local(job) and not fuses_softmax(job):
        # an fp32 softmax, of which dropout makes the 16-bit result that the product keeps
        return FP32 + (dropout or 2)
    return (_EAGER_SCORE_BYTES if upcasts else 2) + dropout


def score_buffer_bytes(job: Job, layout: LayoutLike) -> Any:
    """Bytes of the buffer in which Megatron-LM's own attention makes its scores, and which stays.

    **Source**: Megatron-LM megatron/core/transformer/dot_product_attention.py (matmul_input_buffer)
    and core/utils.py, GlobalMemoryBuffer @ core_v0.19.0.
    """
    if job.training.attention == "flash" or not is_local(job):
        return 0.0
    pairs = max(
        layer.mixer.scores(job.training.sequence_length) for layer in job.model.averaged.kinds
    )
    return weight_bytes(job) * local_tokens(job, layout) * pairs / layout.tensor


def _mlp_copies(job: Job, part: FeedForward) -> int:
    """Tensors of MLP width that are kept: input and result of the activation, gate, up, and what
    eager mode adds.
    """
    eager = not job.fuses_kernels
    if part.gated:
        return 4 if eager else 3
    return _EAGER_NEW_GELU if eager and part.activation == "gelu_new" else 2


def kept_per_token(job: Job, layout: LayoutLike, held: StageContents) -> Any:
    """Bytes a token that a stage keeps of its layers for each micro-batch in flight.

    **Source**: full recomputation keeps the input of each layer, or of each group of them, 2 bytes
    × hidden a token (2205.05198 sec 5; exactly that was measured with FakeTensorMode on Hugging
    Face Llama); Megatron-LM repeats the first layers of every chunk with a block
    (core/transformer/transformer_block.py:532-563 @ core_v0.16.1). **Assumes** that of a stage's
    kinds of layers, those which the model has first are the first of each chunk.
    """
    repeated = repeated_layers(layout, held.layers)
    kept = sum(
        count * _kept_bytes_per_token(job, layout, layer)
        for layer, count in _layers_kept(job, layout, held)
    )
    return (
        repeated
        / layout.recompute_group
        * (weight_bytes(job) * job.model.state_width / sequence_cut(layout))
        + kept
    )


def copied_per_token(job: Job, layout: LayoutLike, held: StageContents) -> Any:
    """Bytes a token that a stage keeps beyond that of micro-batches with several sequences: of one,
    attention's result is transposed without a copy.
    """
    if not copies_attention(job):
        return 0.0 * held.layers
    return sum(
        count * weight_bytes(job) * layer.mixer.widths.values * layer.mixer.has_scores
        for layer, count in _layers_kept(job, layout, held)
    ) / (layout.tensor + 0.0 * held.layers)


def _layers_kept(job: Job, layout: LayoutLike, held: StageContents) -> Iterator[tuple[Layer, Any]]:
    """A stage's layers of each kind that full recomputation doesn't repeat."""
    left = repeated_layers(layout, held.layers)
    for place, (layer, count) in enumerate(zip(job.model.averaged.kinds, held.kinds, strict=True)):
        most = np.where(layout.recompute_layers > 0, layout.recompute_layers, count)
        later = sum(held.kinds[place + 1 :])
        here = np.where(later > 0, np.minimum(np.minimum(most, count), left), left)
        yield layer, count - here
        left = left - here


def _kept_bytes_per_token(job: Job, layout: LayoutLike, layer: Layer) -> Any:
    """Bytes a token that one layer keeps which isn't repeated as a whole."""
    scores = scores_bytes_per_token(job, layout, layer.mixer)
    return (
        layer_bytes_per_token(job, layout, layer)
        + scores * (layout.recompute == int(Recompute.FULL))
        - sum(repeated_bytes_per_token(job, layout, layer))
    )


def ends_per_token(job: Job, layout: LayoutLike, stage: Any) -> Any:
    """Bytes a token kept at a stage's ends for each micro-batch in flight: the embedding's dropout
    mask, buffers.

    **Source**: 2205.05198 sec 4.3 (mask); DeepSpeed 0.19.8, runtime/pipe/engine.py,
    _exec_forward_pass: the received input stays in its buffer beside the clone that is computed
    with, and the output until its backward pass. Megatron frees the output's data at once
    (pipeline_parallel/schedules.py, deallocate_output_tensor).
    """
    mask = np.where((stage == 0) & (job.model.dropout > 0), 1, 0)
    # LoRA by peft: the embedding's output, which is made to require gradients, and the model's last
    # hidden states (counted).
    ends = 0 if job.training.lora is None or is_fused(job) else 3 * weight_bytes(job)
    buffers = 0 * stage
    if job.engine.keeps_stage_ends:
        copies = (stage > 0) * 1 + (stage < layout.pipeline - 1)
        buffers = np.where(layout.pipeline > 1, copies * weight_bytes(job), 0)
    # A depth keeps the state and the embedding that its norms take, and both side by side.
    depths = job.training.mtp_depths * (stage == layout.pipeline - 1)
    joined = depths * 4 * weight_bytes(job)
    model = job.model
    streams = model.streams
    collapsed = (streams.kept_elements if streams else 0) * (stage == layout.pipeline - 1)
    inner = (mask + ends + joined) * model.hidden + buffers * model.state_width
    return (inner + weight_bytes(job) * collapsed) / sequence_cut(layout)


#: Bytes a logit at the loss's peak. Eager: the fp32 logits, their softmax and its gradient live at
#: once; an encoder's loss stays in 16 bit (both counted by tests/estimate/test_memory_tracker.py).
#: Megatron: 16-bit logits and an fp32 copy, worked on in place
#: (megatron/core/tensor_parallel/cross_entropy.py, core_v0.16.1), or more as the engine says.
#: Transformer Engine's: 16-bit logits, which become their gradient, and what its kernel writes
#: (pytorch/cross_entropy.py @ 2.9).
_EAGER_LOGIT_BYTES = 12
_EAGER_ENCODER_LOGIT_BYTES = 6
_IN_PLACE_LOGIT_BYTES = 4


def workspace_bytes(job: Job, layout: LayoutLike, parts: Mapping[str, Any] | None = None) -> Any:
    """Bytes alive only while one layer runs backward: what it recomputed, and its largest
    gradients.

    The MLP goes first; when attention's scores have their gradients, what the MLP kept is free.
    `parts` has the figures of `workspace_per_token`.
    """
    parts, tokens = parts or workspace_per_token(job, layout), local_tokens(job, layout)
    gradients = np.maximum(
        tokens * parts["mlp"] + parts["weight_gradient"], tokens * parts["attention"]
    )
    return tokens * parts["repeated"] + gradients


def workspace_per_token(job: Job, layout: LayoutLike) -> dict[str, Any]:
    """Bytes a token of a layer's workspace by cause, and those of its largest weight gradient: of
    layers with several mixers, the one that needs most.
    """
    most, *others = (
        _workspace_per_token(job, layout, layer) for layer in job.model.averaged.largest_by_mixer
    )
    for parts in others:
        more = workspace_bytes(job, layout, parts) > workspace_bytes(job, layout, most)
        most = {name: np.where(more, parts[name], size) for name, size in most.items()}
    return most


def _workspace_per_token(job: Job, layout: LayoutLike, layer: Layer) -> dict[str, Any]:
    """The same of one kind of layer.

    Under sequence parallelism the gathered input is back, whole, for the weight gradient
    (2205.05198 sec 4.2.2). Between its chunks a mixer with a state has fp32 states, and in the
    backward pass their gradients.
    """
    model, element = job.model, weight_bytes(job)
    mixer, part = layer.mixer, layer.feed_forward
    pairs = mixer.scores(job.training.sequence_length) / layout.tensor
    scores = scores_bytes_per_token(job, layout, mixer)
    repeated = np.maximum(*repeated_bytes_per_token(job, layout, layer))
    recomputed = np.where(
        layout.recompute == int(Recompute.FULL),
        (layer_bytes_per_token(job, layout, layer) + scores) * layout.recompute_group,
        repeated + np.where(repeats(layout, Modules.CORE_ATTN), scores, 0),
    )
    # Gradients of MLP width: of gate and up, and in eager mode their product, else in and out; and
    # LoRA's, scaled.
    multiplied = part.gated and not job.fuses_kernels and not part.experts
    gradients = (3 if multiplied else 2) + (job.training.lora is not None)
    # A backward product holds its weight's gradient, or of a frozen one its 16 bits if it has 4.
    frozen = job.training.lora is not None and job.training.lora.base == "unquantized"
    # Gradients before and after the softmax; a fused softmax works in place.
    kept = score_bytes(job)
    score = (
        0.0
        if job.training.attention == "flash"
        else kept
        if kept >= _EAGER_SCORE_BYTES
        else 2.0 * element
    )
    held = mixer.state_elements(job.training.sequence_length)
    states = 2 * FP32 * held / layout.tensor
    freed = feed_forward_bytes_per_token(job, part) / layout.tensor
    if layer.streams:  # those that the feed-forward took
        freed = freed + element * layer.streams.kept_elements / sequence_cut(layout)
    gathered = np.where(layout.sequence_parallel, 1 / layout.tensor + 1, 1)
    through = element * model.state_width * gathered
    # One layer's experts work in a buffer for the most that a rank may get, before the stash.
    working = job.training.rank_capacity * routed_bytes_per_token(job, part) / layout.tensor
    return {
        "repeated": recomputed + through + working * job.stashes_experts,
        "mlp": element * gradients * part.active_width / layout.tensor,
        "attention": score * pairs + states - freed,
        "weight_gradient": 0.0 if frozen else weight_gradient_bytes(job, layout, layer),
    }


def weight_gradient_bytes(job: Job, layout: LayoutLike, layer: Layer | None = None) -> Any:
    """The largest product's weight gradient of a layer (the largest one) before it is added to the
    sum.

    Megatron adds inside the product, but hands autograd an empty tensor of that size all the same
    (megatron/core/tensor_parallel/layers.py, LinearWithGradAccumulationAndAsyncCommunication).
    """
    layer = layer or job.model.averaged.largest
    part = layer.feed_forward
    ups = part.ups if job.fuses_kernels else 1
    if part.experts:
        widest = ups * part.expert_width * part.experts / (layout.expert * layout.expert_tensor)
        widest = widest * part.routed_hidden / part.hidden
    else:
        widest = ups * part.width / layout.tensor + 0 * layout.expert
        if not part.width:  # a mixer alone
            products = (p.inputs * p.outputs for p in layer.mixer.products)
            widest = max(products) / part.hidden / layout.tensor + 0 * layout.expert
    return weight_bytes(job) * part.hidden * widest


def table_gradient_bytes(job: Job, rows: Any) -> Any:
    """The embedding's or head's gradient before it is added, `rows` being the vocabulary rows of
    one rank.
    """
    return weight_bytes(job) * (job.model.embedding_width or job.model.hidden) * rows


def output_bytes(job: Job, layout: LayoutLike, rows: Any) -> Any:
    """Bytes of logits and loss on the last stage, `rows` being the vocabulary rows of one rank.

    The peak is the loss's, or the head's weight gradient with the logits and their gradient. Each
    depth that predicts a further token has its loss before the main one, which then keeps what its
    backward pass takes: the fp32 softmax, or the gradient in Transformer Engine's
    (megatron/core/transformer/multi_token_prediction.py, process_mtp_loss, and
    tensor_parallel/cross_entropy.py @ core_v0.19.0). A chunked loss holds as many logits at a time
    as a chunk's tokens make of the hidden size, and the gradient of its input (Liger's fused linear
    cross-entropy, ops/fused_linear_cross_entropy.py).
    """
    model, element, fused = job.model, weight_bytes(job), job.fuses_kernels
    wide = element / 2
    kernel = job.training.cross_entropy or job.framework.cross_entropy
    if kernel == "fused":
        logit = job.engine.fused_logit_bytes * wide
    elif kernel == "te":
        logit = _IN_PLACE_LOGIT_BYTES * wide
    elif fused:
        logit = job.engine.unfused_logit_bytes * wide
    else:
        logit = _EAGER_LOGIT_BYTES if model.causal else _EAGER_ENCODER_LOGIT_BYTES * wide
    chunked = (job.training.cross_entropy or "") == "chunked" or (fused and not job.framework.fused)
    logits = local_tokens(job, layout) * (model.hidden if chunked else rows)
    head = 2 * element * logits + table_gradient_bytes(job, rows) * (job.training.lora is None)
    final = 2 * element * model.hidden / sequence_cut(layout)
    depths = job.training.mtp_depths
    kept = (element if kernel == "te" else FP32) * logits
    norms = (1 + depths) * local_tokens(job, layout) * final
    return depths * kept + np.maximum(logit * logits, head) + norms
