"""A run as a DeepSpeed config gives it, with a model, machines and a number of GPUs: its model states, little more."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ..job.records import Job, Origin, Pins
from ..programs.deepspeed.config import Config
from ..programs.megatron.inferred_run import InferredRun, inferred_job, offload_of, second_partitions
from ..programs.megatron.vocabulary import OF_CONFIGS
from ..programs.submission import Submission
from ..programs.world import World, world_of

_ADAPTERS: Final = re.compile(
    r"lora|peft|qlora|adapter|4bit|8bit|freeze|frozen|galore|adafactor|\blion\b|inference", re.I
)
_OPTIMIZERS: Final = frozenset({"adam", "adamw"})
_STAGE: Final = "/zero_optimization/stage"
_MICS: Final = "/zero_optimization/mics_shard_size"
_OPTIMIZER_DEVICE: Final = "/zero_optimization/offload_optimizer/device"


def inferred_from_configs(submission: Submission) -> Iterator[InferredRun]:
    """A job for each DeepSpeed config, where model, machines and GPUs are known."""
    for config in submission.configs:
        job = _job_of(config, submission)
        if job is not None:
            places = {"zero_stage": config.locate(_STAGE), "offload": config.locate(_OPTIMIZER_DEVICE)}
            offloaded = {"cpu": "host offload", "nvme": "nvme offload"}.get(config.offload("optimizer") or "")
            facts = frozenset({"zero_stage", *([offloaded] if offloaded else [])})
            yield InferredRun(job=job, facts=facts, places=places, start=config.locate(""))


def _job_of(config: Config, submission: Submission) -> Job | None:
    """The run of a config as a job that recomputes all it can; None where model, machines or GPUs aren't known."""
    model, cluster, world = submission.model, submission.cluster, world_of(submission)
    if model is None or cluster is None or not world.gpus or not world.replicas or _is_partial(config, submission):
        return None
    pins = _pins(config, world, world.replicas)
    framework = "huggingface" if config.filled else "deepspeed"
    training = _training(config, submission, (pins.micro_batch or 1) * world.replicas)
    origin = Origin(path=config.path, vocabulary=OF_CONFIGS)
    known = {"name": config.path, "model": model, "cluster": cluster, "gpus": world.gpus, "pins": pins}
    return inferred_job(submission, framework, origin, training=training, **known)


def _is_partial(config: Config, submission: Submission) -> bool:
    """Whether only a part of the model is trained, or another optimizer than Adam keeps less for it."""
    kind = config.value("/optimizer/type", "adamw")
    texts = [word.raw for launch in submission.launches for word in launch.arguments]
    for arguments in submission.training_arguments:
        texts += [f"{key} {value}" for key, value in arguments.values.items()]
    return str(kind).lower() not in _OPTIMIZERS or any(map(_ADAPTERS.search, texts)) or world_of(submission).expert > 1


def _pins(config: Config, world: World, replicas: int) -> Pins:
    """The layout of config and submission, open where the config's stage can't be read."""
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
        offload=offload_of(config),
        zero_hpz=second_partitions(config),
        zero_copies=_copies(config, replicas * world.context),
    )


def _copies(config: Config, ranks: int) -> int | None:
    """Groups of MiCS, each of which shards the parameters by itself, in a DeepSpeed that has them."""
    size = config.whole(_MICS) if config.stage == 3 and config.schema.key(_MICS) is not None else None
    return ranks // size if size and size > 0 and ranks % size == 0 else None


def _training(config: Config, submission: Submission, batch: int) -> dict[str, object]:
    """The least that any training of the model is: a token a sequence, where no job gives more."""
    is_auto = config.filled or config.auto_precision
    return {
        "sequence_length": submission.job.training.sequence_length if submission.job else 1,
        "global_batch": batch,
        "precision": "bf16" if config.precision is None or is_auto else config.precision,
        "gradient_dtype": "fp32" if config.accumulates_in == "fp32" else "same",
        "optimizer": "adamw",
        "attention": "flash",
    }
