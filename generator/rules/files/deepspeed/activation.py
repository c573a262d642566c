"""Activation checkpointing by DeepSpeed."""

from __future__ import annotations

from typing import Final

from ....documents.deepspeed_config import Config
from ....documents.submission import FILLERS, Submission
from ....documents.world import world_of
from ....findings import ERROR, NOTE, WARNING, Violation, Violations
from ...rule import submissions
from ...sources import deepspeed, deepspeed_now, derived
from .subjects import configs
from .values import shown

ACT: Final = "/activation_checkpointing"
CONTIGUOUS: Final = f"{ACT}/contiguous_memory_optimization"
PARTITIONED: Final = f"{ACT}/partition_activations"


@submissions.rule(
    "ACT001",
    ERROR,
    "init",
    deepspeed("runtime/activation_checkpointing/checkpointing.py:1239"),
    reads=("DeepSpeed config",),
)
def contiguous_checkpoints_are_partitioned(submission: Submission) -> Violations:
    """contiguous_memory_optimization goes with partition_activations.

    Prevents: `Contiguous Checkpointing is only available with partitioned activations`
    Fix: both, or neither
    """
    for config in configs(submission) if not submission.megatron else ():
        if config.switch(CONTIGUOUS) and config.switch(PARTITIONED) is False:
            message = "contiguous_memory_optimization: true needs partition_activations: true"
            yield Violation(where=config.locate(CONTIGUOUS), message=message, hint="both, or neither")


@submissions.rule(
    "ACT002",
    WARNING,
    "init",
    deepspeed("runtime/activation_checkpointing/checkpointing.py:1241"),
    reads=("DeepSpeed config",),
)
def contiguous_checkpoints_are_counted(submission: Submission) -> Violations:
    """contiguous_memory_optimization knows how many checkpoints there are.

    Prevents: `Must specify the number of layers with contiguous memory checkpointing`
    Fix: number_checkpoints
    """
    for config in configs(submission) if not submission.megatron else ():
        if config.switch(CONTIGUOUS) and config.value(f"{ACT}/number_checkpoints") is None:
            message = "contiguous_memory_optimization: true needs number_checkpoints, unless the script passes it"
            layers = f": {submission.model.layers}" if submission.model else ": the number of layers"
            yield Violation(where=config.locate(CONTIGUOUS), message=message, hint=f'"number_checkpoints"{layers}')


@submissions.rule(
    "ACT003",
    WARNING,
    "silent",
    derived("a checkpoint is split among the ranks of its tensor parallel group"),
    reads=("DeepSpeed config",),
)
def partitions_have_tensor_ranks(submission: Submission) -> Violations:
    """partition_activations spreads checkpoints over tensor ranks, so there are some.

    Prevents: a setting that looks effective and is not
    Fix: leave it out
    """
    told = bool(submission.megatron) or submission.consumer in FILLERS
    for config in configs(submission) if told and world_of(submission).tensor == 1 else ():
        if config.switch(PARTITIONED) and submission.consumer not in FILLERS:
            message = "partition_activations: true has no effect: there is one tensor rank to spread over"
            yield Violation(where=config.locate(PARTITIONED), message=message, hint="false")


@submissions.rule(
    "ACT005",
    WARNING,
    "silent",
    derived("Transformers' models call torch.utils.checkpoint, never deepspeed.checkpointing"),
    reads=("DeepSpeed config",),
)
def trainers_checkpoint_by_themselves(submission: Submission) -> Violations:
    """Hugging Face models checkpoint activations by gradient_checkpointing, not by DeepSpeed's block.

    Prevents: no checkpointing at all: out of memory where the plan said it fits
    Fix: gradient_checkpointing
    """
    for config in configs(submission) if submission.consumer in FILLERS else ():
        on = [key for key in ("partition_activations", "cpu_checkpointing") if config.switch(f"{ACT}/{key}")]
        if on and not any(arguments.value("gradient_checkpointing") for arguments in submission.training_arguments):
            message = f"activation_checkpointing ({', '.join(on)}) has no effect: Transformers' models don't call it"
            hint = "gradient_checkpointing: true in TrainingArguments"
            yield Violation(where=config.locate_key(ACT), message=message, hint=hint)


@configs.rule("ACT008", NOTE, "silent", deepspeed_now("runtime/activation_checkpointing/checkpointing.py:1186"))
def checkpointing_is_not_profiled(config: Config) -> Violations:
    """Checkpointing is neither timed nor synchronised in production.

    Prevents: steps that wait for their own measurement
    Fix: false
    """
    for key in ("profile", "synchronize_checkpoint_boundary"):
        if config.switch(f"{ACT}/{key}"):
            message = f"{key}: true makes the host wait for the GPU at every checkpoint"
            yield Violation(where=config.locate(f"{ACT}/{key}"), message=message, hint=f"{key}: false")


@configs.rule("ACT009", ERROR, "training", derived("the size of a buffer is divided among so many checkpoints"))
def checkpoints_are_counted_from_1(config: Config) -> Violations:
    """number_checkpoints is above zero.

    Prevents: buffers of no size at the first checkpoint
    Fix: the number of layers
    """
    count = config.number(f"{ACT}/number_checkpoints")
    if count is not None and (count <= 0 or count != int(count)):
        message = f"number_checkpoints: {shown(count)} is no whole number above zero"
        yield Violation(where=config.locate(f"{ACT}/number_checkpoints"), message=message, hint="the number of layers")
