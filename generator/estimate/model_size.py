"""Parameters of a model, whole and by part: the counts that every ledger starts from.

Counts equal `sum(p.numel() for p in model.parameters())` of transformers' causal language models (tied weights once);
encoders are counted as `BertForPreTraining`, with pooler, masked-language-model head and next-sentence head.

Source: the modeling modules of huggingface/transformers 5.23, models/<model_type>/.
"""

from __future__ import annotations

from typing import Any

from ..catalog.records import Model
from .attention import attention_parameters, norm_widths


def parameter_count(model: Model) -> int:
    """All parameters, tied weights once."""
    outside = embedding_parameters(model) + position_parameters(model) + head_parameters(model)
    every = model.layers * (attention_parameters(model) + norm_parameters(model))
    experts = router_parameters(model) + model.experts * expert_parameters(model) + shared_expert_parameters(model)
    return (
        outside
        + final_parameters(model)
        + every
        + dense_layers(model) * mlp_parameters(model)
        + moe_layers(model) * experts
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
    """One layer's normalisations: hidden-wide ones, of queries and keys, and of MLA's latents."""
    queries_keys, latents = norm_widths(model)
    return _norm(model, model.norms_per_layer * model.hidden + queries_keys) + latents


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
    bias = model.vocab * (2 if model.mlm_head and not model.tied_embeddings else 1) if model.head_bias else 0
    pooler = _linear(model.hidden, model.hidden, bias=True) + _linear(model.hidden, 2, bias=True) if model.pooler else 0
    transform = _linear(model.hidden, model.hidden, bias=True) + _norm(model, model.hidden) if model.mlm_head else 0
    return _norm(model, model.final_norms * model.hidden) + bias + pooler + transform + _width_projection(model)


def padded_vocab(vocab: int, tensor: Any, multiple: int | None) -> Any:
    """Rows of the token table as trained: padded to `multiple` × tensor, if any. `tensor` may be a column."""
    if multiple is None:
        return vocab + 0 * tensor
    return -(-vocab // (multiple * tensor)) * (multiple * tensor)


def _linear(inputs: int, outputs: int, *, bias: bool) -> int:
    return inputs * outputs + (outputs if bias else 0)


def _mlp(hidden: int, width: int, *, gated: bool, bias: bool) -> int:
    up = _linear(hidden, width, bias=bias)
    return up * (2 if gated else 1) + _linear(width, hidden, bias=bias)


def _norm(model: Model, width: int) -> int:
    return {"layernorm": 2, "layernorm-no-bias": 1, "rmsnorm": 1, "none": 0}[model.norm] * width


def _width_projection(model: Model) -> int:
    """OPT-350m's matrix between the token table's width and `hidden`; there is one on each side."""
    return 0 if model.embedding_width is None else model.embedding_width * model.hidden
