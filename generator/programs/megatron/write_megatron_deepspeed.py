"""Megatron-DeepSpeed: its whole argument list, and a ds_config that agrees with it.

The script builds the optimizer from its own arguments and hands it to DeepSpeed, so the JSON has no optimizer block; it
passes its mpu, so DeepSpeed counts model replicas in the batch check.

**Source**: deepspeedai/Megatron-DeepSpeed 4efb479d, megatron/arguments.py, megatron/training.py,
megatron/optimizer/__init__.py, megatron/model/gpt_model.py.
"""

from __future__ import annotations

from typing import Final

from ...estimate.layout import Layout, Offload, Recompute
from ...job.framework import Checkpoints, Framework
from ...job.records import Job
from ...search.plan import Plan
from ..arguments import group, make_program
from ..deepspeed import write_config as ds_config
from ..program import ArgumentGroup, ConfigPath, Program
from . import write as megatron
from . import write_files as megatron_run


def config(job: Job, layout: Layout) -> ds_config.Config:
    """The whole `ds_config.json`."""
    return {**ds_config.common_config(job, layout), **ds_config.LOGGING}


def _model_group(job: Job) -> ArgumentGroup:
    """The model's shape in this tree's spelling."""
    model = job.model
    shape = megatron.shape_options(job)
    if model.is_moe:  # every MLP of this tree has one width
        shape["--ffn-hidden-size"] = model.moe_ffn
    rotary = model.position_embedding == "rotary"
    return group(
        f"model: {model.name}",
        {
            **shape,
            "--num-key-value-heads": model.kv_heads if model.kv_heads != model.heads else None,
            "--kv-channels": model.head_dim,
            "--use-rotary-position-embeddings": rotary,
            "--no-position-embedding": model.position_embedding not in ("rotary", "learned"),
            "--rotary-position-embeddings-theta": round(model.rotary_base) if rotary else None,
            "--rotary-percent": model.rotary_fraction if rotary and model.rotary_fraction != 1 else None,
            "--normalization": "rmsnorm" if model.norm == "rmsnorm" else "layernorm",
            "--layernorm-epsilon": model.norm_epsilon,
            **megatron.block_options(job),
        },
    )


def _expert_group(job: Job, layout: Layout) -> ArgumentGroup:
    """DeepSpeed's own MoE layers."""
    model = job.model
    if not model.is_moe:
        return group("experts", {})
    return group(
        "experts: DeepSpeed's MoE layer in every layer",
        {
            "--num-experts": model.experts,
            "--topk": model.experts_per_token,
            "--expert-interval": 1,
            "--moe-expert-parallel-size": layout.expert,
            "--enable-expert-tensor-parallelism": layout.tensor > 1,
            "--create-moe-param-group": layout.zero_stage > 0,
            "--moe-loss-coeff": 0.01,
        },
    )


def _parallel_group(job: Job, layout: Layout) -> ArgumentGroup:
    """How the model is cut up."""
    why = f"{layout.world} GPUs = {layout.data} data × {layout.tensor} tensor × {layout.pipeline} pipeline"
    if layout.context > 1:
        why += f" × {layout.context} Ulysses"
    if layout.pipeline == 1:
        why += "; without --no-pipeline-parallel even one stage becomes a PipelineModule, which ZeRO 2 and 3 refuse"
    return group(
        why,
        {
            "--tensor-model-parallel-size": layout.tensor,
            "--pipeline-model-parallel-size": layout.pipeline,
            "--no-pipeline-parallel": layout.pipeline == 1,
            "--sequence-parallel": bool(layout.sequence_parallel),
            "--ds-sequence-parallel-size": layout.context if layout.context > 1 else None,
        },
    )


def _precision_group(job: Job) -> ArgumentGroup:
    """The same precision as in the JSON: nothing in the script compares the two."""
    precision = job.training.precision
    fp8 = precision == "fp8"
    return group(
        "precision and attention: the precision must be the JSON's",
        {
            "--fp16": precision == "fp16",
            "--bf16": precision in ("bf16", "fp8"),
            "--fp8-hybrid": fp8,
            "--transformer-impl": "transformer_engine" if fp8 else None,
            "--use-flash-attn-v2": job.training.attention == "flash",
        },
    )


def _memory_group(layout: Layout) -> ArgumentGroup:
    """Recomputation and offload."""
    full = layout.recompute == Recompute.FULL
    to_host = layout.offload == Offload.OPTIMIZER_AND_PARAMETERS
    return group(
        f"memory: recompute {layout.recompute.label}, offload {layout.offload.label}",
        {
            "--checkpoint-activations": full,
            "--checkpoint-num-layers": layout.recompute_group if full and layout.recompute_group > 1 else None,
            "--deepspeed-activation-checkpointing": full,
            "--recompute-granularity": "selective" if layout.recompute == Recompute.SELECTIVE else None,
            "--cpu-optimizer": layout.offload != Offload.NONE,
            "--remote-device": "cpu" if to_host else None,
            "--use-pin-memory": to_host,
        },
    )


def _deepspeed_group(layout: Layout) -> ArgumentGroup:
    """ZeRO: the stage is in both places, and the script doesn't compare them."""
    return group(
        "DeepSpeed: the stage must be the JSON's",
        {"--deepspeed": True, "--deepspeed_config": ConfigPath(ds_config.FILE_NAME), "--zero-stage": layout.zero_stage},
    )


def notes(job: Job, layout: Layout) -> tuple[str, ...]:
    """What the reader of the launch script would question."""
    texts = megatron.common_notes(job, "Megatron-DeepSpeed")
    if layout.pipeline > 1 and job.model.layers % layout.pipeline:
        most = -(-job.model.layers // layout.pipeline)
        texts.append(
            f"{job.model.layers} layers over {layout.pipeline} stages: the partition 'type:transformer' gives "
            f"some stages {most} layers and others fewer."
        )
    if layout.virtual_pipeline > 1:
        texts.append("DeepSpeed's pipeline engine doesn't interleave: virtual_pipeline has no effect here.")
    return tuple(texts)


def program(plan: Plan) -> Program:
    """The Megatron-DeepSpeed script, its arguments and the JSON."""
    job, layout = plan.job, plan.layout
    groups = (
        _model_group(job),
        _expert_group(job, layout),
        _parallel_group(job, layout),
        megatron.batch_group(job, layout),
        megatron.ramp_group(job),
        _precision_group(job),
        _memory_group(layout),
        megatron.optimizer_group(job),
        megatron.length_group(job),
        megatron_run.data_group(job),
        megatron_run.checkpoint_group(plan),
        _deepspeed_group(layout),
    )
    # The script refuses sequence parallelism without it: one queue keeps communication ahead of the GEMM it feeds.
    environment = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"} if layout.sequence_parallel else {}
    config_file = ds_config.rendered(job, config(job, layout))
    return make_program(job, groups, environment=environment, files=(config_file,), notes=notes(job, layout))


FRAMEWORK: Final = Framework(
    name="megatron-deepspeed",
    software=frozenset({"Megatron-DeepSpeed", "Megatron layers", "DeepSpeed engine"}),
    script="pretrain_gpt.py",
    only={"kernels": "fused", "cross_entropy": "unfused"},
    exit_option=megatron_run.EXIT_OPTION,
    options=megatron_run.OPTIONS,
    needs=megatron_run.NEEDS,
    data_paths="weighted",
    data_prefix=True,
    evaluation=megatron.EVALUATION,
    fused=True,
    packs_attention=True,
    kernels_per_layer=24,
    cross_entropy="unfused",
    loss_traffic_bytes={"unfused": 54},
    shards_vocabulary=True,
    vocabulary_multiple=128,
    passes_mpu=True,
    checkpoints=Checkpoints(folder="global_step", tracker="latest_checkpointed_iteration.txt"),
    # Source: deepspeedai/Megatron-DeepSpeed, megatron/training.py: "checkpoint" of the config is set by it.
    universal_option="--universal-checkpoint",
    program=program,
)
