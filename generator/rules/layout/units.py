"""Rules on layouts of FSDP2, which gathers units of a model and cuts each parameter by its rows."""

from __future__ import annotations

from functools import partial
from typing import Final

from ...estimate.layout import LayoutLike, Offload
from ...findings import ERROR
from ...job.engine import Engine
from ...job.records import Job
from ..planned import Judgement, divides, given, implies, is_moe, layouts
from ..violations import accelerate, derived, divisors, nearest, torch, transformers

_PARAM: Final = "distributed/fsdp/_fully_shard/_fsdp_param.py:298"


def gathers_units(engine: Engine) -> bool:
    """Ask whether an engine gathers units of a model, whose parameters are cut one by one."""
    return engine.sharding == "units"


def _cuts_sequences(job: Job) -> bool:
    return job.engine.context == "gather"


_units = partial(layouts, of=gathers_units)
_stacked = _units("zero_copies", "data", "context", "experts", applies=is_moe)
_gathered = layouts("context", "sequence_length", "attention", applies=_cuts_sequences)
_windowed = layouts(
    "context",
    applies=lambda job: _cuts_sequences(job) and job.model.sliding_window is not None,
)


@_units("zero_stage").rule(
    "FSDP001", ERROR, "init", accelerate("utils/dataclasses.py:1861 (reshard_after_forward)")
)
def units_are_freed_or_kept(job: Job, layout: LayoutLike) -> Judgement:
    """FSDP2 is stage 3, which frees parameters after the forward pass, or 2, which keeps them.
    Prevents: No file says another: states are sharded always.
    Fix: set layout.zero_stage to 3 or 2
    """
    yield (layout.zero_stage == 2) | (layout.zero_stage == 3)
    stage = job.says("zero_stage", layout.zero_stage)
    message = f"{stage} is not available with {job.says('sharding', 'fsdp2')}"
    yield message, f"use {job.says('zero_stage', 3, 2)}"


@_units("tensor").rule(
    "FSDP002", ERROR, "silent", derived("fully_shard cuts states, not the work on a layer")
)
def units_are_computed_whole(job: Job, layout: LayoutLike) -> Judgement:
    """With FSDP2 every rank computes whole layers.
    Prevents: No error: each tensor rank would train on the same sequences.
    Fix: set layout.tensor to 1, or training.sharding to deepspeed"""
    yield layout.tensor == 1
    message = (
        f"{job.says('tensor', layout.tensor)} is not available with {job.says('sharding', 'fsdp2')}"
    )
    yield message, f"use {job.says('tensor', 1)}, or {job.says('sharding', 'deepspeed')}"


@_units("offload").rule(
    "FSDP003",
    ERROR,
    "silent",
    torch("distributed/fsdp/_fully_shard/_fsdp_api.py, CPUOffloadPolicy"),
)
def states_are_offloaded_together(job: Job, layout: LayoutLike) -> Judgement:
    """FSDP2 offloads parameters, gradients and the optimizer's states together.
    Prevents: No error: cpu_offload moves all of them, and the plan would be another one.
    Fix: set layout.offload to optimizer+parameters, or to none"""
    yield layout.offload != Offload.OPTIMIZER
    message = (
        f"{job.says('offload', layout.offload)} is not available with "
        f"{job.says('sharding', 'fsdp2')}"
    )
    yield message, f"use {job.says('offload', Offload.OPTIMIZER_AND_PARAMETERS, Offload.NONE)}"


@_units("zero_copies", "data", "context").rule(
    "FSDP004", ERROR, "init", accelerate("parallelism_config.py:310")
)
def copies_have_ranks_to_shard_over(job: Job, layout: LayoutLike) -> Judgement:
    """With FSDP2 the copies of the shards divide the replicas, and each is on two ranks or more.
    Prevents: ValueError: the parallelism config has no dimension for FSDP to shard across; or using
    fsdp only works in distributed training.
    Fix: set layout.zero_copies to a smaller divisor of data
    """
    data, copies = layout.data, layout.zero_copies
    shards = data // copies
    # Context ranks share the states too, where there is one copy.
    has_two_ranks = (shards > 1) | ((copies == 1) & (layout.context > 1))
    yield divides(copies, data) & has_two_ranks
    says = job.says("zero_copies", copies)
    fitting = [each for each in divisors(int(data)) if data > each]
    message = f"{says} leaves {given(job, layout, 'data')} no two ranks each to shard over"
    if data % copies:
        message = f"{says} does not divide the {data} replicas"
    hint = f"use {job.says('zero_copies', *nearest(fitting, copies))}" if fitting else ""
    yield message, hint or "use more GPUs, or fewer context ranks"


@_stacked.rule("FSDP005", ERROR, "silent", torch(_PARAM))
def shards_have_experts(job: Job, layout: LayoutLike) -> Judgement:
    """With FSDP2 the ranks that share the states are no more than the experts of a layer.
    Prevents: No error: a layer's experts are one tensor, cut by experts. Ranks beyond their number
    hold none, while each gather and each reduction moves as much as if they did.
    Fix: set layout.zero_copies so that data × context / zero_copies is at most the experts
    """
    ranks = layout.data * layout.context // layout.zero_copies
    yield ranks <= job.model.experts
    message = f"{ranks} ranks share the {job.model.experts} experts of a layer, which are whole"
    enough = [
        copies
        for copies in divisors(int(layout.data))
        if layout.data * layout.context // copies <= job.model.experts
    ]
    fitting = job.says("zero_copies", enough[0]) if enough else job.says("sharding", "deepspeed")
    yield f"{message}: {ranks - job.model.experts} would hold none", f"use {fitting}"


@_gathered.rule(
    "FSDP006", ERROR, "training", "pytorch/pytorch torch/distributed/tensor/experimental @ 2.13.0"
)
def sequence_divides_over_gathers(job: Job, layout: LayoutLike) -> Judgement:
    """With FSDP2 twice the context parallel size divides the sequence, and attention is PyTorch's.
    Prevents: ValueError at the first batch: the sequence can't be split, or attention isn't sdpa.
    Fix: set layout.context to a divisor of half the sequence_length, and attention to flash
    """
    tokens, chunks = job.training.sequence_length, 2 * layout.context
    has_sdpa = job.training.attention != "unfused"
    yield implies(layout.context > 1, divides(chunks, tokens) & has_sdpa)
    says = job.says("context", layout.context)
    fitting = [size for size in divisors(tokens) if size == 1 or tokens % (2 * size) == 0]
    message = f"{says} cuts a sequence of {tokens} tokens into {chunks} chunks of different sizes"
    if not has_sdpa:
        message = f"{says} is not available with {job.says('attention', job.training.attention)}"
        fitting = [1]
    yield message, f"use {job.says('context', *nearest(fitting, layout.context))}"


@_windowed.rule("FSDP007", ERROR, "training", accelerate("big_modeling.py:805"))
def gathered_attention_is_full(job: Job, layout: LayoutLike) -> Judgement:
    """With FSDP2 context parallelism needs full attention in every layer.
    Prevents: ValueError: a layer's attention is sliding or chunked.
    Fix: set layout.context to 1"""
    yield layout.context == 1
    says = job.says("context", layout.context)
    yield f"{says} with the sliding window of {job.model.name}", f"use {job.says('context', 1)}"


@layouts("sync_each_batch", of=lambda engine: not engine.defers_reduction).rule(
    "FSDP008", ERROR, "silent", transformers("trainer.py:1896 (no_sync)")
)
def only_whole_sums_are_synced(job: Job, layout: LayoutLike) -> Judgement:
    """The key sync_each_batch is FSDP2's: others reduce gradients as their ZeRO stage says.
    Prevents: No error: the key would have no effect.
    Fix: remove layout.sync_each_batch"""
    yield implies(layout.sync_each_batch, False)
    message = (
        f"{job.says('sync_each_batch', True)} is not available with "
        f"{job.says('framework', job.framework)}"
    )
    or_fsdp2 = (
        f", or use training.{job.says('sharding', 'fsdp2')}" if job.framework.shardings else ""
    )
    yield message, f"{job.origin.vocabulary.without('sync_each_batch')}{or_fsdp2}"


# An error, though nothing fails: the layout would be the same as the one without it.
@layouts(
    "sync_each_batch", "gradient_accumulation", of=lambda engine: engine.defers_reduction
).rule("FSDP009", ERROR, "silent", derived("one micro-batch is the last"))
def syncing_needs_accumulation(job: Job, layout: LayoutLike) -> Judgement:
    """The key sync_each_batch needs several micro-batches in a step.
    Prevents: No error: the key would have no effect.
    Fix: set layout.sync_each_batch to false, or gradient_accumulation to 2 or more"""
    yield implies(layout.sync_each_batch, layout.gradient_accumulation > 1)
    both = given(job, layout, "sync_each_batch", "gradient_accumulation")
    without = job.origin.vocabulary.without("sync_each_batch")
    more = job.says("gradient_accumulation", "2 or more")
    yield f"{both} has no effect", f"{without}, or use {more}"
