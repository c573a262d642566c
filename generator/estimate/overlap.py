"""Communication beside compute: what is left of it, and what it costs."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..job.records import Job
from .rates import rates


def exposed_s(job: Job, communication_s: Any, window_s: Any, first_s: Any = 0.0) -> Any:
    """Seconds that communication adds to a step which computes for `window_s` meanwhile.

    `first_s`: the part that nothing can hide, because no work is ready yet, or none is left. What is hidden slows the
    compute beside it.
    """
    left = np.maximum(communication_s - window_s, np.minimum(first_s, communication_s))
    return left + rates(job).overlap_cost * (communication_s - left)


def spread_s(job: Job, communication_s: Any, chunk_pass_s: Any, chunks: Any, apart: Any, messages: Any) -> Any:
    """Seconds that communication of a stage's `chunks` adds, each chunk's hidden behind the passes up to the next's.

    Gradients: chunk c of v is complete after the last micro-batch's backward pass, and `apart` passes lie between two
    chunks', so that `c * apart` passes follow. With R seconds for all chunks, what is left at the end is the largest of
    `(c + 1) R / v - (c * apart + 1) b`, and a chunk's last message. Parameters before the forward passes: the same
    backwards. **Source**: Megatron-LM core/pipeline_parallel/schedules.py,
    forward_backward_pipelining_with_interleaving: groups of p micro-batches go through one chunk after the other, so
    `apart = p`; its buckets never span chunks.
    **Symbols**: v chunks, b `chunk_pass_s`, `messages` of each chunk.
    """
    own = chunk_pass_s * (1 - 1 / messages)
    last = communication_s / (chunks * messages)
    nearest = communication_s / chunks - own
    farthest = communication_s - own - (chunks - 1) * apart * chunk_pass_s
    left = np.maximum(np.maximum(nearest, farthest), last)
    return left + rates(job).overlap_cost * (communication_s - left)
