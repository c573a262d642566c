"""Rules on files that compare the memory which a run needs with what its machines have."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from ...estimate.layout import Offload
from ...estimate.memory import memory
from ...estimate.model_size import parameter_count
from ...estimate.states import first_copies_bytes, moment_bytes
from ...estimate.uncertainty import Band, host_band, required_band
from ...findings import ERROR, WARNING, Location, Violation, Violations
from ...programs.slurm.subjects import blocks
from ...rules.fit import host_limit_bytes, memory_bytes
from ...rules.run import FIT_RULES, check_fit, hint_of_layouts
from ...rules.violations import deepspeed_0_19_8, derived
from ...submission.subjects import submissions
from ...submission.submission import Submission
from ...units import GB, GIB
from .need import Need
from .needs import needs

#: A model is small whose states at stage 2 need at most this share of a GPU's memory. The rest is
#: room for activations, whose size a config alone doesn't tell.
_SMALL: Final = 0.25

#: Bytes of the fp32 weight that the optimizer keeps for each parameter.
_MASTER_BYTES: Final = 4

_DEVICE, _HOST = FIT_RULES

_SWAPPED: Final = deepspeed_0_19_8(
    "runtime/swap_tensor/partitioned_optimizer_swapper.py: the master weights and "
    "the moments of Adam"
)
_GATHERED: Final = derived(
    "stage 3 gathers the parameters for every forward and backward pass, stage 2 once a step"
)
_REQUESTS: Final = ("DeepSpeed config", "launch script", "Kubernetes job", "Megatron arguments")


@needs.rule("MEM001", ERROR, "training", _DEVICE.source)
def fits_device(need: Need) -> Violations:
    """What a run keeps on its fullest GPU fits there.
    Prevents: CUDA out of memory in the first steps.
    Fix: shard, divide, recompute or offload more"""
    job, layout, ledger = need.job, need.layout, need.ledger
    if need.of_spec:
        yield from _verdict(need, _DEVICE.id, "/layout/micro_batch", "/layout/zero_stage")
        return
    exceeds = ledger.required_bytes > ledger.capacity_bytes
    if _DEVICE.allows(job, layout, ledger) or not (exceeds or need.whole):
        return

    states = ledger.parameters_bytes + ledger.gradients_bytes + ledger.optimizer_bytes
    if not exceeds:
        detail = ", at the upper end of the estimate more"
    else:
        detail = f", {_gib(states)} of it model states" if states > GIB else ""
    message = (
        f"{_subject(need)} about {_gib(ledger.required_bytes)} a GPU{detail}; "
        f"{job.cluster.accelerator.name} has {_gib(ledger.capacity_bytes)}"
    )
    where = need.facts.locate("/layout/micro_batch", "/layout/zero_stage")
    hint = hint_of_layouts(job, layout)
    severity = None if exceeds or need.planned else WARNING
    yield Violation(where, message, hint, severity=severity)


def _verdict(need: Need, rule: str, *where: str) -> Violations:
    """The findings of a fit rule on a run whose spec or plan is there: the same as on its plan.

    Of files that were changed since the plan, only what exceeds the device is certain.
    """
    exceeds = need.ledger.required_bytes > need.ledger.capacity_bytes
    severity = None if need.planned or exceeds else WARNING
    for finding in check_fit(need.job, need.layout, need.ledger):
        if finding.rule == rule:
            place = need.facts.locate(*where)
            yield Violation(place, finding.message, finding.hint, severity=severity)


@needs.rule("MEM002", ERROR, "training", _HOST.source)
def fits_host(need: Need) -> Violations:
    """What a run offloads fits in the memory of its nodes.
    Prevents: The node's out-of-memory killer ends the run: exit code -9.
    Fix: offload less, or use more nodes"""
    limit = host_limit_bytes(need.job)
    needed = _host_need(need)
    if need.device != "cpu" or needed.high <= limit:
        return

    surely = needed.low > limit
    cluster = need.job.cluster
    message = (
        f"offloaded states need {_gib(needed.low)} of host memory a node"
        f"{_up_to(needed)}; {cluster.name} has {_gib(cluster.host_memory_bytes or 0)}"
        f"{f', less {need.job.headroom:.0%} headroom' if need.job.headroom else ''}"
    )
    others = "offload less, or to NVMe, or use more nodes"
    fits_unpinned = need.pinned and host_band(need.job, need.ledger).low <= limit
    hint = f'set "pin_memory" to false, or {others}' if fits_unpinned else others
    severity = None if surely else WARNING
    yield Violation(need.facts.locate("/layout/offload"), message, hint, severity=severity)


def _host_need(need: Need) -> Band:
    """The band of the host memory that a run needs on a node, in bytes.

    Without pinned buffers both ends are the same. The Trainer pins the weights while it builds the
    model from them, and these blocks stay allocated.
    """
    band = host_band(need.job, need.ledger)
    if not need.pinned:
        return Band(low=band.low, high=band.low)
    ranks = min(need.job.cluster.accelerators_per_node, need.layout.world)
    loads = need.job.framework.goes_on_from_weights
    copies = ranks * first_copies_bytes(need.job, need.layout) if loads else 0.0
    return Band(low=band.low + copies, high=max(band.high, band.low + copies))


def _up_to(needed: Band) -> str:
    """The upper end of a band, for a message that has the lower one; empty where they are equal."""
    return f", up to {_gib(needed.high)} with pinned buffers" if needed.high > needed.low else ""


@needs.rule("MEM006", WARNING, "training", _SWAPPED, reads=("DeepSpeed config",))
def fits_nvme(need: Need) -> Violations:
    """States offloaded to NVMe fit on the local disks of its nodes.
    Prevents: No space left on device, at the first step. A warning: nvme_path may be on another
    disk.
    Fix: offload to larger disks, or use more nodes
    """
    job, disk_bytes = need.job, need.job.cluster.local_nvme_bytes
    if disk_bytes is None or need.layout.zero_stage != 3 or need.device != "nvme":
        return
    states_bytes = parameter_count(job.model) * (_MASTER_BYTES + moment_bytes(job))
    needed_bytes = states_bytes / job.nodes
    if needed_bytes > disk_bytes:
        message = (
            f"offloaded states need about {needed_bytes / GB:,.0f} GB of NVMe a node; "
            f"{job.cluster.name} has {disk_bytes / GB:,.0f} GB"
        )
        hint = f"use {math.ceil(states_bytes / disk_bytes)} nodes or more" if disk_bytes else None
        yield Violation(need.facts.locate("/layout/offload"), message, hint)


@submissions.rule("SUB013", ERROR, "training", _HOST.source, reads=_REQUESTS)
def fits_request(submission: Submission) -> Violations:
    """A Slurm job asks for the host memory that its offload needs, and pods aren't limited to less.
    Prevents: Slurm or the kernel kills the job when it passes its memory: exit code -9, or an
    oom_kill event.
    Fix: use --mem=0, or as much as the offloaded states need
    """
    limits = list(_memory_limits(submission))
    if not limits:
        return
    for need in needs(submission):
        needed, most = _host_need(need), need.job.cluster.accelerators_per_node
        if need.device == "cpu":
            for where, text, limit, gpus, hint in limits:
                if needed.high > limit and (gpus is None or gpus >= min(most, need.job.gpus)):
                    message = f"{text}: offloaded states need {_gib(needed.low)} a node"
                    severity = None if needed.low > limit else WARNING
                    yield Violation(where, message + _up_to(needed), hint, severity=severity)


def _memory_limits(
    submission: Submission,
) -> Iterator[tuple[Location, str, float, int | None, str]]:
    """The limits on host memory of nodes and pods.

    Each is its place, its text, its bytes, the GPUs of the pod (None for a node), and a hint.
    """
    if submission.scripts:
        for request in blocks(submission):
            for option in request.texts("--mem", last=True):
                limit = memory_bytes(option.value, of_slurm=True)
                yield (
                    option.where_value,
                    str(option),
                    limit,
                    None,
                    "use --mem=0, which is all that the node has",
                )
    for job in submission.of_kind("Kubernetes job"):
        for role in job.trainers:
            place = f"{role.resources}/limits/memory"
            limit = memory_bytes(job.value(place), of_slurm=False)
            yield (
                job.locate(place),
                f"memory: {job.value(place)}",
                limit,
                role.gpus,
                "raise the limit, or leave it out",
            )


@needs.rule("MEM005", WARNING, "silent", _GATHERED, reads=("DeepSpeed config",))
def stage_three_is_needed(need: Need) -> Violations:
    """ZeRO stage 3 is for models that stage 2 leaves little room for: it gathers every parameter
    twice a step.
    Prevents: No error: half as much communication again as stage 2, for memory that nothing uses.
    Fix: use stage 2
    """
    job, layout = need.job, need.layout
    if need.whole or need.planned or layout.zero_stage != 3 or layout.offload != Offload.NONE:
        return
    ledger = memory(job, replace(layout, zero_stage=2))
    if required_band(ledger).high <= ledger.capacity_bytes * _SMALL:
        run = f"a GPU for {job.model.name} on {layout.world} GPUs, without activations"
        message = (
            f"stage: 3 is slower than 2, which needs about {_gib(ledger.required_bytes)} {run}"
        )
        message = f"{message}; {job.cluster.accelerator.name} has {_gib(ledger.capacity_bytes)}"
        yield Violation(need.facts.locate("/layout/zero_stage"), message, 'set "stage" to 2')


def _subject(need: Need) -> str:
    """The beginning of a message: what is trained on which GPUs, up to the verb."""
    layout = need.layout
    model = "" if need.whole else f" {need.job.model.name}"
    sizes = f", tensor {layout.tensor} × pipeline {layout.pipeline}" if need.whole else ""
    stage = (
        "" if need.job.engine.sharding == "distributed" else f" at ZeRO stage {layout.zero_stage}"
    )
    return f"training{model} on {layout.world} GPU{'s' * (layout.world > 1)}{sizes}{stage} needs"


def _gib(count: float) -> str:
    return f"{float(count) / GIB:.1f} GiB"
