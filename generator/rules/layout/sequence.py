"""Rules on sequence parallelism, which is Megatron's, along tensor ranks, and on context
parallelism: a ring, Ulysses, or both.
"""

from __future__ import annotations

from math import gcd

import numpy as np

from ...catalog.layers.delta import GatedDelta
from ...estimate.layout import LayoutLike
from ...facts.facts import knows
from ...findings import ERROR, NOTE
from ...job.records import Job
from ...rule import InFiles
from ...text.wording import dots
from ..planned import (
    IN_ALL,
    IN_CONFIGS,
    Judgement,
    composed_layouts,
    detail_layouts,
    divide_either_way,
    divides,
    elsewhere,
    exchange_layouts,
    given,
    implies,
    is_moe,
    ordinary_layouts,
    parallel_layouts,
    partition_layouts,
    replaced_layouts,
    ring_layouts,
    without_detail,
)
from ..violations import (
    deepspeed,
    derived,
    divisors,
    megatron_deepspeed,
    megatron_lm,
    nearest,
    transformer_engine,
)
from .tensor import has_grouped_heads, tensor_values

# The layouts that each rule judges: of which engines and jobs, with the fields and facts it reads.
_along_tensor = parallel_layouts("sequence_parallel", "tensor")
_ulysses_sequence = exchange_layouts("context", "sequence_length")
_ulysses_cut = exchange_layouts("context", "sequence_parallel")
_cut = parallel_layouts("sequence_parallel", "tensor", "context", "sequence_length")
_moe = composed_layouts("sequence_parallel", "tensor", "experts", applies=is_moe)
_grouped = partition_layouts(
    "context", "context_cuts", "heads", "kv_heads", applies=has_grouped_heads
)
_ulysses = exchange_layouts("context", "tensor", "pipeline")
_packed = composed_layouts("micro_batch", applies=lambda job: job.packs_sequences)
_packed_heads = composed_layouts("context_heads", applies=lambda job: job.packs_sequences)
#: The first Megatron-Core that cuts the gated delta rule by context ranks.
_FIRST_WITH_DELTA_CONTEXT = (0, 18)
_delta = composed_layouts(
    "context",
    "tensor",
    "has_state",
    applies=lambda job: job.model.part(GatedDelta) is not None,
)
_whole = ordinary_layouts("context", "has_state", applies=lambda job: bool(job.model.needing_whole))
_older_ulysses = replaced_layouts(
    "context", applies=lambda job: job.deepspeed_version < _first_with_ulysses(job)
)


def _first_with_ulysses(job: Job) -> tuple[int, ...]:
    """The first DeepSpeed with the Ulysses that the framework calls.

    Earlier ones lack what accelerate calls, or make no groups where the config is a file.
    """
    return job.framework.first_with_ulysses


@_older_ulysses.rule(
    "SP008",
    ERROR,
    "init",
    "deepspeedai/DeepSpeed deepspeed/__init__.py:158-162 @ 0.16.9 (looks for the keys "
    "in the file's name); "
    "huggingface/accelerate src/accelerate/accelerator.py:2401 @ 1.15.0",
)
def ulysses_is_supported(job: Job, layout: LayoutLike) -> Judgement:
    """Ulysses needs DeepSpeed 0.19 or later, with the Trainer 0.18.2 or later.
    Prevents: AssertionError: Check batch related parameters; or accelerate refuses the release.
    Fix: set layout.context to 1, or use a later DeepSpeed (`deepspeed_version`)"""
    yield layout.context == 1
    mine, first = dots(job.deepspeed_version), dots(_first_with_ulysses(job))
    message = f"{job.says('context', layout.context)} cannot be initialised by DeepSpeed {mine}"
    yield message, f"use {job.says('context', 1)}, or DeepSpeed {first} or later"


# An error, though Megatron only warns: the layout would be the same as the one without it.
@_along_tensor.rule(
    "MLM010", ERROR, "silent", megatron_lm("training/arguments.py:1433"), InFiles(severity=NOTE)
)
def sequence_parallel_needs_tensor(job: Job, layout: LayoutLike) -> Judgement:
    """Sequence parallelism needs a tensor parallel size above 1.
    Prevents: No error: Megatron switches it off with a warning, and activations take more memory
    than planned.
    Fix: set layout.sequence_parallel to false, or increase tensor
    """
    yield implies(layout.sequence_parallel, layout.tensor > 1)
    message = (
        f"{job.says('sequence_parallel', True)} has no effect with {given(job, layout, 'tensor')}"
    )
    yield (
        message,
        f"{job.origin.vocabulary.without('sequence_parallel')}, or use "
        f"{job.says('tensor', '2 or more')}",
    )


@_cut.rule(
    "SEQ001", ERROR, "training", derived("scatter along the sequence needs equal pieces"), InFiles()
)
def sequence_divides_over_ranks(job: Job, layout: LayoutLike) -> Judgement:
    """With sequence parallelism, tensor × context divides the sequence length.
    Prevents: The first layer fails: the scatter along the sequence has pieces of different sizes.
    Fix: set layout.tensor to a divisor of the sequence, or sequence_parallel to false"""
    tokens, ranks = job.training.sequence_length, layout.tensor * layout.context
    yield implies(layout.sequence_parallel, divides(ranks, tokens))
    fitting = [t for t in tensor_values(job) if t > 1 and tokens % (t * layout.context) == 0]
    message = (
        f"{job.says('sequence_parallel', True)} cuts a sequence of {tokens} "
        f"tokens over {ranks} ranks"
    )
    message += f" (tensor {layout.tensor} × context {layout.context}), which does not divide it"
    instead = f", or use {job.says('tensor', *fitting)}" if fitting else ""
    yield message, f"{job.origin.vocabulary.without('sequence_parallel')}{instead}"


@ordinary_layouts("sequence_parallel").rule(
    "SEQ002", ERROR, "silent", derived("AutoTP has no sequence parallel layers")
)
def sequence_parallel_is_megatrons(job: Job, layout: LayoutLike) -> Judgement:
    """Sequence parallelism needs Megatron's layers.
    Prevents: No error: the key would be ignored, and activations would take more memory than
    planned.
    Fix: set layout.sequence_parallel to false, or use a Megatron framework
    """
    yield implies(layout.sequence_parallel, False)
    message, hint = elsewhere(job, layout, "sequence_parallel", False)
    yield message, f"{hint} ({job.says('context', 'N')} splits the sequence by Ulysses)"


@_moe.rule(
    "MLM035", ERROR, "training", megatron_lm("core/transformer/moe/moe_layer.py:636"), InFiles()
)
def moe_tensor_needs_sequence_parallel(job: Job, layout: LayoutLike) -> Judgement:
    """A MoE model with tensor parallelism needs sequence parallelism in Megatron-LM.
    Prevents: Training stops at the first MoE layer, which requires sequence parallelism with tensor
    parallelism.
    Fix: set layout.sequence_parallel to true, or tensor to 1
    """
    yield implies(layout.tensor > 1, layout.sequence_parallel)
    message = (
        f"{job.says('tensor', layout.tensor)} of a MoE model requires "
        f"{job.says('sequence_parallel', True)}"
    )
    yield message, f"use {job.says('sequence_parallel', True)}"


@ring_layouts("context", "sequence_length").rule(
    "MLM008", ERROR, "init", megatron_lm("training/arguments.py:1335"), InFiles()
)
def sequence_divides_over_ring(job: Job, layout: LayoutLike) -> Judgement:
    """Twice the context parallel size divides the sequence length: a rank holds an early and a late
    chunk.
    Prevents: Megatron stops at start: seq-length should be a multiple of 2 * context-parallel-size.
    Fix: set layout.context to a divisor of half the sequence_length
    """
    tokens, chunks = job.training.sequence_length, 2 * layout.context
    yield implies(layout.context > 1, divides(chunks, tokens))
    fitting = [c for c in divisors(tokens) if c == 1 or tokens % (2 * c) == 0]
    says = job.says("context", layout.context)
    message = (
        f"{says} cuts a sequence of {tokens} tokens into {chunks} chunks, which does not divide it"
    )
    yield message, f"use {job.says('context', *nearest(fitting, layout.context))}"


@ring_layouts("context", "attention").rule(
    "MLM136",
    ERROR,
    "training",
    transformer_engine("attention/dot_product_attention/utils.py:1171"),
    InFiles(),
)
def ring_needs_fused_attention(job: Job, layout: LayoutLike) -> Judgement:
    """Context parallelism in Megatron-LM needs fused attention, which GPUs before Ampere don't
    have.
    Prevents: Training stops in the first layer: no attention backend is left that supports context
    parallelism.
    Fix: set layout.context to 1, or training.attention to flash on Ampere or later
    """
    attention = job.training.attention
    yield implies(layout.context > 1, attention != "unfused")
    message = (
        f"{job.says('context', layout.context)} is not available with "
        f"{job.says('attention', attention)}"
    )
    yield (
        message,
        f"use {job.says('context', 1)}, or {job.says('attention', 'flash')} on Ampere or later",
    )


@replaced_layouts().rule(
    "SP004", ERROR, "training", deepspeed("runtime/sequence_parallel/ulysses_sp.py:698"), IN_CONFIGS
)
@_ulysses_sequence.rule(
    "MDS006", ERROR, "training", megatron_deepspeed("pretrain_gpt.py:138"), InFiles()
)
def sequence_divides_over_ulysses(job: Job, layout: LayoutLike) -> Judgement:
    """The Ulysses size divides the sequence length.
    Prevents: The first batch fails: the sequence length is not divisible by the sequence parallel
    size.
    Fix: set layout.context to a divisor of sequence_length, or pad the sequences
    """
    tokens = job.training.sequence_length
    yield divides(layout.context, tokens)
    message = (
        f"{job.says('context', layout.context)} does not divide the sequence of {tokens} tokens"
    )
    yield message, f"use {job.says('context', *nearest(divisors(tokens), layout.context))}"


def _ulysses_hint(job: Job) -> str:
    fitting = divisors(gcd(*(count for _, count in job.model.context_cuts)))
    if knows(job, "sequence_length"):
        fitting = [c for c in fitting if job.training.sequence_length % c == 0]
    if knows(job, "kv_heads"):
        fitting = [c for c in fitting if divide_either_way(c, job.model.kv_heads)]
    return f"use {job.says('context', *fitting)}"


@partition_layouts("context", "context_cuts").rule(
    "SP001", ERROR, "training", deepspeed("sequence/layer.py:40"), IN_ALL
)
def heads_divide_over_ulysses(job: Job, layout: LayoutLike) -> Judgement:
    """The Ulysses size divides the attention heads.
    Prevents: The first attention fails: the number of heads must be divisible by the sequence
    parallel size.
    Fix: set layout.context to a divisor of the heads
    """
    cuts = job.model.context_cuts
    yield divides(layout.context, gcd(*(count for _, count in cuts)))
    undivided = " and ".join(f"the {n} {name}" for name, n in cuts if n % layout.context)
    yield f"{job.says('context', layout.context)} does not divide {undivided}", _ulysses_hint(job)


@_whole.rule(
    "SP009",
    ERROR,
    "silent",
    "huggingface/transformers models/qwen3_next/modeling_qwen3_next.py @ 5.23.0 (a part of a "
    "sequence is a sequence of its own); deepspeedai/DeepSpeed "
    "runtime/sequence_parallel/ulysses_sp.py @ 0.19.8 (replaces attention alone)",
)
def states_need_whole_sequences(job: Job, layout: LayoutLike) -> Judgement:
    """Layers with a state, a convolution or an indexer along the sequence have whole sequences.
    Prevents: No error: each rank takes its part for a sequence, and trains another model.
    Fix: set layout.context to 1"""
    yield layout.context == 1
    message = (
        f"{job.model.name} has {', '.join(job.model.needing_whole)}: with "
        f"{job.says('context', layout.context)} each rank would take its part for a sequence"
    )
    yield message, f"use {job.says('context', 1)}"


@_delta.rule(
    "MLM139",
    ERROR,
    "init",
    "NVIDIA/Megatron-LM megatron/core/transformer/transformer_config.py:980 @ core_v0.16.1, :1246 "
    "@ core_v0.18.2",
)
def context_cuts_delta_heads(job: Job, layout: LayoutLike) -> Judgement:
    """Context parallelism of the gated delta rule needs Megatron-Core 0.18, and tensor × context
    divides its heads.
    Prevents: Megatron-LM stops at start: gated delta net doesn't support context parallel, or its
    heads are no multiple of tensor × context.
    Fix: set layout.context to 1
    """
    mixer = job.model.part(GatedDelta)
    assert mixer is not None
    has_it = job.megatron_version >= _FIRST_WITH_DELTA_CONTEXT
    ranks = layout.tensor * layout.context
    divides_heads = divides(ranks, gcd(mixer.key_heads, mixer.value_heads))
    yield implies(layout.context > 1, divides_heads & has_it)
    hint = f"use {job.says('context', 1)}"
    if has_it:
        both = given(job, layout, "context", "tensor")
        heads = f"{mixer.key_heads} key heads and {mixer.value_heads} value heads"
        yield f"{both} does not divide the {heads} of the gated delta rule", hint
    else:
        says, mine = job.says("context", layout.context), dots(job.megatron_version)
        message = f"{says} is refused with the gated delta rule by Megatron-Core {mine}"
        yield message, f"{hint}, or release 0.18"


@_grouped.rule(
    "SP003", ERROR, "init", deepspeed("runtime/sequence_parallel/ulysses_sp.py:145"), IN_ALL
)
def kv_heads_match_ulysses(job: Job, layout: LayoutLike) -> Judgement:
    """The number of key-value heads is a multiple or a divisor of the Ulysses size.
    Prevents: The Trainer stops at start: key-value heads can be neither split nor repeated evenly.
    Fix: set layout.context to a divisor of the key-value heads"""
    kv_heads = job.model.kv_heads
    yield divide_either_way(layout.context, kv_heads)
    says = job.says("context", layout.context)
    yield (
        f"{says} is neither a multiple nor a divisor of the {kv_heads} key-value heads",
        _ulysses_hint(job),
    )


@_ulysses.rule(
    "MDS004", ERROR, "init", megatron_deepspeed("megatron/core/parallel_state.py:146"), InFiles()
)
def ulysses_excludes_model_parallelism(job: Job, layout: LayoutLike) -> Judgement:
    """Ulysses in Megatron-DeepSpeed is not combined with tensor or pipeline parallelism.
    Prevents: Megatron-DeepSpeed stops when it builds its groups, on an assertion that tensor and
    pipeline sizes are 1.
    Fix: set layout.context to 1, or tensor and pipeline to 1; framework: megatron-lm combines all
    three
    """
    yield (layout.context == 1) | ((layout.tensor == 1) & (layout.pipeline == 1))
    context, tensor, pipeline = (
        job.says(key, getattr(layout, key)) for key in ("context", "tensor", "pipeline")
    )
    message = f"{context} (Ulysses) is refused with {tensor} and {pipeline}: both have to be 1"
    yield (
        message,
        f"use {job.says('context', 1)}, or {job.says('tensor', 1)} and {job.says('pipeline', 1)}",
    )


@_ulysses_cut.rule(
    "MDS005", ERROR, "init", megatron_deepspeed("megatron/initialize.py:247"), InFiles()
)
def ulysses_excludes_sequence_parallel(job: Job, layout: LayoutLike) -> Judgement:
    """Ulysses in Megatron-DeepSpeed is not combined with Megatron's sequence parallelism.
    Prevents: Megatron-DeepSpeed stops at start on an assertion: the two split the same sequence.
    Fix: set layout.sequence_parallel to false, or context to 1"""
    yield implies(layout.context > 1, implies(layout.sequence_parallel, False))
    message = (
        f"{job.says('context', layout.context)} (Ulysses) excludes "
        f"{job.says('sequence_parallel', True)}"
    )
    yield message, job.origin.vocabulary.without("sequence_parallel")


_ATTENTION = "attention/dot_product_attention/context_parallel.py"


def exchanges_heads_only(job: Job) -> bool:
    """Ask whether context parallelism runs only where all ranks exchange heads (a2a).

    The kind of the model's attention decides.
    """
    if not job.engine.has("context_heads"):
        return False
    if job.model.attention_sinks:
        return True
    window = job.model.sliding_window if knows(job, "sequence_length") else None
    return window is not None and window < job.training.sequence_length


_elsewhere = without_detail("context_heads")
_exchanged = detail_layouts("context_heads", "tensor", "exchanged_heads")
_local = detail_layouts(
    "context_heads", "context", "sliding_window", "attention_sinks", applies=exchanges_heads_only
)
_latent = detail_layouts(
    "context_heads", "context", "keeps_ring", applies=lambda job: job.model.keeps_ring
)


@_elsewhere.rule(
    "MLM129",
    ERROR,
    "silent",
    derived("Ulysses exchanges heads among all ranks; there is no other level"),
)
def levels_of_context_are_megatrons(job: Job, layout: LayoutLike) -> Judgement:
    """Context parallelism of two levels needs Megatron-LM.
    Prevents: No error: there is no such option, and time and memory would differ from the plan.
    Fix: set layout.context_heads to 1, or use framework: megatron-lm"""
    yield layout.context_heads == 1
    yield elsewhere(job, layout, "context_heads", 1, "megatron-lm")


@detail_layouts("context_heads", "context").rule(
    "MLM130",
    ERROR,
    "init",
    derived("--hierarchical-context-parallel-sizes multiply to the context parallel size"),
)
def head_ranks_divide_context(job: Job, layout: LayoutLike) -> Judgement:
    """The ranks that exchange heads divide the context parallel size.
    Prevents: Megatron-LM stops at start: the hierarchical sizes don't multiply to the context
    parallel size.
    Fix: set layout.context_heads to a divisor of context
    """
    yield divides(layout.context_heads, layout.context)
    heads = job.says("context_heads", layout.context_heads)
    context = job.says("context", layout.context)
    yield (
        f"{heads} does not divide {context}",
        f"use {job.says('context_heads', *divisors(int(layout.context)))}",
    )


@_exchanged.rule("MLM131", ERROR, "training", transformer_engine(f"{_ATTENTION}:4246"), InFiles())
def head_ranks_divide_heads(job: Job, layout: LayoutLike) -> Judgement:
    """Tensor × the context ranks that exchange heads divides the heads, and the key-value heads.
    Prevents: Training stops in the first layer: cp_comm_type='a2a' requires num_heads % cp_size ==
    0.
    Fix: set layout.context_heads to a divisor of the key-value heads of a tensor rank
    """
    cut = layout.tensor * layout.context_heads
    heads, kv_heads = (gcd(*counts) for counts in zip(*job.model.exchanged_heads, strict=True))
    yield implies(layout.context_heads > 1, divides(cut, heads) & divides(cut, kv_heads))
    fitting = divisors(kv_heads // layout.tensor) if kv_heads % layout.tensor == 0 else [1]
    both = given(job, layout, "context_heads", "tensor")
    message = f"{both} does not divide {heads} heads and {kv_heads} key-value heads"
    yield message, f"use {job.says('context_heads', *fitting)}"


@_local.rule("MLM132", ERROR, "training", transformer_engine(f"{_ATTENTION}:5057, 5066"), InFiles())
def local_attention_exchanges_heads(job: Job, layout: LayoutLike) -> Judgement:
    """Under context parallelism, attention with a window or with sinks exchanges heads among all
    ranks (a2a).
    Prevents: Transformer Engine stops: context parallelism doesn't support sliding window attention
    with p2p.
    Fix: set layout.context_heads to the context parallel size, or context to 1
    """
    yield layout.context_heads == layout.context
    model = job.model
    what = (
        "attention sinks" if model.attention_sinks else f"a window of {model.sliding_window} tokens"
    )
    both = (
        f"{job.says('context', layout.context)} and "
        f"{job.says('context_heads', layout.context_heads)}"
    )
    message = f"{both} with {what}: all ranks must exchange heads"
    yield message, f"use {job.says('context_heads', layout.context)}, or {job.says('context', 1)}"


@_latent.rule(
    "MLM133",
    ERROR,
    "training",
    f"{transformer_engine(_ATTENTION)}; at v2.12 line 4032 refuses it",
    InFiles(),
)
def latent_attention_keeps_a_ring(job: Job, layout: LayoutLike) -> Judgement:
    """Under context parallelism, latent attention keeps a ring: some of its ranks exchange keys and
    values.
    Prevents: Transformer Engine up to 2.12 stops: context parallelism does not support MLA with
    a2a.
    Fix: set layout.context_heads to less than context
    """
    yield np.logical_or(layout.context_heads == 1, layout.context_heads < layout.context)
    heads = job.says("context_heads", layout.context_heads)
    both = f"{heads} and {job.says('context', layout.context)}"
    message = f"{both} with the latent attention of {job.model.name}: no ring is left"
    fewer = divisors(int(layout.context))[:-1] or [1]
    yield message, f"use {job.says('context_heads', *fewer)}"


@_packed.rule(
    "BRG008",
    ERROR,
    "init",
    "NVIDIA-NeMo/Megatron-Bridge src/megatron/bridge/training/config.py:1460 @ v0.6.0",
)
def packed_sequences_are_alone(job: Job, layout: LayoutLike) -> Judgement:
    """A sequence of packed samples is a micro-batch of its own.
    Prevents: ValueError: Micro batch size should be 1 when training with packed sequence
    Fix: set layout.micro_batch to 1, and training.sequence_length to a longer one
    """
    yield layout.micro_batch == 1
    message = f"{job.says('micro_batch', layout.micro_batch)}: packed sequences go one by one"
    yield message, f"use {job.says('micro_batch', 1)}"


@_packed_heads.rule("BRG023", ERROR, "training", transformer_engine(_ATTENTION))
def packed_sequences_keep_a_ring(job: Job, layout: LayoutLike) -> Judgement:
    """Under context parallelism, packed sequences pass around a ring, without exchange of heads.
    Prevents: Transformer Engine stops: thd format is not supported with hierarchical CP
    implementation yet
    Fix: set layout.context_heads to 1
    """
    yield layout.context_heads == 1
    message = f"{job.says('context_heads', layout.context_heads)} with packed sequences is refused"
    yield message, f"use {job.says('context_heads', 1)}"
