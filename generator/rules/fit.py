"""Fit rules: the memory that a layout needs against the memory that the machines have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import inf
from typing import Any, Final

from ..estimate.layout import Layout, LayoutLike, Offload
from ..estimate.ledgers import Memory
from ..estimate.memory import loading_bytes
from ..estimate.uncertainty import host_band, required_band
from ..facts.facts import knows
from ..findings import ERROR
from ..job.records import Job
from ..numerals import python_float
from ..patterns import lazy_pattern
from ..units import GIB, gib, gib_apart
from .planned import Judgement, layouts
from .violations import deepspeed

#: The largest host memory per accelerator of the catalog's node types: aws/p6-b300.48xlarge.
_LARGEST_HOST_SHARE_BYTES: Final = 512 * GIB

_AMOUNT: Final = lazy_pattern(r"([0-9]+(?:\.[0-9]+)?)([kmgtp]?)(i?)b?", re.IGNORECASE)


def device_limit_bytes(job: Job, memory: Memory) -> Any:
    """The device memory that a plan may use: the capacity less the job's headroom."""
    return memory.capacity_bytes * (1 - job.headroom)


def host_limit_bytes(job: Job) -> float:
    """The host memory of a node that offloaded states may take.

    The job's headroom is kept free, as on the device: the system and data loaders need it.
    """
    return min(_host_bytes(job), _requested_bytes(job)) * (1 - job.headroom)


def pins_host_memory(job: Job, memory: Memory) -> bool:
    """Whether the host has room to pin the buffers of offloaded states, which speeds copies up."""
    return bool(memory.host_bytes_per_node <= host_limit_bytes(job))


def _host_bytes(job: Job) -> float:
    """The host memory of a node; a bound where it isn't known.

    An unknown node is taken to have no more than the largest node type of the catalog. A user who
    pins `layout.offload` knows better: then there is no bound.
    """
    if job.cluster.host_memory_bytes:
        return job.cluster.host_memory_bytes
    if job.pins.offload is not None:
        return inf
    return float(_LARGEST_HOST_SHARE_BYTES * job.cluster.accelerators_per_node)


def _requested_bytes(job: Job) -> float:
    """The host memory of a node that the spec's launch options ask for; infinite without any."""
    options: Mapping[str, Any] = job.launch.options if knows(job, "launch") else {}
    parts = (str(resource).partition("=") for resource in options.get("resources") or ())
    resources = {name: amount for name, _, amount in parts}
    # The key tells the units: a resource is a pod's, the option `memory` is sbatch's.
    if "memory" in resources:
        return memory_bytes(resources["memory"], of_slurm=False)
    return memory_bytes(options.get("memory"), of_slurm=True)


def memory_bytes(text: object, *, of_slurm: bool) -> float:
    """The bytes of a limit on host memory, as Slurm or as Kubernetes reads it.

    Infinite for text that sets no limit.

    Source: sbatch(1), --mem: MiB without a unit, 0 for all memory; kubernetes.io, Resource units:
    powers of 1,000 without `i`.
    """
    match = _AMOUNT.fullmatch(str(text))
    amount = python_float(match[1]) if match else None
    if match is None or not amount:
        return inf
    suffix = match[2] or ("m" if of_slurm else "")
    power = ["", "k", "m", "g", "t", "p"].index(suffix.lower())
    base = 1024.0 if of_slurm or match[3] else 1000.0
    return amount * base**power


@layouts(checks="fit").rule(
    "MEM001", ERROR, "training", deepspeed("runtime/zero/stage_1_and_2.py:3081")
)
def fits_device(job: Job, layout: Layout, memory: Memory) -> Judgement:
    """The fullest stage fits in device memory at the upper end of its estimate, with the job's
    headroom kept free.
    Prevents: CUDA out of memory, at the first step or hours later when a long batch or a checkpoint
    comes.
    Fix: use more GPUs, a higher zero_stage, recompute: full, offload, or a smaller micro_batch, as
    `dsgen plan` does. With other rounding, training.gradient_dtype, moment_dtype, fp8_parameters or
    optimizer: adamw-8bit need less too
    """
    limit, high = device_limit_bytes(job, memory), required_band(memory).high
    yield high <= limit
    stages = int(layout.pipeline)
    fullest = f"a GPU of pipeline stage {int(memory.stage) + 1} of {stages}"
    up_to, most = gib_apart(float(high), float(limit))
    while_loading = ", while it loads the whole 4-bit model" if loading_bytes(job, layout) else ""
    message = (
        f"{fullest if stages > 1 else 'a GPU'} needs up to {up_to} GiB "
        f"(estimate {gib(memory.required_bytes)} GiB{while_loading}) of {most} GiB device memory "
        f"({gib(memory.capacity_bytes)} GiB less {job.headroom:.0%} headroom)"
    )
    yield message, ""


@layouts("offload", checks="fit").rule(
    "MEM002", ERROR, "training", deepspeed("runtime/zero/stage3.py:3755")
)
def fits_host(job: Job, layout: LayoutLike, memory: Memory) -> Judgement:
    """Offloaded states, counted once, fit in the node's memory less the headroom, if it is known.
    Prevents: The kernel kills the process (exit code -9) or Slurm ends the step out of memory,
    without a Python error.
    Fix: use more nodes, nodes with more memory, or offload: none
    """
    needed = host_band(job, memory)
    yield needed.low <= host_limit_bytes(job)

    host, requested = _host_bytes(job), _requested_bytes(job)
    if requested < host:
        limit, more = f"launch.{job.launch.target} asks for", "memory"
    elif job.cluster.host_memory_bytes:
        limit, more = f"{job.cluster.name} has", "nodes"
    else:
        limit, more = "no node type of the catalog has over", "nodes"
    headroom = f", less {job.headroom:.0%} headroom" if job.headroom else ""
    is_range = needed.high > needed.low
    pinned = f", and up to {gib(needed.high)} with pinned buffers" if is_range else ""
    message = (
        f"{job.says('offload', layout.offload)} needs {gib(needed.low)} GiB of host memory a node"
        f"{pinned}; {limit} {gib(min(host, requested))} GiB{headroom}"
    )
    less = Offload.NONE if layout.offload == Offload.OPTIMIZER else Offload.OPTIMIZER
    yield message, f"use {job.says('offload', less)}, or more {more}"
