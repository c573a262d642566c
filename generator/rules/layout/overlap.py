"""Rules on communication that Megatron-LM runs beside compute: that of tensor ranks by user
buffers, that of experts beside another micro-batch.
"""

from __future__ import annotations

import numpy as np

from ...estimate.layout import LayoutLike, Modules, Recompute
from ...facts.facts import knows
from ...findings import ERROR
from ...job.records import Job
from ...rule import InFiles
from ..planned import Judgement, detail_layouts, divides, elsewhere, given, implies, without_detail
from ..violations import derived, megatron_lm, transformer_engine
from .tensor import tensor_domain

_OVERLAP = "--overlap-moe-expert-parallel-comm"
_CONFIG = "core/transformer/transformer_config.py"
_HALF = ("bf16", "fp16", "fp8", "nvfp4")  #: narrow products are computed on top of bf16


def _has_engine(job: Job) -> bool:
    """Ask whether Transformer Engine's user buffers run here: they need NVLink
    (NVIDIA/TransformerEngine 985).
    """
    joined = not knows(job, "intra_node") or job.cluster.intra_node != "pcie"
    return job.cluster.accelerator.generation.transformer_engine and joined


# The layouts that each rule judges: of which engines and jobs, with the fields and facts it reads.
_buffers = detail_layouts("tensor_overlap", "tensor", "accelerators_per_node")
_devices = detail_layouts("tensor_overlap", "accelerator", applies=lambda job: not _has_engine(job))
_precise = detail_layouts(
    "expert_overlap", "precision", applies=lambda job: job.training.precision not in _HALF
)
_packed = detail_layouts("expert_overlap", applies=lambda job: job.packs_sequences)


def _off(job: Job, field: str) -> str:
    return job.origin.vocabulary.without(field)


def _refused(job: Job, field: str, others: str) -> tuple[str, str]:
    return f"{job.says(field, True)} with {others} is refused", _off(job, field)


@without_detail("tensor_overlap").rule(
    "MLM120", ERROR, "silent", derived("only Megatron-LM has --tp-comm-overlap")
)
def tensor_overlap_is_megatrons(job: Job, layout: LayoutLike) -> Judgement:
    """Tensor-parallel communication overlaps with products in Megatron-LM only.
    Prevents: No error: the communication would wait as before, and steps would take longer than
    planned.
    Fix: set layout.tensor_overlap to false, or use framework: megatron-lm
    """
    yield np.logical_not(layout.tensor_overlap)
    yield elsewhere(job, layout, "tensor_overlap", False, "megatron-lm")


@without_detail("expert_overlap").rule(
    "MLM121", ERROR, "silent", derived(f"only Megatron-LM has {_OVERLAP}")
)
def expert_overlap_is_megatrons(job: Job, layout: LayoutLike) -> Judgement:
    """Experts' all-to-alls overlap with another micro-batch's compute in Megatron-LM only.
    Prevents: No error: the all-to-alls would wait as before, and steps would take longer than
    planned.
    Fix: set layout.expert_overlap to false, or use framework: megatron-lm
    """
    yield np.logical_not(layout.expert_overlap)
    yield elsewhere(job, layout, "expert_overlap", False, "megatron-lm")


@detail_layouts("tensor_overlap", "sequence_parallel").rule(
    "MLM011", ERROR, "init", megatron_lm("training/arguments.py:1441"), InFiles()
)
def tensor_overlap_needs_sequence_parallel(job: Job, layout: LayoutLike) -> Judgement:
    """Tensor-parallel overlap needs sequence parallelism.
    Prevents: Megatron-LM stops at start on an assertion.
    Fix: set layout.sequence_parallel to true, or tensor_overlap to false"""
    yield implies(layout.tensor_overlap, layout.sequence_parallel)
    message = (
        f"{job.says('tensor_overlap', True)} with {job.says('sequence_parallel', False)} is refused"
    )
    yield message, f"{_off(job, 'tensor_overlap')}, or use {job.says('sequence_parallel', True)}"


@_buffers.rule("MLM122", ERROR, "init", transformer_engine("module/base.py:293-310"), InFiles())
def tensor_overlap_stays_in_node(job: Job, layout: LayoutLike) -> Judgement:
    """Tensor-parallel overlap has all ranks of a tensor group in one node: its buffers are shared
    over NVLink.
    Prevents: Transformer Engine fails when it maps the buffers of ranks on other nodes.
    Fix: set layout.tensor to a divisor of the accelerators of a node, or tensor_overlap to false
    """
    domain = tensor_domain(job)
    yield implies(layout.tensor_overlap, divides(layout.tensor, domain))
    says = f"{job.says('tensor_overlap', True)} with {job.says('tensor', layout.tensor)}"
    message = f"{says} crosses nodes: {domain} accelerators share the fast fabric"
    yield message, _off(job, "tensor_overlap")


@_devices.rule(
    "MLM123", ERROR, "init", transformer_engine("module/base.py:152, initialize_ub"), InFiles()
)
def tensor_overlap_has_its_hardware(job: Job, layout: LayoutLike) -> Judgement:
    """Tensor-parallel overlap runs on NVIDIA's GPUs since Ampere that NVLink joins, as Transformer
    Engine's buffers do.
    Prevents: Transformer Engine, or its user buffers, can't be loaded.
    Fix: set layout.tensor_overlap to false
    """
    yield np.logical_not(layout.tensor_overlap)
    linked = " without NVLink" * (knows(job, "intra_node") and job.cluster.intra_node == "pcie")
    message = (
        f"{job.says('tensor_overlap', True)} is not available on "
        f"{job.cluster.accelerator.name}{linked}"
    )
    yield message, _off(job, "tensor_overlap")


@detail_layouts("expert_overlap", "expert").rule(
    "MLM124", ERROR, "init", megatron_lm(f"{_CONFIG}:3012"), InFiles()
)
def expert_overlap_needs_expert_parallelism(job: Job, layout: LayoutLike) -> Judgement:
    """Expert overlap needs an expert parallel size above 1: otherwise there is no all-to-all.
    Prevents: Megatron-LM stops at start: it is only supported with expert model parallelism.
    Fix: set layout.expert to 2 or more, or expert_overlap to false"""
    yield implies(layout.expert_overlap, layout.expert > 1)
    yield _refused(job, "expert_overlap", given(job, layout, "expert"))


@detail_layouts("expert_overlap", "pipeline", "virtual_pipeline").rule(
    "MLM125", ERROR, "init", megatron_lm(f"{_CONFIG}:3007"), InFiles()
)
def expert_overlap_needs_interleaving(job: Job, layout: LayoutLike) -> Judgement:
    """Expert overlap in a pipeline needs interleaving.
    Prevents: Megatron-LM stops at start: virtual_pipeline_model_parallel_size must be specified.
    Fix: set layout.virtual_pipeline to 2 or more, pipeline to 1, or expert_overlap to false"""
    yield implies(layout.expert_overlap, (layout.pipeline == 1) | (layout.virtual_pipeline > 1))
    sizes = (
        f"{job.says('pipeline', layout.pipeline)} and "
        f"{job.says('virtual_pipeline', layout.virtual_pipeline)}"
    )
    message = f"{job.says('expert_overlap', True)} with {sizes} is refused"
    yield (
        message,
        f"use {job.says('virtual_pipeline', '2')} or more, or {_off(job, 'expert_overlap')}",
    )


@detail_layouts("expert_overlap", "recompute").rule(
    "MLM126", ERROR, "init", megatron_lm(f"{_CONFIG}:3021"), InFiles()
)
def expert_overlap_keeps_layers(job: Job, layout: LayoutLike) -> Judgement:
    """Expert overlap does not recompute whole layers, whose parts it schedules one by one.
    Prevents: Megatron-LM stops at start: disable full recomputation.
    Fix: set layout.recompute to selective or none, or expert_overlap to false"""
    yield implies(layout.expert_overlap, layout.recompute != Recompute.FULL)
    message = (
        f"{job.says('expert_overlap', True)} with "
        f"{job.says('recompute', Recompute.FULL)} is refused"
    )
    yield message, f"use {job.says('recompute', Recompute.NONE)}, or {_off(job, 'expert_overlap')}"


@detail_layouts("expert_overlap", "recompute", "recompute_modules").rule(
    "MLM135",
    ERROR,
    "init",
    megatron_lm(f"{_CONFIG}:3030 (core_v0.16.1 has no such check)"),
    InFiles(),
)
def expert_overlap_keeps_moe_layers(job: Job, layout: LayoutLike) -> Judgement:
    """Expert overlap does not recompute whole MoE layers: their all-to-alls would run twice, one of
    them alone.
    Prevents: Megatron-LM stops at start: disable moe in recompute_modules.
    Fix: leave moe out of layout.recompute_modules, or set expert_overlap to false
    """
    recomputes_moe = (layout.recompute == Recompute.SELECTIVE) & (
        layout.recompute_modules & Modules.MOE > 0
    )
    yield implies(layout.expert_overlap, np.logical_not(recomputes_moe))
    yield _refused(job, "expert_overlap", job.says("recompute_modules", "moe"))


@_precise.rule("MLM127", ERROR, "init", megatron_lm(f"{_CONFIG}:3035"), InFiles())
def expert_overlap_has_half_precision(job: Job, layout: LayoutLike) -> Judgement:
    """Expert overlap runs in bf16 or fp16.
    Prevents: Megatron-LM stops at start: it is only supported with bf16 or fp16 model.
    Fix: set training.precision to bf16, or layout.expert_overlap to false"""
    yield np.logical_not(layout.expert_overlap)
    yield _refused(job, "expert_overlap", job.says("precision", job.training.precision))


@detail_layouts("expert_overlap", "tensor_overlap").rule(
    "MLM128",
    ERROR,
    "init",
    transformer_engine("module/_common.py:266 (the default --tp-comm-bulk-wgrad)"),
)
def overlaps_exclude_each_other(job: Job, layout: LayoutLike) -> Judgement:
    """Expert overlap, with its delayed weight gradients, and tensor-parallel overlap are not used
    together.
    Prevents: Transformer Engine stops: ub_bulk_wgrad is not supported when enabling
    delay_wgrad_compute.
    Fix: set layout.tensor_overlap or layout.expert_overlap to false
    """
    yield np.logical_not(layout.expert_overlap & layout.tensor_overlap)
    both = f"{job.says('expert_overlap', True)} with {job.says('tensor_overlap', True)}"
    yield (
        f"{both} is refused: weight gradients can't be both delayed and overlapped",
        _off(job, "tensor_overlap"),
    )


@detail_layouts("expert_overlap", "pipeline", applies=lambda job: job.training.mtp_depths > 0).rule(
    "MLM150", ERROR, "init", megatron_lm(f"{_CONFIG}:1890-1896")
)
def expert_overlap_has_one_depth(job: Job, layout: LayoutLike) -> Judgement:
    """Expert overlap takes one depth of multi-token prediction, and that in a pipeline.
    Prevents: AssertionError: MTP layernum only supports 1 when enabling
    overlap_moe_expert_parallel_comm.
    Fix: set layout.expert_overlap to false, or training.mtp_depths to 1 and layout.pipeline to 2 or
    more"""
    depths = job.training.mtp_depths
    yield implies(layout.expert_overlap, (depths == 1) & (layout.pipeline > 1))
    said = job.says("mtp_depths", depths)
    yield _refused(job, "expert_overlap", f"{said} and {job.says('pipeline', layout.pipeline)}")


@_packed.rule(
    "BRG009",
    ERROR,
    "silent",
    "NVIDIA-NeMo/Megatron-Bridge src/megatron/bridge/training/gpt_step.py:451-461 @ v0.6.0",
)
def expert_overlap_takes_whole_sequences(job: Job, layout: LayoutLike) -> Judgement:
    """Expert overlap isn't for packed sequences, which fine-tuning has.
    Prevents: No error: the schedule of the overlap isn't given where samples begin, so that each
    attends to those before it.
    Fix: set layout.expert_overlap to false
    """
    yield np.logical_not(layout.expert_overlap)
    yield _refused(job, "expert_overlap", "packed sequences")
