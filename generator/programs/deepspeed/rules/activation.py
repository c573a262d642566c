"""Activation checkpointing by DeepSpeed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ....findings import ERROR, NOTE, WARNING, Violation, Violations
from ....rules.sources import deepspeed, deepspeed_now, derived
from ....rules.violations import violation
from ...rule import subject
from ...submission import Submission
from ...world import world_of
from ..config import Config
from .running import while_on
from .subjects import Run, configs, runs
from .values import shown

_ACT: Final = "/activation_checkpointing"
_CONTIGUOUS: Final = f"{_ACT}/contiguous_memory_optimization"
_PARTITIONED: Final = f"{_ACT}/partition_activations"
_COUNT: Final = f"{_ACT}/number_checkpoints"
_DEEPSPEEDS: Final = "runtime/activation_checkpointing/checkpointing.py"


@subject("DeepSpeed config")
def _contiguous(submission: Submission) -> Iterator[Run]:
    """The configs with contiguous checkpoints; Megatron's arguments go before the block."""
    return (run for run in runs(submission) if not submission.megatron and run.config.switch(_CONTIGUOUS))


@_contiguous.rule("ACT001", ERROR, "init", deepspeed(f"{_DEEPSPEEDS}:1239"))
def contiguous_checkpoints_are_partitioned(run: Run) -> Violations:
    """contiguous_memory_optimization is used with partition_activations.

    Prevents: `Contiguous Checkpointing is only available with partitioned activations`
    Fix: enable both, or neither"""
    if run.config.switch(_PARTITIONED) is False:
        message = "contiguous_memory_optimization: true requires partition_activations: true"
        yield violation(run.config, _CONTIGUOUS, message, "enable both, or neither")


@_contiguous.rule("ACT002", NOTE, "init", deepspeed(f"{_DEEPSPEEDS}:1241"))
def contiguous_checkpoints_are_counted(run: Run) -> Violations:
    """contiguous_memory_optimization is used with number_checkpoints.

    Prevents: `Must specify the number of layers with contiguous memory checkpointing`
    Fix: add number_checkpoints"""
    if run.config.value(_COUNT) is None:
        message = "contiguous_memory_optimization: true requires number_checkpoints, unless the script passes it"
        layers = run.submission.model.layers if run.submission.model else "the number of layers"
        yield violation(run.config, _CONTIGUOUS, message, f'add "number_checkpoints": {layers}')


@runs.rule("ACT003", WARNING, "silent", derived("a checkpoint is split among the ranks of its tensor parallel group"))
def partitions_have_tensor_ranks(run: Run) -> Violations:
    """partition_activations is used with tensor parallelism: it spreads checkpoints over tensor ranks.

    Prevents: The setting silently has no effect.
    Fix: remove it"""
    known = run.submission.megatron and not run.config.filled
    if known and world_of(run.submission).tensor == 1 and run.config.switch(_PARTITIONED):
        message, hint = "partition_activations: true has no effect: there is one tensor rank", "set it to false"
        yield violation(run.config, _PARTITIONED, message, hint)


@runs.rule("ACT005", WARNING, "silent", derived("Transformers' models call torch.utils.checkpoint only"))
def trainers_checkpoint_by_themselves(run: Run) -> Violations:
    """Hugging Face models checkpoint activations by gradient_checkpointing, not by DeepSpeed's block.

    Prevents: Nothing is checkpointed, and memory runs out.
    Fix: use gradient_checkpointing"""
    config, arguments = run.config, run.submission.training_arguments
    on = [key for key in ("partition_activations", "cpu_checkpointing") if config.switch(f"{_ACT}/{key}")]
    if config.filled and on and not any(one.value("gradient_checkpointing") for one in arguments):
        message = f"activation_checkpointing ({', '.join(on)}) has no effect: Transformers' models don't call it"
        yield Violation(config.locate_key(_ACT), message, "set gradient_checkpointing: true in TrainingArguments")


@configs.rule("ACT008", NOTE, "silent", deepspeed_now(f"{_DEEPSPEEDS}:1186"))
def checkpointing_is_not_profiled(config: Config) -> Violations:
    """Checkpointing is neither timed nor synchronized in production.

    Prevents: Steps that wait for their own measurement.
    Fix: set them to false"""
    for key in ("profile", "synchronize_checkpoint_boundary"):
        yield from while_on(config, f"{_ACT}/{key}", "makes the host wait for the GPU at every checkpoint")


@configs.rule("ACT009", ERROR, "training", derived("a buffer's size is divided among so many checkpoints"))
def checkpoints_are_counted_from_1(config: Config) -> Violations:
    """number_checkpoints is an integer greater than 0.

    Prevents: Buffers of size 0 at the first checkpoint.
    Fix: write the number of layers"""
    count = config.number(_COUNT)
    if count is not None and (count <= 0 or count != int(count)):
        message = f"number_checkpoints must be an integer greater than 0, not {shown(count)}"
        yield violation(config, _COUNT, message, "write the number of layers")
