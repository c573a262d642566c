"""Ulysses in DeepSpeed configs: sequence_parallel_size and data_parallel_size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ....documents.submission import FILLERS, Submission
from ....findings import Severity
from ...numbers import divisors, listed
from ...sources import deepspeed, deepspeed_now
from ..huggingface import parallelism
from ..rule import Breach, DocumentRule
from .values import configs, ds_rule, given, whole

ULYSSES: Final = "/sequence_parallel_size"


def heads_divide(submission: Submission) -> Iterator[Breach]:
    """Ulysses gives every rank the same number of attention heads."""
    model = submission.model
    for config in configs(submission) if model else ():
        size = whole(given(config, ULYSSES))
        if model and size and size > 1 and model.heads % size:
            message = f"sequence_parallel_size: {size} does not divide {model.name}'s {model.heads} attention heads"
            hint = f"sequence_parallel_size: {listed(divisors(model.heads, limit=64))}"
            yield Breach(where=config.locate(ULYSSES), message=message, hint=hint)


def kv_heads_divide(submission: Submission) -> Iterator[Breach]:
    """The number of key-value heads is a multiple or a divisor of the Ulysses size."""
    model = submission.model
    for config in configs(submission) if model else ():
        size = whole(given(config, ULYSSES))
        if model and size and size > 1 and model.kv_heads % size and size % model.kv_heads:
            message = f"sequence_parallel_size: {size} and {model.name}'s {model.kv_heads} key-value heads:"
            message += " neither divides the other"
            fits = [d for d in divisors(model.heads, limit=64) if not model.kv_heads % d or not d % model.kv_heads]
            yield Breach(where=config.locate(ULYSSES), message=message, hint=f"sequence_parallel_size: {listed(fits)}")
    yield from parallelism.heads_divide(submission)


def sequences_divide(submission: Submission) -> Iterator[Breach]:
    """Ulysses gives every rank an equal piece of the sequence."""
    lengths = [(n, "the job") for n in [submission.job.training.sequence_length]] if submission.job else []
    lengths += [(n, "--seq-length") for a in submission.megatron if (n := a.integer("--seq-length"))]
    for config in configs(submission):
        size = whole(given(config, ULYSSES))
        for length, who in lengths[:1]:
            if size and size > 1 and length % size:
                message = f"sequence_parallel_size: {size} does not divide the {length} tokens of {who}"
                hint = f"sequence_parallel_size: {listed(divisors(length, limit=64))}"
                yield Breach(where=config.locate(ULYSSES), message=message, hint=hint)


def sequence_mesh_is_made(submission: Submission) -> Iterator[Breach]:
    """sequence_parallel_size works with data_parallel_size beside it, unless the script passes an mpu."""
    for config in configs(submission) if submission.consumer not in FILLERS and not submission.megatron else ():
        size = whole(given(config, ULYSSES))
        passes = config.value("/compile/passes")  # AutoSP makes its own groups
        compiled = isinstance(passes, list) and "autosp" in passes
        if size and size > 1 and not config.has("/data_parallel_size") and not compiled:
            message = f"sequence_parallel_size: {size} without data_parallel_size makes no sequence groups:"
            message += f" only the batch check divides the GPUs by {size}"
            yield Breach(
                where=config.locate(ULYSSES), message=message, hint='"data_parallel_size": GPUs / sequence ranks'
            )


def mesh_fills_the_gpus(submission: Submission) -> Iterator[Breach]:
    """The product data_parallel_size × sequence_parallel_size is the number of GPUs."""
    gpus = submission.world.gpus
    for config in configs(submission):
        data, sequence = (whole(given(config, key)) for key in ("/data_parallel_size", ULYSSES))
        if gpus and data and sequence and data > 0 and sequence > 0 and data * sequence != gpus:
            message = f"data_parallel_size: {data} × sequence_parallel_size: {sequence} = {data * sequence},"
            message += f" but there are {gpus} GPUs"
            hint = (
                f"data_parallel_size: {gpus // sequence}"
                if not gpus % sequence
                else f"sequence_parallel_size: {listed(divisors(gpus)[:8])}"
            )
            yield Breach(where=config.locate("/data_parallel_size"), message=message, hint=hint)


RULES: Final[tuple[DocumentRule, ...]] = (
    ds_rule(
        "SP001",
        Severity.ERROR,
        "training",
        heads_divide,
        source=deepspeed("sequence/layer.py:40"),
        prevents="`Number of heads must be divisible by the sequence parallel size`",
        fix="a divisor of the heads",
    ),
    ds_rule(
        "SP003",
        Severity.ERROR,
        "init",
        kv_heads_divide,
        source=deepspeed("runtime/sequence_parallel/ulysses_sp.py:145"),
        prevents="an assertion when the attention is made",
        fix="a size that fits both",
        reads=("DeepSpeed config", "accelerate config"),
    ),
    ds_rule(
        "SP004",
        Severity.ERROR,
        "training",
        sequences_divide,
        source=deepspeed("runtime/sequence_parallel/ulysses_sp.py:698"),
        prevents="`batch's seqlen isn't divisible by sp-size`",
        fix="a divisor of the sequence",
    ),
    ds_rule(
        "SP007",
        Severity.ERROR,
        "init",
        mesh_fills_the_gpus,
        source=deepspeed_now("__init__.py:543"),
        prevents="a mesh that is larger than the world, or ranks that are in none",
        fix="a product that is the number of GPUs",
        since=(0, 15, 4),
    ),
    ds_rule(
        "BATCH007",
        Severity.WARNING,
        "silent",
        sequence_mesh_is_made,
        source=deepspeed_now("runtime/config.py:474; __init__.py:543"),
        prevents="no sequence parallelism, and a batch that is larger than the one written",
        fix="data_parallel_size",
        since=(0, 15, 4),
    ),
)
