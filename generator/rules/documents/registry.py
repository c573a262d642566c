"""Every rule on documents, in one tuple."""

from __future__ import annotations

from typing import Final

from . import (
    accelerate,
    across,
    as_job,
    azureml,
    azureml_command,
    ds_activation,
    ds_batch,
    ds_choices,
    ds_optimizer,
    ds_parallel,
    ds_parse,
    ds_precision,
    ds_relations,
    ds_removed,
    ds_types,
    ds_zero,
    environment,
    hostfiles,
    huggingface,
    launchers,
    megatron_deepspeed,
    megatron_lm,
    megatron_options,
    slurm,
    slurm_script,
)
from .rule import DocumentRule

DOCUMENT_RULES: Final[tuple[DocumentRule, ...]] = (
    *ds_parse.RULES,
    *ds_types.RULES,
    *ds_batch.RULES,
    *ds_removed.RULES,
    *ds_relations.RULES,
    *ds_choices.RULES,
    *ds_precision.RULES,
    *ds_zero.RULES,
    *ds_optimizer.RULES,
    *ds_parallel.RULES,
    *ds_activation.RULES,
    *launchers.RULES,
    *hostfiles.RULES,
    *environment.RULES,
    *slurm.RULES,
    *slurm_script.RULES,
    *azureml.RULES,
    *azureml_command.RULES,
    *huggingface.RULES,
    *accelerate.RULES,
    *megatron_options.RULES,
    *megatron_lm.RULES,
    *megatron_deepspeed.RULES,
    *as_job.RULES,
    *across.RULES,
)
