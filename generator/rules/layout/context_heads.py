"""Hierarchical context parallelism: some of the context ranks exchange heads, the others keys and values."""

from __future__ import annotations

import numpy as np

from ...estimate.layout import LayoutLike
from ...facts.facts import knows
from ...findings import ERROR
from ...job.records import Job
from ...rule import InFiles
from ..columns import divides, implies
from ..numbers import divisors
from ..planned import Judgement, layouts, lm_layouts
from ..sources import derived, transformer_engine

_ATTENTION = "attention/dot_product_attention/context_parallel.py"
_LATENT = f"NVIDIA/TransformerEngine transformer_engine/pytorch/{_ATTENTION}:4032 @ v2.12 (gone in v2.15)"


def exchanges_heads_only(job: Job) -> bool:
    """Whether the model's attention runs under context parallelism only where all ranks exchange heads (a2a)."""
    if not job.framework.runs("Megatron-LM"):
        return False
    window = job.model.sliding_window if knows(job, "sequence_length") else None
    return job.model.attention_sinks or (window is not None and window < job.training.sequence_length)


_elsewhere = layouts("context_heads", applies=lambda job: not job.framework.runs("Megatron-LM"))
_exchanged = lm_layouts("context_heads", "tensor", "heads", "kv_heads", "kv_lora_rank")
_local = lm_layouts("context_heads", "context", "sliding_window", "attention_sinks", applies=exchanges_heads_only)
_latent = lm_layouts("context_heads", "context", "kv_lora_rank", applies=lambda job: job.model.is_mla)


@_elsewhere.rule("MLM129", ERROR, "silent", derived("Ulysses exchanges heads among all ranks; there is no other level"))
def levels_of_context_are_megatrons(job: Job, layout: LayoutLike) -> Judgement:
    """Context parallelism of two levels needs Megatron-LM.

    Prevents: No error: there is no such option, and time and memory would not be what was planned.
    Fix: set layout.context_heads to 1, or use framework: megatron-lm"""
    yield layout.context_heads == 1
    message = f"{job.says('context_heads', layout.context_heads)} is not available with"
    message += f" {job.says('framework', job.framework)}"
    yield message, f"use {job.says('context_heads', 1)}, or {job.says('framework', 'megatron-lm')}"


@lm_layouts("context_heads", "context").rule(
    "MLM130", ERROR, "init", derived("--hierarchical-context-parallel-sizes multiply to the context parallel size")
)
def head_ranks_divide_context(job: Job, layout: LayoutLike) -> Judgement:
    """The ranks that exchange heads divide the context parallel size.

    Prevents: Megatron-LM stops at start: the hierarchical sizes don't multiply to the context parallel size.
    Fix: set layout.context_heads to a divisor of context"""
    yield divides(layout.context_heads, layout.context)
    heads, context = job.says("context_heads", layout.context_heads), job.says("context", layout.context)
    yield f"{heads} does not divide {context}", f"use {job.says('context_heads', *divisors(int(layout.context)))}"


@_exchanged.rule("MLM131", ERROR, "training", transformer_engine(f"{_ATTENTION}:4246"), InFiles())
def head_ranks_divide_heads(job: Job, layout: LayoutLike) -> Judgement:
    """Tensor × the context ranks that exchange heads divides the heads, and the key-value heads.

    Prevents: Training stops in the first layer: cp_comm_type='a2a' requires num_heads % cp_size == 0.
    Fix: set layout.context_heads to a divisor of the key-value heads of a tensor rank"""
    model, cut = job.model, layout.tensor * layout.context_heads
    kv_heads = model.heads if model.is_mla else model.kv_heads
    yield implies(layout.context_heads > 1, divides(cut, model.heads) & divides(cut, kv_heads))
    fitting = divisors(kv_heads // layout.tensor) if kv_heads % layout.tensor == 0 else [1]
    message = f"{job.says('context_heads', layout.context_heads)} with {job.says('tensor', layout.tensor)} does not"
    message += f" divide {model.heads} heads and {kv_heads} key-value heads"
    yield message, f"use {job.says('context_heads', *fitting)}"


@_local.rule("MLM132", ERROR, "training", transformer_engine(f"{_ATTENTION}:5057, 5066"), InFiles())
def local_attention_exchanges_heads(job: Job, layout: LayoutLike) -> Judgement:
    """Under context parallelism, attention with a window or with sinks exchanges heads among all ranks (a2a).

    Prevents: Transformer Engine stops: context parallelism doesn't support sliding window attention with p2p.
    Fix: set layout.context_heads to the context parallel size, or context to 1"""
    yield layout.context_heads == layout.context
    model = job.model
    what = "attention sinks" if model.attention_sinks else f"a window of {model.sliding_window} tokens"
    given = f"{job.says('context', layout.context)} and {job.says('context_heads', layout.context_heads)}"
    message = f"{given} with {what}: all ranks must exchange heads"
    yield message, f"use {job.says('context_heads', layout.context)}, or {job.says('context', 1)}"


@_latent.rule(
    "MLM133", ERROR, "training", f"{transformer_engine(_ATTENTION)}; at v2.12 line 4032 refuses it", InFiles()
)
def latent_attention_keeps_a_ring(job: Job, layout: LayoutLike) -> Judgement:
    """Under context parallelism, latent attention keeps a ring: some of its ranks exchange keys and values.

    Prevents: Transformer Engine up to 2.12 stops: context parallelism does not support MLA with a2a.
    Fix: set layout.context_heads to less than context"""
    yield np.logical_or(layout.context_heads == 1, layout.context_heads < layout.context)
    given = f"{job.says('context_heads', layout.context_heads)} and {job.says('context', layout.context)}"
    message = f"{given} with the latent attention of {job.model.name}: no ring is left"
    yield message, f"use {job.says('context_heads', *divisors(int(layout.context))[:-1])}"
