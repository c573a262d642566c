"""Activation checkpointing by DeepSpeed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ....documents.submission import FILLERS, Submission
from ....findings import Severity
from ...sources import deepspeed, deepspeed_now, derived
from ..rule import Breach, DocumentRule
from .values import configs, ds_rule, given, number, shown, switch

ACT: Final = "/activation_checkpointing"
CONTIGUOUS: Final = f"{ACT}/contiguous_memory_optimization"
PARTITIONED: Final = f"{ACT}/partition_activations"


def contiguous_checkpoints_are_partitioned(submission: Submission) -> Iterator[Breach]:
    """contiguous_memory_optimization goes with partition_activations."""
    for config in configs(submission) if not submission.megatron else ():
        if switch(config, CONTIGUOUS) and switch(config, PARTITIONED) is False:
            message = "contiguous_memory_optimization: true needs partition_activations: true"
            yield Breach(where=config.locate(CONTIGUOUS), message=message, hint="both, or neither")


def contiguous_checkpoints_are_counted(submission: Submission) -> Iterator[Breach]:
    """contiguous_memory_optimization knows how many checkpoints there are."""
    for config in configs(submission) if not submission.megatron else ():
        if switch(config, CONTIGUOUS) and config.value(f"{ACT}/number_checkpoints") is None:
            message = "contiguous_memory_optimization: true needs number_checkpoints, unless the script passes it"
            layers = f": {submission.model.layers}" if submission.model else ": the number of layers"
            yield Breach(where=config.locate(CONTIGUOUS), message=message, hint=f'"number_checkpoints"{layers}')


def partitions_have_tensor_ranks(submission: Submission) -> Iterator[Breach]:
    """partition_activations spreads checkpoints over tensor ranks, so there are some."""
    told = bool(submission.megatron) or submission.consumer in FILLERS
    for config in configs(submission) if told and submission.world.tensor == 1 else ():
        if switch(config, PARTITIONED) and submission.consumer not in FILLERS:
            message = "partition_activations: true has no effect: there is one tensor rank to spread over"
            yield Breach(where=config.locate(PARTITIONED), message=message, hint="false")


def trainers_checkpoint_by_themselves(submission: Submission) -> Iterator[Breach]:
    """Hugging Face models checkpoint activations by gradient_checkpointing, not by DeepSpeed's block."""
    for config in configs(submission) if submission.consumer in FILLERS else ():
        on = [key for key in ("partition_activations", "cpu_checkpointing") if switch(config, f"{ACT}/{key}")]
        if on and not any(arguments.value("gradient_checkpointing") for arguments in submission.training_arguments):
            message = f"activation_checkpointing ({', '.join(on)}) has no effect: Transformers' models don't call it"
            hint = "gradient_checkpointing: true in TrainingArguments"
            yield Breach(where=config.locate_key(ACT), message=message, hint=hint)


def checkpointing_is_not_profiled(submission: Submission) -> Iterator[Breach]:
    """Checkpointing is neither timed nor synchronised in production."""
    for config in configs(submission):
        for key in ("profile", "synchronize_checkpoint_boundary"):
            if switch(config, f"{ACT}/{key}"):
                message = f"{key}: true makes the host wait for the GPU at every checkpoint"
                yield Breach(where=config.locate(f"{ACT}/{key}"), message=message, hint=f"{key}: false")


def checkpoints_are_counted_from_1(submission: Submission) -> Iterator[Breach]:
    """number_checkpoints is above zero."""
    for config in configs(submission):
        count = number(given(config, f"{ACT}/number_checkpoints"))
        if count is not None and (count <= 0 or count != int(count)):
            message = f"number_checkpoints: {shown(count)} is no whole number above zero"
            yield Breach(where=config.locate(f"{ACT}/number_checkpoints"), message=message, hint="the number of layers")


RULES: Final[tuple[DocumentRule, ...]] = (
    ds_rule(
        "ACT001",
        Severity.ERROR,
        "init",
        contiguous_checkpoints_are_partitioned,
        source=deepspeed("runtime/activation_checkpointing/checkpointing.py:1239"),
        prevents="`Contiguous Checkpointing is only available with partitioned activations`",
        fix="both, or neither",
    ),
    ds_rule(
        "ACT002",
        Severity.WARNING,
        "init",
        contiguous_checkpoints_are_counted,
        source=deepspeed("runtime/activation_checkpointing/checkpointing.py:1241"),
        prevents="`Must specify the number of layers with contiguous memory checkpointing`",
        fix="number_checkpoints",
    ),
    ds_rule(
        "ACT003",
        Severity.WARNING,
        "silent",
        partitions_have_tensor_ranks,
        source=derived("a checkpoint is split among the ranks of its tensor parallel group"),
        prevents="a setting that looks effective and is not",
        fix="leave it out",
    ),
    ds_rule(
        "ACT005",
        Severity.WARNING,
        "silent",
        trainers_checkpoint_by_themselves,
        source=derived("Transformers' models call torch.utils.checkpoint, never deepspeed.checkpointing"),
        prevents="no checkpointing at all: out of memory where the plan said it fits",
        fix="gradient_checkpointing",
    ),
    ds_rule(
        "ACT008",
        Severity.NOTE,
        "silent",
        checkpointing_is_not_profiled,
        source=deepspeed_now("runtime/activation_checkpointing/checkpointing.py:1186"),
        prevents="steps that wait for their own measurement",
        fix="false",
    ),
    ds_rule(
        "ACT009",
        Severity.ERROR,
        "training",
        checkpoints_are_counted_from_1,
        source=derived("the size of a buffer is divided among so many checkpoints"),
        prevents="buffers of no size at the first checkpoint",
        fix="the number of layers",
    ),
)
