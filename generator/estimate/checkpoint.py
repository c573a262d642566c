"""Checkpoints: bytes on disk, by what each program saves to go on from, and seconds to write them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..job.records import Job
from ..units import GB_PER_S
from .adapters import adapter_parameters
from .assumptions import assumed
from .layout import LayoutLike
from .model_size import embedding_parameters, padded_vocab, parameter_count
from .states import MOMENT_BYTES, is_precision_aware, master_bytes, moment_bytes, weight_bytes

_FP32 = 4


def checkpoint_bytes(job: Job, layout: LayoutLike) -> Any:
    """Bytes on disk of one whole checkpoint: weights, and what the optimizer needs to go on.

    **Symbols**: parameters as trained, of LoRA the adapters alone, with the rows that pad the vocabulary.
    **Assumes** that weights whose states aren't cut are saved once: norms that every tensor rank repeats, or tied
    embeddings of two stages, are some thousandths more.
    """
    return _parameters(job, layout) * (saved_weight_bytes(job, layout) + saved_optimizer_bytes(job, layout))


def _parameters(job: Job, layout: LayoutLike) -> Any:
    if job.training.lora is not None:
        return adapter_parameters(job)
    model = job.model
    rows = padded_vocab(model.vocab, layout.tensor, job.framework.vocabulary_multiple) - model.vocab
    return parameter_count(model) + rows * embedding_parameters(model) // model.vocab * (2 - model.tied_embeddings)


def saved_weight_bytes(job: Job, layout: LayoutLike) -> Any:
    """Bytes per parameter of the weights as computed with.

    **Source**: DeepSpeed 0.19.8, runtime/engine.py, `_save_checkpoint`: the module's own, at stage 3 placeholders
    only. transformers 5.23, trainer.py, `_save_checkpoint`: `save_model` writes the 16-bit weights beside DeepSpeed's
    checkpoint, gathered at stage 3 as our ds_config asks. Megatron-LM core_v0.16.1, training/checkpointing.py,
    `generate_state_dict`; fp8 weights are saved in 16 bits.
    """
    weights = weight_bytes(job)
    if not job.framework.runs("DeepSpeed engine"):
        return weights + 0 * layout.zero_stage
    again = weights if job.framework.runs("Trainer") else 0
    return np.where(layout.zero_stage >= 3, 0, weights) + again


def saved_optimizer_bytes(job: Job, layout: LayoutLike) -> Any:
    """Bytes per parameter of the fp32 weights and the moments; fp32 training has no copy unless states are sharded.

    **Source**: DeepSpeed 0.19.8, runtime/zero/stage_1_and_2.py and stage3.py, `state_dict`: the fp32 partitions and
    the base optimizer's state. Megatron-LM core_v0.16.1, core/optimizer/distrib_optimizer.py,
    `_get_main_param_and_optimizer_states`: the precision-aware optimizer's moments in fp32
    (transformer_engine/pytorch/optimizers/fused_adam.py, `get_unscaled_state`), its remainders of bf16 as they are.
    """
    copied = layout.zero_stage >= 1 if job.training.precision == "fp32" else True
    if is_precision_aware(job):
        remainders = job.training.master_dtype is None and master_bytes(job) < _FP32
        return np.where(copied, master_bytes(job) if remainders else _FP32, 0) + MOMENT_BYTES[job.training.optimizer]
    return np.where(copied, _FP32, 0) + moment_bytes(job)


def storage_bytes_per_s(job: Job) -> float:
    """The rate at which all nodes together write, or read, a checkpoint: the job's own, else so much a node."""
    given = job.reliability.storage_bytes_per_s
    return given or assumed("storage_gbytes_per_s_per_node") * GB_PER_S * job.nodes


def save_s(job: Job, layout: LayoutLike) -> Any:
    """Seconds that training waits while a checkpoint is written.

    **Assumes** that writing is what takes time and that training waits for it (no --async-save), as by default.
    """
    return checkpoint_bytes(job, layout) / storage_bytes_per_s(job)
