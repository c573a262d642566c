"""PyTorch's allocator as our files set it, and what it keeps beyond what is allocated."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..facts.facts import knows
from ..job.records import Job
from .layout import LayoutLike
from .rates import rates

#: The variable that configures it. Every release from 2.1 to 2.13 reads this name; since 2.9
#: PYTORCH_ALLOC_CONF is the newer one, which older releases ignore and Megatron-LM doesn't look
#: for.
VARIABLE: Final = "PYTORCH_CUDA_ALLOC_CONF"
GROWING_SEGMENTS: Final = "expandable_segments:True"


def segments_grow(job: Job, layout: LayoutLike) -> Any:
    """Tell whether segments can grow.

    They can where the job sets it, or where sizes of tensors change from step to step.

    These are experts' tokens, gathered parameters and unpadded batches. Memory that NCCL or CUDA
    graphs register can't grow.

    **Source**: pytorch/pytorch docs/source/notes/cuda.rst, expandable_segments; NVIDIA/Megatron-LM
    @ core_v0.16.1 megatron/core/transformer/moe/README.md:141.
    """
    # What files say of a run has no launch.
    environment, arguments = (
        (job.launch.environment, job.launch.arguments) if knows(job, "launch") else ({}, ())
    )
    if VARIABLE in environment:
        return GROWING_SEGMENTS in environment[VARIABLE]
    options = {argument.partition("=")[0] for argument in arguments}
    registered = not options.isdisjoint(job.engine.registers_memory)
    if registered or job.cluster.accelerator.vendor != "nvidia":
        return False
    return job.engine.sizes_vary | (job.model.experts > 0) | (np.asarray(layout.zero_stage) == 3)


def reserved_bytes(job: Job, layout: LayoutLike, allocated_bytes: Any, phases_bytes: Any) -> Any:
    """Bytes that the allocator holds when it was asked for `allocated_bytes` at its peak.

    States come to lie between blocks of an earlier phase, which then can't be joined again: it
    holds what all phases together ask for. Segments that grow have no such gaps.
    """
    asked = np.where(segments_grow(job, layout), allocated_bytes, phases_bytes)
    return np.maximum(asked * rates(job).fragmentation_factor, allocated_bytes)
