"""Rules on ZeRO stages, and on states that are sharded over a part of the replicas, as by optimizer
instances, MiCS and hpZ.
"""

from __future__ import annotations

from math import gcd

from ...estimate.layout import LayoutLike, Offload
from ...estimate.muon import FIRST_SHARED, is_muon
from ...estimate.stages import expert_replicas
from ...estimate.states import is_precision_aware
from ...findings import ERROR, NOTE
from ...job.records import Job
from ...rule import InFiles
from ...text.wording import dots
from ..planned import (
    IN_CONFIGS,
    Judgement,
    distributed_layouts,
    divides,
    given,
    implies,
    layouts,
    partition_layouts,
    replaced_layouts,
)
from ..violations import deepspeed, deepspeed_0_19_8, derived, divisors, megatron_lm, nearest

#: The first DeepSpeed whose engine accepts AutoTP with ZeRO stage 3; 0.19.3 and earlier assert at
#: most 2.
FIRST_AUTOTP_WITH_STAGE_3 = (0, 19, 4)
_ASSERTION_OF_0_19_3 = (
    "deepspeedai/DeepSpeed deepspeed/runtime/engine.py:634 @ 0.19.3 (an assertion, gone in 0.19.4)"
)

_FSDP = (
    "NVIDIA/Megatron-LM megatron/core/distributed/fsdp: sharding with tensor, context and "
    "expert parallelism only"
)

# The layouts that each rule judges: of which engines and jobs, with the fields and facts it reads.
_older_autotp = replaced_layouts(
    "zero_stage", "tensor", applies=lambda job: job.deepspeed_version < FIRST_AUTOTP_WITH_STAGE_3
)
_lamb = layouts("zero_stage", applies=lambda job: job.training.optimizer == "lamb")


@distributed_layouts("zero_stage", "pipeline").rule("MLM042", ERROR, "silent", _FSDP)
def megatron_fsdp_has_one_stage(job: Job, layout: LayoutLike) -> Judgement:
    """With a pipeline in Megatron-LM, the ZeRO stage is 0 or 1: stages 2 and 3 are Megatron FSDP's.
    Prevents: No error: Megatron FSDP would gather and reduce the model again for every micro-batch
    of every stage.
    Fix: set layout.zero_stage to 1, or layout.pipeline to 1
    """
    yield (layout.zero_stage <= 1) | (layout.pipeline == 1)
    both = given(job, layout, "zero_stage", "pipeline")
    message = f"{both} gathers the model again for every micro-batch: at most 1 with a pipeline"
    yield (
        message,
        f"use {job.says('zero_stage', 1)} (the distributed optimizer), or "
        f"{job.says('pipeline', 1)}",
    )


@_older_autotp.rule("ZERO041", ERROR, "init", _ASSERTION_OF_0_19_3, IN_CONFIGS)
def autotp_stops_at_stage_2(job: Job, layout: LayoutLike) -> Judgement:
    """With AutoTP, the ZeRO stage is at most 2 before DeepSpeed 0.19.4.
    Prevents: DeepSpeed 0.19.3 and earlier stop at start on an assertion.
    Fix: set layout.zero_stage to 2 or lower, or use DeepSpeed 0.19.4 or later (`deepspeed_version`)
    """
    yield (layout.zero_stage <= 2) | (layout.tensor == 1)
    mine, both = dots(job.deepspeed_version), given(job, layout, "zero_stage", "tensor")
    hint = f"use {job.says('zero_stage', 2)}, {job.says('tensor', 1)}, or DeepSpeed 0.19.4 or later"
    yield f"{both} is refused by DeepSpeed {mine}: at most 2", hint


@layouts("zero_stage", "data", "context").rule(
    "ZERO040", NOTE, "silent", derived("one rank has nothing to shard")
)
def sharding_needs_replicas(job: Job, layout: LayoutLike) -> Judgement:
    """ZeRO has more than one rank to shard over.
    Prevents: No error: overhead without any saving.
    Fix: set layout.zero_stage to 0, or increase data"""
    yield (layout.zero_stage == 0) | (layout.data * layout.context > 1)
    ranks = f"{given(job, layout, 'data')} × {given(job, layout, 'context')}"
    message = (
        f"{given(job, layout, 'zero_stage')} with {ranks} has nothing to shard over: "
        "overhead without saving"
    )
    yield message, f"use {job.says('zero_stage', 0)}, or {job.says('data', '2 or more')}"


@_lamb.rule("ZERO042", ERROR, "init", deepspeed("runtime/zero/utils.py:45"))
def lamb_needs_whole_tensors(job: Job, layout: LayoutLike) -> Judgement:
    """LAMB runs at ZeRO stage 0: its trust ratio is the norm of a whole layer.
    Prevents: DeepSpeed stops at start: the optimizer is untested with ZeRO; where it runs, the
    trust ratios are wrong.
    Fix: set layout.zero_stage to 0, or training.optimizer to adamw
    """
    yield layout.zero_stage == 0
    message = (
        f"{job.says('zero_stage', layout.zero_stage)} with {job.says('optimizer', 'lamb')} is "
        "refused as untested: its trust ratio needs whole layers, which only stage 0 keeps"
    )
    yield message, f"use {job.says('zero_stage', 0)}, or training.{job.says('optimizer', 'adamw')}"


_muon = distributed_layouts("zero_stage", "zero_copies", applies=is_muon)


@_muon.rule(
    "MLM142",
    ERROR,
    "init",
    megatron_lm("training/arguments.py:1181 @ core_v0.16.1, :1669-1686 @ core_v0.19.0"),
)
def muon_shares_whole_matrices(job: Job, layout: LayoutLike) -> Judgement:
    """Muon runs at ZeRO stage 0 or, from Megatron-Core 0.18 on, 1, with one copy of its states.
    Prevents: AssertionError: Muon optimizer does not support distributed optimizer for now; or
    that the optimizer doesn't support FSDP
    Fix: set layout.zero_stage to 0 or 1, or training.optimizer to adamw
    """
    most = 1 if job.megatron_version >= FIRST_SHARED else 0
    yield (layout.zero_stage <= most) & (layout.zero_copies <= 1)
    both = given(job, layout, "zero_stage", "zero_copies")
    message = (
        f"{both} with {job.says('optimizer', 'muon')}: Megatron-LM {dots(job.megatron_version)} "
        f"takes at most stage {most}, and one copy"
    )
    staged = job.says("zero_stage", most)
    fix = staged if int(layout.zero_stage) > most else job.says("zero_copies", 1)
    yield message, f"use {fix}, or {job.says('optimizer', 'adamw')}"


_state_types = distributed_layouts("zero_stage", applies=is_precision_aware)
_fp8_parameters = distributed_layouts("zero_stage", applies=lambda job: job.training.fp8_parameters)


@_state_types.rule(
    "OPT046", ERROR, "init", megatron_lm("core/optimizer/optimizer_config.py (main_params_dtype)")
)
def precision_aware_optimizer_is_distributed(job: Job, layout: LayoutLike) -> Judgement:
    """Optimizer states other than fp32 need the distributed optimizer.
    Prevents: Megatron-LM stops at start on an assertion: its precision-aware optimizer is a
    distributed one.
    Fix: set layout.zero_stage to 1, or remove moment_dtype and master_dtype
    """
    yield layout.zero_stage >= 1
    training, stage = job.training, job.says("zero_stage", layout.zero_stage)
    key = "moment_dtype" if training.moment_dtype else "master_dtype"
    message = f"{stage} with {job.says(key, getattr(training, key))}, which needs stage 1"
    yield message, f"use {job.says('zero_stage', 1)}"


@_fp8_parameters.rule(
    "PREC032", ERROR, "init", megatron_lm("training/arguments.py (fp8_param_gather)")
)
def fp8_parameters_are_gathered(job: Job, layout: LayoutLike) -> Judgement:
    """Weights in fp8 need the distributed optimizer, which gathers them; those in 4 bits aren't
    FSDP's.
    Prevents: Megatron-LM stops at start on an assertion.
    Fix: set layout.zero_stage to 1, or remove fp8_parameters"""
    narrowest = job.training.precision == "nvfp4"
    yield (layout.zero_stage == 1) if narrowest else (layout.zero_stage >= 1)
    both = f"{given(job, layout, 'zero_stage')} with {job.says('fp8_parameters', True)}"
    yield f"{both}, which needs stage 1", f"use {job.says('zero_stage', 1)}"


#: The first DeepSpeed without MiCS.
FIRST_WITHOUT_MICS = (0, 19, 7)
_MICS = "deepspeedai/DeepSpeed deepspeed/runtime/zero/mics.py @ 0.19.6 (removed in 0.19.7)"


def has_mics(job: Job) -> bool:
    """Ask whether the engine has MiCS.

    The Trainer and Megatron-DeepSpeed haven't: they build models under plain zero.Init.
    """
    return job.engine.scripted and job.deepspeed_version < FIRST_WITHOUT_MICS


_instances = distributed_layouts(
    "zero_copies", "data", "context", "tensor", "expert", "expert_tensor", "experts"
)
_without_mics = partition_layouts("zero_copies", applies=lambda job: not has_mics(job))
_mics = partition_layouts("zero_copies", "zero_stage", "offload", "zero_hpz", applies=has_mics)
_shards = partition_layouts("zero_copies", "data", "context", "tensor", applies=has_mics)
_quantized = partition_layouts(
    "zero_stage",
    applies=lambda job: bool(job.training.quantized_weights or job.training.quantized_gradients),
)


@_instances.rule("MLM019", ERROR, "init", megatron_lm("core/parallel_state.py:922"), InFiles())
def copies_divide_ranks(job: Job, layout: LayoutLike) -> Judgement:
    """Instances of the distributed optimizer divide the data and context parallel ranks, and the
    experts' too.
    Prevents: Megatron-LM stops at start: the data parallel size is not divisible by the shard
    factor.
    Fix: set layout.zero_copies to a divisor of data × context, and of the replicas of the experts
    """
    ranks = layout.data * layout.context
    experts = expert_replicas(layout) if job.model.experts > 0 else ranks
    divided = (ranks % layout.zero_copies == 0) & (experts % layout.zero_copies == 0)
    yield implies(layout.zero_copies > 1, divided)
    common = gcd(int(ranks), int(experts)) if experts >= 1 else 1
    message = (
        f"{job.says('zero_copies', layout.zero_copies)} does not divide the {ranks} "
        "ranks of data × context"
    )
    if job.model.experts > 0 and ranks % layout.zero_copies == 0:
        message = (
            f"{job.says('zero_copies', layout.zero_copies)} does not divide the {experts:g} "
            "replicas of experts"
        )
    yield message, f"use {job.says('zero_copies', *nearest(divisors(common), layout.zero_copies))}"


@distributed_layouts("zero_copies", "zero_stage").rule(
    "MLM134", ERROR, "init", megatron_lm("core/distributed/distributed_data_parallel.py:357")
)
def copies_are_of_the_distributed_optimizer(job: Job, layout: LayoutLike) -> Judgement:
    """Several optimizer instances in Megatron-LM need the distributed optimizer.
    Prevents: Megatron-LM stops at start: Partial DistOpt cannot be used without DistOpt.
    Fix: set layout.zero_stage to 1, or zero_copies to 1"""
    yield implies(layout.zero_copies > 1, layout.zero_stage == 1)
    yield (
        f"{given(job, layout, 'zero_copies', 'zero_stage')} is refused",
        f"use {job.says('zero_copies', 1)}",
    )


@_without_mics.rule("ZERO081", ERROR, "init", _MICS)
def copies_need_mics(job: Job, layout: LayoutLike) -> Judgement:
    """Several copies of DeepSpeed's shards need MiCS: a script of your own, and DeepSpeed before
    0.19.7.
    Prevents: The key is gone from DeepSpeed 0.19.7, and other scripts build models without
    MiCS_Init.
    Fix: set layout.zero_copies to 1; zero_hpz keeps parameters within a node
    """
    yield layout.zero_copies == 1
    mine = dots(job.deepspeed_version)
    copies = job.says("zero_copies", layout.zero_copies)
    framework = job.says("framework", job.framework)
    message = f"{copies} is not available with {framework} and DeepSpeed {mine}"
    yield (
        message,
        f"use {job.says('zero_copies', 1)}, or "
        f"{job.says('zero_hpz', job.cluster.accelerators_per_node)}",
    )


@_mics.rule("ZERO082", ERROR, "init", _MICS)
def mics_shards_parameters(job: Job, layout: LayoutLike) -> Judgement:
    """MiCS runs at ZeRO stage 3, without offload and without second partitions (hpZ).
    Prevents: DeepSpeed stops on an assertion with offload; below stage 3 there are no copies, and
    no error says so.
    Fix: set layout.zero_stage to 3 and offload to none, or zero_copies to 1
    """
    alone = (layout.offload == Offload.NONE) & (layout.zero_hpz == 1)
    yield implies(layout.zero_copies > 1, (layout.zero_stage == 3) & alone)
    copies, stage, offload, hpz = (
        given(job, layout, k) for k in ("zero_copies", "zero_stage", "offload", "zero_hpz")
    )
    yield (
        f"{copies} with {stage}, {offload} and {hpz} is refused",
        f"use {job.says('zero_copies', 1)}",
    )


def _divides_neighbours(job: Job, layout: LayoutLike, key: str) -> Judgement:
    ranks, count = layout.data * layout.context, getattr(layout, key)
    yield implies(count > 1, divides(count, ranks) & (layout.tensor == 1))
    message = (
        f"{given(job, layout, key)} does not divide {ranks} ranks with "
        f"{given(job, layout, 'tensor')}"
    )
    fitting = nearest(divisors(int(ranks)), count) if layout.tensor == 1 else [1]
    yield message, f"use {job.says(key, *fitting)}"


@_shards.rule(
    "ZERO083",
    ERROR,
    "init",
    "deepspeedai/DeepSpeed deepspeed/runtime/zero/mics_utils.py:83 @ 0.19.6",
)
def mics_groups_divide_ranks(job: Job, layout: LayoutLike) -> Judgement:
    """The copies of MiCS divide data × context, without tensor parallelism: each is on neighbouring
    ranks.
    Prevents: An assertion when the groups are made, or shards of other weights in one group.
    Fix: set layout.zero_copies to a divisor of data × context, and tensor to 1
    """
    yield from _divides_neighbours(job, layout, "zero_copies")


@layouts("zero_hpz", "zero_stage").rule(
    "ZERO084", ERROR, "silent", deepspeed_0_19_8("runtime/engine.py:2787")
)
def second_partitions_need_stage_3(job: Job, layout: LayoutLike) -> Judgement:
    """Second partitions of the parameters (ZeRO++ hpZ) need DeepSpeed's ZeRO stage 3.
    Prevents: No error: zero_hpz_partition_size has no effect below stage 3.
    Fix: set layout.zero_stage to 3, or zero_hpz to 1"""
    yield (layout.zero_hpz == 1) | (job.engine.has("zero_hpz") & (layout.zero_stage == 3))
    message = (
        f"{given(job, layout, 'zero_hpz')} has no effect with {given(job, layout, 'zero_stage')}"
    )
    yield f"{message} of {job.says('framework', job.framework)}", f"use {job.says('zero_hpz', 1)}"


@partition_layouts("zero_hpz", "data", "context", "tensor").rule(
    "ZERO026", ERROR, "init", deepspeed_0_19_8("utils/groups.py:943")
)
def second_partitions_divide_ranks(job: Job, layout: LayoutLike) -> Judgement:
    """Second partitions divide data × context, without tensor parallelism: each is on neighbouring
    ranks.
    Prevents: `N is not divisible by M` when the engine starts, or shards of other weights in one
    group.
    Fix: set layout.zero_hpz to the accelerators of a node, and tensor to 1
    """
    yield from _divides_neighbours(job, layout, "zero_hpz")


@_quantized.rule("ZERO086", ERROR, "silent", deepspeed_0_19_8("runtime/engine.py:2788"))
def quantized_communication_needs_stage_3(job: Job, layout: LayoutLike) -> Judgement:
    """Quantized weights and gradients (ZeRO++) need ZeRO stage 3.
    Prevents: No error: below stage 3 both keys have no effect.
    Fix: set layout.zero_stage to 3, or remove the keys from training"""
    yield layout.zero_stage == 3
    key = "quantized_weights" if job.training.quantized_weights else "quantized_gradients"
    message = (
        f"{job.says('zero_stage', layout.zero_stage)} with "
        f"training.{job.says(key, True)} has no effect"
    )
    yield message, f"use {job.says('zero_stage', 3)}"
