"""Ulysses in DeepSpeed configs: sequence_parallel_size and data_parallel_size."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ....documents.submission import Submission
from ....documents.world import world_of
from ....findings import ERROR, WARNING, Violation, Violations
from ...numbers import divisors, listed
from ...rule import subject
from ...sources import deepspeed, deepspeed_now
from ..huggingface import parallelism
from .splits import ULYSSES, Split, splits
from .subjects import Run, runs

_DATA: Final = "/data_parallel_size"
_ulysses: Final = splits(ULYSSES)


@_ulysses.rule("SP001", ERROR, "training", deepspeed("sequence/layer.py:40"))
def heads_divide(split: Split) -> Violations:
    """sequence_parallel_size divides the attention heads.

    Prevents: `Number of heads must be divisible by the sequence parallel size`
    Fix: set it to a divisor of the heads
    """
    model = split.submission.model
    if model and model.heads % split.size:
        problem = f"does not divide {model.name}'s {model.heads} attention heads"
        yield split.violation(problem, divisors(model.heads, limit=64))


@subject("DeepSpeed config", "accelerate config")
def _with_accelerate(submission: Submission) -> Iterable[Submission]:
    return (submission,)


@_with_accelerate.rule("SP003", ERROR, "init", deepspeed("runtime/sequence_parallel/ulysses_sp.py:145"))
def kv_heads_divide(submission: Submission) -> Violations:
    """The number of key-value heads is a multiple or a divisor of the Ulysses size.

    Prevents: an assertion when the attention is made
    Fix: use a size that fits both
    """
    model = submission.model
    for split in _ulysses(submission) if model else ():
        if model and model.kv_heads % split.size and split.size % model.kv_heads:
            fits = [d for d in divisors(model.heads, limit=64) if not model.kv_heads % d or not d % model.kv_heads]
            problem = f"and {model.name}'s {model.kv_heads} key-value heads: neither divides the other"
            yield split.violation(problem, fits)
    yield from parallelism.heads_divide(submission)


@_ulysses.rule("SP004", ERROR, "training", deepspeed("runtime/sequence_parallel/ulysses_sp.py:698"))
def sequences_divide(split: Split) -> Violations:
    """sequence_parallel_size divides the sequence.

    Prevents: `batch's seqlen isn't divisible by sp-size`
    Fix: set it to a divisor of the sequence
    """
    job = split.submission.job
    lengths = [(job.training.sequence_length, "the job")] if job else []
    lengths += [(n, "--seq-length") for a in split.submission.megatron if (n := a.integer("--seq-length"))]
    for length, who in lengths[:1]:
        if length % split.size:
            yield split.violation(f"does not divide the {length} tokens of {who}", divisors(length, limit=64))


@_ulysses.rule("BATCH007", WARNING, "silent", deepspeed_now("runtime/config.py:474; __init__.py:543"), since=(0, 15, 4))
def sequence_mesh_is_made(split: Split) -> Violations:
    """sequence_parallel_size is written with data_parallel_size, unless the script passes an mpu.

    Prevents: no sequence parallelism, and a batch that is larger than the one written
    Fix: add data_parallel_size
    """
    config = split.config
    passes = config.value("/compile/passes")  # AutoSP makes its own groups
    compiled = isinstance(passes, list) and "autosp" in passes
    if not (config.filled or split.submission.megatron or compiled or config.has(_DATA)):
        message = f"{split.key} without data_parallel_size creates no sequence groups:"
        message += f" only the batch check divides the GPUs by {split.size}"
        yield split.other(ULYSSES, message, 'add "data_parallel_size": GPUs / sequence ranks')


@runs.rule("SP007", ERROR, "init", deepspeed_now("__init__.py:543"), since=(0, 15, 4))
def mesh_fills_the_gpus(run: Run) -> Violations:
    """The product data_parallel_size × sequence_parallel_size is the number of GPUs.

    Prevents: a mesh that is larger than the world, or ranks that are in none
    Fix: use a product that is the number of GPUs
    """
    gpus, data, sequence = world_of(run.submission).gpus, run.config.whole(_DATA), run.config.whole(ULYSSES)
    if gpus and data and sequence and data > 0 and sequence > 0 and data * sequence != gpus:
        message = f"data_parallel_size: {data} × sequence_parallel_size: {sequence} = {data * sequence},"
        hint = f"set sequence_parallel_size to {listed(divisors(gpus)[:8])}"
        hint = hint if gpus % sequence else f"set data_parallel_size to {gpus // sequence}"
        where = run.config.locate(_DATA)
        yield Violation(where=where, message=f"{message} but there are {gpus} GPUs", hint=hint)
