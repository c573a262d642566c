"""What a run needs against what its machines have, where arguments or a config, a model and a cluster say both."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ....documents.submission import Submission
from ....estimate.layout import Offload
from ....estimate.memory import memory
from ....estimate.uncertainty import required_band
from ....findings import ERROR, WARNING, Severity, Violation, Violations
from ....units import GIB, MIB
from ...registry import FIT_RULES
from ...rule import submissions
from ...sources import derived
from ..memory_needs import Need, needs_of
from ..slurm.options import known_values
from ..slurm.requests import blocks
from ..slurm.values import mebibytes
from .job_words import in_options

#: The share of a GPU's memory that a small model takes at stage 2: the rest is room for activations, which a config
#: alone doesn't tell.
_SMALL: Final = 0.25
_DEVICE, _HOST = FIT_RULES


@submissions.rule(
    "MEM001",
    ERROR,
    "training",
    _DEVICE.source,
    reads=("DeepSpeed config", "launch script", "AzureML job", "Megatron arguments"),
)
def fits_device(submission: Submission) -> Violations:
    """What a run keeps on its fullest GPU fits there.

    Prevents: CUDA out of memory in the first steps
    Fix: shard, cut, recompute or offload more
    """
    rule = _DEVICE
    for need in needs_of(submission):
        if rule.columns.holds(need.job, need.layout, need.ledger):
            continue
        ledger, sure = need.ledger, need.ledger.required_bytes > need.ledger.capacity_bytes
        if not sure and not need.whole:
            continue
        hint = rule.columns.explain(need.job, need.layout, ledger)[1]
        if sure:
            states = ledger.parameters_bytes + ledger.gradients_bytes + ledger.optimizer_bytes
            message = f"{_subject(need)} about {_gib(ledger.required_bytes)} a GPU"
            message += f", {_gib(states)} of it model states" if states > GIB else ""
        else:
            message = (
                f"{_subject(need)} about {_gib(ledger.required_bytes)} a GPU, at the upper end of the estimate more"
            )
        message += f"; {need.job.cluster.accelerator.name} has {_gib(ledger.capacity_bytes)}"
        severity = None if sure else Severity.WARNING
        yield Violation(where=need.where, message=message, hint=_words(need, hint) or None, severity=severity)


@submissions.rule(
    "MEM002",
    ERROR,
    "training",
    _HOST.source,
    reads=("DeepSpeed config", "launch script", "AzureML job", "Megatron arguments"),
)
def fits_host(submission: Submission) -> Violations:
    """What a run offloads fits in the memory of its nodes.

    Prevents: the node's out-of-memory killer: exit code -9
    Fix: offload less, or use more nodes
    """
    rule = _HOST
    for need in needs_of(submission):
        if not need.on_host or rule.columns.holds(need.job, need.layout, need.ledger):
            continue
        cluster = need.job.cluster
        message = (
            f"what is offloaded needs about {_gib(need.ledger.host_bytes_per_node)} of host memory a node;"
            f" {cluster.name} has {_gib(cluster.host_memory_bytes or 0)}"
        )
        yield Violation(where=need.offload, message=message, hint="offload less, or to NVMe, or use more nodes")


@submissions.rule(
    "SUB013", ERROR, "training", _HOST.source, reads=("DeepSpeed config", "launch script", "Megatron arguments")
)
def fits_request(submission: Submission) -> Violations:
    """A Slurm job asks for the host memory that its offload takes.

    Prevents: Slurm kills the job when it passes what it asked for: exit code -9, or an oom_kill event.
    Fix: --mem=0, or as much as the offloaded states take
    """
    for need in needs_of(submission) if submission.scripts else ():
        needed = need.ledger.host_bytes_per_node
        for request in blocks(submission) if need.on_host else ():
            for option, text in known_values(request, "--mem", last=True):
                asked = mebibytes(text)
                if asked and needed > asked * MIB:
                    message = f"{request.said(option)}: what is offloaded needs about {_gib(needed)} a node"
                    yield Violation(
                        where=request.at_value(option), message=message, hint="--mem=0: all that the node has"
                    )


@submissions.rule(
    "MEM005",
    WARNING,
    "silent",
    derived("stage 3 gathers the parameters for every forward and backward pass, stage 2 once a step"),
    reads=("DeepSpeed config",),
)
def stage_three_is_needed(submission: Submission) -> Violations:
    """ZeRO stage 3 is for models that stage 2 leaves little room for: it gathers every parameter twice a step.

    Prevents: half as much communication again as stage 2, for memory that nothing uses
    Fix: stage 2
    """
    for need in needs_of(submission) if submission.job is None else ():  # a plan has compared the stages by their time
        if need.whole or need.layout.zero_stage != 3 or need.layout.offload != Offload.NONE:
            continue
        ledger = memory(need.job, replace(need.layout, zero_stage=2))
        if required_band(ledger).high <= ledger.capacity_bytes * _SMALL:
            message = (
                f"stage: 3 is slower than 2, which needs about {_gib(ledger.required_bytes)} a GPU for"
                f" {need.job.model.name} on {need.layout.world} GPUs, without activations;"
                f" {need.job.cluster.accelerator.name} has {_gib(ledger.capacity_bytes)}"
            )
            yield Violation(where=need.where, message=message, hint='"stage": 2')


def _subject(need: Need) -> str:
    layout = need.layout
    cut = (
        f"{layout.world} GPUs, tensor {layout.tensor} × pipeline {layout.pipeline}"
        if need.whole
        else f"{layout.world} GPUs"
    )
    stage = "" if need.job.framework.runs("Megatron-LM") else f" at ZeRO stage {layout.zero_stage}"
    return f"training{'' if need.whole else ' ' + need.job.model.name} on {cut}{stage} needs"


def _words(need: Need, hint: str) -> str:
    if need.whole:
        return in_options(need.job.framework.name)(hint)
    hint = hint.replace("micro_batch: ", "train_micro_batch_size_per_gpu: ")
    hint = hint.replace("zero_stage: ", "zero_optimization.stage: ")
    return hint.replace("offload: optimizer", "zero_optimization.offload_optimizer.device: cpu")


def _gib(count: float) -> str:
    return f"{float(count) / GIB:.1f} GiB"
