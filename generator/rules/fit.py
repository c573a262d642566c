"""The memory ledger against what the machines have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import inf
from typing import Any, Final

from ..estimate.layout import Layout, LayoutLike, Offload, Recompute
from ..estimate.ledgers import Memory
from ..estimate.uncertainty import host_band, required_band
from ..facts.facts import knows
from ..findings import ERROR
from ..job.records import Job
from ..numerals import python_float
from ..units import GIB, gib
from .layout.recompute import HOST_OPTIMIZERS
from .planned import Judgement, layouts
from .violations import deepspeed

#: Host memory per accelerator, the most of the catalog's node types: aws/p6-b300.48xlarge.
_MOST_HOST: Final = 512 * GIB
_AMOUNT: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kmgtp]?)(i?)b?", re.IGNORECASE)


def device_limit_bytes(job: Job, memory: Memory) -> Any:
    """Device memory a plan may use: the capacity less the job's headroom."""
    return memory.capacity_bytes * (1 - job.headroom)


def host_limit_bytes(job: Job) -> float:
    """Return the host memory that offloaded states may take.

    As on the device, the headroom is left: here to the system and to loaders.
    """
    return min(_host_bytes(job), _requested_bytes(job)) * (1 - job.headroom)


def pins_host_memory(job: Job, memory: Memory) -> bool:
    """Tell whether the host has room for pinned buffers, which copies are faster from."""
    return bool(memory.host_bytes_per_node <= host_limit_bytes(job))


def _host_bytes(job: Job) -> float:
    """Host memory of a node; where it is unknown, as much as any has, and all that is asked for."""
    likely = _MOST_HOST * job.cluster.accelerators_per_node if job.pins.offload is None else inf
    return job.cluster.host_memory_bytes or likely


def _requested_bytes(job: Job) -> float:
    """Return the host memory of a node to which the spec's launch options limit the job.

    It is infinite where they set no limit.
    """
    options: Mapping[str, Any] = job.launch.options if knows(job, "launch") else {}
    resources = dict(str(each).partition("=")[::2] for each in options.get("resources") or ())
    # The key says whose units they are: `memory` is an option of sbatch, a resource is one of a
    # pod.
    in_resources = "memory" in resources
    return memory_bytes(
        resources["memory"] if in_resources else options.get("memory"), of_slurm=not in_resources
    )


def memory_bytes(text: object, *, of_slurm: bool) -> float:
    """Return the bytes of a limit on host memory, of Slurm's or of Kubernetes'.

    They are infinite where it limits nothing.

    Source: sbatch(1), --mem: MiB without a unit, 0 for all; kubernetes.io, Resource units: powers
    of 1,000 without `i`.
    """
    match = _AMOUNT.fullmatch(str(text))
    if match is None or not python_float(match[1]):
        return inf
    power = "_kmgtp".index((match[2] or "_m"[of_slurm]).lower())
    base = 1024.0 if of_slurm or match[3] else 1000.0
    return (python_float(match[1]) or 0.0) * base**power


def _smaller(job: Job, layout: Layout) -> list[str]:
    """Changes to a layout that need less device memory and break no rule."""
    stage, optimizer = layout.zero_stage, job.training.optimizer
    distributed = job.engine.sharding == "distributed"
    moe = job.model.experts > 0 and job.engine.experts != "whole"
    highest = (
        0 if optimizer == "lamb" else 1 if distributed or layout.pipeline > 1 else 2 if moe else 3
    )
    moves = stage >= 1 and optimizer in HOST_OPTIMIZERS and (distributed or layout.pipeline == 1)
    changes = {
        job.says("micro_batch", 1): layout.micro_batch > 1,
        job.says("recompute", Recompute.FULL): layout.recompute != Recompute.FULL,
        job.says("zero_stage", stage + 1): stage < highest,
        job.says("offload", Offload.OPTIMIZER): moves and layout.offload == Offload.NONE,
        "more tensor parallelism": not job.engine.has_parallel_layers and job.training.lora is None,
        "more GPUs": job.training.lora is not None,
        "more tensor or pipeline parallelism": job.engine.has_parallel_layers,
    }
    return [change for change, possible in changes.items() if possible]


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
    whose = (
        f"a GPU of pipeline stage {int(memory.stage) + 1} of {stages}" if stages > 1 else "a GPU"
    )
    message = (
        f"{whose} needs up to {gib(high)} GiB (estimate {gib(memory.required_bytes)} GiB) "
        f"of {gib(limit)} GiB"
        f" device memory ({gib(memory.capacity_bytes)} GiB less {job.headroom:.0%} headroom)"
    )
    # So far above the limit, one step is seldom enough: the hint is no bound.
    several = "several of: " if high > 4 * limit else ""
    yield message, f"use {several}{', or '.join(_smaller(job, layout))}"


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
    less = Offload.NONE if layout.offload == Offload.OPTIMIZER else Offload.OPTIMIZER
    message = (
        f"{job.says('offload', layout.offload)} needs {gib(needed.low)} GiB of host memory a node, "
        f"and up to {gib(needed.high)} with pinned buffers;"
    )
    left = f", less {job.headroom:.0%} headroom" if job.headroom else ""
    has, asked = _host_bytes(job), _requested_bytes(job)
    known = (
        f"{job.cluster.name} has"
        if job.cluster.host_memory_bytes
        else "no node type of the catalog has over"
    )
    whose = f"launch.{job.launch.target} asks for" if asked < has else known
    message += f" {whose} {gib(min(has, asked))} GiB{left}"
    yield (
        message,
        f"use {job.says('offload', less)}, or more {'memory' if asked < has else 'nodes'}",
    )
