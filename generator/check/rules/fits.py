"""What a run needs against what its machines have, where arguments or a config, a model and a cluster give both."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from ...estimate.layout import Layout, Offload
from ...estimate.ledgers import Memory
from ...estimate.memory import memory
from ...estimate.model_size import parameter_count
from ...estimate.states import moment_bytes
from ...estimate.uncertainty import required_band
from ...findings import ERROR, WARNING, Severity, Violation, Violations
from ...job.records import Job
from ...programs.megatron.inferred_run import InferredRun, inferred_runs
from ...programs.rule import subject, submissions
from ...programs.slurm.values import mebibytes
from ...programs.subjects import blocks
from ...programs.submission import Submission
from ...rules.layout.pins import known_values, whole_layout
from ...rules.registry import FIT_RULES
from ...rules.sources import deepspeed_now, derived
from ...units import GB, GIB, MIB
from ..inferred_config import inferred_from_configs

#: What the estimate of a Megatron run can't do without.
_NEEDED: Final = frozenset(
    [
        *("cluster", "gpus", "layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "experts", "sequence"),
        *("micro_batch", "gradient_accumulation", "tensor", "pipeline", "context", "expert", "virtual_pipeline"),
        *("sequence_parallel", "zero_stage", "recompute", "offload", "precision", "attention"),
    ]
)
#: Options that need less memory in ways that the estimate doesn't follow, or make another model.
_BEYOND: Final = (
    *("--recompute-modules", "--fine-grained-activation-offloading", "--cpu-offloading-num-layers"),
    *("--main-grads-dtype", "--main-params-dtype", "--exp-avg-dtype", "--exp-avg-sq-dtype", "--grad-reduce-in-bf16"),
    *("--multi-latent-attention", "--moe-layer-freq", "--heterogeneous-layers-config-path", "--hybrid-layer-pattern"),
    *("--freeze-all-layers", "--optimizer-offload-fraction", "--rampup-batch-size", "--memory-centric-tiled-linear"),
    *("--num-experts-teacher", "--random-ltd", "--lora-rank"),
)
#: The share of a GPU's memory that a small model needs at stage 2: the rest is room for activations, which a config
#: alone doesn't give.
_SMALL: Final = 0.25
_MASTER_BYTES: Final = 4  # of the fp32 weight that the optimizer keeps of each parameter
_DEVICE, _HOST = FIT_RULES


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """An inferred run with its layout and ledger."""

    run: InferredRun
    layout: Layout
    ledger: Memory
    planned: bool  #: whether the submission has a job spec, whose plan has compared the stages by their time

    @property
    def job(self) -> Job:
        """The run's job."""
        return self.run.job

    @property
    def on_host(self) -> bool:
        """Whether what is offloaded goes to host memory."""
        return self.whole or "host offload" in self.run.facts

    @property
    def whole(self) -> bool:
        """Whether all that the run needs is counted; of a config alone, model states and little more is."""
        return self.run.run is not None


@subject("DeepSpeed config", "launch script", "AzureML job", "Megatron arguments")
def needs(submission: Submission) -> Iterator[Need]:
    """Every run of the submission whose memory can be estimated."""
    runs = list(inferred_runs(submission))
    countable = filter(_is_countable, runs) if runs else inferred_from_configs(submission)
    for run in countable:
        layout = whole_layout(known_values(run.job))
        if layout and (not runs or _fits_integers(run.job, layout)):
            yield Need(run=run, layout=layout, ledger=memory(run.job, layout), planned=submission.job is not None)


def _is_countable(inferred: InferredRun) -> bool:
    """Whether the arguments have all that the estimate of a Megatron run needs, and nothing that it doesn't follow."""
    beyond = inferred.run is None or any(map(inferred.run.may_have, _BEYOND))
    return inferred.facts >= _NEEDED and not beyond and not inferred.job.model.is_moe


def _fits_integers(job: Job, layout: Layout) -> bool:
    """Whether all sizes together fit the 64 bits that numpy counts in."""
    model, training = job.model, job.training
    widths = model.hidden * (model.hidden + model.ffn) * model.heads * model.head_dim
    batch = training.sequence_length * layout.micro_batch * layout.gradient_accumulation
    return max(widths * model.layers, model.layers * model.hidden * model.heads * batch) < 2**62


@needs.rule("MEM001", ERROR, "training", _DEVICE.source)
def fits_device(need: Need) -> Violations:
    """What a run keeps on its fullest GPU fits there.

    Prevents: CUDA out of memory in the first steps.
    Fix: shard, divide, recompute or offload more"""
    job, layout, ledger = need.job, need.layout, need.ledger
    surely = ledger.required_bytes > ledger.capacity_bytes
    if _DEVICE.columns.holds(job, layout, ledger) or not (surely or need.whole):
        return
    states = ledger.parameters_bytes + ledger.gradients_bytes + ledger.optimizer_bytes
    part = f", {_gib(states)} of it model states" if states > GIB else ""
    more = part if surely else ", at the upper end of the estimate more"
    message = f"{_subject(need)} about {_gib(ledger.required_bytes)} a GPU{more}"
    hint = _DEVICE.columns.explain(job, layout, ledger)[1] or None
    yield Violation(
        need.run.locate(("micro_batch", "zero_stage")),
        f"{message}; {job.cluster.accelerator.name} has {_gib(ledger.capacity_bytes)}",
        hint,
        severity=None if surely else Severity.WARNING,
    )


@needs.rule("MEM002", ERROR, "training", _HOST.source)
def fits_host(need: Need) -> Violations:
    """What a run offloads fits in the memory of its nodes.

    Prevents: The node's out-of-memory killer ends the run: exit code -9.
    Fix: offload less, or use more nodes"""
    if need.on_host and not _HOST.columns.holds(need.job, need.layout, need.ledger):
        cluster = need.job.cluster
        message = f"what is offloaded needs about {_gib(need.ledger.host_bytes_per_node)} of host memory a node;"
        message += f" {cluster.name} has {_gib(cluster.host_memory_bytes or 0)}"
        yield Violation(need.run.locate(("offload",)), message, "offload less, or to NVMe, or use more nodes")


@needs.rule(
    "MEM006",
    WARNING,
    "training",
    deepspeed_now("runtime/swap_tensor/partitioned_optimizer_swapper.py: the master weights and the moments of Adam"),
    reads=("DeepSpeed config",),
)
def fits_nvme(need: Need) -> Violations:
    """What a run offloads to NVMe fits on the local disks of its nodes.

    Prevents: No space left on device, at the first step. A warning: nvme_path may be on another disk.
    Fix: offload to larger disks, or use more nodes"""
    job, has = need.job, need.job.cluster.local_nvme_bytes
    swaps = need.layout.zero_stage == 3 and "nvme offload" in need.run.facts
    needed = parameter_count(job.model) * (_MASTER_BYTES + moment_bytes(job)) / job.nodes if swaps else 0
    if has is not None and needed > has:
        message = f"what is offloaded needs about {_gb(needed)} of NVMe a node; {job.cluster.name} has {_gb(has)}"
        where = need.run.locate(("offload",))
        yield Violation(where, message, f"use {math.ceil(needed * job.nodes / has)} nodes or more" if has else None)


@submissions.rule(
    "SUB013", ERROR, "training", _HOST.source, reads=("DeepSpeed config", "launch script", "Megatron arguments")
)
def fits_request(submission: Submission) -> Violations:
    """A Slurm job asks for the host memory that its offload needs.

    Prevents: Slurm kills the job when it passes what it asked for: exit code -9, or an oom_kill event.
    Fix: use --mem=0, or as much as the offloaded states need"""
    requests = list(blocks(submission)) if submission.scripts else []
    for need in needs(submission) if requests else ():
        needed = need.ledger.host_bytes_per_node
        for request in requests if need.on_host else ():
            for option in request.texts("--mem", last=True):
                asked = mebibytes(option.value)
                if asked and needed > asked * MIB:
                    message = f"{option}: what is offloaded needs about {_gib(needed)} a node"
                    yield Violation(option.where_value, message, "use --mem=0, which is all that the node has")


@needs.rule(
    "MEM005",
    WARNING,
    "silent",
    derived("stage 3 gathers the parameters for every forward and backward pass, stage 2 once a step"),
    reads=("DeepSpeed config",),
)
def stage_three_is_needed(need: Need) -> Violations:
    """ZeRO stage 3 is for models that stage 2 leaves little room for: it gathers every parameter twice a step.

    Prevents: No error: half as much communication again as stage 2, for memory that nothing uses.
    Fix: use stage 2"""
    job, layout = need.job, need.layout
    if need.whole or need.planned or layout.zero_stage != 3 or layout.offload != Offload.NONE:
        return
    ledger = memory(job, replace(layout, zero_stage=2))
    if required_band(ledger).high <= ledger.capacity_bytes * _SMALL:
        message = (
            f"stage: 3 is slower than 2, which needs about {_gib(ledger.required_bytes)} a GPU for"
            f" {job.model.name} on {layout.world} GPUs, without activations;"
            f" {job.cluster.accelerator.name} has {_gib(ledger.capacity_bytes)}"
        )
        yield Violation(need.run.locate(("zero_stage",)), message, 'set "stage" to 2')


def _subject(need: Need) -> str:
    layout = need.layout
    model = "" if need.whole else f" {need.job.model.name}"
    sizes = f", tensor {layout.tensor} × pipeline {layout.pipeline}" if need.whole else ""
    stage = "" if need.job.framework.runs("Megatron-LM") else f" at ZeRO stage {layout.zero_stage}"
    gpus = f"{layout.world} GPU{'s' if layout.world > 1 else ''}"
    return f"training{model} on {gpus}{sizes}{stage} needs"


def _gb(count: float) -> str:
    return f"{count / GB:,.0f} GB"


def _gib(count: float) -> str:
    return f"{float(count) / GIB:.1f} GiB"
