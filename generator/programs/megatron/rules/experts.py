"""Experts in Megatron-LM's arguments."""

from __future__ import annotations

from typing import Final

from ....findings import ERROR, Violations
from ....rules.sources import megatron_lm
from ..run import EXPERT, TENSOR, MegatronRun
from .rule import CONFIG, at, divides, lm_runs, needs

_EXPERTS: Final = "--num-experts"
_EXPERT_TENSOR: Final = "--expert-tensor-parallel-size"
_TOP: Final = "--moe-router-topk"
_GROUPS: Final = "--moe-router-num-groups"
_TOP_GROUPS: Final = "--moe-router-group-topk"


@lm_runs.rule("MLM017", ERROR, "init", megatron_lm("training/arguments.py:1655"))
def experts_divide_over_ranks(run: MegatronRun) -> Violations:
    """Expert parallelism needs experts, the same number on every rank.

    Prevents: AssertionError: Number of experts should be a multiple of expert model parallel_size
    Fix: use an expert parallel size that divides the experts"""
    size = run.expert or 1
    if size > 1 and (run.lacks(_EXPERTS) or run.integer(_EXPERTS) == 0):
        message = f"{EXPERT} {size} is given without {_EXPERTS}: a dense model has no experts to distribute"
        yield at(run, EXPERT, message, f"use {EXPERT} 1, or add {_EXPERTS} {size}")
    yield from divides(run, EXPERT, run.experts, f"{_EXPERTS} {run.experts}")


@lm_runs.rule("MLM061", ERROR, "init", megatron_lm(f"{CONFIG}:2661"))
def routers_choose_among_experts(run: MegatronRun) -> Violations:
    """A token goes to at most all experts; routing to a single one needs --moe-router-pre-softmax.

    Prevents: ValueError: Please use --moe-router-pre-softmax when topk is 1, or a failing topk
    Fix: use fewer experts per token, or add --moe-router-pre-softmax"""
    experts, top = run.experts, run.setting(_TOP, 2)
    if top is None or not (experts or run.has(_TOP)):
        return
    place = _TOP if run.has(_TOP) else _EXPERTS
    if experts and not 1 <= top <= experts:
        message = f"{run.shown(_TOP, 2)} with {_EXPERTS} {experts}"
        yield at(run, place, message, f"use {_TOP} {max(1, min(top, experts))}")
    softmax = run.value("--moe-router-score-function", "softmax") == "softmax"
    balancing = run.value("--moe-router-load-balancing-type", ("aux_loss",))
    sinkhorn = balancing is None or (isinstance(balancing, tuple) and "sinkhorn" in balancing)
    if top == 1 and softmax and not sinkhorn and run.lacks("--moe-router-pre-softmax"):
        message = f"{_TOP} 1 is given without --moe-router-pre-softmax: a softmax over one expert has no gradient"
        yield at(run, place, message, "add --moe-router-pre-softmax")


@lm_runs.rule("MLM062", ERROR, "init", megatron_lm(f"{CONFIG}:2670-2688"))
def router_groups_divide_experts(run: MegatronRun) -> Violations:
    """Group-limited routing has groups that divide the experts, and at least as many as are chosen.

    Prevents: AssertionError: num_moe_experts should be divisible by moe_router_num_groups
    Fix: use a number of groups that divides the experts"""
    groups, top = run.size(_GROUPS), run.size(_TOP_GROUPS)
    yield from needs(run, _TOP_GROUPS, _GROUPS)
    if run.has(_TOP_GROUPS):
        yield from divides(run, _GROUPS, run.experts, f"{_EXPERTS} {run.experts}")
    if groups and top and top > groups:
        message = f"{_TOP_GROUPS} {top} is more than {_GROUPS} {groups}"
        yield at(run, _TOP_GROUPS, message, f"use {_TOP_GROUPS} {groups}")


@lm_runs.rule("MLM046", ERROR, "init", megatron_lm(f"{CONFIG}:2612"))
def biased_experts_stay_whole(run: MegatronRun) -> Violations:
    """Experts have biases only where tensor parallelism doesn't cut them: with an expert tensor parallel size of 1.

    Prevents: AssertionError: Bias in Moe is only supported when ETP==1
    Fix: add --disable-bias-linear, or use whole experts"""
    name = _EXPERT_TENSOR if run.has(_EXPERT_TENSOR) else TENSOR
    size = run.size(_EXPERT_TENSOR) if run.has(_EXPERT_TENSOR) else run.tensor
    if run.experts and (size or 1) > 1 and run.lacks("--disable-bias-linear"):
        message = f"{name} {size} cuts experts with biases, which Megatron-LM refuses"
        yield at(run, name, message, f"add --disable-bias-linear, or {_EXPERT_TENSOR} 1")


@lm_runs.rule("MLM063", ERROR, "init", megatron_lm(f"{CONFIG}:1689, 1862; training/arguments.py:1983"))
def expert_options_have_experts(run: MegatronRun) -> Violations:
    """Options of experts come with --num-experts, and padding to capacity with a capacity.

    Prevents: ValueError: moe_ffn_hidden_size is set but num_moe_experts is None
    Fix: add --num-experts, or remove the options of experts"""
    if not run.has("--moe-layer-freq"):
        yield from needs(run, "--moe-ffn-hidden-size", _EXPERTS)
    yield from needs(run, "--moe-latent-size", _EXPERTS)
    yield from needs(run, "--moe-pad-expert-input-to-capacity", "--moe-expert-capacity-factor")
