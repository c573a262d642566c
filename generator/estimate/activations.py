"""Activations kept for the backward pass: bytes per token and layer, by framework, attention and recomputation."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..catalog.records import Model
from ..job.records import Job
from . import model_size
from .adapters import unsaved_elements
from .layout import LayoutLike, Modules, Recompute
from .stages import StageLayers
from .states import weight_bytes


def repeats(layout: LayoutLike, module: Modules) -> Any:
    """Whether selective recomputation repeats one of these modules."""
    return (layout.recompute == Recompute.SELECTIVE) & ((layout.recompute_modules & int(module)) > 0)


def full_share(job: Job, layout: LayoutLike) -> Any:
    """The share of the layers that full recomputation repeats: `recompute_layers` of each chunk, or all."""
    chunks = layout.pipeline * layout.virtual_pipeline
    share = np.minimum(layout.recompute_layers * chunks / job.model.layers, 1.0)
    return np.where(layout.recompute == Recompute.FULL, np.where(layout.recompute_layers > 0, share, 1.0), 0.0)


def keeps_scores(layout: LayoutLike) -> Any:
    """Whether a layer that isn't repeated as a whole keeps its attention scores."""
    return np.logical_not(repeats(layout, Modules.CORE_ATTN))


def repeated_layers(layout: LayoutLike, layers: Any) -> Any:
    """Of a stage's `layers`, those that full recomputation repeats."""
    in_blocks = np.minimum(layers, layout.recompute_layers * layout.virtual_pipeline)
    some = np.where(layout.recompute_layers > 0, in_blocks, layers)
    return np.where(layout.recompute == Recompute.FULL, some, 0)


def repeated_parameters(job: Job, layout: LayoutLike) -> Any:
    """Parameters that a token is multiplied with once more, over all layers, by selective recomputation."""
    model = job.model
    total = repeats(layout, Modules.MLP) * _dense_mlps(job)
    if model.is_mla:
        up = model.q_lora_rank * (model.qk_nope_head_dim + model.qk_rope_head_dim)
        up += model.kv_lora_rank * (model.qk_nope_head_dim + model.v_head_dim)
        total = total + repeats(layout, Modules.MLA_UP_PROJ) * model.layers * model.heads * up
    if model.is_moe:
        shared = model_size.shared_expert_parameters(model)
        active = model.experts_per_token * model_size.expert_parameters(model) + model_size.router_parameters(model)
        whole = repeats(layout, Modules.MOE)
        parts = whole * active + (whole | repeats(layout, Modules.SHARED_EXPERTS)) * shared
        total = total + parts * model_size.moe_layers(model)
    return total


def _dense_mlps(job: Job) -> int:
    return model_size.dense_layers(job.model) * model_size.mlp_parameters(job.model)


#: Hugging Face's eager attention: an fp32 softmax and its 16-bit copy; these families' softmax stays in 16 bit.
_EAGER_SCORE_BYTES = 6
_NARROW_SOFTMAX = frozenset({"gpt2", "bert"})
#: Tensors of MLP width that one activation keeps. `gelu_new` is made of many operators in eager mode.
_EAGER_NEW_GELU = 5
# Both, and every eager figure below, follow from the allocator's count of the real models
# (tests/estimate/test_memory_tracker.py).


def local_tokens(job: Job, layout: LayoutLike) -> Any:
    """Tokens of one micro-batch on one rank: micro_batch * sequence / context."""
    return layout.micro_batch * job.training.sequence_length / layout.context


def sequence_cut(layout: LayoutLike) -> Any:
    """By how much sequence parallelism divides what tensor parallelism replicates."""
    return np.where(layout.sequence_parallel, layout.tensor, 1)


def attention_widths(model: Model) -> tuple[int, int, int]:
    """Widths in elements per token of queries, keys and attention output (values), all heads together."""
    if model.is_mla:
        query = model.heads * (model.qk_nope_head_dim + model.qk_rope_head_dim)
        return query, query, model.heads * model.v_head_dim
    return model.heads * model.head_dim, model.kv_heads * model.head_dim, model.heads * model.head_dim


def layer_bytes_per_token(job: Job, layout: LayoutLike, *, moe: bool) -> Any:
    """Bytes a token that one layer keeps when no more than its scores are recomputed.

    **Source**: 2205.05198 Table 2 (34 bytes × hidden for GPT with dropout, 10 of them replicated under tensor
    parallelism) taken apart by tensor; the Llama sum 12 + 4g/a + 6f/h was checked with autograd's saved-tensor hooks.
    **Assumes** flash attention keeps no scores; a balanced router.
    """
    model, element = job.model, weight_bytes(job)
    norms = model.norms_per_layer * (element * model.hidden + _norm_upcast(job) * model.hidden)
    masks = 2 * model.hidden * (model.dropout > 0)
    # An fp8 product keeps its input in fp8; attention keeps its result, the output product's input, for itself.
    inputs = input_bytes(job)
    replicated = norms + 2 * inputs * model.hidden + masks
    copied = inputs * attention_widths(model)[2] * (inputs < element)
    sharded = element * attention_elements(job) + copied
    # Tokens come to a routed expert whole: gathered where its own ranks cut it.
    gathered = moe * model.experts_per_token * 2 * element * model.hidden * (layout.expert_tensor - 1)
    sharded = sharded + mlp_bytes_per_token(job, moe=moe) + gathered - element * unsaved_elements(job, moe=moe)
    scores = scores_bytes_per_token(job, layout) * (keeps_scores(layout) & (layout.recompute != Recompute.FULL))
    return replicated / sequence_cut(layout) + sharded / layout.tensor + scores


def scores_bytes_per_token(job: Job, layout: LayoutLike) -> Any:
    """Bytes a token of one layer's attention scores."""
    return score_bytes(job) * job.model.heads * job.training.sequence_length / layout.tensor


def repeated_bytes_per_token(job: Job, layout: LayoutLike, *, moe: bool) -> tuple[Any, Any]:
    """Bytes a token that selective recomputation doesn't keep in one layer: of its attention, of its MLP or experts.

    Repeating the dense MLP frees the normalised input too, which is made in the same module. The other normalisations
    are modules of their own before latent attention and before experts only.

    **Source**: Megatron-LM core_v0.16.1: core/transformer/transformer_layer.py:383-447 (layernorm, mlp);
    core/models/gpt/gpt_layer_specs.py (where a layernorm is fused); core/transformer/moe/experts.py:738 (moe_act keeps
    the first product); moe/moe_layer.py:294, 432 (shared_experts and moe keep their input);
    multi_latent_attention.py:838 (mla_up_proj keeps the latents).
    """
    model, element = job.model, weight_bytes(job)
    queries, keys, _ = attention_widths(model)
    norm = element * model.hidden / sequence_cut(layout)
    up = element * (queries + keys + model.heads * model.v_head_dim) / layout.tensor if model.is_mla else 0.0
    norms = repeats(layout, Modules.LAYERNORM) * norm
    attention = repeats(layout, Modules.MLA_UP_PROJ) * up + norms * model.is_mla
    if not moe:
        whole = norm + mlp_bytes_per_token(job, moe=False) / layout.tensor
        return attention, repeats(layout, Modules.MLP) * whole
    width = element / layout.tensor
    gathered = model.experts_per_token * 2 * model.hidden * (layout.expert_tensor - 1)
    whole = mlp_bytes_per_token(job, moe=True) / layout.tensor + width * gathered
    activation = repeats(layout, Modules.MOE_ACT) * width * model.experts_per_token * model.moe_ffn
    shared = repeats(layout, Modules.SHARED_EXPERTS) * width * _mlp_copies(job) * model.shared_ffn
    return attention, np.where(repeats(layout, Modules.MOE), whole, activation + shared) + norms


def mlp_bytes_per_token(job: Job, *, moe: bool) -> float:
    """Bytes a token that one layer's MLP, or its experts, keep over all tensor ranks."""
    model, element = job.model, weight_bytes(job)
    inputs = input_bytes(job)
    width = (_mlp_copies(job) - 1) * element + inputs
    if not moe:
        return width * model.ffn
    routed = model.experts_per_token * ((element + inputs) * model.hidden + width * model.moe_ffn)
    return routed + width * model.shared_ffn


def input_bytes(job: Job) -> int:
    """Bytes an element of a linear layer's input, kept for its weight's gradient: one in fp8.

    **Source**: NVIDIA/TransformerEngine 2.9, pytorch/module/linear.py and layernorm_linear.py: the input is saved
    quantized, by columns, which is the form that the weight gradient takes.
    """
    return 1 if job.training.precision == "fp8" else weight_bytes(job)


def attention_elements(job: Job) -> int:
    """Elements a token of queries, keys, values and output, and of MLA's latents.

    Megatron projects queries, keys and values at once. Rotation makes new queries and keys, but the values remain a
    view, which keeps the whole product alive (megatron/core/transformer/attention.py, get_query_key_value_tensors; the
    ranks of Llama 70B measured on B200 show it).
    """
    model = job.model
    queries, keys, values = attention_widths(model)
    value_keys = model.heads * model.v_head_dim if model.is_mla else keys
    if job.training.attention == "unfused" and not job.framework.fused:
        keys = value_keys = queries  # repeat_kv: every query head gets a copy of its keys and values
    kept = queries + keys + value_keys + values + model.q_lora_rank + model.kv_lora_rank
    packed = job.framework.packs_attention and model.position_embedding == "rotary" and not model.is_mla
    return kept + (queries + keys) * packed


def _norm_upcast(job: Job) -> int:
    """Extra bytes an element that an eager RMSNorm keeps: its input in fp32, and the result before the weight."""
    return 4 if not job.fuses_kernels and job.model.norm == "rmsnorm" else 0


def score_bytes(job: Job) -> float:
    """Bytes kept per attention score: none with flash attention."""
    if job.training.attention == "flash":
        return 0.0
    dropout = 3 if job.model.attention_dropout > 0 else 0  # a mask byte and the 16-bit result (2205.05198 sec 4.1)
    upcasts = not job.framework.fused and job.model.family not in _NARROW_SOFTMAX
    return (_EAGER_SCORE_BYTES if upcasts else 2) + dropout


def _mlp_copies(job: Job) -> int:
    """Tensors of MLP width that are kept: input and result of the activation, gate, up, and what eager mode adds."""
    eager = not job.fuses_kernels
    if job.model.gated_mlp:
        return 4 if eager else 3
    return _EAGER_NEW_GELU if eager and job.model.activation == "gelu_new" else 2


def stored_bytes(job: Job, layout: LayoutLike, held: StageLayers, flying: Any) -> Any:
    """Bytes kept by a stage for `flying` micro-batches in flight.

    **Source**: full recomputation keeps the input of each layer, or of each group of them, 2 bytes × hidden a token
    (2205.05198 sec 5; exactly that was measured with FakeTensorMode on Hugging Face Llama); Megatron-LM repeats the
    first layers of every chunk with a block (core/transformer/transformer_block.py:532-563 @ core_v0.16.1).
    **Assumes** that a model's dense layers are among the first of its stage's first chunk.
    """
    repeated = repeated_layers(layout, held.layers)
    dense = np.minimum(np.where(layout.recompute_layers > 0, layout.recompute_layers, held.dense), held.dense)
    dense = np.where(held.moe > 0, np.minimum(dense, repeated), repeated)
    kept = (held.dense - dense) * _kept_bytes_per_token(job, layout, moe=False)
    if job.model.is_moe:
        kept = kept + (held.moe - (repeated - dense)) * _kept_bytes_per_token(job, layout, moe=True)
    inputs = repeated / layout.recompute_group * (weight_bytes(job) * job.model.hidden / sequence_cut(layout))
    return flying * local_tokens(job, layout) * (inputs + kept)


def _kept_bytes_per_token(job: Job, layout: LayoutLike, *, moe: bool) -> Any:
    """Bytes a token that one layer keeps which isn't repeated as a whole."""
    scores = scores_bytes_per_token(job, layout) * (layout.recompute == Recompute.FULL)
    return layer_bytes_per_token(job, layout, moe=moe) + scores - sum(repeated_bytes_per_token(job, layout, moe=moe))


def boundary_bytes(job: Job, layout: LayoutLike, stage: Any, flying: Any) -> Any:
    """Bytes kept at a stage's ends for `flying` micro-batches: the embedding's dropout mask, the pipeline's buffers.

    **Source**: 2205.05198 sec 4.3 (mask); DeepSpeed 0.19.8, runtime/pipe/engine.py, _exec_forward_pass: the received
    input stays in its buffer beside the clone that is computed with, and the output until its backward pass. Megatron
    frees the output's data at once (pipeline_parallel/schedules.py, deallocate_output_tensor).
    """
    mask = np.where((stage == 0) & (job.model.dropout > 0), 1, 0)
    # LoRA: the embedding's output, which is made to require gradients, and the model's last hidden states (counted).
    ends = 0 if job.training.lora is None else 3 * weight_bytes(job)
    buffers = 0 * stage
    if job.framework.runs("DeepSpeed engine"):
        copies = (stage > 0) * 1 + (stage < layout.pipeline - 1)
        buffers = np.where(layout.pipeline > 1, copies * weight_bytes(job), 0)
    return flying * local_tokens(job, layout) * (mask + ends + buffers) * job.model.hidden / sequence_cut(layout)


#: Bytes a logit at the loss's peak. Eager: the fp32 logits, their softmax and its gradient live at once; an encoder's
#: loss stays in 16 bit (both counted by tests/estimate/test_memory_tracker.py). Megatron: 16-bit logits and an fp32
#: copy, worked on in place (megatron/core/tensor_parallel/cross_entropy.py, core_v0.16.1), which Megatron-DeepSpeed's
#: older one (4efb479d) copies again to subtract the maximum. Fused: 16-bit logits, the gradient.
_EAGER_LOGIT_BYTES = 12
_EAGER_ENCODER_LOGIT_BYTES = 6
_UNFUSED_LOGIT_BYTES = 6
_COPIED_LOGIT_BYTES = 10
_FUSED_LOGIT_BYTES = 4


def workspace_bytes(job: Job, layout: LayoutLike) -> Any:
    """Bytes alive only while one layer runs backward: what it recomputed, and its largest gradients.

    The MLP goes first; when attention's scores have their gradients, what the MLP kept is free. Under sequence
    parallelism the gathered input is back, whole, for the weight gradient (2205.05198 sec 4.2.2).
    """
    model, element, tokens = job.model, weight_bytes(job), local_tokens(job, layout)
    moe = model.is_moe
    pairs = model.heads * job.training.sequence_length / layout.tensor
    scores = scores_bytes_per_token(job, layout)
    repeated = np.maximum(*repeated_bytes_per_token(job, layout, moe=moe))
    recomputed = np.where(
        layout.recompute == Recompute.FULL,
        (layer_bytes_per_token(job, layout, moe=moe) + scores) * layout.recompute_group,
        repeated + np.where(repeats(layout, Modules.CORE_ATTN), scores, 0),
    )
    width = model.experts_per_token * model.moe_ffn + model.shared_ffn if moe else model.ffn
    mlp = tokens * element * _mlp_gradients(job) * width / layout.tensor + _whole_weight_bytes(job, layout)
    attention = tokens * (_score_gradient_bytes(job) * pairs - mlp_bytes_per_token(job, moe=moe) / layout.tensor)
    through = element * model.hidden * np.where(layout.sequence_parallel, 1 / layout.tensor + 1, 1)
    return tokens * (recomputed + through) + np.maximum(mlp, attention)


def _mlp_gradients(job: Job) -> int:
    """Gradients of MLP width alive at once: of gate and up, and in eager mode their product; else in and out."""
    scaled = job.training.lora is not None  # the gradient that goes on to an adapter
    return (3 if job.model.gated_mlp and not job.fuses_kernels and not job.model.is_moe else 2) + scaled


def _score_gradient_bytes(job: Job) -> float:
    """Bytes a score of the gradients before and after the softmax; fused softmax works in place."""
    if job.training.attention == "flash":
        return 0.0
    return score_bytes(job) if score_bytes(job) >= _EAGER_SCORE_BYTES else 2.0 * weight_bytes(job)


def _whole_weight_bytes(job: Job, layout: LayoutLike) -> Any:
    """What a backward product holds for its weight: the gradient, none of a frozen one, but its 16 bits if it has 4."""
    if job.training.lora is not None and job.training.lora.base == "unquantized":
        return 0.0 * layout.tensor
    return weight_gradient_bytes(job, layout)


def weight_gradient_bytes(job: Job, layout: LayoutLike) -> Any:
    """The largest product's weight gradient of a layer before it is added to the sum.

    Megatron adds inside the product, but hands autograd an empty tensor of that size all the same
    (megatron/core/tensor_parallel/layers.py, LinearWithGradAccumulationAndAsyncCommunication).
    """
    model = job.model
    ups = 2 if model.gated_mlp and job.fuses_kernels else 1
    if model.is_moe:
        widest = ups * model.moe_ffn * model.experts / (layout.expert * layout.expert_tensor)
    else:
        widest = ups * model.ffn / layout.tensor + 0 * layout.expert
    return weight_bytes(job) * model.hidden * widest


def table_gradient_bytes(job: Job, rows: Any) -> Any:
    """The embedding's or head's gradient before it is added, `rows` being the vocabulary rows of one rank."""
    return weight_bytes(job) * (job.model.embedding_width or job.model.hidden) * rows


def logit_bytes(job: Job) -> float:
    """Bytes a logit at the peak of the loss."""
    wide = weight_bytes(job) / 2
    kind = job.training.cross_entropy or job.framework.cross_entropy
    if kind == "fused":
        return _FUSED_LOGIT_BYTES * wide
    if job.fuses_kernels:
        return (_COPIED_LOGIT_BYTES if job.framework.runs("Megatron-DeepSpeed") else _UNFUSED_LOGIT_BYTES) * wide
    return _EAGER_LOGIT_BYTES if job.model.causal else _EAGER_ENCODER_LOGIT_BYTES * wide


def output_bytes(job: Job, layout: LayoutLike, rows: Any) -> Any:
    """Bytes of logits and loss on the last stage, `rows` being the vocabulary rows of one rank.

    The peak is the loss's, or the head's weight gradient with the logits and their gradient. A chunked loss holds as
    many logits at a time as a chunk's tokens make of the hidden size, and the gradient of its input (Liger's fused
    linear cross-entropy, ops/fused_linear_cross_entropy.py).
    """
    model, element = job.model, weight_bytes(job)
    fused = job.fuses_kernels
    chunked = (job.training.cross_entropy or "") == "chunked" or (fused and not job.framework.fused)
    logits = local_tokens(job, layout) * (model.hidden if chunked else rows)
    head = 2 * element * logits + table_gradient_bytes(job, rows) * (job.training.lora is None)
    final = 2 * element * model.hidden / sequence_cut(layout)
    return np.maximum(logit_bytes(job) * logits, head) + local_tokens(job, layout) * final
