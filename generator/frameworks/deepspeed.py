"""A training script of the user's own that calls `deepspeed.initialize`."""

from __future__ import annotations

from typing import Final

from ..estimate.layout import Layout, Recompute
from ..job.framework import Framework
from ..job.records import Job
from ..search.plan import Plan
from . import ds_config
from .arguments import Value, group, make_program, training_steps
from .program import ConfigPath, Program


def config(job: Job, layout: Layout) -> ds_config.Config:
    """The whole `ds_config.json`."""
    own: ds_config.Config = {}
    if layout.context > 1:  # Ulysses: `deepspeed.initialize` builds the mesh, whose data size is the batch check's
        own["sequence_parallel_size"] = layout.context
        own["data_parallel_size"] = layout.data * layout.tensor
    if layout.pipeline > 1:  # says it to readers; the engine takes the stages from the script's PipelineModule
        own["pipeline"] = {"stages": layout.pipeline}
    if layout.recompute == Recompute.FULL:  # read by `deepspeed.checkpointing.configure`, if the script calls it
        own["activation_checkpointing"] = {"partition_activations": False, "cpu_checkpointing": False}
    return ds_config.script_config(job, layout, own)


def notes(job: Job, layout: Layout) -> tuple[str, ...]:
    """What the script must do for the plan to hold."""
    texts = [*ds_config.autotp_notes(job, layout, "without an mpu DeepSpeed counts")]
    if layout.context > 1:
        texts.append(
            f"Ulysses over {layout.context} ranks: the script must use DeepSpeed's DistributedAttention (or "
            f"UlyssesSPAttentionHF) and feed each rank 1/{layout.context} of every sequence."
        )
    if layout.expert > 1:
        texts.append(f"The script must build DeepSpeed's MoE layers with ep_size={layout.expert}.")
    if layout.pipeline > 1:
        texts.append(f"The script must pass a PipelineModule of {layout.pipeline} stages.")
    if layout.zero_copies > 1:
        texts.append("MiCS: the script must build the model under deepspeed.zero.MiCS_Init.")
    if layout.recompute != Recompute.NONE:
        texts.append(f"recompute {layout.recompute.label}: the script must checkpoint every layer itself.")
    if job.training.precision == "fp8":
        texts.append("fp8: DeepSpeed runs in bf16; the script's own layers (Transformer Engine) must compute in fp8.")
    if steps := training_steps(job.training):
        texts.append(f"training.duration is {steps} optimizer steps: the script must stop there.")
    return tuple(texts)


def program(plan: Plan) -> Program:
    """The user's script with `--deepspeed_config`, as `deepspeed.add_config_arguments` defines it."""
    job, layout = plan.job, plan.layout
    reads: dict[str, Value] = {"--deepspeed": True, "--deepspeed_config": ConfigPath(ds_config.FILE_NAME)}
    return make_program(
        job,
        (group("batch, precision, optimizer and ZeRO are in the JSON", reads),),
        files=(ds_config.rendered(config(job, layout)),),
        notes=notes(job, layout),
    )


FRAMEWORK: Final = Framework(
    name="deepspeed",
    software=frozenset({"own script", "AutoTP", "DeepSpeed engine"}),
    script="train.py",
    only={"cross_entropy": "unfused"},
    cross_entropy="unfused",
    loss_traffic_bytes={"unfused": 32},
    kernels_per_layer=40,
    program=program,
)
