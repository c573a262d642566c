"""Expert parallelism against the experts and the replicas."""

from __future__ import annotations

from math import gcd

from ...estimate.groups import FLEXIBLE, deepep_takes, group, sends_tokens_once_per_node
from ...estimate.layout import LayoutLike
from ...facts.facts import knows
from ...findings import ERROR
from ...job.records import Job
from ...rule import InFiles
from ..planned import (
    IN_ALL,
    ONLY_FIXED,
    Judgement,
    composed_layouts,
    detail_layouts,
    divides,
    elsewhere,
    fixed_layouts,
    given,
    has_partitions,
    is_moe,
    is_scripted,
    layouts,
    partition_layouts,
)
from ..violations import deepspeed, derived, divisors, megatron_deepspeed, megatron_lm, nearest


def _has_biased_experts(job: Job) -> bool:
    """Ask whether the experts have biases: Megatron-LM has one option for those of all layers."""
    return job.model.experts > 0 and job.model.linear_bias


_WHOLE_WEIGHTS = InFiles(unless=("--expert-tensor-parallel-num-weight-shards",))
_BIASES = (
    "NVIDIA/Megatron-LM megatron/core/transformer/transformer_config.py @ "
    "core_v0.16.1 (an assertion)"
)
# The layouts that each rule judges: of which engines and jobs, with the fields and facts it reads.
_experts = partition_layouts("expert", "experts", applies=is_moe)
_dense = layouts("expert", "experts", applies=lambda job: not job.model.experts)
_replicas = partition_layouts("expert", "data", "context", "gpus", "experts")
_native_experts = layouts(
    "zero_stage", "expert", "experts", of=lambda engine: engine.experts == "module", applies=is_moe
)
_unpinned = layouts("expert", of=is_scripted, applies=lambda job: job.pins.expert is None)
_biased = detail_layouts(
    "expert_tensor", "tensor", "experts", "linear_bias", applies=_has_biased_experts
)
_expert_ranks = layouts(
    *("expert", "expert_tensor", "data", "tensor", "context", "gpus", "experts"),
    detail="expert_tensor",
)
_as_the_rest = partition_layouts("expert_tensor", "tensor", applies=is_moe)
_dispatched = layouts(
    *("expert", "expert_tensor", "experts", "cluster"),
    detail="expert_tensor",
    applies=lambda job: job.model.experts > 0 and job.training.dispatcher in FLEXIBLE,
)
_nothing_to_cut = layouts("expert_tensor", applies=lambda job: not job.model.experts)
_pipelined_experts = fixed_layouts(
    "pipeline", applies=lambda job: job.model.experts > 0 and job.pins.pipeline is None
)


@composed_layouts(applies=is_moe).rule(
    "MLM017", ERROR, "init", megatron_lm("training/arguments.py:1655"), InFiles()
)
@_experts.rule("MOE001", ERROR, "init", deepspeed("moe/layer.py:59"), IN_ALL)
def expert_divides_experts(job: Job, layout: LayoutLike) -> Judgement:
    """The expert parallel size divides the experts.
    Prevents: The framework stops at start: the number of experts should be a multiple of the expert
    parallel size.
    Fix: set layout.expert to a divisor of the experts
    """
    experts = job.model.experts
    yield divides(layout.expert, experts)
    message = f"{job.says('expert', layout.expert)} does not divide the {experts} experts"
    sizes = _sizes_on_gpus(job, layout)
    yield message, f"use {job.says('expert', *nearest(sizes, layout.expert))}"


def _sizes_on_gpus(job: Job, layout: LayoutLike) -> list[int]:
    """The expert parallel sizes that divide the experts, and the ranks that may share them.

    These are what pipeline and tensor parallelism leave of the GPUs, as far as they are known.
    """
    common = int(job.model.experts)
    if knows(job, "gpus"):
        cut = "tensor" if has_partitions(job.engine) else "expert_tensor"
        taken = int(getattr(layout, "pipeline", 1) * getattr(layout, cut, 1))
        common = gcd(common, max(job.gpus // taken, 1))
    return divisors(common)


@_dense.rule(
    "MOE005", ERROR, "init", megatron_lm("core/transformer/transformer_config.py:1595"), InFiles()
)
def dense_models_have_no_experts(job: Job, layout: LayoutLike) -> Judgement:
    """A dense model has an expert parallel size of 1.
    Prevents: Megatron-LM stops at start: expert parallelism needs experts.
    Fix: set layout.expert to 1"""
    yield layout.expert == 1
    message = (
        f"{given(job, layout, 'expert')} has no experts to distribute: {job.model.name} is dense"
    )
    yield message, f"use {job.says('expert', 1)}, or a model with experts"


@_expert_ranks.rule(
    "MLM018", ERROR, "init", megatron_lm("core/parallel_state.py:882"), _WHOLE_WEIGHTS
)
def expert_divides_ranks_of_a_stage(job: Job, layout: LayoutLike) -> Judgement:
    """The expert parallel size × the experts' tensor parallel size divides tensor × context × data.
    Prevents: Megatron-LM stops at start: the world size is not divisible by the experts' sizes.
    Fix: set layout.expert to a divisor of tensor × context × data over the experts' tensor parallel
    size
    """
    ranks = layout.data * layout.context * layout.tensor
    yield divides(layout.expert * layout.expert_tensor, ranks)
    experts = job.model.experts
    sizes = divisors(ranks // layout.expert_tensor)
    fitting = [size for size in sizes if not experts or experts % size == 0]
    cut = f" × {given(job, layout, 'expert_tensor')}" if layout.expert_tensor > 1 else ""
    message = (
        f"{given(job, layout, 'expert')}{cut} does not divide the {ranks} ranks of a pipeline stage"
    )
    yield message, f"use {job.says('expert', *nearest(fitting, layout.expert))}"


@_replicas.rule("MOE006", ERROR, "init", deepspeed("utils/groups.py:100"), InFiles())
def expert_divides_replicas(job: Job, layout: LayoutLike) -> Judgement:
    """The expert parallel size divides data × context.
    Prevents: The framework stops when it builds its groups: the world size is not divisible by the
    expert groups.
    Fix: set layout.expert to a divisor of data × context
    """
    ranks = layout.data * layout.context
    yield divides(layout.expert, ranks)
    fitting = [e for e in divisors(ranks) if not job.model.experts or job.model.experts % e == 0]
    product = f"{job.says('data', layout.data)} × {job.says('context', layout.context)}"
    message = f"{job.says('expert', layout.expert)} does not divide the {ranks} ranks of {product}"
    yield message, f"use {job.says('expert', *nearest(fitting, layout.expert))}"


@_native_experts.rule("MOE002", ERROR, "init", deepspeed("runtime/engine.py:1890"), ONLY_FIXED)
def native_experts_stop_at_stage_2(job: Job, layout: LayoutLike) -> Judgement:
    """With DeepSpeed's MoE layers, the ZeRO stage is at most 2.
    Prevents: DeepSpeed stops at start: native MoE is not supported with ZeRO stage 3.
    Fix: set layout.zero_stage to 2 or lower"""
    # The MoE layers of Megatron-DeepSpeed are DeepSpeed's at any expert parallel size.
    has_other_layers = layout.expert == 1 if job.engine.scripted else False
    yield (layout.zero_stage <= 2) | has_other_layers
    both = given(job, layout, "zero_stage", "expert")
    message = (
        f"{both} of {job.model.experts} experts is refused by DeepSpeed's MoE layers: at most 2"
    )
    yield message, f"use {job.says('zero_stage', 2)}"


@_unpinned.rule(
    "MOE007", ERROR, "silent", derived("DeepSpeed spreads only the experts of its own MoE layers")
)
def experts_are_pinned(job: Job, layout: LayoutLike) -> Judgement:
    """Expert parallelism in a script for DeepSpeed is pinned: only the user knows whether it builds
    MoE layers.
    Prevents: No error: without DeepSpeed's own MoE layers every rank holds all experts.
    Fix: set layout.expert to 1; pin another value if the script builds DeepSpeed's MoE layers
    """
    yield layout.expert == 1
    expert = job.says("expert", layout.expert)
    message = f"{expert} needs a script that builds deepspeed.moe.layer.MoE layers"
    yield message, f"use {job.says('expert', 1)}, or pin layout.{expert} if the script does"


@layouts("expert", of=lambda engine: engine.experts == "whole").rule(
    "HF021", ERROR, "silent", derived("transformers' MoE layers are not DeepSpeed's")
)
def trainer_keeps_experts_whole(job: Job, layout: LayoutLike) -> Judgement:
    """The Trainer keeps every expert on every rank.
    Prevents: No error: each rank would hold all experts, and memory would differ from the plan.
    Fix: set layout.expert to 1, or use framework: megatron-lm"""
    yield layout.expert == 1
    message, hint = elsewhere(job, layout, "expert", 1, "megatron-lm")
    yield message, f"{hint} (DeepSpeed's AutoEP is checked in its config, and not planned yet)"


@_biased.rule("MLM046", ERROR, "init", _BIASES, InFiles())
def biased_experts_stay_whole(job: Job, layout: LayoutLike) -> Judgement:
    """Experts with biases are not cut by tensor parallelism in Megatron-LM.
    Prevents: Megatron-LM stops at start on an assertion.
    Fix: set layout.expert_tensor to 1, and use expert parallelism instead"""
    yield layout.expert_tensor == 1
    # Left out, the experts' size is that of the other layers.
    is_written = "/layout/expert_tensor" in job.origin.locations
    is_own = layout.expert_tensor != layout.tensor or is_written
    cut, model = given(job, layout, "expert_tensor" if is_own else "tensor"), job.model
    message = (
        f"{cut} cuts the {model.experts} experts of {model.name}, which have "
        "biases: this is refused"
    )
    yield (
        message,
        f"use {job.says('expert_tensor', 1)}; {job.says('expert', 'N')} distributes whole experts",
    )


@_as_the_rest.rule(
    "MOE016", ERROR, "silent", megatron_deepspeed("megatron/core/tensor_parallel/layers.py:529")
)
def experts_are_cut_as_the_rest(job: Job, layout: LayoutLike) -> Judgement:
    """On DeepSpeed, the experts' tensor parallel size is that of the other layers.
    Prevents: No error: experts would be cut as the other layers are, and memory would differ from
    the plan.
    Fix: set layout.expert_tensor to tensor, or use framework: megatron-lm
    """
    yield layout.expert_tensor == layout.tensor
    both = given(job, layout, "expert_tensor", "tensor")
    message = f"{both} is not available with {job.says('framework', job.framework)}"
    same, megatron = job.says("expert_tensor", layout.tensor), job.says("framework", "megatron-lm")
    yield message, f"use {same}, or {megatron}"


@_nothing_to_cut.rule("MOE017", ERROR, "silent", derived("expert_tensor cuts routed experts"))
def dense_models_cut_no_experts(job: Job, layout: LayoutLike) -> Judgement:
    """A dense model has an experts' tensor parallel size of 1.
    Prevents: No error: there is nothing to cut, and the setting has no effect.
    Fix: set layout.expert_tensor to 1, or leave it out"""
    yield layout.expert_tensor == 1
    dense = (
        f"{given(job, layout, 'expert_tensor')} has no experts to cut: {job.model.name} is dense"
    )
    yield dense, f"use {job.says('expert_tensor', 1)}"


@_pipelined_experts.rule(
    "MDS018", ERROR, "training", megatron_deepspeed("megatron/model/gpt_model.py:379")
)
def native_experts_avoid_pipeline(job: Job, layout: LayoutLike) -> Judgement:
    """A pipeline of a MoE model is pinned in Megatron-DeepSpeed: it needs partitioned activations
    switched off.
    Prevents: Training fails between the stages unless partitioned activations, which are the
    default, are switched off.
    Fix: set layout.pipeline to 1, or pin the pipeline if your copy has them switched off
    """
    yield layout.pipeline == 1
    pipeline, model = job.says("pipeline", layout.pipeline), job.model
    message = f"{pipeline} with the {model.experts} experts of {model.name} is fragile with"
    message += f" {job.says('framework', job.framework)}, whose stages then pass two tensors"
    megatron = job.says("framework", "megatron-lm")
    yield message, f"use {job.says('pipeline', 1)}, {megatron}, or pin layout.{pipeline}"


@_dispatched.rule(
    "MOE018",
    ERROR,
    "init",
    derived(
        "deepseek-ai/DeepEP, README, issues 369 and 464, csrc/kernels/launch.cuh, intranode.cu and "
        "internode.cu (EP_DEVICE_ASSERT) @ v1.2.1; Megatron-LM "
        "core/transformer/transformer_config.py:869-873 @ core_v0.19.0"
    ),
)
def dispatcher_reaches_experts(job: Job, layout: LayoutLike) -> Judgement:
    """DeepEP and HybridEP reach experts within a node or rack, and over InfiniBand and RoCE.
    Prevents: the first step stops, or never ends
    Fix: set training.dispatcher to alltoall, or layout.expert to what one node has
    """
    ring, per_node = group(job, layout.expert, layout.expert_tensor), job.cluster.link_domain
    if job.training.dispatcher != "hybridep":  # which alone has kernels for NVLink across nodes
        per_node = job.cluster.accelerators_per_node
    inside = (ring.size <= ring.per_node) & (ring.size * ring.stride <= per_node)
    part, named = job.model.feed_forward, job.training.dispatcher
    takes = named == "hybridep" or deepep_takes(part, between_nodes=False)
    yield (inside & takes) | sends_tokens_once_per_node(job, layout)
    why = (
        f"it takes {per_node} GPUs for a node, the network is {job.cluster.network}, and DeepEP "
        "has kernels for up to 20 nodes"
    )
    if named == "deepep" and not deepep_takes(part, between_nodes=not inside):
        why = (
            f"DeepEP's kernels don't take tokens of {part.routed_hidden:,} elements, but multiples "
            "of 256 between nodes, of 16 within one, and fewer than 8,192"
        )
    message = f"{job.says('dispatcher', named)} doesn't reach {given(job, layout, 'expert')}: {why}"
    ranks = gcd(job.model.experts, max(per_node // int(layout.expert_tensor), 1))
    fewer = f"{job.says('expert', ranks)}, or " if takes else ""
    yield message, f"use {fewer}{job.says('dispatcher', 'alltoall')}"
