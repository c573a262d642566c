"""Rules on files that compare the memory which a run needs with what its machines have."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Final, NamedTuple

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

#: A model is small if its states at stage 2 need at most this share of a GPU's memory. The rest is
#: room for activations, whose size a config alone doesn't tell.
_SMALL: Final = 0.25

#: Bytes of the fp32 weight that the optimizer keeps for each parameter.
_MASTER_BYTES: Final = 4

#: The rules of planning on device and host memory, whose ids and sources the rules here share.
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
    # Where only a part of the memory is counted, its probability to fit is no measure of the whole.
    is_certain = exceeds or need.whole
    if _DEVICE.allows(job, layout, ledger) or not is_certain:
        return

    states = ledger.parameters_bytes + ledger.gradients_bytes + ledger.optimizer_bytes
    detail = ""
    if not exceeds:
        detail = ", at the upper end of the estimate more"
    elif states > GIB:
        detail = f", {_gib(states)} of it model states"
    message = (
        f"{_subject(need)} about {_gib(ledger.required_bytes)} a GPU{detail}; "
        f"{job.cluster.accelerator.name} has {_gib(ledger.capacity_bytes)}"
    )
    where = need.facts.locate("/layout/micro_batch", "/layout/zero_stage")
    hint = hint_of_layouts(job, layout)
    severity = None if exceeds or need.planned else WARNING
    yield Violation(where, message, hint, severity=severity)


def _verdict(need: Need, rule: str, *where: str) -> Violations:
    """The findings of a fit rule on a run with a spec or a plan: the same as planning has.

    Where only a plan is there, the files were changed since: what exceeds the device is an error,
    and anything less certain a warning.
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

    cluster = need.job.cluster
    headroom = f", less {need.job.headroom:.0%} headroom" if need.job.headroom else ""
    message = (
        f"offloaded states need {_gib(needed.low)} of host memory a node"
        f"{_up_to(needed)}; {cluster.name} has {_gib(cluster.host_memory_bytes or 0)}{headroom}"
    )
    hint = "offload less, or to NVMe, or use more nodes"
    fits_unpinned = need.pinned and host_band(need.job, need.ledger).low <= limit
    if fits_unpinned:
        hint = f'set "pin_memory" to false, or {hint}'
    severity = None if needed.low > limit else WARNING
    yield Violation(need.facts.locate("/layout/offload"), message, hint, severity=severity)


def _host_need(need: Need) -> Band:
    """The range of the host memory that a run needs on a node, in bytes.

    Without pinned buffers both ends are the same. A framework that goes on from weights pins them
    while it builds the model, and these blocks stay allocated.
    """
    band = host_band(need.job, need.ledger)
    if not need.pinned:
        return Band(low=band.low, high=band.low)
    copies = 0.0
    if need.job.framework.goes_on_from_weights:
        ranks = min(need.job.cluster.accelerators_per_node, need.layout.world)
        copies = ranks * first_copies_bytes(need.job, need.layout)
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
        if need.device != "cpu":
            continue
        needed = _host_need(need)
        gpus_on_node = min(need.job.cluster.accelerators_per_node, need.job.gpus)
        for limit in limits:
            # A pod with fewer GPUs than a node needs only a part of this.
            is_of_node = limit.gpus is None or limit.gpus >= gpus_on_node
            if is_of_node and needed.high > limit.size_bytes:
                message = f"{limit.text}: offloaded states need {_gib(needed.low)} a node"
                message += _up_to(needed)
                severity = None if needed.low > limit.size_bytes else WARNING
                yield Violation(limit.where, message, limit.hint, severity=severity)


class _MemoryLimit(NamedTuple):
    """A limit on the host memory of a node or a pod."""

    where: Location
    text: str  #: as it is written
    size_bytes: float
    gpus: int | None  #: of the pod; None: it is a limit of a node
    hint: str


def _memory_limits(submission: Submission) -> Iterator[_MemoryLimit]:
    if submission.scripts:
        hint = "use --mem=0, which is all that the node has"
        for request in blocks(submission):
            for option in request.texts("--mem", last=True):
                size = memory_bytes(option.value, of_slurm=True)
                yield _MemoryLimit(option.where_value, str(option), size, None, hint)

    hint = "raise the limit, or leave it out"
    for job in submission.of_kind("Kubernetes job"):
        for role in job.trainers:
            place = f"{role.resources}/limits/memory"
            text = f"memory: {job.value(place)}"
            size = memory_bytes(job.value(place), of_slurm=False)
            yield _MemoryLimit(job.locate(place), text, size, role.gpus, hint)


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
        message = (
            f"stage: 3 is slower than 2, which needs about {_gib(ledger.required_bytes)} a GPU for "
            f"{job.model.name} on {layout.world} GPUs, without activations; "
            f"{job.cluster.accelerator.name} has {_gib(ledger.capacity_bytes)}"
        )
        yield Violation(need.facts.locate("/layout/zero_stage"), message, 'set "stage" to 2')


def _subject(need: Need) -> str:
    """The beginning of a message: what is trained on which GPUs, up to the verb."""
    layout = need.layout
    model = "" if need.whole else f" {need.job.model.name}"
    sizes = f", tensor {layout.tensor} × pipeline {layout.pipeline}" if need.whole else ""
    has_stages = need.job.engine.sharding != "distributed"
    stage = f" at ZeRO stage {layout.zero_stage}" if has_stages else ""
    gpus = f"{layout.world} GPU{'s' * (layout.world > 1)}"
    return f"training{model} on {gpus}{sizes}{stage} needs"


def _gib(count: float) -> str:
    return f"{float(count) / GIB:.1f} GiB"
