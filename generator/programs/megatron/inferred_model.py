"""The facts that Megatron arguments state, each with its place, and the model among them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from ...catalog.records import Model
from ...findings import Location
from .run import HEADS, LAYERS, MegatronRun, size


@dataclass(slots=True, kw_only=True)
class Facts:
    """What is known so far: names of facts, and the places of those that are written."""

    run: MegatronRun
    known: set[str] = field(default_factory=set)
    places: dict[str, Location] = field(default_factory=dict)

    def learn(self, fact: str, option: str | None = None) -> None:
        """Count a fact as known, and keep the place of its option if that is given."""
        self.known.add(fact)
        self.place(fact, option)

    def place(self, fact: str, option: str | None) -> None:
        """Keep the place of a fact's option if that is given."""
        if option is not None and self.run.has(option):
            self.places[fact] = self.run.locate(option)

    def number(self, fact: str, option: str, default: int | None = None) -> int | None:
        """A size of at least 1 that is given, or is surely `default`."""
        value = size(self.run.setting(option, default))
        if value is not None:
            self.learn(fact, option)
        return value

    def flag(self, fact: str, *options: str) -> bool:
        """Whether one of the flags is given, where that can be known."""
        option = next(filter(self.run.has, options), None)
        if option is not None or self.run.sure(*options):
            self.learn(fact, option)
        return option is not None


def model_of(facts: Facts) -> Model:
    """The model as far as the arguments describe it; unknown sizes get a value that breaks no rule."""
    run = facts.run
    hidden, heads = facts.number("hidden", "--hidden-size"), facts.number("heads", HEADS)
    ffn = facts.number("ffn", "--ffn-hidden-size", _default_ffn(run, hidden))
    experts = _experts(facts)
    moe_ffn = facts.number("moe_ffn", "--moe-ffn-hidden-size" if run.is_lm else "--ffn-hidden-size", ffn)
    head_dim = facts.number("head_dim", "--kv-channels", hidden // heads if hidden and heads else None)
    bias = not facts.flag("biases", "--disable-bias-linear")
    vocab = facts.number("vocab", "--vocab-size")
    if run.has("--expert-tensor-parallel-size"):
        facts.known.discard("moe_ffn")
    if run.has("--make-vocab-size-divisible-by"):
        facts.known.discard("vocab")
    return Model(
        name="this model",
        family="megatron",
        layers=facts.number("layers", LAYERS) or 1,
        hidden=hidden or 0,
        heads=heads or 1,
        kv_heads=_kv_heads(facts, heads) or heads or 1,
        head_dim=head_dim or 1,
        ffn=ffn or 0,
        vocab=vocab or 1,  # a lower bound: unknown, it is left out of what is counted
        max_positions=facts.number("positions", "--max-position-embeddings") or 1,
        gated_mlp=facts.flag("swiglu", "--swiglu", "--quick-geglu"),
        activation="silu" if run.has("--swiglu") else "gelu",
        tied_embeddings=not facts.flag("untied", "--untie-embeddings-and-output-weights"),
        **_positions(run),
        norm=str(run.value("--normalization", "LayerNorm")).lower(),
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=bias,
        dropout=run.number("--hidden-dropout", 0.1) or 0.0,
        attention_dropout=run.number("--attention-dropout", 0.1) or 0.0,
        experts=experts,
        experts_per_token=facts.number("top", "--moe-router-topk" if run.is_lm else "--topk", 2) or 1,
        moe_ffn=moe_ffn or 0 if experts else 0,
        **_attention(facts),
        source=run.path,
    )


def _default_ffn(run: MegatronRun, hidden: int | None) -> int | None:
    """Four times the hidden size; under SwiGLU two thirds of that, in whole 64s (both trees' arguments.py)."""
    if not hidden or not run.sure("--swiglu"):
        return None
    return int((4 * hidden * 2 / 3) / 64) * 64 if run.has("--swiglu") else 4 * hidden


def _kv_heads(facts: Facts, heads: int | None) -> int | None:
    if not facts.run.is_lm:
        return facts.number("kv_heads", "--num-key-value-heads", heads)
    if facts.run.has("--group-query-attention"):
        return facts.number("kv_heads", "--num-query-groups", 1)
    if heads and facts.run.sure("--group-query-attention"):
        facts.learn("kv_heads")
    return heads


def _attention(facts: Facts) -> dict[str, Any]:
    """Windows, sinks and latents; `--window-size (127,0)` is the query's token and 127 before it."""
    run = facts.run
    window = re.fullmatch(r"\(?\s*(\d{1,9})\s*,\s*0\s*\)?", str(run.value("--window-size")))
    if run.sure("--window-size", "--softmax-type"):
        facts.learn("window", "--window-size")
    return {
        "sliding_window": int(window[1]) + 1 if window else None,
        "attention_sinks": run.value("--softmax-type", "vanilla") in ("learnable", "off-by-one"),
        "kv_lora_rank": 1 if facts.flag("latent", "--multi-latent-attention") else 0,
    }


def _experts(facts: Facts) -> int:
    count = facts.run.integer("--num-experts")
    if (count is not None and count >= 0) or facts.run.lacks("--num-experts"):
        facts.learn("experts")
    return 0 if not facts.run.is_lm and count == 1 else max(count or 0, 0)


def _positions(run: MegatronRun) -> dict[str, Any]:
    learned = run.value("--position-embedding-type", "learned_absolute") == "learned_absolute"
    learned = learned and not run.has_any("--use-rotary-position-embeddings", "--no-position-embedding")
    rows = run.integer("--max-position-embeddings") or 0
    return {"position_embedding": "learned" if learned else "rotary", "position_rows": max(rows, 0) * learned}
