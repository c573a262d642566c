"""Ulysses in DeepSpeed configs: sequence_parallel_size and data_parallel_size."""

from __future__ import annotations

from typing import Final

from ....documents.submission import FILLERS, Submission
from ....documents.world import world_of
from ....findings import ERROR, WARNING, Violation, Violations
from ...numbers import divisors, listed
from ...rule import submissions
from ...sources import deepspeed, deepspeed_now
from ..huggingface import parallelism
from .subjects import configs

ULYSSES: Final = "/sequence_parallel_size"


@submissions.rule("SP001", ERROR, "training", deepspeed("sequence/layer.py:40"), reads=("DeepSpeed config",))
def heads_divide(submission: Submission) -> Violations:
    """Ulysses gives every rank the same number of attention heads.

    Prevents: `Number of heads must be divisible by the sequence parallel size`
    Fix: a divisor of the heads
    """
    model = submission.model
    for config in configs(submission) if model else ():
        size = config.whole(ULYSSES)
        if model and size and size > 1 and model.heads % size:
            message = f"sequence_parallel_size: {size} does not divide {model.name}'s {model.heads} attention heads"
            hint = f"sequence_parallel_size: {listed(divisors(model.heads, limit=64))}"
            yield Violation(where=config.locate(ULYSSES), message=message, hint=hint)


@submissions.rule(
    "SP003",
    ERROR,
    "init",
    deepspeed("runtime/sequence_parallel/ulysses_sp.py:145"),
    reads=("DeepSpeed config", "accelerate config"),
)
def kv_heads_divide(submission: Submission) -> Violations:
    """The number of key-value heads is a multiple or a divisor of the Ulysses size.

    Prevents: an assertion when the attention is made
    Fix: a size that fits both
    """
    model = submission.model
    for config in configs(submission) if model else ():
        size = config.whole(ULYSSES)
        if model and size and size > 1 and model.kv_heads % size and size % model.kv_heads:
            message = f"sequence_parallel_size: {size} and {model.name}'s {model.kv_heads} key-value heads:"
            message += " neither divides the other"
            fits = [d for d in divisors(model.heads, limit=64) if not model.kv_heads % d or not d % model.kv_heads]
            yield Violation(
                where=config.locate(ULYSSES), message=message, hint=f"sequence_parallel_size: {listed(fits)}"
            )
    yield from parallelism.heads_divide(submission)


@submissions.rule(
    "SP004", ERROR, "training", deepspeed("runtime/sequence_parallel/ulysses_sp.py:698"), reads=("DeepSpeed config",)
)
def sequences_divide(submission: Submission) -> Violations:
    """Ulysses gives every rank an equal piece of the sequence.

    Prevents: `batch's seqlen isn't divisible by sp-size`
    Fix: a divisor of the sequence
    """
    lengths = [(n, "the job") for n in [submission.job.training.sequence_length]] if submission.job else []
    lengths += [(n, "--seq-length") for a in submission.megatron if (n := a.integer("--seq-length"))]
    for config in configs(submission):
        size = config.whole(ULYSSES)
        for length, who in lengths[:1]:
            if size and size > 1 and length % size:
                message = f"sequence_parallel_size: {size} does not divide the {length} tokens of {who}"
                hint = f"sequence_parallel_size: {listed(divisors(length, limit=64))}"
                yield Violation(where=config.locate(ULYSSES), message=message, hint=hint)


@submissions.rule(
    "BATCH007",
    WARNING,
    "silent",
    deepspeed_now("runtime/config.py:474; __init__.py:543"),
    since=(0, 15, 4),
    reads=("DeepSpeed config",),
)
def sequence_mesh_is_made(submission: Submission) -> Violations:
    """sequence_parallel_size works with data_parallel_size beside it, unless the script passes an mpu.

    Prevents: no sequence parallelism, and a batch that is larger than the one written
    Fix: data_parallel_size
    """
    for config in configs(submission) if submission.consumer not in FILLERS and not submission.megatron else ():
        size = config.whole(ULYSSES)
        passes = config.value("/compile/passes")  # AutoSP makes its own groups
        compiled = isinstance(passes, list) and "autosp" in passes
        if size and size > 1 and not config.has("/data_parallel_size") and not compiled:
            message = f"sequence_parallel_size: {size} without data_parallel_size makes no sequence groups:"
            message += f" only the batch check divides the GPUs by {size}"
            yield Violation(
                where=config.locate(ULYSSES), message=message, hint='"data_parallel_size": GPUs / sequence ranks'
            )


@submissions.rule(
    "SP007", ERROR, "init", deepspeed_now("__init__.py:543"), since=(0, 15, 4), reads=("DeepSpeed config",)
)
def mesh_fills_the_gpus(submission: Submission) -> Violations:
    """The product data_parallel_size × sequence_parallel_size is the number of GPUs.

    Prevents: a mesh that is larger than the world, or ranks that are in none
    Fix: a product that is the number of GPUs
    """
    gpus = world_of(submission).gpus
    for config in configs(submission):
        data, sequence = (config.whole(key) for key in ("/data_parallel_size", ULYSSES))
        if gpus and data and sequence and data > 0 and sequence > 0 and data * sequence != gpus:
            message = f"data_parallel_size: {data} × sequence_parallel_size: {sequence} = {data * sequence},"
            message += f" but there are {gpus} GPUs"
            hint = (
                f"data_parallel_size: {gpus // sequence}"
                if not gpus % sequence
                else f"sequence_parallel_size: {listed(divisors(gpus)[:8])}"
            )
            yield Violation(where=config.locate("/data_parallel_size"), message=message, hint=hint)
