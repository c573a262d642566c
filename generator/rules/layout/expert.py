"""Expert parallelism against the experts and the replicas."""

from __future__ import annotations

from typing import Any

from ...estimate.layout import Layout, LayoutLike
from ...findings import ERROR
from ...job.records import Job
from ...rule import Arguments
from ..columns import divides
from ..numbers import divisors, listed, nearest
from ..planned import layout_rule
from ..sources import deepspeed, derived, megatron_deepspeed, megatron_lm


def _has_biased_experts(job: Job) -> bool:
    """Whether `--disable-bias-linear` is not given for a MoE model: the option is one for all layers."""
    model = job.model
    return model.is_moe and (model.output_bias or model.mlp_bias or model.expert_bias)


def _is_moe(job: Job) -> bool:
    return job.model.is_moe


def _explain_experts(job: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"expert: {layout.expert} does not divide the {job.model.experts} experts",
        f"expert: {listed(nearest(divisors(job.model.experts), layout.expert))}",
    )


@layout_rule("MLM017", ERROR, "init", megatron_lm("training/arguments.py:1655"), of=("Megatron-LM",), applies=_is_moe)
@layout_rule(
    "MOE001",
    ERROR,
    "init",
    deepspeed("moe/layer.py:59"),
    ("expert", "experts"),
    _explain_experts,
    of=("DeepSpeed engine",),
    applies=_is_moe,
    arguments=Arguments(),
)
def expert_divides_experts(job: Job, layout: LayoutLike) -> Any:
    """Expert parallelism gives every rank the same number of experts.

    Prevents: The framework stops at start: the number of experts should be a multiple of the expert parallel size.
    Fix: a layout.expert that divides the experts
    """
    return divides(layout.expert, job.model.experts)


def _explain_dense(job: Job, layout: Layout) -> tuple[str, str]:
    return f"expert: {layout.expert} with {job.model.name}, a dense model (0 experts)", "expert: 1"


@layout_rule(
    "MOE005",
    ERROR,
    "init",
    megatron_lm("core/transformer/transformer_config.py:1595"),
    ("expert", "experts"),
    _explain_dense,
    applies=lambda job: not job.model.is_moe,
    arguments=Arguments(only=("Megatron-DeepSpeed",)),
)
def dense_models_have_no_experts(_: Job, layout: LayoutLike) -> Any:
    """A dense model has no experts to spread.

    Prevents: Megatron-LM stops at start: expert parallelism needs experts.
    Fix: layout.expert: 1
    """
    return layout.expert == 1


def _explain_replicas(job: Job, layout: Layout) -> tuple[str, str]:
    ranks = layout.data * layout.context
    fitting = [e for e in divisors(ranks) if not job.model.is_moe or job.model.experts % e == 0]
    return (
        f"expert: {layout.expert} does not divide the {ranks} ranks of data: {layout.data} × context: {layout.context}",
        f"expert: {listed(nearest(fitting, layout.expert))}",
    )


@layout_rule("MLM018", ERROR, "init", megatron_lm("core/parallel_state.py:882"), of=("Megatron-LM",))
@layout_rule(
    "MOE006",
    ERROR,
    "init",
    deepspeed("utils/groups.py:100"),
    ("expert", "data", "context", "gpus", "experts"),
    _explain_replicas,
    of=("DeepSpeed engine",),
    arguments=Arguments(),
)
def expert_divides_replicas(_: Job, layout: LayoutLike) -> Any:
    """Expert parallel groups are cut out of the data and context parallel ranks.

    Prevents: The framework stops when it builds its groups: the world size is not divisible by the expert groups.
    Fix: a layout.expert that divides data × context
    """
    return divides(layout.expert, layout.data * layout.context)


def _explain_stage_2(job: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"zero_stage: {layout.zero_stage} with expert: {layout.expert} of {job.model.experts} experts is refused by"
        " DeepSpeed's MoE layers: at most 2",
        "zero_stage: 2",
    )


@layout_rule(
    "MOE002",
    ERROR,
    "init",
    deepspeed("runtime/engine.py:1890"),
    ("zero_stage", "expert"),
    _explain_stage_2,
    of=("own script", "Megatron-DeepSpeed"),
    applies=_is_moe,
)
def native_experts_stop_at_stage_2(job: Job, layout: LayoutLike) -> Any:
    """DeepSpeed's MoE layers run with ZeRO up to stage 2.

    Prevents: DeepSpeed stops at start: native MoE is not supported with ZeRO stage 3.
    Fix: layout.zero_stage: 2 or lower
    """
    if job.framework.runs("Megatron-DeepSpeed"):  # its MoE layers are DeepSpeed's at any expert parallel size
        return layout.zero_stage <= 2
    return (layout.zero_stage <= 2) | (layout.expert == 1)


def _explain_pinned(_: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"expert: {layout.expert} needs a script that builds deepspeed.moe.layer.MoE layers",
        f"expert: 1, or pin layout.expert: {layout.expert} if the script does",
    )


@layout_rule(
    "MOE007",
    ERROR,
    "silent",
    derived("deepspeed.initialize spreads only the experts of its own MoE layers"),
    ("expert",),
    _explain_pinned,
    of=("own script",),
    applies=lambda job: job.pins.expert is None,
)
def experts_are_pinned(_: Job, layout: LayoutLike) -> Any:
    """A script for DeepSpeed must build DeepSpeed's MoE layers to spread experts: only the user knows.

    Prevents: No error: without DeepSpeed's own MoE layers every rank holds all experts.
    Fix: layout.expert: 1; pin another value if the script builds DeepSpeed's MoE layers
    """
    return layout.expert == 1


def _explain_trainer(_: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"expert: {layout.expert} is not available with framework: huggingface",
        "expert: 1 (or framework: megatron-lm)",
    )


@layout_rule(
    "HF021",
    ERROR,
    "silent",
    derived("transformers' MoE layers are not DeepSpeed's"),
    ("expert",),
    _explain_trainer,
    of=("Trainer",),
)
def trainer_spreads_no_experts(_: Job, layout: LayoutLike) -> Any:
    """The Trainer keeps every expert on every rank.

    Prevents: No error: each rank would hold all experts, and memory would not be what was planned.
    Fix: layout.expert: 1, or framework: megatron-lm
    """
    return layout.expert == 1


def _explain_biased(job: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"tensor: {layout.tensor} cuts the {job.model.experts} experts of {job.model.name}, a model with biases, which"
        " is refused",
        "tensor: 1 (expert: N spreads them whole)",
    )


@layout_rule(
    "MLM046",
    ERROR,
    "init",
    "NVIDIA/Megatron-LM megatron/core/transformer/transformer_config.py @ core_v0.16.1 (an assertion)",
    ("tensor",),
    _explain_biased,
    of=("Megatron-LM",),
    applies=_has_biased_experts,
)
def biased_experts_stay_whole(_: Job, layout: LayoutLike) -> Any:
    """Megatron-LM's experts have biases only when tensor parallelism doesn't cut them.

    Prevents: Megatron-LM stops at start on an assertion.
    Fix: layout.tensor: 1, with expert parallelism instead
    """
    return layout.tensor == 1


def _explain_pipeline(job: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"pipeline: {layout.pipeline} with the {job.model.experts} experts of {job.model.name} is fragile with"
        " framework: megatron-deepspeed, whose stages pass two tensors then",
        f"pipeline: 1, framework: megatron-lm, or pin layout.pipeline: {layout.pipeline}",
    )


@layout_rule(
    "MDS018",
    ERROR,
    "training",
    megatron_deepspeed("megatron/model/gpt_model.py:379"),
    ("pipeline",),
    _explain_pipeline,
    of=("Megatron-DeepSpeed",),
    applies=lambda job: job.model.is_moe and job.pins.pipeline is None,
)
def native_experts_avoid_pipeline(_: Job, layout: LayoutLike) -> Any:
    """Megatron-DeepSpeed pipelines a MoE model only with partitioned activations switched off, so only when pinned.

    Prevents: Training fails between the stages unless partitioned activations, which are the default, are switched
    off.
    Fix: layout.pipeline: 1, or pin the pipeline if your copy has it switched off
    """
    return layout.pipeline == 1
