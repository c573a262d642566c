"""Parameters of a model, whole and by part, from which ledgers start.

Sums over layers are sums over their kinds, which say their own (catalog/layers). Parameters equal
`sum(p.numel() for p in model.parameters())` of transformers' causal language models (tied weights
once); encoders are counted as `BertForPreTraining`, with pooler, masked-language-model and
next-sentence heads.

Source: the modeling modules of huggingface/transformers 5.23, models/<model_type>/.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ..catalog.layers.stack import Layer, Stack
from ..catalog.model import Model

Size = TypeVar("Size", int, float)


def over_layers(model: Model, size: Callable[[Layer], Size]) -> Size:
    """The sum of a size over all layers."""
    return over_kinds(model.stack, size)


def over_kinds(stack: Stack, size: Callable[[Layer], Size]) -> Size:
    """The sum of a size over all layers of a stack."""
    pairs = zip(stack.kinds, stack.counts, strict=True)
    return sum(count * size(layer) for layer, count in pairs)


def parameter_count(model: Model) -> int:
    """All parameters, tied weights once."""
    outside = (
        embedding_parameters(model)
        + position_parameters(model)
        + head_parameters(model)
        + final_parameters(model)
    )
    return outside + over_layers(model, lambda layer: layer.parameters)


def active_parameter_count(model: Model) -> int:
    """Parameters that one token meets: of the routed experts, only those it is sent to."""

    def idle(layer: Layer) -> int:
        return layer.feed_forward.parameters - layer.feed_forward.active_parameters

    return parameter_count(model) - over_layers(model, idle)


def embedding_parameters(model: Model) -> int:
    """The token table, unpadded."""
    return model.vocab * (model.embedding_width or model.hidden)


def position_parameters(model: Model) -> int:
    """Learned position and token-type tables, further tables, norms on the embeddings, and the
    projection up to `hidden`.
    """
    tables = (model.position_rows + model.type_rows) * model.hidden + model.table_elements
    return tables + _norm(model, model.embedding_norms * model.hidden) + _width_projection(model)


def head_parameters(model: Model) -> int:
    """The output layer's own matrix over the vocabulary, unpadded.

    0 where it is the token table.
    """
    return 0 if model.tied_embeddings else embedding_parameters(model)


def final_parameters(model: Model) -> int:
    """Parts after the last layer beside the head's matrix: final norm, biases, projection down,
    what collapses streams, BERT's heads.
    """
    # An untied BERT keeps the tied one's separate bias beside its decoder's own.
    biases = 2 if model.mlm_head and not model.tied_embeddings else 1
    bias = biases * model.vocab if model.head_bias else 0
    # The pooler, and the head that tells two next sentences apart: products with biases.
    pooler = (model.hidden + 1) * (model.hidden + 2) if model.pooler else 0
    transform = 0
    if model.mlm_head:
        transform = (model.hidden + 1) * model.hidden + _norm(model, model.hidden)
    return (
        _norm(model, model.final_norms * model.hidden)
        + bias
        + pooler
        + transform
        + (model.streams.head_parameters if model.streams else 0)
        + _width_projection(model)
    )


def padded_vocab(vocab: int, tensor: Any, multiple: int | None) -> Any:
    """Rows of the token table as trained: padded to `multiple` × tensor, if any.

    `tensor` may be a column.
    """
    if multiple is None:
        return vocab + 0 * tensor
    return -(-vocab // (multiple * tensor)) * (multiple * tensor)


def _norm(model: Model, width: int) -> int:
    return model.norm.each * width


def _width_projection(model: Model) -> int:
    """OPT-350m's matrix between the token table's width and `hidden`; there is one on each side."""
    return 0 if model.embedding_width is None else model.embedding_width * model.hidden
