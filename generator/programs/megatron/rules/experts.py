"""Experts in Megatron-LM's arguments."""

from __future__ import annotations

from math import gcd
from typing import Final

from ....findings import ERROR, Violations
from ....rules.numbers import divisors, listed, nearest, neighbours
from ....rules.sources import megatron_lm
from ..run import EXPERT, PIPELINE, TENSOR, MegatronRun
from .rule import CONFIG, at, divides, lm_runs, needs

_EXPERTS: Final = "--num-experts"
_EXPERT_TENSOR: Final = "--expert-tensor-parallel-size"
_TOP: Final = "--moe-router-topk"
_GROUPS: Final = "--moe-router-num-groups"
_TOP_GROUPS: Final = "--moe-router-group-topk"
_INSTANCES: Final = "--num-distributed-optimizer-instances"


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


@lm_runs.rule("MLM018", ERROR, "init", megatron_lm("core/parallel_state.py:882"))
def expert_ranks_divide_gpus(run: MegatronRun) -> Violations:
    """Expert tensor × expert × pipeline parallelism divides the GPUs, as does the product of the dense layers.

    Prevents: RuntimeError: world_size is not divisible by expert_tensor_model_pipeline_parallel size
    Fix: use a smaller expert or expert tensor parallel size"""
    gpus, size, product = run.gpus, run.expert, _expert_ranks(run)
    name, own = _expert_tensor(run)
    if not run.replicas or not gpus or not size or not own or not product or size == own == 1:
        return
    if not run.has(_EXPERTS) or run.has("--expert-tensor-parallel-num-weight-shards") or gpus % product == 0:
        return
    message = f"{name} {own} × {EXPERT} {size} × {PIPELINE} {run.pipeline} = {product} does not divide {gpus} GPUs"
    room = divisors(gpus // (product // size)) if gpus % (product // size) == 0 else []
    fitting = [count for count in room if (run.experts or 0) % count == 0]
    other = f"{EXPERT} {listed(nearest(fitting, size, 4))}" if fitting else f"{listed(neighbours(product, gpus))} GPUs"
    yield at(run, EXPERT, message, f"use {other}")


def _expert_tensor(run: MegatronRun) -> tuple[str, int | None]:
    """The option that cuts experts over tensor ranks, and its size."""
    return (_EXPERT_TENSOR, run.size(_EXPERT_TENSOR)) if run.has(_EXPERT_TENSOR) else (TENSOR, run.tensor)


def _expert_ranks(run: MegatronRun) -> int | None:
    """GPUs that hold all experts once: expert tensor × expert × pipeline."""
    own = _expert_tensor(run)[1]
    return own * run.expert * run.pipeline if own and run.expert and run.pipeline else None


@lm_runs.rule("MLM019", ERROR, "init", megatron_lm("core/parallel_state.py:922"))
def optimizer_instances_divide_replicas(run: MegatronRun) -> Violations:
    """Instances of the distributed optimizer divide the data and context parallel ranks, and the experts' too.

    Prevents: AssertionError: Data parallel size should be divisible by partial DistOpt shard factor
    Fix: use a number of instances that divides the ranks"""
    instances, gpus, experts = run.size(_INSTANCES), run.gpus, _expert_ranks(run)
    if not instances or not gpus or not run.replicas or not run.context:
        return
    ranks = {"data and context parallel": run.replicas * run.context}
    if run.has(_EXPERTS) and experts and gpus % experts == 0:
        ranks["expert data parallel"] = gpus // experts
    for kind, count in ranks.items():
        if count % instances:
            hint = f"use {_INSTANCES} {listed(nearest(divisors(gcd(*ranks.values())), instances, 4))}"
            yield at(run, _INSTANCES, f"{_INSTANCES} {instances} does not divide the {count} {kind} ranks", hint)


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
    name, size = _expert_tensor(run)
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
