"""The model against the sequence length and against what each framework can express."""

from __future__ import annotations

from ...findings import Severity
from ...job.records import Job
from ..planning_rule import JobRule
from ..sources import derived, megatron_deepspeed, megatron_lm

_MOST_SEQUENCES = 100_000

Violations = tuple[tuple[str, str, str | None], ...]


def _beyond_positions(job: Job) -> bool:
    return job.training.sequence_length > job.model.max_positions


def sequence_fits_position_table(job: Job) -> Violations:
    """A learned position table has a row for every token of the sequence."""
    if job.model.position_embedding != "learned" or not _beyond_positions(job):
        return ()
    rows = job.model.max_positions
    tokens = job.training.sequence_length
    message = f"sequence_length: {tokens} is more than the {rows} positions that {job.model.name} learns"
    return (("/training/sequence_length", message, f"sequence_length: {rows}"),)


def sequence_within_trained_positions(job: Job) -> Violations:
    """Rotary positions beyond the model's maximum work, but the model has not seen them."""
    if job.model.position_embedding != "rotary" or not _beyond_positions(job):
        return ()
    top = job.model.max_positions
    message = f"sequence_length: {job.training.sequence_length} is more than {job.model.name}'s {top} positions"
    return (("/training/sequence_length", message, f"sequence_length: {top}, or a larger max_position_embeddings"),)


def megatron_deepspeed_has_attention(job: Job) -> Violations:
    """Megatron-DeepSpeed has no multi-head latent attention."""
    if not job.framework.runs("Megatron-DeepSpeed") or not job.model.is_mla:
        return ()
    message = f"{job.model.name} has latent attention (MLA), which framework: megatron-deepspeed has not"
    return (("/model", message, "framework: megatron-lm"),)


def megatron_deepspeed_has_experts(job: Job) -> Violations:
    """Megatron-DeepSpeed's MoE models have neither shared experts nor dense first layers."""
    model = job.model
    extras = {"shared experts": model.shared_experts, "dense first layers": model.dense_layers}
    named = " and ".join(f"{count} {name}" for name, count in extras.items() if count)
    if not job.framework.runs("Megatron-DeepSpeed") or not model.is_moe or not named:
        return ()
    message = f"{model.name} has {named}, which framework: megatron-deepspeed cannot express"
    return (("/model", message, "framework: megatron-lm"),)


def megatron_deepspeed_has_positions(job: Job) -> Violations:
    """Megatron-DeepSpeed's own layers have learned and rotary positions; ALiBi is in the BigScience fork."""
    if not job.framework.runs("Megatron-DeepSpeed") or job.model.position_embedding != "alibi":
        return ()
    message = f"{job.model.name} has ALiBi positions, which deepspeedai/Megatron-DeepSpeed has not"
    return (("/model", message, "launch.script: a script of bigscience-workshop/Megatron-DeepSpeed"),)


def megatron_lm_has_positions(job: Job) -> Violations:
    """Megatron-LM has learned, rotary and no positions; not ALiBi."""
    if not job.framework.runs("Megatron-LM") or job.model.position_embedding != "alibi":
        return ()
    message = f"{job.model.name} has ALiBi positions, which framework: megatron-lm has not"
    return (("/framework", message, "framework: megatron-deepspeed (the BigScience fork has ALiBi)"),)


def megatron_has_optimizer(job: Job) -> Violations:
    """The Megatrons build Adam or SGD."""
    if not job.framework.runs("Megatron layers") or job.training.optimizer != "lamb":
        return ()
    message = f"optimizer: lamb is not available with framework: {job.framework}"
    return (("/training/optimizer", message, "optimizer: adamw, or framework: deepspeed"),)


def batch_counts_sequences(job: Job) -> Violations:
    """A global batch is in sequences; as many as this are usually tokens."""
    batch, tokens = job.training.global_batch, job.training.sequence_length
    if batch <= _MOST_SEQUENCES or batch % tokens:
        return ()
    message = f"global_batch: {batch} sequences of {tokens} tokens are {batch * tokens:.3g} tokens a step"
    return (("/training/global_batch", message, f"global_batch: {batch // tokens}, or {{tokens: {batch}}}"),)


MODEL_RULES: tuple[JobRule, ...] = (
    JobRule(
        id="MLM009",
        severity=Severity.ERROR,
        source=megatron_lm("training/arguments.py:1353"),
        check=sequence_fits_position_table,
    ),
    JobRule(
        id="SEQ003",
        severity=Severity.WARNING,
        source=derived("positions past max_position_embeddings are extrapolated"),
        check=sequence_within_trained_positions,
    ),
    JobRule(
        id="MDS019",
        severity=Severity.ERROR,
        source=derived("megatron/arguments.py of Megatron-DeepSpeed has no option for it"),
        check=megatron_deepspeed_has_attention,
    ),
    JobRule(
        id="MDS020",
        severity=Severity.ERROR,
        source=derived("megatron/arguments.py of Megatron-DeepSpeed has no option for either"),
        check=megatron_deepspeed_has_experts,
    ),
    JobRule(
        id="MDS022",
        severity=Severity.WARNING,
        source=megatron_deepspeed("megatron/enums.py:34 (named there and used nowhere)"),
        check=megatron_deepspeed_has_positions,
    ),
    JobRule(
        id="MLM044",
        severity=Severity.ERROR,
        source=megatron_lm("training/arguments.py (--position-embedding-type)"),
        check=megatron_lm_has_positions,
    ),
    JobRule(
        id="OPT016",
        severity=Severity.ERROR,
        source=megatron_deepspeed("megatron/arguments.py (--optimizer: adam or sgd)"),
        check=megatron_has_optimizer,
    ),
    JobRule(
        id="BATCH010",
        severity=Severity.WARNING,
        source=derived("a power of two of tokens is a multiple of the sequence length; real batches are below 100,000"),
        check=batch_counts_sequences,
    ),
)
