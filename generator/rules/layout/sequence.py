"""Sequence parallelism (Megatron's, along tensor ranks) and context parallelism (ring or Ulysses)."""

from __future__ import annotations

from typing import Any

from ...estimate.layout import Layout, LayoutLike
from ...findings import Severity
from ...job.records import Job
from ..columns import divide_either_way, divides, implies
from ..numbers import divisors, listed, nearest
from ..planning_rule import LayoutRule
from ..sources import deepspeed, derived, megatron_deepspeed, megatron_lm
from .tensor import has_grouped_heads, tensor_values


def sequence_parallel_needs_tensor(_: Job, layout: LayoutLike) -> Any:
    """Sequence parallelism runs along tensor ranks: without them Megatron switches it off.

    An error, though Megatron only warns: the layout would be the same as the one without it.
    """
    return implies(layout.sequence_parallel, layout.tensor > 1)


def _explain_needs_tensor(_: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"sequence_parallel: true with tensor: {layout.tensor} has no ranks to run along",
        "sequence_parallel: false, or tensor: 2 or more",
    )


def sequence_parallel_is_megatrons(_: Job, layout: LayoutLike) -> Any:
    """Only the Megatrons' layers run sequence parallelism."""
    return implies(layout.sequence_parallel, False)


def _explain_megatrons(job: Job, _: Layout) -> tuple[str, str]:
    return (
        f"sequence_parallel: true is not available with framework: {job.framework}",
        "sequence_parallel: false (context: N splits the sequence by Ulysses)",
    )


def sequence_divides_over_ranks(job: Job, layout: LayoutLike) -> Any:
    """With sequence parallelism, every tensor rank holds an equal piece of its context rank's sequence."""
    return implies(layout.sequence_parallel, divides(layout.tensor * layout.context, job.training.sequence_length))


def _explain_over_ranks(job: Job, layout: Layout) -> tuple[str, str]:
    tokens = job.training.sequence_length
    ranks = layout.tensor * layout.context
    fitting = [t for t in tensor_values(job) if t > 1 and tokens % (t * layout.context) == 0]
    instead = f", or tensor: {listed(fitting)}" if fitting else ""
    return (
        f"sequence_parallel: true cuts a sequence of {tokens} tokens over {ranks} ranks"
        f" (tensor {layout.tensor} × context {layout.context}), which does not divide it",
        f"sequence_parallel: false{instead}",
    )


def moe_tensor_needs_sequence_parallel(_: Job, layout: LayoutLike) -> Any:
    """Megatron-LM trains MoE layers with tensor parallelism only when sequence parallelism is on."""
    return implies(layout.tensor > 1, layout.sequence_parallel)


def _explain_moe_tensor(_: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"tensor: {layout.tensor} with a MoE model and sequence_parallel: false is refused in training",
        "sequence_parallel: true",
    )


def sequence_divides_over_ring(job: Job, layout: LayoutLike) -> Any:
    """Ring context parallelism gives every rank two equal chunks, one early and one late."""
    return implies(layout.context > 1, divides(2 * layout.context, job.training.sequence_length))


def _explain_ring(job: Job, layout: Layout) -> tuple[str, str]:
    tokens = job.training.sequence_length
    fitting = [c for c in divisors(tokens) if c == 1 or tokens % (2 * c) == 0]
    return (
        f"context: {layout.context} cuts a sequence of {tokens} tokens into {2 * layout.context} chunks,"
        " which does not divide it",
        f"context: {listed(nearest(fitting, layout.context))}",
    )


def sequence_divides_over_ulysses(job: Job, layout: LayoutLike) -> Any:
    """Ulysses gives every rank an equal piece of the sequence."""
    return divides(layout.context, job.training.sequence_length)


def _explain_ulysses(job: Job, layout: Layout) -> tuple[str, str]:
    tokens = job.training.sequence_length
    return (
        f"context: {layout.context} does not divide the sequence of {tokens} tokens",
        f"context: {listed(nearest(divisors(tokens), layout.context))}",
    )


def heads_divide_over_ulysses(job: Job, layout: LayoutLike) -> Any:
    """Ulysses gives every rank the same number of attention heads."""
    return divides(layout.context, job.model.heads)


def _ulysses_values(job: Job) -> list[int]:
    fitting = [c for c in divisors(job.model.heads) if job.training.sequence_length % c == 0]
    return [c for c in fitting if divide_either_way(c, job.model.kv_heads)]


def _explain_heads(job: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"context: {layout.context} does not divide the {job.model.heads} attention heads",
        f"context: {listed(_ulysses_values(job))}",
    )


def kv_heads_match_ulysses(job: Job, layout: LayoutLike) -> Any:
    """The number of key-value heads is a multiple or a divisor of the Ulysses size."""
    return divide_either_way(layout.context, job.model.kv_heads)


def _explain_kv_heads(job: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"context: {layout.context} is neither a multiple nor a divisor of the {job.model.kv_heads} key-value heads",
        f"context: {listed(_ulysses_values(job))}",
    )


def ulysses_stands_alone(_: Job, layout: LayoutLike) -> Any:
    """Megatron-DeepSpeed's Ulysses runs without tensor and pipeline parallelism."""
    return (layout.context == 1) | ((layout.tensor == 1) & (layout.pipeline == 1))


def _explain_alone(_: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"context: {layout.context} (Ulysses) with tensor: {layout.tensor} and pipeline: {layout.pipeline}"
        " is refused: both have to be 1",
        "context: 1, or tensor: 1 and pipeline: 1",
    )


def ulysses_excludes_sequence_parallel(_: Job, layout: LayoutLike) -> Any:
    """Megatron-DeepSpeed runs Ulysses or Megatron's sequence parallelism, not both."""
    return implies(layout.context > 1, implies(layout.sequence_parallel, False))


def _explain_excludes(_: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"context: {layout.context} (Ulysses) and sequence_parallel: true exclude each other",
        "sequence_parallel: false",
    )


SEQUENCE_RULES: tuple[LayoutRule, ...] = (
    LayoutRule(
        id="MLM010",
        severity=Severity.ERROR,
        source=megatron_lm("training/arguments.py:1433"),
        variables=("sequence_parallel", "tensor"),
        holds=sequence_parallel_needs_tensor,
        explain=_explain_needs_tensor,
        of=("Megatron layers",),
    ),
    LayoutRule(
        id="SEQ001",
        severity=Severity.ERROR,
        source=derived("scatter along the sequence needs equal pieces"),
        variables=("sequence_parallel", "tensor", "context"),
        holds=sequence_divides_over_ranks,
        explain=_explain_over_ranks,
        of=("Megatron layers",),
    ),
    LayoutRule(
        id="SEQ002",
        severity=Severity.ERROR,
        source=derived("AutoTP has no sequence parallel layers"),
        variables=("sequence_parallel",),
        holds=sequence_parallel_is_megatrons,
        explain=_explain_megatrons,
        of=("AutoTP",),
    ),
    LayoutRule(
        id="MLM035",
        severity=Severity.ERROR,
        source=megatron_lm("core/transformer/moe/moe_layer.py:636"),
        variables=("sequence_parallel", "tensor"),
        holds=moe_tensor_needs_sequence_parallel,
        explain=_explain_moe_tensor,
        of=("Megatron-LM",),
        applies=lambda job: job.model.is_moe,
    ),
    LayoutRule(
        id="MLM008",
        severity=Severity.ERROR,
        source=megatron_lm("training/arguments.py:1335"),
        variables=("context",),
        holds=sequence_divides_over_ring,
        explain=_explain_ring,
        of=("Megatron-LM",),
    ),
    LayoutRule(
        id="SP004",
        severity=Severity.ERROR,
        source=deepspeed("runtime/sequence_parallel/ulysses_sp.py:698"),
        variables=("context",),
        holds=sequence_divides_over_ulysses,
        explain=_explain_ulysses,
        of=("AutoTP",),
    ),
    LayoutRule(
        id="MDS006",
        severity=Severity.ERROR,
        source=megatron_deepspeed("pretrain_gpt.py:138"),
        variables=("context",),
        holds=sequence_divides_over_ulysses,
        explain=_explain_ulysses,
        of=("Megatron-DeepSpeed",),
    ),
    LayoutRule(
        id="SP001",
        severity=Severity.ERROR,
        source=deepspeed("sequence/layer.py:40"),
        variables=("context",),
        holds=heads_divide_over_ulysses,
        explain=_explain_heads,
        of=("DeepSpeed engine",),
    ),
    LayoutRule(
        id="SP003",
        severity=Severity.ERROR,
        source=deepspeed("runtime/sequence_parallel/ulysses_sp.py:145"),
        variables=("context",),
        holds=kv_heads_match_ulysses,
        explain=_explain_kv_heads,
        of=("DeepSpeed engine",),
        applies=has_grouped_heads,
    ),
    LayoutRule(
        id="MDS004",
        severity=Severity.ERROR,
        source=megatron_deepspeed("megatron/core/parallel_state.py:146"),
        variables=("context", "tensor", "pipeline"),
        holds=ulysses_stands_alone,
        explain=_explain_alone,
        of=("Megatron-DeepSpeed",),
    ),
    LayoutRule(
        id="MDS005",
        severity=Severity.ERROR,
        source=megatron_deepspeed("megatron/initialize.py:247"),
        variables=("context", "sequence_parallel"),
        holds=ulysses_excludes_sequence_parallel,
        explain=_explain_excludes,
        of=("Megatron-DeepSpeed",),
    ),
)
