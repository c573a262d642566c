"""What runs need of memory, where arguments, or a config with a model and a cluster, say enough to estimate it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Final

from ...documents.deepspeed_config import Config
from ...documents.submission import FILLERS, Submission
from ...documents.world import World
from ...estimate.layout import Layout
from ...estimate.ledgers import Memory
from ...estimate.memory import memory
from ...findings import Location
from ...job.records import Job, Launch, Origin, Pins, Training
from ..layout.pins import known_values as known_layout
from ..layout.pins import layout_of
from .megatron.described import Described, described_jobs

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
_ADAPTERS: Final = re.compile(
    r"lora|peft|qlora|adapter|4bit|8bit|freeze|frozen|galore|adafactor|\blion\b|inference", re.I
)
_OPTIMIZERS: Final = frozenset({"adam", "adamw"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """A job's layout with its ledger, and how to speak of it. `whole`: all that it needs is counted."""

    job: Job
    layout: Layout
    ledger: Memory
    where: Location
    offload: Location
    on_host: bool  #: whether what is offloaded goes to host memory
    whole: bool


def needs_of(submission: Submission) -> Iterator[Need]:
    """Every run of the submission whose memory can be estimated."""
    runs = list(described_jobs(submission))
    for described in runs:
        yield from _of_arguments(described)
    if not runs:
        for config in submission.configs:
            yield from _of_config(config, submission)


def _of_arguments(described: Described) -> Iterator[Need]:
    arguments = described.arguments
    if not described.facts >= _NEEDED or any(map(arguments.may_have, _BEYOND)) or described.job.model.is_moe:
        return
    layout = _layout(described.job)
    if layout is not None and _is_countable(described.job, layout):
        yield Need(
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


def _of_config(config: Config, submission: Submission) -> Iterator[Need]:
    """A DeepSpeed config with model, machines and number of GPUs beside it: model states, and little more."""
    job = _job_of(config, submission)
    layout = _layout(job) if job is not None else None
    if job is None or layout is None:
        return
    yield Need(
        job=job,
        layout=layout,
        ledger=memory(job, layout),
        where=config.locate("/zero_optimization/stage"),
        offload=config.locate("/zero_optimization/offload_optimizer/device"),
        on_host=config.offload("optimizer") == "cpu",
        whole=False,
    )


def _job_of(config: Config, submission: Submission) -> Job | None:
    """The run of a config as a job that recomputes all it can; None where model, machines or GPUs aren't known."""
    model, cluster, world = submission.model, submission.cluster, submission.world
    if model is None or cluster is None or not world.gpus or not world.replicas or _is_partial(config, submission):
        return None
    pins = _pins(config, world, world.replicas)
    return Job(
        name=config.path,
        framework=submission.frameworks["huggingface" if submission.consumer in FILLERS else "deepspeed"],
        deepspeed_version=submission.deepspeed_version,
        model=model,
        cluster=cluster,
        gpus=world.gpus,
        training=_training(config, submission, (pins.micro_batch or 1) * world.replicas),
        pins=pins,
        headroom=0.0,
        launch=Launch(target="shell", script="", arguments=(), environment={}, time_limit_s=None, options={}),
        origin=Origin(path=config.path),
    )


def _pins(config: Config, world: World, replicas: int) -> Pins:
    """The layout that config and submission say, open where the config's stage can't be read."""
    batch = config.whole("/train_micro_batch_size_per_gpu")
    return Pins(
        data=replicas,
        tensor=world.tensor,
        pipeline=world.pipeline,
        context=world.context,
        expert=1,
        zero_stage=config.stage,
        micro_batch=batch if batch is not None and 0 < batch < 10_000 else 1,
        gradient_accumulation=1,
        recompute="full",
        offload=_offload(config),
    )


def _is_partial(config: Config, submission: Submission) -> bool:
    """Whether only a part of the model is trained, or another optimizer than Adam keeps less for it."""
    kind = config.value("/optimizer/type", "adamw")
    words = [word.raw for launch in submission.launches for word in launch.arguments]
    names = [f"{key} {value}" for arguments in submission.training_arguments for key, value in arguments.values.items()]
    texts = (*words, *names)
    return str(kind).lower() not in _OPTIMIZERS or any(map(_ADAPTERS.search, texts)) or submission.world.expert > 1


def _offload(config: Config) -> str:
    if not config.stage or not config.offloads("optimizer"):
        return "none"
    return "optimizer+parameters" if config.stage == 3 and config.offloads("param") else "optimizer"


def _training(config: Config, submission: Submission, batch: int) -> Training:
    """The least that any training of the model is: a token a sequence, where no job says more."""
    tokens = submission.job.training.sequence_length if submission.job else 1
    written = [config.value(f"/{name}/enabled") for name in ("fp16", "bf16")]
    half = "bf16" if config.precision is None or "auto" in written or config.filled else config.precision
    summed = config.accumulates_in == "fp32"
    return Training(
        sequence_length=tokens,
        global_batch=batch,
        precision=half,
        gradient_dtype="fp32" if summed else "same",
        optimizer="adamw",
        attention="flash",
        duration_tokens=None,
        learning_rate=0.0,
        weight_decay=0.0,
        gradient_clipping=0.0,
    )
