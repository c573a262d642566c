"""The model against the sequence length and against what each framework can express."""

from __future__ import annotations

from ...findings import ERROR, WARNING, Violations
from ...job.records import Job
from ..planned import jobs, violation
from ..sources import derived, megatron_deepspeed, megatron_lm

_MOST_SEQUENCES = 100_000


def _beyond_positions(job: Job) -> bool:
    return job.training.sequence_length > job.model.max_positions


@jobs.rule("MLM009", ERROR, "init", megatron_lm("training/arguments.py:1353"))
def sequence_fits_position_table(job: Job) -> Violations:
    """A learned position table has a row for every token of the sequence.

    Prevents: Megatron stops at start on an assertion; elsewhere the position lookup fails on the device, without a
    place.
    Fix: a sequence_length of at most max_position_embeddings, or rotary positions
    """
    if job.model.position_embedding != "learned" or not _beyond_positions(job):
        return
    rows = job.model.max_positions
    tokens = job.training.sequence_length
    message = f"sequence_length: {tokens} is more than the {rows} positions that {job.model.name} learns"
    yield violation(job, "/training/sequence_length", message, f"sequence_length: {rows}")


@jobs.rule("SEQ003", WARNING, "silent", derived("positions past max_position_embeddings are extrapolated"))
def sequence_within_trained_positions(job: Job) -> Violations:
    """Rotary positions beyond the model's maximum work, but the model has not seen them.

    Prevents: No error: the loss is worse beyond the length that the model knows.
    Fix: a shorter sequence_length, or a config with rope scaling and its max_position_embeddings
    """
    if job.model.position_embedding != "rotary" or not _beyond_positions(job):
        return
    top = job.model.max_positions
    message = f"sequence_length: {job.training.sequence_length} is more than {job.model.name}'s {top} positions"
    yield violation(
        job, "/training/sequence_length", message, f"sequence_length: {top}, or a larger max_position_embeddings"
    )


@jobs.rule("MDS019", ERROR, "silent", derived("megatron/arguments.py of Megatron-DeepSpeed has no option for it"))
def megatron_deepspeed_has_attention(job: Job) -> Violations:
    """Megatron-DeepSpeed has no multi-head latent attention.

    Prevents: The model trained would be another one: its attention has no compressed keys and values.
    Fix: framework: megatron-lm
    """
    if not job.framework.runs("Megatron-DeepSpeed") or not job.model.is_mla:
        return
    message = f"{job.model.name} has latent attention (MLA), which framework: megatron-deepspeed has not"
    yield violation(job, "/model", message, "framework: megatron-lm")


@jobs.rule("MDS020", ERROR, "silent", derived("megatron/arguments.py of Megatron-DeepSpeed has no option for either"))
def megatron_deepspeed_has_experts(job: Job) -> Violations:
    """Megatron-DeepSpeed's MoE models have neither shared experts nor dense first layers.

    Prevents: The model trained would be another one: every layer would have routed experts only.
    Fix: framework: megatron-lm
    """
    model = job.model
    extras = {"shared experts": model.shared_experts, "dense first layers": model.dense_layers}
    named = " and ".join(f"{count} {name}" for name, count in extras.items() if count)
    if not job.framework.runs("Megatron-DeepSpeed") or not model.is_moe or not named:
        return
    message = f"{model.name} has {named}, which framework: megatron-deepspeed cannot express"
    yield violation(job, "/model", message, "framework: megatron-lm")


@jobs.rule("MDS022", WARNING, "silent", megatron_deepspeed("megatron/enums.py:34 (named there and used nowhere)"))
def megatron_deepspeed_has_positions(job: Job) -> Violations:
    """Megatron-DeepSpeed's own layers have learned and rotary positions; ALiBi is in the BigScience fork.

    Prevents: The model trained would be another one: its positions would not be ALiBi.
    Fix: train it with bigscience-workshop's fork of Megatron-DeepSpeed, which the arguments are for
    """
    if not job.framework.runs("Megatron-DeepSpeed") or job.model.position_embedding != "alibi":
        return
    message = f"{job.model.name} has ALiBi positions, which deepspeedai/Megatron-DeepSpeed has not"
    yield violation(job, "/model", message, "launch.script: a script of bigscience-workshop/Megatron-DeepSpeed")


@jobs.rule("MLM044", ERROR, "silent", megatron_lm("training/arguments.py (--position-embedding-type)"))
def megatron_lm_has_positions(job: Job) -> Violations:
    """Megatron-LM has learned, rotary and no positions; not ALiBi.

    Prevents: The model trained would be another one: the option doesn't take ALiBi.
    Fix: framework: megatron-deepspeed, with the fork that has it
    """
    if not job.framework.runs("Megatron-LM") or job.model.position_embedding != "alibi":
        return
    message = f"{job.model.name} has ALiBi positions, which framework: megatron-lm has not"
    yield violation(job, "/framework", message, "framework: megatron-deepspeed (the BigScience fork has ALiBi)")


@jobs.rule("OPT016", ERROR, "init", megatron_deepspeed("megatron/arguments.py (--optimizer: adam or sgd)"))
def megatron_has_optimizer(job: Job) -> Violations:
    """The Megatrons build Adam or SGD.

    Prevents: Megatron stops at start: the optimizer is not one of its choices.
    Fix: training.optimizer: adamw or sgd, or framework: deepspeed
    """
    if not job.framework.runs("Megatron layers") or job.training.optimizer != "lamb":
        return
    message = f"optimizer: lamb is not available with framework: {job.framework}"
    yield violation(job, "/training/optimizer", message, "optimizer: adamw, or framework: deepspeed")


@jobs.rule(
    "BATCH010",
    WARNING,
    "parse",
    derived("a power of two of tokens is a multiple of the sequence length; real batches are below 100,000"),
)
def batch_counts_sequences(job: Job) -> Violations:
    """A global batch is in sequences; as many as this are usually tokens.

    Prevents: No error: a batch of millions of sequences that was meant in tokens trains thousands of times too slowly.
    Fix: training.global_batch: {tokens: N} if tokens were meant
    """
    batch, tokens = job.training.global_batch, job.training.sequence_length
    if batch <= _MOST_SEQUENCES or batch % tokens:
        return
    message = f"global_batch: {batch} sequences of {tokens} tokens are {batch * tokens:.3g} tokens a step"
    yield violation(job, "/training/global_batch", message, f"global_batch: {batch // tokens}, or {{tokens: {batch}}}")
