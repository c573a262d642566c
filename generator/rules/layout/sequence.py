"""Sequence parallelism (Megatron's, along tensor ranks) and context parallelism (ring or Ulysses)."""

from __future__ import annotations

from typing import Any

from ...estimate.layout import Layout, LayoutLike
from ...findings import ERROR, WARNING
from ...job.records import Job
from ...rule import Arguments
from ..columns import divide_either_way, divides, implies
from ..numbers import divisors, listed, nearest
from ..planned import layout_rule
from ..sources import deepspeed, derived, megatron_deepspeed, megatron_lm
from .tensor import has_grouped_heads, tensor_values


def _ulysses_values(job: Job) -> list[int]:
    fitting = [c for c in divisors(job.model.heads) if job.training.sequence_length % c == 0]
    return [c for c in fitting if divide_either_way(c, job.model.kv_heads)]


def _explain_needs_tensor(_: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"sequence_parallel: true with tensor: {layout.tensor} has no ranks to run along",
        "sequence_parallel: false, or tensor: 2 or more",
    )


@layout_rule(
    "MLM010",
    ERROR,  # though Megatron only warns: the layout would be the same as the one without it
    "silent",
    megatron_lm("training/arguments.py:1433"),
    ("sequence_parallel", "tensor"),
    _explain_needs_tensor,
    of=("Megatron layers",),
    arguments=Arguments(severity=WARNING),
)
def sequence_parallel_needs_tensor(_: Job, layout: LayoutLike) -> Any:
    """Sequence parallelism runs along tensor ranks: without them Megatron switches it off.

    Prevents: No error: Megatron switches it off with a warning, and activations take more memory than planned.
    Fix: layout.sequence_parallel: false, or a larger tensor
    """
    return implies(layout.sequence_parallel, layout.tensor > 1)


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


@layout_rule(
    "SEQ001",
    ERROR,
    "init",
    derived("scatter along the sequence needs equal pieces"),
    ("sequence_parallel", "tensor", "context", "sequence"),
    _explain_over_ranks,
    of=("Megatron layers",),
    arguments=Arguments(),
)
def sequence_divides_over_ranks(job: Job, layout: LayoutLike) -> Any:
    """With sequence parallelism, every tensor rank holds an equal piece of its context rank's sequence.

    Prevents: The first layer fails: the scatter along the sequence has pieces of different sizes.
    Fix: a layout.tensor that divides the sequence, or sequence_parallel: false
    """
    return implies(layout.sequence_parallel, divides(layout.tensor * layout.context, job.training.sequence_length))


def _explain_megatrons(job: Job, _: Layout) -> tuple[str, str]:
    return (
        f"sequence_parallel: true is not available with framework: {job.framework}",
        "sequence_parallel: false (context: N splits the sequence by Ulysses)",
    )


@layout_rule(
    "SEQ002",
    ERROR,
    "silent",
    derived("AutoTP has no sequence parallel layers"),
    ("sequence_parallel",),
    _explain_megatrons,
    of=("AutoTP",),
)
def sequence_parallel_is_megatrons(_: Job, layout: LayoutLike) -> Any:
    """Only the Megatrons' layers run sequence parallelism.

    Prevents: No error: the key would be ignored, and activations would take more memory than planned.
    Fix: layout.sequence_parallel: false, or a Megatron framework
    """
    return implies(layout.sequence_parallel, False)


def _explain_moe_tensor(_: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"tensor: {layout.tensor} with a MoE model and sequence_parallel: false is refused in training",
        "sequence_parallel: true",
    )


@layout_rule(
    "MLM035",
    ERROR,
    "init",
    megatron_lm("core/transformer/moe/moe_layer.py:636"),
    ("sequence_parallel", "tensor", "experts"),
    _explain_moe_tensor,
    of=("Megatron-LM",),
    applies=lambda job: job.model.is_moe,
    arguments=Arguments(),
)
def moe_tensor_needs_sequence_parallel(_: Job, layout: LayoutLike) -> Any:
    """Megatron-LM trains MoE layers with tensor parallelism only when sequence parallelism is on.

    Prevents: Training stops at the first MoE layer, which asks for sequence parallelism under tensor parallelism.
    Fix: layout.sequence_parallel: true, or tensor: 1
    """
    return implies(layout.tensor > 1, layout.sequence_parallel)


def _explain_ring(job: Job, layout: Layout) -> tuple[str, str]:
    tokens = job.training.sequence_length
    fitting = [c for c in divisors(tokens) if c == 1 or tokens % (2 * c) == 0]
    return (
        f"context: {layout.context} cuts a sequence of {tokens} tokens into {2 * layout.context} chunks,"
        " which does not divide it",
        f"context: {listed(nearest(fitting, layout.context))}",
    )


@layout_rule(
    "MLM008",
    ERROR,
    "init",
    megatron_lm("training/arguments.py:1335"),
    ("context", "sequence"),
    _explain_ring,
    of=("Megatron-LM",),
    arguments=Arguments(),
)
def sequence_divides_over_ring(job: Job, layout: LayoutLike) -> Any:
    """Ring context parallelism gives every rank two equal chunks, one early and one late.

    Prevents: Megatron stops at start: seq-length should be a multiple of 2 * context-parallel-size.
    Fix: a layout.context whose double divides sequence_length
    """
    return implies(layout.context > 1, divides(2 * layout.context, job.training.sequence_length))


def _explain_ulysses(job: Job, layout: Layout) -> tuple[str, str]:
    tokens = job.training.sequence_length
    return (
        f"context: {layout.context} does not divide the sequence of {tokens} tokens",
        f"context: {listed(nearest(divisors(tokens), layout.context))}",
    )


@layout_rule("SP004", ERROR, "training", deepspeed("runtime/sequence_parallel/ulysses_sp.py:698"), of=("AutoTP",))
@layout_rule(
    "MDS006",
    ERROR,
    "init",
    megatron_deepspeed("pretrain_gpt.py:138"),
    ("context", "sequence"),
    _explain_ulysses,
    of=("Megatron-DeepSpeed",),
    arguments=Arguments(),
)
def sequence_divides_over_ulysses(job: Job, layout: LayoutLike) -> Any:
    """Ulysses gives every rank an equal piece of the sequence.

    Prevents: The first batch fails: the sequence length is not divisible by the sequence parallel size.
    Fix: a layout.context that divides sequence_length, or pad the sequences
    """
    return divides(layout.context, job.training.sequence_length)


def _explain_heads(job: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"context: {layout.context} does not divide the {job.model.heads} attention heads",
        f"context: {listed(_ulysses_values(job))}",
    )


@layout_rule(
    "SP001",
    ERROR,
    "training",
    deepspeed("sequence/layer.py:40"),
    ("context", "heads"),
    _explain_heads,
    of=("DeepSpeed engine",),
    arguments=Arguments(),
)
def heads_divide_over_ulysses(job: Job, layout: LayoutLike) -> Any:
    """Ulysses gives every rank the same number of attention heads.

    Prevents: The first attention fails: the number of heads must be divisible by the sequence parallel size.
    Fix: a layout.context that divides the heads
    """
    return divides(layout.context, job.model.heads)


def _explain_kv_heads(job: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"context: {layout.context} is neither a multiple nor a divisor of the {job.model.kv_heads} key-value heads",
        f"context: {listed(_ulysses_values(job))}",
    )


@layout_rule(
    "SP003",
    ERROR,
    "init",
    deepspeed("runtime/sequence_parallel/ulysses_sp.py:145"),
    ("context", "heads", "kv_heads"),
    _explain_kv_heads,
    of=("DeepSpeed engine",),
    applies=has_grouped_heads,
    arguments=Arguments(),
)
def kv_heads_match_ulysses(job: Job, layout: LayoutLike) -> Any:
    """The number of key-value heads is a multiple or a divisor of the Ulysses size.

    Prevents: The Trainer stops at start: key-value heads can be neither split nor repeated evenly.
    Fix: a layout.context that divides the key-value heads
    """
    return divide_either_way(layout.context, job.model.kv_heads)


def _explain_alone(_: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"context: {layout.context} (Ulysses) with tensor: {layout.tensor} and pipeline: {layout.pipeline}"
        " is refused: both have to be 1",
        "context: 1, or tensor: 1 and pipeline: 1",
    )


@layout_rule(
    "MDS004",
    ERROR,
    "init",
    megatron_deepspeed("megatron/core/parallel_state.py:146"),
    ("context", "tensor", "pipeline"),
    _explain_alone,
    of=("Megatron-DeepSpeed",),
    arguments=Arguments(),
)
def ulysses_stands_alone(_: Job, layout: LayoutLike) -> Any:
    """Megatron-DeepSpeed's Ulysses runs without tensor and pipeline parallelism.

    Prevents: Megatron-DeepSpeed stops when it builds its groups, on an assertion that tensor and pipeline sizes are 1.
    Fix: layout.context: 1, or tensor: 1 and pipeline: 1; framework: megatron-lm combines all three
    """
    return (layout.context == 1) | ((layout.tensor == 1) & (layout.pipeline == 1))


def _explain_excludes(_: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"context: {layout.context} (Ulysses) and sequence_parallel: true exclude each other",
        "sequence_parallel: false",
    )


@layout_rule(
    "MDS005",
    ERROR,
    "init",
    megatron_deepspeed("megatron/initialize.py:247"),
    ("context", "sequence_parallel"),
    _explain_excludes,
    of=("Megatron-DeepSpeed",),
    arguments=Arguments(),
)
def ulysses_excludes_sequence_parallel(_: Job, layout: LayoutLike) -> Any:
    """Megatron-DeepSpeed runs Ulysses or Megatron's sequence parallelism, not both.

    Prevents: Megatron-DeepSpeed stops at start on an assertion: the two split the same sequence.
    Fix: layout.sequence_parallel: false, or context: 1
    """
    return implies(layout.context > 1, implies(layout.sequence_parallel, False))
