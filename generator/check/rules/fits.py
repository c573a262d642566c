"""Compare what a run needs with what its machines have.

Arguments or a config, a model and a cluster together give both.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from ...dataclass import dataclass
from ...estimate.layout import Layout, Offload
from ...estimate.ledgers import Memory
from ...estimate.memory import memory
from ...estimate.model_size import parameter_count
from ...estimate.states import moment_bytes
from ...estimate.uncertainty import required_band
from ...facts.facts import Facts, completed
from ...findings import ERROR, WARNING, Location, Violation, Violations
from ...job.records import Job, Pins
from ...programs.deepspeed.config import Config
from ...programs.deepspeed.facts import ConfigFacts, config_facts
from ...programs.megatron.facts import MegatronFacts, at_least, megatron_facts
from ...programs.slurm.subjects import blocks
from ...rules.fit import memory_bytes
from ...rules.layout.identities import known_values, whole_layout
from ...rules.run import FIT_RULES
from ...rules.violations import deepspeed_now, derived
from ...submission.subjects import subject, submissions
from ...submission.submission import Submission
from ...submission.world import world_of
from ...units import GB, GIB

#: What the estimate of a Megatron run can't do without.
_NEEDED: Final = (
    *(
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
    ),
    *(
        "micro_batch",
        "gradient_accumulation",
        "tensor",
        "pipeline",
        "context",
        "expert",
        "virtual_pipeline",
    ),
    *(
        "sequence_parallel",
        "zero_stage",
        "recompute",
        "offload",
        "precision",
        "attention",
        "optimizer",
    ),
)
#: Options that need less memory in ways that the estimate doesn't follow, or make another model.
_BEYOND: Final = (
    *("--recompute-modules", "--fine-grained-activation-offloading", "--cpu-offloading-num-layers"),
    *(
        "--main-grads-dtype",
        "--main-params-dtype",
        "--exp-avg-dtype",
        "--exp-avg-sq-dtype",
        "--grad-reduce-in-bf16",
    ),
    *(
        "--multi-latent-attention",
        "--moe-layer-freq",
        "--heterogeneous-layers-config-path",
        "--hybrid-layer-pattern",
        "--experimental-attention-variant",
    ),
    *(
        "--freeze-all-layers",
        "--optimizer-offload-fraction",
        "--rampup-batch-size",
        "--step-batch-size-schedule",
        "--memory-centric-tiled-linear",
    ),
    *("--num-experts-teacher", "--random-ltd", "--lora-rank"),
)
#: The share of a GPU's memory that a small model needs at stage 2: the rest is room for
#: activations, which a config alone doesn't give.
_SMALL: Final = 0.25
_MASTER_BYTES: Final = 4  # of the fp32 weight that the optimizer keeps of each parameter
_DEVICE, _HOST = FIT_RULES
_ADAPTERS: Final = re.compile(
    r"lora|peft|adapter|4bit|8bit|freeze|frozen|galore|adafactor|\blion\b|inference", re.I
)
#: What a config doesn't say of the training: of the job, or assumed.
_TRAINED: Final = (
    *("optimizer", "attention", "kernels", "cross_entropy"),
    *("moment_dtype", "master_dtype", "fp8_parameters", "lora"),
)
_USUAL: Final = {"optimizer": "adamw", "attention": "flash"}
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
    """A run with its layout and ledger."""

    facts: Facts
    job: Job  #: of the facts, with assumptions for what they lack
    layout: Layout
    ledger: Memory
    #: whether the submission has a job spec, whose plan has compared the stages by their time
    planned: bool
    device: str | None  #: where what is offloaded goes
    #: whether all that the run needs is counted; of a config alone, model states and little more is
    whole: bool


@subject("DeepSpeed config", "launch script", "AzureML job", "Megatron arguments")
def needs(submission: Submission) -> Iterator[Need]:
    """Estimate every run of the submission that can be estimated."""
    runs = list(megatron_facts(submission))
    for run in runs:
        # What the estimate doesn't follow isn't judged.
        if (
            run.knows(*_NEEDED)
            and not any(map(run.run.may_have, _BEYOND))
            and not run.job.model.experts
        ):
            yield from _need(submission, run, at_least(run.job), "cpu")
    for one in () if runs else config_facts(submission):
        if one.knows("layers", "link_domain", "gpus") and not _is_partial(one.config, submission):
            job = _least_run(one, submission)
            yield from _need(submission, one, job, one.config.offload("optimizer")) if job else ()


def _need(submission: Submission, facts: Facts, job: Job, device: str | None) -> Iterator[Need]:
    layout, whole = whole_layout(known_values(job)), isinstance(facts, MegatronFacts)
    if layout and (not whole or _fits_integers(job, layout)):
        ledger, planned = memory(job, layout), submission.job is not None
        yield Need(
            facts=facts,
            job=job,
            layout=layout,
            ledger=ledger,
            planned=planned,
            device=device,
            whole=whole,
        )


def _is_partial(config: Config, submission: Submission) -> bool:
    """Return whether training keeps less than Adam does for the whole model.

    Only a part of the model is trained, or another optimizer keeps less.
    """
    kind = str(config.value("/optimizer/type", "adamw")).lower()
    texts = [word.raw for launch in submission.launches for word in launch.arguments]
    for arguments in submission.of_kind("training arguments"):
        texts += [f"{key} {value}" for key, value in arguments.values.items()]
    return (
        kind not in ("adam", "adamw")
        or any(map(_ADAPTERS.search, texts))
        or world_of(submission).expert > 1
    )


def _least_run(facts: ConfigFacts, submission: Submission) -> Job | None:
    """Return the training of the model that needs the least memory.

    All is recomputed, and a sequence has one token where no job gives its length.

    The layout is that of config and submission, open where the config's stage can't be read. None
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
        data=replicas,
        tensor=world.tensor,
        pipeline=world.pipeline,
        context=world.context,
        expert=1,
        zero_stage=config.stage,
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
        **({name: getattr(planned.training, name) for name in _TRAINED} if planned else _USUAL),
    )
    return completed(job, pins=pins, training=training)


def _fits_integers(job: Job, layout: Layout) -> bool:
    """Ask whether all sizes together fit the 64 bits that numpy counts in."""
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
    if _DEVICE.allows(job, layout, ledger) or not (surely or need.whole):
        return
    states = ledger.parameters_bytes + ledger.gradients_bytes + ledger.optimizer_bytes
    part = f", {_gib(states)} of it model states" if states > GIB else ""
    more = part if surely else ", at the upper end of the estimate more"
    message = f"{_subject(need)} about {_gib(ledger.required_bytes)} a GPU{more}"
    message = f"{message}; {job.cluster.accelerator.name} has {_gib(ledger.capacity_bytes)}"
    where = need.facts.locate("/layout/micro_batch", "/layout/zero_stage")
    hint = _DEVICE.columns.explain(job, layout, ledger)[1]
    yield Violation(where, message, hint or None, severity=None if surely else WARNING)


@needs.rule("MEM002", ERROR, "training", _HOST.source)
def fits_host(need: Need) -> Violations:
    """What a run offloads fits in the memory of its nodes.
    Prevents: The node's out-of-memory killer ends the run: exit code -9.
    Fix: offload less, or use more nodes"""
    if need.device == "cpu" and not _HOST.allows(need.job, need.layout, need.ledger):
        cluster, needed = (
            need.job.cluster,
            f"offloaded states need about {_gib(need.ledger.host_bytes_per_node)}",
        )
        message = (
            f"{needed} of host memory a node; {cluster.name} has "
            f"{_gib(cluster.host_memory_bytes or 0)}"
        )
        yield Violation(
            need.facts.locate("/layout/offload"),
            message,
            "offload less, or to NVMe, or use more nodes",
        )


@needs.rule("MEM006", WARNING, "training", _SWAPPED, reads=("DeepSpeed config",))
def fits_nvme(need: Need) -> Violations:
    """States offloaded to NVMe fit on the local disks of its nodes.
    Prevents: No space left on device, at the first step. A warning: nvme_path may be on another
    disk.
    Fix: offload to larger disks, or use more nodes
    """
    job, has = need.job, need.job.cluster.local_nvme_bytes
    swaps = need.layout.zero_stage == 3 and need.device == "nvme"
    needed = (
        parameter_count(job.model) * (_MASTER_BYTES + moment_bytes(job)) / job.nodes if swaps else 0
    )
    if has is not None and needed > has:
        message = f"offloaded states need about {needed / GB:,.0f} GB of NVMe a node"
        where, message = (
            need.facts.locate("/layout/offload"),
            f"{message}; {job.cluster.name} has {has / GB:,.0f} GB",
        )
        yield Violation(
            where,
            message,
            f"use {math.ceil(needed * job.nodes / has)} nodes or more" if has else None,
        )


@submissions.rule("SUB013", ERROR, "training", _HOST.source, reads=_REQUESTS)
def fits_request(submission: Submission) -> Violations:
    """A Slurm job asks for the host memory that its offload needs, and pods aren't limited to less.
    Prevents: Slurm or the kernel kills the job when it passes its memory: exit code -9, or an
    oom_kill event.
    Fix: use --mem=0, or as much as the offloaded states need
    """
    limits = list(_memory_limits(submission))
    for need in needs(submission) if limits else ():
        needed, most = need.ledger.host_bytes_per_node, need.job.cluster.accelerators_per_node
        for where, text, limit, gpus, hint in limits if need.device == "cpu" else ():
            if needed > limit and (gpus is None or gpus >= min(most, need.job.gpus)):
                yield Violation(
                    where, f"{text}: offloaded states need about {_gib(needed)} a node", hint
                )


def _memory_limits(
    submission: Submission,
) -> Iterator[tuple[Location, str, float, int | None, str]]:
    """Return the limits on host memory, of nodes or pods.

    Each has its place, text, bytes, the GPUs of a pod, and the way to lift it.
    """
    for request in blocks(submission) if submission.scripts else ():
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
    layout = need.layout
    model = "" if need.whole else f" {need.job.model.name}"
    sizes = f", tensor {layout.tensor} × pipeline {layout.pipeline}" if need.whole else ""
    stage = (
        "" if need.job.engine.sharding == "distributed" else f" at ZeRO stage {layout.zero_stage}"
    )
    return f"training{model} on {layout.world} GPU{'s' * (layout.world > 1)}{sizes}{stage} needs"


def _gib(count: float) -> str:
    return f"{float(count) / GIB:.1f} GiB"
