"""What a run needs against what its machines have, where arguments or a config, a model and a cluster say both."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Final

from ...documents.document import DsConfig
from ...documents.submission import FILLERS, Submission
from ...estimate.layout import Layout
from ...estimate.ledgers import Memory
from ...estimate.memory import memory
from ...findings import Location, Severity
from ...spec.job import Job, Launch, Origin, Pins, Training
from ...units import GIB, MIB
from ..fit import FIT_RULES
from ..pins import known_values as known_layout
from ..pins import layout_of
from ..rule import FitRule
from .described import Described, described_jobs
from .job_words import in_options
from .rule import Breach, DocumentRule
from .slurm import known_values
from .slurm_requests import blocks
from .slurm_values import mebibytes

#: What the estimate of a Megatron run can't do without.
_NEEDED: Final = frozenset(
    [
        *("cluster", "gpus", "layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "experts", "sequence"),
        *("micro_batch", "accumulation", "tensor", "pipeline", "context", "expert", "virtual_pipeline"),
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
_ADAPTERS: Final = re.compile(r"lora|peft|qlora|adapter|4bit|8bit|freeze|frozen|galore|adafactor|lion|inference", re.I)
_OPTIMIZERS: Final = frozenset({"adam", "adamw"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Need:
    """A job's layout with its ledger, and how to speak of it. `whole`: all that it needs is counted."""

    job: Job
    layout: Layout
    ledger: Memory
    where: Location
    offload: Location
    on_host: bool  #: whether what is offloaded goes to host memory
    whole: bool


def _needs(submission: Submission) -> Iterator[_Need]:
    """Every run of the submission whose memory can be estimated."""
    runs = list(described_jobs(submission))
    for described in runs:
        yield from _of_arguments(described)
    if not runs:
        for config in submission.ds_configs:
            yield from _of_config(config, submission)


def _of_arguments(described: Described) -> Iterator[_Need]:
    arguments = described.arguments
    if not described.facts >= _NEEDED or any(map(arguments.has, _BEYOND)) or described.job.model.is_moe:
        return
    layout = _layout(described.job)
    if layout is not None and _is_countable(described.job, layout):
        yield _Need(
            job=described.job,
            layout=layout,
            ledger=memory(described.job, layout),
            where=described.locate(("micro_batch",)),
            offload=described.locate(("offload",)),
            on_host=True,
            whole=True,
        )


def _is_countable(job: Job, layout: Layout) -> bool:
    """Whether all sizes together fit the 64 bits that numpy counts in."""
    model, training = job.model, job.training
    widths = model.hidden * (model.hidden + model.ffn) * model.heads * model.head_dim
    batch = training.sequence_length * layout.micro_batch * layout.gradient_accumulation
    return max(widths * model.layers, model.layers * model.hidden * model.heads * batch) < 2**62


def _layout(job: Job) -> Layout | None:
    """The layout, where nothing in it is left open."""
    known = known_layout(job)
    return None if any(field.name not in known for field in fields(Layout)) else layout_of(known)


def _of_config(config: DsConfig, submission: Submission) -> Iterator[_Need]:
    """A DeepSpeed config with model, machines and number of GPUs beside it: model states, and little more."""
    model, cluster, world, stage = submission.model, submission.cluster, submission.world, config.stage
    replicas = world.replicas
    if (
        model is None
        or cluster is None
        or not world.gpus
        or not replicas
        or stage is None
        or _is_partial(config, submission)
    ):
        return
    device = config.value("/zero_optimization/offload_optimizer/device", "none")
    offload = _offload(config, device)
    batch = config.value("/train_micro_batch_size_per_gpu")
    micro = batch if isinstance(batch, int) and not isinstance(batch, bool) and 0 < batch < 10_000 else 1
    job = Job(
        name=config.path,
        framework="huggingface" if submission.consumer in FILLERS else "deepspeed",
        deepspeed_version=submission.deepspeed_version,
        model=model,
        cluster=cluster,
        gpus=world.gpus,
        training=_training(config, submission, micro * replicas),
        pins=Pins(
            data=replicas,
            tensor=world.tensor,
            pipeline=world.pipeline,
            context=world.context,
            expert=1,
            zero_stage=stage,
            micro_batch=micro,
            gradient_accumulation=1,
            recompute="full",
            offload=offload,
        ),
        headroom=0.0,
        launch=Launch(target="shell", script="", arguments=(), environment={}, time_limit_s=None, options={}),
        origin=Origin(path=config.path),
    )
    layout = _layout(job)
    if layout is not None:
        yield _Need(
            job=job,
            layout=layout,
            ledger=memory(job, layout),
            where=config.locate("/zero_optimization/stage"),
            offload=config.locate("/zero_optimization/offload_optimizer/device"),
            on_host=device == "cpu",
            whole=False,
        )


def _is_partial(config: DsConfig, submission: Submission) -> bool:
    """Whether only a part of the model is trained, or another optimizer than Adam keeps less for it."""
    kind = config.value("/optimizer/type", "adamw")
    words = [word.raw for launch in submission.launches for word in launch.arguments]
    names = [f"{key} {value}" for arguments in submission.training_arguments for key, value in arguments.values.items()]
    texts = (*words, *names)
    return str(kind).lower() not in _OPTIMIZERS or any(map(_ADAPTERS.search, texts)) or submission.world.expert > 1


def _offload(config: DsConfig, device: object) -> str:
    parameters = config.value("/zero_optimization/offload_param/device", "none")
    if not config.stage or config.value("/zero_optimization/cpu_offload") is True:
        return "optimizer" if config.stage else "none"
    if device in ("cpu", "nvme"):
        return "optimizer+parameters" if config.stage == 3 and parameters in ("cpu", "nvme") else "optimizer"
    return "none"


def _training(config: DsConfig, submission: Submission, batch: int) -> Training:
    """The least that any training of the model is: a token a sequence, where no job says more."""
    tokens = submission.job.training.sequence_length if submission.job else 1
    full = config.value("/bf16/enabled", False) is False and config.value("/fp16/enabled", False) is False
    half = "fp16" if config.enabled("/fp16") else "bf16"
    summed = config.value("/data_types/grad_accum_dtype") == "fp32"
    return Training(
        sequence_length=tokens,
        global_batch=batch,
        precision="fp32" if full and submission.consumer not in FILLERS else half,
        gradient_dtype="fp32" if summed else "same",
        optimizer="adamw",
        attention="flash",
        duration_tokens=None,
        learning_rate=0.0,
        weight_decay=0.0,
        gradient_clipping=0.0,
    )


def fits_device(submission: Submission) -> Iterator[Breach]:
    """What a run keeps on its fullest GPU fits there."""
    rule = _rule("MEM001")
    for need in _needs(submission):
        if rule.holds(need.job, need.layout, need.ledger):
            continue
        ledger, sure = need.ledger, need.ledger.required_bytes > need.ledger.capacity_bytes
        if not sure and not need.whole:
            continue
        hint = rule.explain(need.job, need.layout, ledger)[1]
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
        yield Breach(where=need.where, message=message, hint=_words(need, hint) or None, severity=severity)


def fits_host(submission: Submission) -> Iterator[Breach]:
    """What a run offloads fits in the memory of its nodes."""
    rule = _rule("MEM002")
    for need in _needs(submission):
        if not need.on_host or rule.holds(need.job, need.layout, need.ledger):
            continue
        cluster = need.job.cluster
        message = (
            f"what is offloaded needs about {_gib(need.ledger.host_bytes_per_node)} of host memory a node;"
            f" {cluster.name} has {_gib(cluster.host_memory_bytes or 0)}"
        )
        yield Breach(where=need.offload, message=message, hint="offload less, or to NVMe, or use more nodes")


def fits_request(submission: Submission) -> Iterator[Breach]:
    """A Slurm job asks for the host memory that its offload takes."""
    for need in _needs(submission) if submission.scripts else ():
        needed = need.ledger.host_bytes_per_node
        for request in blocks(submission) if need.on_host else ():
            for option, text in known_values(request, "--mem", last=True):
                asked = mebibytes(text)
                if asked and needed > asked * MIB:
                    message = f"{request.said(option)}: what is offloaded needs about {_gib(needed)} a node"
                    yield Breach(where=request.at_value(option), message=message, hint="--mem=0: all that the node has")


def _subject(need: _Need) -> str:
    layout = need.layout
    cut = (
        f"{layout.world} GPUs, tensor {layout.tensor} × pipeline {layout.pipeline}"
        if need.whole
        else f"{layout.world} GPUs"
    )
    stage = "" if need.job.framework == "megatron-lm" else f" at ZeRO stage {layout.zero_stage}"
    return f"training{'' if need.whole else ' ' + need.job.model.name} on {cut}{stage} needs"


def _words(need: _Need, hint: str) -> str:
    if need.whole:
        return in_options(need.job.framework)(hint)
    hint = hint.replace("micro_batch: ", "train_micro_batch_size_per_gpu: ")
    hint = hint.replace("zero_stage: ", "zero_optimization.stage: ")
    return hint.replace("offload: optimizer", "zero_optimization.offload_optimizer.device: cpu")


def _gib(count: float) -> str:
    return f"{float(count) / GIB:.1f} GiB"


def _rule(name: str) -> FitRule:
    return next(rule for rule in FIT_RULES if rule.id == name)


def _document_rule(name: str, check: object, prevents: str, fix: str) -> DocumentRule:
    return DocumentRule(
        id=name,
        severity=_rule(name).severity,
        when="training",
        reads=("DeepSpeed config", "launch script", "AzureML job", "Megatron arguments"),
        source=_rule(name).source,
        prevents=prevents,
        fix=fix,
        check=check,  # type: ignore[arg-type]
    )


RULES: Final[tuple[DocumentRule, ...]] = (
    _document_rule(
        "MEM001", fits_device, "CUDA out of memory in the first steps", "shard, cut, recompute or offload more"
    ),
    _document_rule(
        "MEM002", fits_host, "the node's out-of-memory killer: exit code -9", "offload less, or use more nodes"
    ),
    DocumentRule(
        id="SUB013",
        severity=Severity.ERROR,
        when="training",
        reads=("DeepSpeed config", "launch script", "Megatron arguments"),
        source=_rule("MEM002").source,
        prevents="Slurm kills the job when it passes what it asked for: exit code -9, or an oom_kill event.",
        fix="--mem=0, or as much as the offloaded states take",
        check=fits_request,
    ),
)
