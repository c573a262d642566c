"""Sizes of a model: what its attention computes with, and its parameters, whole and by part, from which ledgers start.

All that the estimates know of a kind of attention (grouped queries, or latent as DeepSeek's) stands here, on the model
alone. Parameters equal `sum(p.numel() for p in model.parameters())` of transformers' causal language models (tied
weights once); encoders are counted as `BertForPreTraining`, with pooler, masked-language-model and next-sentence heads.

Source: the modeling modules of huggingface/transformers 5.23, models/<model_type>/.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..catalog.records import Model


class Projection(NamedTuple):
    """A linear layer as torch's Linear: its module's name, its widths, and whether it has a bias."""

    name: str
    inputs: int
    outputs: int
    bias: bool = False


def attention_widths(model: Model) -> tuple[int, int, int]:
    """Widths in elements per token of queries, keys and attention output (values), all heads together."""
    if model.is_mla:
        query = model.heads * (model.qk_nope_head_dim + model.qk_rope_head_dim)
        return query, query, model.heads * model.v_head_dim
    return (
        model.heads * model.head_dim,
        model.kv_heads * model.head_dim,
        model.heads * model.head_dim,
    )


def attention_projections(model: Model) -> tuple[Projection, ...]:
    """Linear layers of one layer's attention, with Llama's and DeepSeek's names.

    **Source**: DeepSeek-V2 (2405.04434) sec 2.1; names and biases as in transformers 5.23, LlamaAttention and
    DeepseekV3Attention.
    """
    hidden, bias = model.hidden, model.qkv_bias
    queries, keys, values = attention_widths(model)
    output = Projection("o_proj", values, hidden, model.output_bias)
    if not model.is_mla:
        keys_values = (Projection(name, hidden, keys, bias) for name in ("k_proj", "v_proj"))
        return (Projection("q_proj", hidden, queries, bias), *keys_values, output)
    latent_keys = Projection(
        "kv_a_proj_with_mqa", hidden, model.kv_lora_rank + model.qk_rope_head_dim, bias
    )
    (to_queries, to_keys), latent = latent_products(model), (latent_keys,)
    if not model.q_lora_rank:
        return (
            Projection("q_proj", *to_queries),
            *latent,
            Projection("kv_b_proj", *to_keys),
            output,
        )
    query = (
        Projection("q_a_proj", hidden, model.q_lora_rank, bias),
        Projection("q_b_proj", *to_queries),
    )
    return (*query, *latent, Projection("kv_b_proj", *to_keys), output)


def input_product(model: Model) -> tuple[int, bool]:
    """Width of the hidden state's product, and whether tensor ranks share it: queries, keys and values, or latents."""
    if model.is_mla:
        return model.q_lora_rank + model.kv_lora_rank + model.qk_rope_head_dim, False
    queries, keys, _ = attention_widths(model)
    return queries + 2 * keys, True


def latent_products(model: Model) -> tuple[tuple[int, int], ...]:
    """Widths of the products from MLA's latents (or the hidden state) to queries, and to keys and values."""
    if not model.is_mla:
        return ()
    keys_values = model.heads * (model.qk_nope_head_dim + model.v_head_dim)
    return (model.q_lora_rank or model.hidden, attention_widths(model)[0]), (
        model.kv_lora_rank,
        keys_values,
    )


def attention_parameters(model: Model) -> int:
    """One layer's attention: projections, their biases and sinks; without the norms inside it."""
    sinks = model.heads if model.attention_sinks else 0
    return sum((p.inputs + p.bias) * p.outputs for p in attention_projections(model)) + sinks


def kept_elements(model: Model, *, repeats_keys: bool, packs: bool) -> int:
    """Elements a token of queries, keys, values and output, and of MLA's latents, kept for the backward pass.

    `repeats_keys`: every query head gets a copy of its keys and values (transformers' repeat_kv). `packs`: Megatron
    projects queries, keys and values at once; rotation makes new queries and keys, but the values remain a view, which
    keeps the whole product alive (megatron/core/transformer/attention.py, get_query_key_value_tensors; the ranks of
    Llama 70B measured on B200 show it).
    """
    queries, keys, values = attention_widths(model)
    value_keys = values if model.is_mla else keys
    if repeats_keys:
        keys = value_keys = queries
    kept = queries + keys + value_keys + values + model.q_lora_rank + model.kv_lora_rank
    packed = packs and model.position_embedding == "rotary" and not model.is_mla
    return kept + (queries + keys) * packed


def mean_keys(model: Model, sequence: int) -> float:
    """Keys that a query attends to, in the mean over positions and layers.

    **Source**: counted from the masks of transformers' masking_utils.py (causal, sliding window, chunked).
    **Symbols**: s sequence, w window or chunk: s/2 where attention is whole and causal (s where it isn't), w - w²/2s
    where the window slides, w/2 where the sequence is cut into chunks.
    """
    whole = sequence / 2 if model.causal else float(sequence)
    window = model.sliding_window
    if window is None or window >= sequence:
        return whole
    part = window / 2 if model.chunked_attention else window - window**2 / (2 * sequence)
    share = len(model.full_attention_layers) / model.layers
    return share * whole + (1 - share) * part


def parameter_count(model: Model) -> int:
    """All parameters, tied weights once."""
    outside = (
        embedding_parameters(model)
        + position_parameters(model)
        + head_parameters(model)
        + final_parameters(model)
    )
    every = model.layers * (attention_parameters(model) + norm_parameters(model))
    experts = (
        router_parameters(model)
        + model.experts * expert_parameters(model)
        + shared_expert_parameters(model)
    )
    return (
        outside + every + dense_layers(model) * mlp_parameters(model) + moe_layers(model) * experts
    )


def active_parameter_count(model: Model) -> int:
    """Parameters that one token meets: of the routed experts, only those it is sent to."""
    idle = moe_layers(model) * (model.experts - model.experts_per_token) * expert_parameters(model)
    return parameter_count(model) - idle


def dense_layers(model: Model) -> int:
    """Layers with a dense MLP."""
    return model.dense_layers if model.is_moe else model.layers


def moe_layers(model: Model) -> int:
    """Layers that route tokens to experts."""
    return model.layers - dense_layers(model)


def mlp_parameters(model: Model) -> int:
    """One dense MLP."""
    return _mlp(model.hidden, model.ffn, gated=model.gated_mlp, bias=model.mlp_bias)


def expert_parameters(model: Model) -> int:
    """One routed expert; 0 for a dense model."""
    if not model.is_moe:
        return 0
    return _mlp(model.hidden, model.moe_ffn, gated=model.gated_mlp, bias=model.expert_bias)


def shared_expert_parameters(model: Model) -> int:
    """All shared experts of one MoE layer together, and their gate."""
    if not model.shared_ffn:
        return 0
    gate = model.hidden if model.shared_gate else 0
    return _mlp(model.hidden, model.shared_ffn, gated=model.gated_mlp, bias=model.mlp_bias) + gate


def router_parameters(model: Model) -> int:
    """The router of one MoE layer; 0 for a dense model."""
    return model.experts * (model.hidden + model.router_bias)


def norm_parameters(model: Model) -> int:
    """One layer's normalisations: hidden-wide ones, of queries and keys, and of MLA's latents (RMSNorm)."""
    heads = {"head": 2, "full": model.heads + model.kv_heads}.get(model.qk_norm, 0)
    whole = model.norms_per_layer * model.hidden + heads * model.head_dim
    return _norm(model, whole) + model.q_lora_rank + model.kv_lora_rank


def embedding_parameters(model: Model) -> int:
    """The token table, unpadded."""
    return model.vocab * (model.embedding_width or model.hidden)


def position_parameters(model: Model) -> int:
    """Learned position and token-type tables, norms on the embeddings, and the projection up to `hidden`."""
    tables = (model.position_rows + model.type_rows) * model.hidden
    return tables + _norm(model, model.embedding_norms * model.hidden) + _width_projection(model)


def head_parameters(model: Model) -> int:
    """The output layer's own matrix over the vocabulary, unpadded; 0 where it is the token table."""
    return 0 if model.tied_embeddings else embedding_parameters(model)


def final_parameters(model: Model) -> int:
    """Parts after the last layer beside the head's matrix: final norm, biases, projection down, BERT's heads."""
    # An untied BERT keeps the tied one's separate bias beside its decoder's own.
    bias = (
        model.vocab * (2 if model.mlm_head and not model.tied_embeddings else 1)
        if model.head_bias
        else 0
    )
    pooler = (
        (model.hidden + 1) * (model.hidden + 2) if model.pooler else 0
    )  # two products with biases
    transform = (
        (model.hidden + 1) * model.hidden + _norm(model, model.hidden) if model.mlm_head else 0
    )
    return (
        _norm(model, model.final_norms * model.hidden)
        + bias
        + pooler
        + transform
        + _width_projection(model)
    )


def padded_vocab(vocab: int, tensor: Any, multiple: int | None) -> Any:
    """Rows of the token table as trained: padded to `multiple` × tensor, if any. `tensor` may be a column."""
    if multiple is None:
        return vocab + 0 * tensor
    return -(-vocab // (multiple * tensor)) * (multiple * tensor)


def _mlp(hidden: int, width: int, *, gated: bool, bias: bool) -> int:
    return (hidden + bias) * width * (1 + gated) + (width + bias) * hidden


def _norm(model: Model, width: int) -> int:
    return {"layernorm": 2, "layernorm-no-bias": 1, "rmsnorm": 1, "none": 0}[model.norm] * width


def _width_projection(model: Model) -> int:
    """OPT-350m's matrix between the token table's width and `hidden`; there is one on each side."""
    return 0 if model.embedding_width is None else model.embedding_width * model.hidden
