"""The program of Megatron-DeepSpeed: its arguments, and a ds_config that agrees with them.

The script builds the optimizer from its own arguments and hands it to DeepSpeed, so the JSON has no
optimizer block; it passes its mpu, so DeepSpeed counts model replicas in the batch check.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...estimate.layout import Layout
from ...job.records import Checkpoints, Framework, Job
from ...search.plan import Plan
from ..deepspeed import write as ds_config
from ..deepspeed.engine import VERSIONS, release
from ..deepspeed.options import PLANNED
from ..program import Program, make_program
from .encode import Planned
from .engine import MEGATRON_DEEPSPEED
from .table import DECIDED, EVALUATION, EXIT_OPTION, OF_FILES, STARTS_ANEW
from .tokenizer import packages
from .write import (
    COMMENTS,
    NEEDS,
    Comment,
    common_notes,
    groups_of,
    planned,
    sizes,
)


def _stages(planned: Planned) -> str:
    """The comment on the sizes of parallelism."""
    comment = sizes(planned, "Ulysses")
    if planned.layout.pipeline == 1:
        comment += (
            "; without --no-pipeline-parallel even one stage becomes a PipelineModule, which "
            "ZeRO 2 and 3 refuse"
        )
    return comment


_COMMENTS: Final[Mapping[str, Comment]] = {
    **COMMENTS,
    "experts": lambda _: "experts: DeepSpeed's MoE layer in every layer",
    "parallel": _stages,
    "ramp": lambda _: "batch ramp-up: start, increment, sequences",
    # Nothing in the script compares its precision and stage with the JSON's.
    "compute": lambda _: "precision and attention: the precision must be the JSON's",
    "deepspeed": lambda _: "DeepSpeed: the stage must be the JSON's",
}


def config(job: Job, layout: Layout) -> ds_config.Config:
    """The whole `ds_config.json` of Megatron-DeepSpeed."""
    return {**ds_config.common_config(job, layout), **ds_config.LOGGING}


def program(plan: Plan) -> Program:
    """The Megatron-DeepSpeed script, its arguments and the JSON."""
    job, layout = plan.job, plan.layout
    notes = common_notes(job, "Megatron-DeepSpeed")
    if layout.pipeline > 1 and job.model.layers % layout.pipeline:
        most = -(-job.model.layers // layout.pipeline)  # rounded up
        notes.append(
            f"{job.model.layers} layers over {layout.pipeline} stages: the partition "
            f"'type:transformer' gives some stages {most} layers and others fewer."
        )
    if layout.virtual_pipeline > 1:
        notes.append(
            "DeepSpeed's pipeline engine doesn't interleave: virtual_pipeline has no effect here."
        )
    # The script refuses sequence parallelism without it: one queue keeps communication ahead of the
    # GEMM it feeds.
    environment = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"} if layout.sequence_parallel else {}
    groups = groups_of(planned(plan), "megatron-deepspeed", _COMMENTS)
    files = (ds_config.rendered(job, config(job, layout)),)
    return make_program(job, groups, environment=environment, files=files, notes=tuple(notes))


def _packages(job: Job) -> dict[str, str]:
    """The packages that a job needs, with their versions."""
    needed = packages(job)  # what reads the tokenizer
    if job.training.attention == "flash":
        # --use-flash-attn-v2 imports it: megatron/model/transformer.py
        needed["flash-attn"] = ">=2"
    return needed | release(job)


FRAMEWORK: Final = Framework(
    name="megatron-deepspeed",
    engine=MEGATRON_DEEPSPEED,
    script="pretrain_gpt.py",
    only={
        "kernels": "fused",
        "cross_entropy": "unfused",
        "dispatcher": "alltoall",
        "cuda_graphs": "none",
        "fp8_attention": False,
        "mtp_depths": 0,
    },
    exit_option=EXIT_OPTION,
    starts_anew=STARTS_ANEW,
    options=OF_FILES,
    decides=DECIDED,
    planned=PLANNED,
    needs=NEEDS,
    versions={"Megatron-DeepSpeed": "4efb479d", **VERSIONS},  # megatron/arguments.py
    packages=_packages,
    data_paths="weighted",
    data_prefix=True,
    evaluation=EVALUATION,
    fused=True,
    packs_attention=True,
    kernels_per_layer=24,
    cross_entropy="unfused",
    loss_traffic_bytes={"unfused": 54},
    shards_vocabulary=True,
    vocabulary_multiple=128,
    passes_mpu=True,
    checkpoints=Checkpoints(folder="global_step", tracker="latest_checkpointed_iteration.txt"),
    # Source: deepspeedai/Megatron-DeepSpeed, megatron/training.py: "checkpoint" of the config is
    # set by it.
    universal_option="--universal-checkpoint",
    program=program,
)
