"""The model against the sequence length and against what each framework can express."""

from __future__ import annotations

from ...findings import ERROR, WARNING, Violations
from ...job.records import Job
from ..planned import jobs, lm_jobs, mds_jobs, megatron_jobs, violation
from ..sources import derived, megatron_deepspeed, megatron_lm

_MOST_SEQUENCES = 100_000


def _has_longer_sequences(job: Job, position_embedding: str) -> bool:
    return job.training.sequence_length > job.model.max_positions and job.model.position_embedding == position_embedding


@jobs.rule("MLM009", ERROR, "init", megatron_lm("training/arguments.py:1353"))
def sequence_fits_position_table(job: Job) -> Violations:
    """A learned position table has a row for every token of the sequence.

    Prevents: Megatron stops at start on an assertion; elsewhere the position lookup fails on the device, without a
    place.
    Fix: set sequence_length to at most max_position_embeddings, or use rotary positions"""
    if _has_longer_sequences(job, "learned"):
        rows, says = job.model.max_positions, job.says("sequence_length", job.training.sequence_length)
        message = f"{says} is more than the {rows} positions that {job.model.name} learns"
        yield violation(job, "/training/sequence_length", message, f"use {job.says('sequence_length', rows)}")


@jobs.rule("SEQ003", WARNING, "silent", derived("positions past max_position_embeddings are extrapolated"))
def sequence_within_trained_positions(job: Job) -> Violations:
    """The sequence is within the rotary positions that the model was trained on.

    Prevents: No error: the loss is worse beyond the length that the model was trained on.
    Fix: use a shorter sequence_length, or a config with rope scaling and its max_position_embeddings"""
    if _has_longer_sequences(job, "rotary"):
        top, says = job.model.max_positions, job.says("sequence_length", job.training.sequence_length)
        message = f"{says} is more than the {top} positions of {job.model.name}"
        hint = f"use {job.says('sequence_length', top)}, or a larger max_position_embeddings"
        yield violation(job, "/training/sequence_length", message, hint)


@mds_jobs.rule("MDS019", ERROR, "silent", derived("megatron/arguments.py of Megatron-DeepSpeed has no option for it"))
def megatron_deepspeed_has_attention(job: Job) -> Violations:
    """A model with latent attention (MLA) is not trained with Megatron-DeepSpeed.

    Prevents: No error: another model would be trained, whose attention has no compressed keys and values.
    Fix: use framework: megatron-lm"""
    if job.model.is_mla:
        message = f"{job.model.name} has latent attention (MLA), which {job.says('framework', job.framework)} lacks"
        yield violation(job, "/model", message, f"use {job.says('framework', 'megatron-lm')}")


@mds_jobs.rule("MDS020", ERROR, "silent", derived("arguments.py of Megatron-DeepSpeed has no option for either"))
def megatron_deepspeed_has_experts(job: Job) -> Violations:
    """A MoE model for Megatron-DeepSpeed has neither shared experts nor dense layers.

    Prevents: No error: another model would be trained, with routed experts only in every layer.
    Fix: use framework: megatron-lm"""
    model = job.model
    extras = {"shared experts": model.shared_experts, "dense layers": model.dense_layers}
    named = " and ".join(f"{count} {name}" for name, count in extras.items() if count)
    if model.is_moe and named:
        message = f"{model.name} has {named}, which {job.says('framework', job.framework)} cannot express"
        yield violation(job, "/model", message, f"use {job.says('framework', 'megatron-lm')}")


@mds_jobs.rule("MDS022", WARNING, "silent", megatron_deepspeed("megatron/enums.py:34 (named there and used nowhere)"))
def megatron_deepspeed_has_positions(job: Job) -> Violations:
    """A model for Megatron-DeepSpeed has learned or rotary positions; ALiBi is in the BigScience fork.

    Prevents: No error: another model would be trained, without ALiBi positions.
    Fix: train it with bigscience-workshop's fork of Megatron-DeepSpeed, which the arguments are for"""
    if job.model.position_embedding == "alibi":
        message = f"{job.model.name} has ALiBi positions, which deepspeedai/Megatron-DeepSpeed lacks"
        hint = "set launch.script to a script of bigscience-workshop/Megatron-DeepSpeed"
        yield violation(job, "/model", message, hint)


@lm_jobs.rule("MLM044", ERROR, "silent", megatron_lm("training/arguments.py (--position-embedding-type)"))
def megatron_lm_has_positions(job: Job) -> Violations:
    """A model for Megatron-LM has learned, rotary or no positions, not ALiBi.

    Prevents: No error: another model would be trained, because the option doesn't accept ALiBi.
    Fix: use framework: megatron-deepspeed, with the fork that has it"""
    if job.model.position_embedding == "alibi":
        message = f"{job.model.name} has ALiBi positions, which {job.says('framework', job.framework)} lacks"
        hint = f"use {job.says('framework', 'megatron-deepspeed')} (the BigScience fork has ALiBi)"
        yield violation(job, "/framework", message, hint)


@megatron_jobs.rule("OPT016", ERROR, "init", megatron_deepspeed("megatron/arguments.py (--optimizer: adam or sgd)"))
def megatron_has_optimizer(job: Job) -> Violations:
    """The optimizer of a Megatron is Adam or SGD.

    Prevents: Megatron stops at start: the optimizer is not one of its choices.
    Fix: set training.optimizer to adamw or sgd, or use framework: deepspeed"""
    if job.training.optimizer in ("lamb", "adamw-8bit"):
        found, framework = job.says("optimizer", job.training.optimizer), job.says("framework", job.framework)
        message = f"{found} is not available with {framework}"
        other = "deepspeed" if job.training.optimizer == "lamb" else "huggingface"
        hint = f"use {job.says('optimizer', 'adamw')}, or {job.says('framework', other)}"
        yield violation(job, "/training/optimizer", message, hint)


@jobs.rule("BATCH010", WARNING, "parse", derived("real batches are below 100,000 sequences"))
def batch_counts_sequences(job: Job) -> Violations:
    """A global batch counts sequences, not tokens.

    Prevents: No error: a batch of millions of sequences that was meant in tokens trains thousands of times too slowly.
    Fix: write training.global_batch: {tokens: N} if tokens were meant"""
    batch, tokens = job.training.global_batch, job.training.sequence_length
    if batch > _MOST_SEQUENCES and batch % tokens == 0:
        says = job.says("global_batch", batch)
        message = f"{says} sequences of {tokens} tokens are {batch * tokens:.3g} tokens a step"
        hint = f"use {job.says('global_batch', batch // tokens)}, or {{tokens: {batch}}}"
        yield violation(job, "/training/global_batch", message, hint)
