"""Activations: bytes that are kept for the backward pass, by framework and recomputation."""

from __future__ import annotations

from collections.abc import Iterator
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
# The eager figures follow from the allocator's count of the real models
# (tests/estimate/test_memory_tracker.py).
#: Hugging Face's eager attention: an fp32 softmax and its 16-bit copy.
EAGER_SCORE_BYTES = 6
#: Families whose eager softmax stays in 16 bits, as that of models with sinks.
_NARROW_SOFTMAX = frozenset({"gpt2", "bert"})
#: Tensors of MLP width that `gelu_new` keeps in eager mode, where it is made of many operators.
_EAGER_NEW_GELU = 5


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
    element = weight_bytes(job)
    replicated = _replicated_per_token(job, layer) / sequence_cut(layout)
    sharded = _sharded_per_token(job, layout, layer) / layout.tensor
    whole_inputs = element * gathered_elements(job, layout, layer)
    repeats_scores = (layout.recompute == int(Recompute.FULL)) | repeats(layout, Modules.CORE_ATTN)
    scores = scores_bytes_per_token(job, layout, layer.mixer) * np.logical_not(repeats_scores)
    masks = element * layer.mixer.kept_of_sequence(job.training.sequence_length)
    return replicated + sharded + whole_inputs + scores + masks


def _replicated_per_token(job: Job, layer: Layer) -> float:
    """Bytes a token of a layer that tensor parallelism replicates: what is as wide as the state."""
    model, element = job.model, weight_bytes(job)
    norms = layer.norms * _norm_element_bytes(job, layer) * model.hidden
    dropout_masks = layer.blocks * model.hidden * (model.dropout > 0)
    routing = layer.feed_forward.routing_bytes * (not job.engine.weighs_output)
    streams = element * layer.mixings * layer.streams.kept_elements if layer.streams else 0
    return norms + sum(_normed_bytes(job, layer)) + dropout_masks + routing + streams


def _sharded_per_token(job: Job, layout: LayoutLike, layer: Layer) -> Any:
    """Bytes a token of a layer that tensor ranks share, over all of them."""
    element, inputs = weight_bytes(job), input_bytes(job)
    mixer, part = layer.mixer, layer.feed_forward
    kept = mixer.kept_elements(
        repeats_keys=job.training.attention == "unfused" and not job.framework.fused,
        packs=job.framework.packs_attention,
    )
    # Norms of queries and keys keep their input, unless it is a view into a product that stays.
    is_kept_anyway = job.framework.packs_attention
    head_norms = 0 if is_kept_anyway else _norm_element_bytes(job, layer) * mixer.normed_elements
    # An fp8 output product keeps an fp8 copy of its input, which attention keeps as its result.
    copied = inputs * mixer.widths.values * (inputs < element)
    # Tokens come to a routed expert whole: gathered where its own ranks cut it.
    gathered = _gathered_per_token(job, part) * (layout.expert_tensor - 1)
    return (
        element * kept
        + head_norms
        + copied
        + feed_forward_bytes_per_token(job, part)
        + gathered
        - element * unsaved_elements(job, layer)
    )


def _norm_element_bytes(job: Job, layer: Layer) -> int:
    """Bytes that a norm keeps of an element of its input.

    An eager RMSNorm keeps the input in fp32, and the result before the weight.
    """
    is_upcast = not job.fuses_kernels and layer.norm.kind == "rmsnorm"
    return weight_bytes(job) + (FP32 if is_upcast else 0)


def _normed_bytes(job: Job, layer: Layer) -> tuple[float, float]:
    """Bytes a token of the normalised state that the mixer keeps, and the feed-forward.

    Products of one state share it, but for those in fp8, which keep a narrow copy each; a router
    then keeps the wide one.
    """
    element, inputs = weight_bytes(job), input_bytes(job)
    mixer, part = layer.mixer, layer.feed_forward
    if inputs < element:
        of_mixer = inputs * mixer.reads
        of_part = inputs * part.reads + element * (part.experts > 0)
    else:
        of_mixer = element * bool(mixer.parts)
        of_part = element * part.is_present
    return of_mixer * job.model.hidden, of_part * job.model.hidden


def _gathered_per_token(job: Job, part: FeedForward) -> float:
    """Bytes of a token's states that a layer's experts keep on each rank that cuts an expert."""
    kinds = weight_bytes(job), input_bytes(job)
    return part.per_token * part.token_bytes(*kinds, weighs_output=job.engine.weighs_output)


def scores_bytes_per_token(job: Job, layout: LayoutLike, mixer: Mixer) -> Any:
    """Bytes a token of one layer's attention scores."""
    return score_bytes(job) * mixer.scores(job.training.sequence_length) / layout.tensor


def repeated_bytes_per_token(job: Job, layout: LayoutLike, layer: Layer) -> tuple[Any, Any]:
    """Bytes a token that selective recomputation doesn't keep in one layer: those of its attention,
    and those of its MLP or experts.

    Repeating the dense MLP frees the normalised input too, which is made in the same module. The
    other normalisations are modules of their own before latent attention and before experts only.

    **Source**: Megatron-LM core_v0.16.1: core/transformer/transformer_layer.py:383-447 (layernorm,
    mlp); core/models/gpt/gpt_layer_specs.py (where a layernorm is fused);
    multi_latent_attention.py:838 (mla_up_proj keeps the latents).
    """
    mixer, part = layer.mixer, layer.feed_forward
    of_mixer, of_part = (size / sequence_cut(layout) for size in _normed_bytes(job, layer))

    up = weight_bytes(job) * mixer.rebuilt_elements / layout.tensor
    norm = repeats(layout, Modules.LAYERNORM) * of_mixer * ("layernorm" in mixer.modules)
    attention = repeats(layout, Modules.MLA_UP_PROJ) * up + norm
    if part.experts:
        return attention, _repeated_of_experts(job, layout, part, of_part)
    mlp = feed_forward_bytes_per_token(job, part) / layout.tensor
    return attention, repeats(layout, Modules.MLP) * (of_part + mlp)


def _repeated_of_experts(job: Job, layout: LayoutLike, part: FeedForward, normed: Any) -> Any:
    """Bytes a token that selective recomputation doesn't keep of experts.

    `normed` are the bytes of the normalised state that they keep without it.

    **Source**: Megatron-LM core_v0.16.1, core/transformer/moe/experts.py:738 (moe_act keeps the
    first product); moe/moe_layer.py:294, 432 (shared_experts and moe keep their input).
    """
    element, inputs = weight_bytes(job), input_bytes(job)
    norm = element * job.model.hidden / sequence_cut(layout)

    # The module `moe`: the whole part, but for its input.
    routing = part.routing_bytes * (not job.engine.weighs_output) / sequence_cut(layout)
    whole = feed_forward_bytes_per_token(job, part) / layout.tensor
    whole = whole + _gathered_per_token(job, part) * (layout.expert_tensor - 1) / layout.tensor
    whole = whole + normed - norm + routing

    # `moe_act`: what follows the first product. `shared_experts`: all but their input.
    copies = _mlp_copies(job, part)
    expert_copies = part.expert_copies(copies, weighs_output=job.engine.weighs_output)
    after_first = part.width_bytes(expert_copies, element, inputs) - part.ups * element
    activation = after_first * part.per_token * part.expert_width / layout.tensor
    shared = part.width_bytes(copies, element, inputs) * part.width / layout.tensor + normed - norm
    modules = repeats(layout, Modules.MOE_ACT) * activation
    modules = modules + repeats(layout, Modules.SHARED_EXPERTS) * shared

    repeated = np.where(repeats(layout, Modules.MOE), whole, modules)
    return repeated + repeats(layout, Modules.LAYERNORM) * norm


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
    # A mask byte and the 16-bit result (2205.05198 sec 4.1).
    dropout = 3 if job.model.attention_dropout > 0 else 0
    stays_narrow = job.model.family in _NARROW_SOFTMAX or job.model.attention_sinks
    upcasts = not job.framework.fused and not stays_narrow
    if is_local(job) and not fuses_softmax(job):
        # an fp32 softmax, of which dropout makes the 16-bit result that the product keeps
        return FP32 + (dropout or 2)
    return (EAGER_SCORE_BYTES if upcasts else 2) + dropout


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
        return (4 if eager else 3) + _clamped_copies(job, part)
    return _EAGER_NEW_GELU if eager and part.activation == "gelu_new" else 2


def _clamped_copies(job: Job, part: FeedForward) -> int:
    """Tensors of MLP width that clamping adds: gate and up once more, as the fused activation keeps
    what it takes, and clamping what came.

    **Source**: Megatron-LM core/fusions/fused_bias_geglu.py, weighted_bias_quick_geglu_impl, whose
    saved tensors were counted @ core_v0.16.1; fused experts of a graph clamp in their kernel.
    """
    is_apart = part.clamp is not None and any(job.engine.clamp_traffic_bytes)
    return part.ups if is_apart and not job.replays_experts else 0


def kept_per_token(job: Job, layout: LayoutLike, held: StageContents) -> Any:
    """Bytes a token that a stage keeps of its layers for each micro-batch in flight.

    **Source**: full recomputation keeps the input of each layer, or of each group of them, 2 bytes
    × hidden a token (2205.05198 sec 5; exactly that was measured with FakeTensorMode on Hugging
    Face Llama); Megatron-LM repeats the first layers of every chunk with a block
    (core/transformer/transformer_block.py:532-563 @ core_v0.16.1). **Assumes** that the kinds of
    layers that come first in the model are the first ones of each chunk.
    """
    repeated = repeated_layers(layout, held.layers)
    input_of_layer = weight_bytes(job) * job.model.state_width / sequence_cut(layout)
    kept = sum(
        count * _kept_bytes_per_token(job, layout, layer)
        for layer, count in _layers_kept(job, layout, held)
    )
    return repeated / layout.recompute_group * input_of_layer + kept


def copied_per_token(job: Job, layout: LayoutLike, held: StageContents) -> Any:
    """Bytes a token of the copies of attention's results that a stage keeps.

    Micro-batches of several sequences have them; of one, the result is transposed without a copy.
    """
    if not copies_attention(job):
        return 0.0 * held.layers
    return sum(
        count * weight_bytes(job) * layer.mixer.widths.values * layer.mixer.has_scores
        for layer, count in _layers_kept(job, layout, held)
    ) / (layout.tensor + 0.0 * held.layers)


def _layers_kept(job: Job, layout: LayoutLike, held: StageContents) -> Iterator[tuple[Layer, Any]]:
    """A stage's layers of each kind that full recomputation doesn't repeat."""
    left = repeated_layers(layout, held.layers)  # to repeat, of this kind and those after it
    for place, (layer, count) in enumerate(zip(job.model.averaged.kinds, held.kinds, strict=True)):
        limit = np.where(layout.recompute_layers > 0, layout.recompute_layers, count)
        later = sum(held.kinds[place + 1 :])
        of_kind = np.minimum(np.minimum(limit, count), left)
        repeated = np.where(later > 0, of_kind, left)  # the last kind takes the rest
        yield layer, count - repeated
        left = left - repeated


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
    model, element = job.model, weight_bytes(job)
    is_last = stage == layout.pipeline - 1
    mask = np.where((stage == 0) & (model.dropout > 0), 1, 0)
    # LoRA by peft: the embedding's output, which is made to require gradients, and the model's last
    # hidden states (counted).
    ends = 0 if job.training.lora is None or is_fused(job) else 3 * element
    # A depth keeps the state and the embedding that its norms take, and both side by side.
    joined = job.training.mtp_depths * is_last * 4 * element
    buffers = 0 * stage
    if job.engine.keeps_stage_ends:
        copies = (stage > 0) * 1 + (stage < layout.pipeline - 1)
        buffers = np.where(layout.pipeline > 1, copies * element, 0)
    # Several streams become one state at the end.
    collapsed = (model.streams.kept_elements if model.streams else 0) * is_last
    kept = (mask + ends + joined) * model.hidden + buffers * model.state_width
    return (kept + element * collapsed) / sequence_cut(layout)
