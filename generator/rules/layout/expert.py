"""Expert parallelism against the experts and the replicas."""

from __future__ import annotations

from typing import Any

from ...estimate.layout import Layout, LayoutLike
from ...findings import Severity
from ...job.records import Job
from ..columns import divides
from ..numbers import divisors, listed, nearest
from ..planning_rule import LayoutRule
from ..sources import deepspeed, derived, megatron_deepspeed, megatron_lm


def expert_divides_experts(job: Job, layout: LayoutLike) -> Any:
    """Expert parallelism gives every rank the same number of experts."""
    return divides(layout.expert, job.model.experts)


def _explain_experts(job: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"expert: {layout.expert} does not divide the {job.model.experts} experts",
        f"expert: {listed(nearest(divisors(job.model.experts), layout.expert))}",
    )


def dense_models_have_no_experts(_: Job, layout: LayoutLike) -> Any:
    """A dense model has no experts to spread."""
    return layout.expert == 1


def _explain_dense(job: Job, layout: Layout) -> tuple[str, str]:
    return f"expert: {layout.expert} with {job.model.name}, a dense model (0 experts)", "expert: 1"


def expert_divides_replicas(_: Job, layout: LayoutLike) -> Any:
    """Expert parallel groups are cut out of the data and context parallel ranks."""
    return divides(layout.expert, layout.data * layout.context)


def _explain_replicas(job: Job, layout: Layout) -> tuple[str, str]:
    ranks = layout.data * layout.context
    fitting = [e for e in divisors(ranks) if not job.model.is_moe or job.model.experts % e == 0]
    return (
        f"expert: {layout.expert} does not divide the {ranks} ranks of data: {layout.data} × context: {layout.context}",
        f"expert: {listed(nearest(fitting, layout.expert))}",
    )


def native_experts_stop_at_stage_2(job: Job, layout: LayoutLike) -> Any:
    """DeepSpeed's MoE layers run with ZeRO up to stage 2."""
    if job.framework.runs("Megatron-DeepSpeed"):  # its MoE layers are DeepSpeed's at any expert parallel size
        return layout.zero_stage <= 2
    return (layout.zero_stage <= 2) | (layout.expert == 1)


def _explain_stage_2(job: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"zero_stage: {layout.zero_stage} with expert: {layout.expert} of {job.model.experts} experts is refused by"
        " DeepSpeed's MoE layers: at most 2",
        "zero_stage: 2",
    )


def experts_are_pinned(_: Job, layout: LayoutLike) -> Any:
    """A script for DeepSpeed must build DeepSpeed's MoE layers to spread experts: only the user knows."""
    return layout.expert == 1


def _explain_pinned(_: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"expert: {layout.expert} needs a script that builds deepspeed.moe.layer.MoE layers",
        f"expert: 1, or pin layout.expert: {layout.expert} if the script does",
    )


def trainer_spreads_no_experts(_: Job, layout: LayoutLike) -> Any:
    """The Trainer keeps every expert on every rank."""
    return layout.expert == 1


def _explain_trainer(_: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"expert: {layout.expert} is not available with framework: huggingface",
        "expert: 1 (or framework: megatron-lm)",
    )


def native_experts_avoid_pipeline(_: Job, layout: LayoutLike) -> Any:
    """Megatron-DeepSpeed pipelines a MoE model only with partitioned activations switched off, so only when pinned."""
    return layout.pipeline == 1


def _explain_pipeline(job: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"pipeline: {layout.pipeline} with the {job.model.experts} experts of {job.model.name} is fragile with"
        " framework: megatron-deepspeed, whose stages pass two tensors then",
        f"pipeline: 1, framework: megatron-lm, or pin layout.pipeline: {layout.pipeline}",
    )


def biased_experts_stay_whole(_: Job, layout: LayoutLike) -> Any:
    """Megatron-LM's experts have biases only when tensor parallelism doesn't cut them."""
    return layout.tensor == 1


def _explain_biased(job: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"tensor: {layout.tensor} cuts the {job.model.experts} experts of {job.model.name}, a model with biases, which"
        " is refused",
        "tensor: 1 (expert: N spreads them whole)",
    )


def _has_biased_experts(job: Job) -> bool:
    """Whether `--disable-bias-linear` is not given for a MoE model: the option is one for all layers."""
    model = job.model
    return model.is_moe and (model.output_bias or model.mlp_bias or model.expert_bias)


def _is_moe(job: Job) -> bool:
    return job.model.is_moe


EXPERT_RULES: tuple[LayoutRule, ...] = (
    LayoutRule(
        id="MLM017",
        severity=Severity.ERROR,
        source=megatron_lm("training/arguments.py:1655"),
        variables=("expert",),
        holds=expert_divides_experts,
        explain=_explain_experts,
        of=("Megatron-LM",),
        applies=_is_moe,
    ),
    LayoutRule(
        id="MOE001",
        severity=Severity.ERROR,
        source=deepspeed("moe/layer.py:59"),
        variables=("expert",),
        holds=expert_divides_experts,
        explain=_explain_experts,
        of=("DeepSpeed engine",),
        applies=_is_moe,
    ),
    LayoutRule(
        id="MOE005",
        severity=Severity.ERROR,
        source=megatron_lm("core/transformer/transformer_config.py:1595"),
        variables=("expert",),
        holds=dense_models_have_no_experts,
        explain=_explain_dense,
        applies=lambda job: not job.model.is_moe,
    ),
    LayoutRule(
        id="MLM018",
        severity=Severity.ERROR,
        source=megatron_lm("core/parallel_state.py:882"),
        variables=("expert", "data", "context"),
        holds=expert_divides_replicas,
        explain=_explain_replicas,
        of=("Megatron-LM",),
    ),
    LayoutRule(
        id="MOE006",
        severity=Severity.ERROR,
        source=deepspeed("utils/groups.py:100"),
        variables=("expert", "data", "context"),
        holds=expert_divides_replicas,
        explain=_explain_replicas,
        of=("DeepSpeed engine",),
    ),
    LayoutRule(
        id="MOE002",
        severity=Severity.ERROR,
        source=deepspeed("runtime/engine.py:1890"),
        variables=("zero_stage", "expert"),
        holds=native_experts_stop_at_stage_2,
        explain=_explain_stage_2,
        of=("own script", "Megatron-DeepSpeed"),
        applies=_is_moe,
    ),
    LayoutRule(
        id="MOE007",
        severity=Severity.ERROR,
        source=derived("deepspeed.initialize spreads only the experts of its own MoE layers"),
        variables=("expert",),
        holds=experts_are_pinned,
        explain=_explain_pinned,
        of=("own script",),
        applies=lambda job: job.pins.expert is None,
    ),
    LayoutRule(
        id="HF021",
        severity=Severity.ERROR,
        source=derived("transformers' MoE layers are not DeepSpeed's"),
        variables=("expert",),
        holds=trainer_spreads_no_experts,
        explain=_explain_trainer,
        of=("Trainer",),
    ),
    LayoutRule(
        id="MLM046",
        severity=Severity.ERROR,
        source="NVIDIA/Megatron-LM megatron/core/transformer/transformer_config.py @ core_v0.16.1 (an assertion)",
        variables=("tensor",),
        holds=biased_experts_stay_whole,
        explain=_explain_biased,
        of=("Megatron-LM",),
        applies=_has_biased_experts,
    ),
    LayoutRule(
        id="MDS018",
        severity=Severity.ERROR,
        source=megatron_deepspeed("megatron/model/gpt_model.py:379"),
        variables=("pipeline",),
        holds=native_experts_avoid_pipeline,
        explain=_explain_pipeline,
        of=("Megatron-DeepSpeed",),
        applies=lambda job: job.model.is_moe and job.pins.pipeline is None,
    ),
)
