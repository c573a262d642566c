"""The model that Megatron arguments describe."""

from __future__ import annotations

from typing import Any

from ....catalog.records import Model
from .described_facts import Facts


def model_of(facts: Facts) -> Model:
    """The model as far as the arguments say it; what they leave out gets a value that no rule stumbles over."""
    hidden, heads = facts.number("hidden", "--hidden-size"), facts.number("heads", "--num-attention-heads")
    ffn = facts.number("ffn", "--ffn-hidden-size", _default_ffn(facts, hidden))
    experts = _experts(facts)
    own_tensor = facts.arguments.has("--expert-tensor-parallel-size")
    moe_ffn = facts.number("moe_ffn", "--moe-ffn-hidden-size" if facts.is_lm else "--ffn-hidden-size", ffn)
    if own_tensor:
        facts.known.discard("moe_ffn")
    head_dim = facts.number("head_dim", "--kv-channels", hidden // heads if hidden and heads else None)
    bias = not facts.flag("biases", "--disable-bias-linear")
    vocab = facts.number("vocab", "--vocab-size")
    if facts.arguments.has("--make-vocab-size-divisible-by"):
        facts.known.discard("vocab")
    return Model(
        name="this model",
        family="megatron",
        layers=facts.number("layers", "--num-layers") or 1,
        hidden=hidden or 0,
        heads=heads or 1,
        kv_heads=_kv_heads(facts, heads) or heads or 1,
        head_dim=head_dim or 1,
        ffn=ffn or 0,
        vocab=vocab or 1,  # a lower bound: unknown, it is left out of what is counted
        max_positions=facts.number("positions", "--max-position-embeddings") or 1,
        gated_mlp=facts.flag("swiglu", "--swiglu"),
        activation="silu" if facts.arguments.has("--swiglu") else "gelu",
        tied_embeddings=not facts.flag("untied", "--untie-embeddings-and-output-weights"),
        **_positions(facts),
        norm=str(facts.arguments.value("--normalization", "LayerNorm")).lower(),
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=bias,
        dropout=facts.arguments.number("--hidden-dropout", 0.1) or 0.0,
        attention_dropout=facts.arguments.number("--attention-dropout", 0.1) or 0.0,
        experts=experts,
        experts_per_token=facts.number("top", "--moe-router-topk" if facts.is_lm else "--topk", 2) or 1,
        moe_ffn=moe_ffn or 0 if experts else 0,
        source=facts.arguments.path,
    )


def _default_ffn(facts: Facts, hidden: int | None) -> int | None:
    """Four times the hidden size; under SwiGLU two thirds of that, in whole 64s (both trees' arguments.py)."""
    if not hidden or not facts.arguments.sure("--swiglu"):
        return None
    return int((4 * hidden * 2 / 3) / 64) * 64 if facts.arguments.has("--swiglu") else 4 * hidden


def _kv_heads(facts: Facts, heads: int | None) -> int | None:
    if not facts.is_lm:
        return facts.number("kv_heads", "--num-key-value-heads", heads)
    if facts.arguments.has("--group-query-attention"):
        return facts.number("kv_heads", "--num-query-groups", 1)
    if heads and facts.arguments.sure("--group-query-attention"):
        facts.known.add("kv_heads")
    return heads


def _experts(facts: Facts) -> int:
    value = facts.arguments.value("--num-experts")
    experts = facts.arguments.integer("--num-experts") if value is not None else None
    if (experts is not None and experts >= 0) or facts.arguments.lacks("--num-experts"):
        facts.known.add("experts")
    count = experts or 0
    return 0 if not facts.is_lm and count == 1 else max(count, 0)


def _positions(facts: Facts) -> dict[str, Any]:
    rotary = facts.arguments.has("--use-rotary-position-embeddings")
    kind = facts.arguments.value("--position-embedding-type", "learned_absolute")
    learned = not rotary and kind == "learned_absolute" and not facts.arguments.has("--no-position-embedding")
    rows = facts.arguments.integer("--max-position-embeddings") or 0
    return {"position_embedding": "learned" if learned else "rotary", "position_rows": max(rows, 0) * learned}
