"""Rules on files that compare the memory which a run needs with what its machines have.

A run can be estimated where arguments or a config, a model and a cluster are known. Of Megatron's
arguments the whole run is estimated. A DeepSpeed config says little of activations: without a job
spec, only the least that the model can need is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from ...dataclass import dataclass
from ...estimate.layout import Layout, Offload
from ...estimate.ledgers import Memory
from ...estimate.memory import memory
from ...estimate.model_size import parameter_count
from ...estimate.states import first_copies_bytes, moment_bytes
from ...estimate.uncertainty import Band, host_band, required_band
from ...facts.facts import Facts, completed
from ...findings import ERROR, WARNING, Location, Violation, Violations
from ...job.records import Job, Pins
from ...programs.deepspeed.config import OFFLOADED, Config
from ...programs.deepspeed.facts import ConfigFacts, config_facts
from ...programs.megatron.facts import MegatronFacts, at_least, megatron_facts
from ...programs.slurm.subjects import blocks
from ...rules.fit import host_limit_bytes, memory_bytes
from ...rules.layout.identities import known_values, whole_layout
from ...rules.run import FIT_RULES, check_fit, hint_of_layouts
from ...rules.violations import deepspeed_now, derived
from ...submission.subjects import subject, submissions
from ...submission.submission import Submission
from ...submission.world import World, world_of
from ...units import GB, GIB

#: The facts without which a Megatron run can't be estimated.
_NEEDED: Final = (
    "cluster",
    "gpus",
    "layers",
    "hidden",
    "heads",
    "kv_heads",
    "head_dim",
    "ffn",
    "experts",
    "sequence_length",
    "micro_batch",
    "gradient_accumulation",
    "sequence_parallel",
    "tensor",
    "pipeline",
    "context",
    "expert",
    "virtual_pipeline",
    "zero_stage",
    "recompute",
    "offload",
    "precision",
    "attention",
    "optimizer",
)
#: Options with which a Megatron run isn't estimated here: they save memory in ways that the facts
#: don't hold, or make another model.
_NOT_ESTIMATED: Final = (
    "--recompute-modules",
    "--fine-grained-activation-offloading",
    "--cpu-offloading-num-layers",
    "--main-grads-dtype",
    "--main-params-dtype",
    "--exp-avg-dtype",
    "--exp-avg-sq-dtype",
    "--grad-reduce-in-bf16",
    "--optimizer-offload-fraction",
    "--memory-centric-tiled-linear",
    "--multi-latent-attention",
    "--moe-layer-freq",
    "--heterogeneous-layers-config-path",
    "--hybrid-layer-pattern",
    "--experimental-attention-variant",
    "--num-experts-teacher",
    "--freeze-all-layers",
    "--lora-rank",
    "--random-ltd",
    "--rampup-batch-size",
    "--step-batch-size-schedule",
)
#: A model is small whose states at stage 2 need at most this share of a GPU's memory. The rest is
#: room for activations, whose size a config alone doesn't tell.
_SMALL: Final = 0.25

#: Bytes of the fp32 weight that the optimizer keeps for each parameter.
_MASTER_BYTES: Final = 4

_DEVICE, _HOST = FIT_RULES

#: Words of arguments with which less is trained, or kept, than Adam keeps for every parameter.
_TRAINS_LESS: Final = re.compile(
    r"lora|peft|adapter|4bit|8bit|freeze|frozen|galore|adafactor|\blion\b|inference", re.I
)

#: Facts of the training that a config doesn't hold: they are the job spec's, where there is one,
_TRAINING_FACTS: Final = (
    "optimizer",
    "attention",
    "kernels",
    "cross_entropy",
    "moment_dtype",
    "master_dtype",
    "fp8_parameters",
    "lora",
)
#: and these otherwise.
_USUAL_TRAINING: Final = {"optimizer": "adamw", "attention": "flash"}

_SWAPPED: Final = deepspeed_now(
    "runtime/swap_tensor/partitioned_optimizer_swapper.py: the master weights and "
    "the moments of Adam"
)
_GATHERED: Final = derived(
    "stage 3 gathers the parameters for every forward and backward pass, stage 2 once a step"
)
_REQUESTS: Final = ("DeepSpeed config", "launch script", "Kubernetes job", "Megatron arguments")
_MICS: Final = "/zero_optimization/mics_shard_size"


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """A run with the memory that it needs."""

    facts: Facts
    job: Job  #: made of the facts, with assumptions for those that are unknown
    layout: Layout
    ledger: Memory
    #: whether the submission has a job spec; its plan has compared the ZeRO stages by their time
    planned: bool
    device: str | None  #: where offloaded states go: `cpu` or `nvme`
    pinned: bool  #: whether their buffers are pinned
    #: whether all memory is counted; of a config alone, little more than the model states is
    whole: bool
    #: whether a job spec has what the files leave open, so that its plan's verdict holds
    of_spec: bool


@subject("DeepSpeed config", "launch script", "AzureML job", "Megatron arguments")
def needs(submission: Submission) -> Iterator[Need]:
    """Every run of the submission that can be estimated: those of Megatron, else of DeepSpeed."""
    runs = list(megatron_facts(submission))
    for run in runs:
        is_estimated = (
            run.knows(*_NEEDED)
            and not any(map(run.run.may_have, _NOT_ESTIMATED))
            and not run.job.model.experts
        )
        if is_estimated:
            job = at_least(run.job)
            if submission.job:
                job = completed(job, headroom=submission.job.headroom)
            config = run.run.config
            pinned = config is None or _is_pinned(config)
            yield from _need(submission, run, job, "cpu", pinned=pinned)

    if runs:
        return
    for facts in config_facts(submission):
        config = facts.config
        if not facts.knows("layers", "link_domain", "gpus") or _trains_less(config, submission):
            continue
        planned_run = _run_of_spec(facts, submission)
        estimated_run = planned_run or _least_run(facts, submission)
        if estimated_run:
            yield from _need(
                submission,
                facts,
                estimated_run,
                config.offload("optimizer"),
                of_spec=planned_run is not None,
                pinned=_is_pinned(config),
            )


def _is_pinned(config: Config) -> bool:
    """Whether any buffer of offloaded states is pinned, or may be."""
    return any(
        config.switch(f"/zero_optimization/offload_{what}/pin_memory") is not False
        for what in OFFLOADED
        if config.offloads(what)
    )


def _need(
    submission: Submission,
    facts: Facts,
    job: Job,
    device: str | None,
    *,
    of_spec: bool = False,
    pinned: bool,
) -> Iterator[Need]:
    """The need of one run; nothing where its layout isn't known or its sizes are absurd."""
    layout = whole_layout(known_values(job))
    whole = of_spec or isinstance(facts, MegatronFacts)
    if layout and (not whole or _fits_integers(job, layout)):
        yield Need(
            facts=facts,
            job=job,
            layout=layout,
            ledger=memory(job, layout),
            planned=submission.job is not None,
            device=device,
            pinned=pinned,
            whole=whole,
            of_spec=of_spec,
        )


def _trains_less(config: Config, submission: Submission) -> bool:
    """Whether training may keep less than Adam keeps for the whole model.

    That is so where only a part of the model is trained, and with most other optimizers.
    """
    kind = str(config.value("/optimizer/type", "adamw")).lower()
    texts = [word.raw for launch in submission.launches for word in launch.arguments]
    for arguments in submission.of_kind("training arguments"):
        texts += [f"{key} {value}" for key, value in arguments.values.items()]
    return (
        kind not in ("adam", "adamw")
        or any(map(_TRAINS_LESS.search, texts))
        or world_of(submission).expert > 1
    )


def _run_of_spec(facts: ConfigFacts, submission: Submission) -> Job | None:
    """The job of the spec, with the layout that the config and the launch give it.

    None where files and spec together leave something open on which memory depends.
    """
    planned, config, world = submission.job, facts.config, world_of(submission)
    if planned is None or planned.pins.recompute is None or not (replicas := world.replicas):
        return None
    micro_batch = config.whole("/train_micro_batch_size_per_gpu") or planned.pins.micro_batch
    if micro_batch is None or micro_batch < 1:
        return None

    pins = replace(
        planned.pins,
        **_groups(config, world, replicas),
        micro_batch=micro_batch,
        gradient_accumulation=max(planned.training.global_batch // (replicas * micro_batch), 1),
        offload=facts.job.pins.offload,
        zero_hpz=facts.job.pins.zero_hpz,
    )
    return replace(planned, pins=pins, origin=facts.job.origin)


def _groups(config: Config, world: World, replicas: int) -> dict[str, Any]:
    """The pins that a submission decides: how it divides its ranks, and the config's stage."""
    return {
        "data": replicas,
        "tensor": world.tensor,
        "pipeline": world.pipeline,
        "context": world.context,
        "expert": 1,
        "zero_stage": config.stage,
    }


def _least_run(facts: ConfigFacts, submission: Submission) -> Job | None:
    """The run of the config's model that needs the least memory.

    All activations are recomputed, and a sequence has one token unless a job spec has its length.
    The layout is that of config and submission; its ZeRO stage is open where it can't be read. None
    where the GPUs don't divide into replicas.
    """
    job, config, world, planned = facts.job, facts.config, world_of(submission), submission.job
    if not (replicas := world.replicas):
        return None
    batch, shards = config.whole("/train_micro_batch_size_per_gpu"), config.whole(_MICS)
    batch = batch if batch is not None and 0 < batch < 10_000 else 1
    has_copies = (
        config.stage == 3 and config.schema.key(_MICS) is not None and shards and shards > 0
    )
    ranks = replicas * world.context
    pins = Pins(
        **_groups(config, world, replicas),
        micro_batch=batch,
        gradient_accumulation=1,
        recompute="full",
        offload=job.pins.offload,
        zero_hpz=job.pins.zero_hpz,
        zero_copies=ranks // shards if has_copies and shards and ranks % shards == 0 else None,
    )
    is_auto = config.filled or config.auto_precision
    training = completed(
        job.training,
        sequence_length=planned.training.sequence_length if planned else 1,
        global_batch=batch * replicas,
        precision="bf16" if config.precision is None or is_auto else config.precision,
        gradient_dtype="fp32" if config.accumulates_in == "fp32" else "same",
        **(
            {name: getattr(planned.training, name) for name in _TRAINING_FACTS}
            if planned
            else _USUAL_TRAINING
        ),
    )
    return completed(job, pins=pins, training=training)


def _fits_integers(job: Job, layout: Layout) -> bool:
    """Whether the products of all sizes fit into the 64-bit integers that numpy computes with."""
    model, training = job.model, job.training
    heads = max(getattr(mixer, "heads", 1) for mixer in model.mixers)
    head_dim = max(getattr(mixer, "head_dim", 1) for mixer in model.mixers)
    widths = model.hidden * (model.hidden + model.ffn) * heads * head_dim
    batch = training.sequence_length * layout.micro_batch * layout.gradient_accumulation
    return max(widths * model.layers, model.layers * model.hidden * heads * batch) < 2**62


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
    """The findings of a fit rule on a run whose spec is there: the same as on its plan."""
    for finding in check_fit(need.job, need.layout, need.ledger):
        if finding.rule == rule:
            yield Violation(need.facts.locate(*where), finding.message, finding.hint)


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
