"""Sizes that no run has: they are reported, and no rule computes with them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final

from ...findings import ERROR, Location, Violation, Violations
from ...programs.deepspeed.config import BATCH_KEYS
from ...programs.megatron.run import CONTEXT, EXPERT, GLOBAL, HEADS, LAYERS, MICRO, PIPELINE, TENSOR
from ...programs.megatron.table import LARGEST
from ...programs.rule import submissions
from ...programs.submission import Submission
from ...programs.world import MOST_GPUS, world_of
from ...rules.sources import derived

_KINDS: Final = ("DeepSpeed config", "launch script", "AzureML job", "accelerate config", "hostfile")
_SOURCE: Final = derived("NCCL's ncclCommInitRank takes an int; a job spec has at most 1,048,576 GPUs")
_MEGATRON: Final = (
    *(TENSOR, PIPELINE, CONTEXT, EXPERT, MICRO, GLOBAL, LAYERS, HEADS),
    *("--hidden-size", "--ffn-hidden-size", "--kv-channels", "--num-query-groups", "--seq-length", "--num-experts"),
    *("--max-position-embeddings", "--vocab-size", "--moe-ffn-hidden-size", "--moe-router-topk"),
)
_DEEPSPEED: Final = (
    *(f"/{key}" for key in BATCH_KEYS),
    *("/zero_optimization/zero_hpz_partition_size", "/mics_shard_size", "/sequence_parallel_size"),
    *("/tensor_parallel/autotp_size", "/tensor_parallel/tp/tp_size", "/elasticity/max_train_batch_size"),
)


@submissions.rule("SUB016", ERROR, "launcher", _SOURCE, reads=_KINDS)
def sizes_are_possible(submission: Submission) -> Violations:
    """A run has at most 1,048,576 nodes and GPUs, and a size of 32 bits: 2,147,483,647.

    Prevents: The launcher waits for nodes that do not exist; integers overflow; memory runs out at once.
    Fix: write the number that was meant"""
    for claim in world_of(submission).beyond:
        message = f"{claim.text[:80]} is more {claim.quantity} than any machine has: at most {MOST_GPUS:,}"
        yield Violation(claim.where, message, f"write 1 to {MOST_GPUS}")
    for name, number, where in _sizes(submission):
        if number is not None and number > LARGEST:
            shown = f"{number:,}" if number < 10**24 else "a number of more than 24 digits"
            yield Violation(where, f"{name} is {shown}; the most is {LARGEST:,}", f"write 1 to {LARGEST}")


def _sizes(submission: Submission) -> Iterator[tuple[str, int | None, Location]]:
    for arguments, option in product(submission.megatron, _MEGATRON):
        yield option, arguments.integer(option), arguments.locate(option)
    for config, pointer in product(submission.configs, _DEEPSPEED):
        yield pointer[1:].replace("/", "."), config.whole(pointer), config.locate(pointer)
