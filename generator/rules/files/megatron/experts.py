"""Experts in Megatron-LM's arguments."""

from __future__ import annotations

from math import gcd, prod
from typing import Final

from ....documents.megatron_arguments import MegatronArguments
from ....findings import ERROR, Violation, Violations
from ...numbers import divisors, listed, nearest, neighbours
from ...sources import megatron_lm
from .rule import (
    CONTEXT,
    EXPERT,
    PIPELINE,
    TENSOR,
    Run,
    degree,
    gpus_of,
    lm_runs,
    model_parallel,
    needs,
    shown,
    sized,
)

_EXPERTS: Final = "--num-experts"
_EXPERT_TENSOR: Final = "--expert-tensor-parallel-size"
_TOP: Final = "--moe-router-topk"
_GROUPS: Final = "--moe-router-num-groups"
_TOP_GROUPS: Final = "--moe-router-group-topk"
_INSTANCES: Final = "--num-distributed-optimizer-instances"


@lm_runs.rule("MLM017", ERROR, "init", megatron_lm("training/arguments.py:1655"))
def experts_divide_over_ranks(run: Run) -> Violations:
    """Expert parallelism needs experts, the same number on every rank.

    Prevents: AssertionError: Number of experts should be a multiple of expert model parallel_size
    Fix: an expert parallel size that divides the experts
    """
    arguments = run.arguments
    size, experts = degree(arguments, EXPERT), arguments.integer(_EXPERTS)
    if size is None or size == 1:
        return
    where = arguments.locate(EXPERT)
    if arguments.lacks(_EXPERTS) or experts == 0:
        message = f"{EXPERT} {size} without {_EXPERTS}: a dense model has no experts to spread"
        yield Violation(where=where, message=message, hint=f"{EXPERT} 1, or {_EXPERTS} {size}")
    elif experts and experts > 0 and experts % size:
        message = f"{EXPERT} {size} does not divide {_EXPERTS} {experts}"
        hint = f"{EXPERT} {listed(nearest(divisors(experts), size, 4))}"
        yield Violation(where=where, message=message, hint=hint)


@lm_runs.rule("MLM018", ERROR, "init", megatron_lm("core/parallel_state.py:882"))
def expert_ranks_divide_gpus(run: Run) -> Violations:
    """Expert tensor × expert × pipeline parallelism divides the GPUs, beside the product of the dense layers.

    Prevents: RuntimeError: world_size is not divisible by expert_tensor_model_pipeline_parallel size
    Fix: a smaller expert or expert tensor parallel size
    """
    arguments, submission = run
    gpus, whole = gpus_of(submission, arguments), model_parallel(arguments)
    tensor, stages, size = degree(arguments, TENSOR), degree(arguments, PIPELINE), degree(arguments, EXPERT)
    own = sized(arguments, _EXPERT_TENSOR) if arguments.has(_EXPERT_TENSOR) else tensor
    if not gpus or not whole or gpus % whole or not stages or not size or not own or own < 1 or size == own == 1:
        return
    if not arguments.has(_EXPERTS) or arguments.has("--expert-tensor-parallel-num-weight-shards"):
        return
    product = own * size * stages
    if gpus % product:
        name = _EXPERT_TENSOR if arguments.has(_EXPERT_TENSOR) else TENSOR
        message = f"{name} {own} × {EXPERT} {size} × {PIPELINE} {stages} = {product} does not divide {gpus} GPUs"
        room = gpus // (own * stages) if gpus % (own * stages) == 0 else 0
        experts = sized(arguments, _EXPERTS) or 0
        fitting = [n for n in divisors(room) if experts % n == 0] if room else []
        hint = (
            f"{EXPERT} {listed(nearest(fitting, size, 4))}" if fitting else f"{listed(neighbours(product, gpus))} GPUs"
        )
        yield Violation(where=arguments.locate(EXPERT), message=message, hint=hint)


@lm_runs.rule("MLM019", ERROR, "init", megatron_lm("core/parallel_state.py:922"))
def optimizer_instances_divide_replicas(run: Run) -> Violations:
    """Instances of the distributed optimizer divide the data and context parallel ranks, and the experts' too.

    Prevents: AssertionError: Data parallel size should be divisible by partial DistOpt shard factor
    Fix: instances that divide the ranks
    """
    arguments, submission = run
    instances, gpus = sized(arguments, _INSTANCES), gpus_of(submission, arguments)
    whole, context = model_parallel(arguments), degree(arguments, CONTEXT)
    if not instances or instances < 2 or not gpus or not whole or not context or gpus % whole:
        return
    ranks = {"data and context parallel": gpus // whole * context}
    cut = _expert_ranks(arguments)
    if arguments.has(_EXPERTS) and cut and gpus % cut == 0:
        ranks["expert data parallel"] = gpus // cut
    for kind, count in ranks.items():
        if count % instances:
            message = f"{_INSTANCES} {instances} does not divide the {count} {kind} ranks"
            hint = f"{_INSTANCES} {listed(nearest(divisors(gcd(*ranks.values())), instances, 4))}"
            yield Violation(where=arguments.locate(_INSTANCES), message=message, hint=hint)


def _expert_ranks(arguments: MegatronArguments) -> int | None:
    """GPUs that hold all experts once: expert tensor × expert × pipeline."""
    sizes = [degree(arguments, name) for name in (_EXPERT_TENSOR, EXPERT, PIPELINE)]
    if not arguments.has(_EXPERT_TENSOR):
        sizes[0] = degree(arguments, TENSOR)
    known = [count for count in sizes if count is not None]
    return prod(known) if len(known) == len(sizes) else None


@lm_runs.rule("MLM061", ERROR, "init", megatron_lm("core/transformer/transformer_config.py:2661"))
def routers_choose_among_experts(run: Run) -> Violations:
    """A token goes to no more experts than there are, and to one alone only after the softmax over all.

    Prevents: ValueError: Please use --moe-router-pre-softmax when topk is 1, or a failing topk
    Fix: fewer experts a token, or --moe-router-pre-softmax
    """
    arguments = run.arguments
    experts, top = sized(arguments, _EXPERTS), arguments.setting(_TOP, 2)
    if top is None or not (experts or arguments.has(_TOP)):
        return
    where = arguments.locate(_TOP if arguments.has(_TOP) else _EXPERTS)
    if experts and not 1 <= top <= experts:
        message = f"{shown(arguments, _TOP, 2)} of {_EXPERTS} {experts}"
        yield Violation(where=where, message=message, hint=f"{_TOP} {max(1, min(top, experts))}")
    softmax = arguments.value("--moe-router-score-function", "softmax") == "softmax"
    balancing = arguments.value("--moe-router-load-balancing-type", ("aux_loss",))
    sinkhorn = balancing is None or (isinstance(balancing, tuple) and "sinkhorn" in balancing)
    if top == 1 and softmax and not sinkhorn and arguments.lacks("--moe-router-pre-softmax"):
        message = f"{_TOP} 1 without --moe-router-pre-softmax: a softmax over one expert has no gradient"
        yield Violation(where=where, message=message, hint="--moe-router-pre-softmax")


@lm_runs.rule("MLM062", ERROR, "init", megatron_lm("core/transformer/transformer_config.py:2670-2688"))
def router_groups_divide_experts(run: Run) -> Violations:
    """Routing limited to groups has groups, which divide the experts and are no fewer than those chosen.

    Prevents: AssertionError: num_moe_experts should be divisible by moe_router_num_groups
    Fix: groups that divide the experts
    """
    arguments = run.arguments
    experts, groups, top = (sized(arguments, name) for name in (_EXPERTS, _GROUPS, _TOP_GROUPS))
    yield from needs(arguments, _TOP_GROUPS, [_GROUPS])
    if experts and groups and groups > 0 and experts % groups and arguments.has(_TOP_GROUPS):
        message = f"{_GROUPS} {groups} does not divide {_EXPERTS} {experts}"
        hint = f"{_GROUPS} {listed(nearest(divisors(experts), groups, 4))}"
        yield Violation(where=arguments.locate(_GROUPS), message=message, hint=hint)
    if groups and top and top > groups:
        message = f"{_TOP_GROUPS} {top} is more than {_GROUPS} {groups}"
        yield Violation(where=arguments.locate(_TOP_GROUPS), message=message, hint=f"{_TOP_GROUPS} {groups}")


@lm_runs.rule("MLM046", ERROR, "init", megatron_lm("core/transformer/transformer_config.py:2612"))
def biased_experts_stay_whole(run: Run) -> Violations:
    """Experts have biases only where tensor parallelism doesn't cut them: with an expert tensor parallel size of 1.

    Prevents: AssertionError: Bias in Moe is only supported when ETP==1
    Fix: --disable-bias-linear, or whole experts
    """
    arguments = run.arguments
    own = arguments.has(_EXPERT_TENSOR)
    name = _EXPERT_TENSOR if own else TENSOR
    size, experts = degree(arguments, name), sized(arguments, _EXPERTS)
    if experts and experts > 0 and size is not None and size > 1 and arguments.lacks("--disable-bias-linear"):
        message = f"{name} {size} cuts experts with biases, which is refused"
        hint = f"--disable-bias-linear, or {_EXPERT_TENSOR} 1"
        yield Violation(where=arguments.locate(name), message=message, hint=hint)


@lm_runs.rule(
    "MLM063",
    ERROR,
    "init",
    megatron_lm("core/transformer/transformer_config.py:1689, 1862; training/arguments.py:1983"),
)
def expert_options_have_experts(run: Run) -> Violations:
    """Options of experts go with --num-experts; padding to capacity with a capacity.

    Prevents: ValueError: moe_ffn_hidden_size is set but num_moe_experts is None
    Fix: give --num-experts, or remove the options of experts
    """
    arguments = run.arguments
    mixed = arguments.has("--moe-layer-freq")
    for name in ("--moe-ffn-hidden-size", "--moe-latent-size"):
        if not mixed or name == "--moe-latent-size":
            yield from needs(arguments, name, [_EXPERTS])
    yield from needs(arguments, "--moe-pad-expert-input-to-capacity", ["--moe-expert-capacity-factor"])
