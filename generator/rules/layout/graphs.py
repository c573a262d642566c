"""Rules on layouts whose kernels Megatron-LM captures as CUDA graphs."""

from __future__ import annotations

import numpy as np

from ...estimate.layout import LayoutLike, Modules, Recompute
from ...findings import ERROR
from ...job.records import Job
from ..planned import Judgement, composed_layouts, given, implies
from ..violations import divisors, megatron_lm

_CONFIG = "core/transformer/transformer_config.py"
_RELEASE = "core_v0.19.0"


def _is_partial(job: Job) -> bool:
    return job.training.cuda_graphs == "partial"


def _has_drops_in_graphs(job: Job) -> bool:
    """Ask whether a graph has random numbers that a recomputed module would draw again."""
    return job.training.cuda_graphs != "none" and bool(
        job.model.dropout or job.model.attention_dropout
    )


# The layouts that each rule judges: of which engines and jobs, with the fields and facts it reads.
_partial = composed_layouts("recompute", "recompute_modules", applies=_is_partial)
_dropped = composed_layouts("recompute_modules", "recompute", applies=_has_drops_in_graphs)
_replayed = composed_layouts(
    "expert", "expert_tensor", "experts", applies=lambda job: job.replays_experts
)
_fused = composed_layouts("recompute_modules", "recompute", applies=lambda job: job.replays_experts)
_delayed = composed_layouts(
    "expert_overlap",
    "zero_stage",
    applies=lambda job: _is_partial(job) and job.model.experts > 0,
)


def _repeats(layout: LayoutLike, modules: Modules) -> np.ndarray:
    """Tell where selective recomputation repeats one of these modules."""
    chosen = (np.asarray(layout.recompute_modules) & int(modules)) > 0
    return np.asarray((layout.recompute == Recompute.SELECTIVE) & chosen)


def _said(job: Job) -> str:
    return job.says("cuda_graphs", job.training.cuda_graphs)


@_partial.rule("MLM157", ERROR, "init", megatron_lm(f"{_CONFIG}:2521-2533 ({_RELEASE})"))
def partial_graphs_hold_no_recomputed_layer(job: Job, layout: LayoutLike) -> Judgement:
    """Graphs of parts of a layer lie in no module that is computed again.
    Prevents: AssertionError: full recompute is only supported with full iteration CUDA graph; or
    moe recompute is not supported with moe_router CUDA graph.
    Fix: set layout.recompute to none or selective, without moe; or training.cuda_graphs to none"""
    whole = layout.recompute == Recompute.FULL
    yield np.logical_not(whole | (_repeats(layout, Modules.MOE) & (job.model.experts > 0)))
    repeated = given(job, layout, "recompute") if whole else job.says("recompute_modules", "moe")
    message = f"{repeated} is refused with {_said(job)}"
    yield message, f"use {job.says('recompute', Recompute.NONE)}, or remove cuda_graphs"


@_dropped.rule("MLM158", ERROR, "init", megatron_lm(f"{_CONFIG}:2545-2571 ({_RELEASE})"))
def graphs_repeat_no_dropout(job: Job, layout: LayoutLike) -> Judgement:
    """Modules of a graph that are computed again have no dropout.
    Prevents: AssertionError: attention dropout is not supported with graphed attention
    recomputation.
    Fix: set layout.recompute to none, or training.cuda_graphs to none"""
    drawn = Modules(0)
    if job.model.attention_dropout:
        drawn |= Modules.CORE_ATTN
    if job.model.dropout:
        drawn |= Modules.MLP | Modules.MOE
    yield np.logical_not(_repeats(layout, drawn))
    names = (drawn & Modules(int(layout.recompute_modules))).labels
    message = f"{job.says('recompute_modules', *names)} has dropout, refused with {_said(job)}"
    yield message, f"use {job.says('recompute', Recompute.NONE)}, or remove cuda_graphs"


@_replayed.rule(
    "MLM159",
    ERROR,
    "init",
    megatron_lm(f"core/transformer/moe/experts.py, _is_fused_impl_supported ({_RELEASE})"),
)
def graphed_experts_are_spread_whole(job: Job, layout: LayoutLike) -> Judgement:
    """Experts in a graph of whole iterations are spread over ranks, and not cut.
    Prevents: AssertionError: Fused GroupedMLP is not supported for this configuration; or
    moe_expert_rank_capacity_factor requires moe_flex_dispatcher_backend to be 'hybridep'.
    Fix: set layout.expert to 2 or more, and expert_tensor to 1"""
    yield (layout.expert > 1) & (layout.expert_tensor == 1)
    refused = f"is refused with {_said(job)}"
    if layout.expert_tensor > 1:
        message = f"{given(job, layout, 'expert_tensor')} {refused}"
        yield message, f"use {job.says('expert_tensor', 1)}"
    else:
        message = f"{given(job, layout, 'expert')} {refused}: HybridEP needs several ranks"
        ranks = [size for size in divisors(job.model.experts) if size > 1]
        yield message, f"use {job.says('expert', ranks[0])}"


@_fused.rule(
    "MLM160",
    ERROR,
    "silent",
    megatron_lm(f"core/transformer/moe/experts.py, forward ({_RELEASE}: returns before moe_act)"),
)
def fused_experts_keep_their_activation(job: Job, layout: LayoutLike) -> Judgement:
    """The activation of experts in a graph of whole iterations isn't computed again by itself.
    Prevents: No error: the fused kernel has no such part, and memory stays as it was.
    Fix: leave moe_act out of layout.recompute_modules"""
    yield np.logical_not(_repeats(layout, Modules.MOE_ACT))
    message = f"{job.says('recompute_modules', 'moe_act')} has no effect with {_said(job)}"
    yield message, "leave moe_act out"


@_delayed.rule(
    "MLM161", ERROR, "init", megatron_lm(f"training/arguments.py:1824-1846 ({_RELEASE})")
)
def graphs_delay_no_biased_gradients(job: Job, layout: LayoutLike) -> Judgement:
    """Expert overlap delays weight gradients, in graphs those of attention without biases, which
    the product sums.
    Prevents: AssertionError: CUDA graph with delay_wgrad_compute doesn't support attn bias for now.
    Fix: set layout.expert_overlap to false, or training.cuda_graphs to none"""
    biased = job.model.linear_bias or any(mixer.qkv_bias for mixer in job.model.attentions)
    summed = layout.zero_stage < 2  # Megatron FSDP sums outside of the product
    yield implies(layout.expert_overlap, summed & (not biased))
    message = f"{job.says('expert_overlap', True)} is refused with {_said(job)}"
    reason = "biases of attention" if biased else "FSDP"
    yield f"{message} and {reason}", job.origin.vocabulary.without("expert_overlap")
