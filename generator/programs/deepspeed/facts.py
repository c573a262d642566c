"""The facts that a DeepSpeed config states of a run, with places, completed by the submission."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ...dataclass import dataclass
from ...facts.facts import UNKNOWN, Facts, partial
from ...job.records import Cluster, Job, Origin, Pins, Training
from ...submission.submission import Submission
from ...submission.world import World, cluster_of, world_of
from ...text.wording import Vocabulary
from . import ZERO
from .config import Config
from .options import offload_of, second_partitions
from .submission import configs_of

#: Keys of a layout that a config has for itself, and the places of others.
_SIZES: Final[Mapping[str, str]] = {
    "tensor": "/tensor_parallel/autotp_size",
    "context": "/sequence_parallel_size",
    "expert": "/expert_parallel/autoep_size",
}
_PLACES: Final = {f"/layout/{name}": pointer for name, pointer in _SIZES.items()} | {
    "/layout/zero_stage": f"{ZERO}/stage",
    "/layout/offload": f"{ZERO}/offload_optimizer/device",
}
#: The first DeepSpeed with AutoEP.
_FIRST_WITH_AUTOEP: Final = (0, 19, 2)
OF_CONFIGS: Final = Vocabulary(
    phrases={
        **{name: f"{pointer.rpartition('/')[2]}: {{}}" for name, pointer in _SIZES.items()},
        "pipeline": "{} pipeline stages",
        "pipeline: 1": "one pipeline stage",
        **{f"precision: {kind}": kind for kind in ("fp32", "fp16", "bf16")},
        "micro_batch": "train_micro_batch_size_per_gpu: {}",
        "zero_stage": "zero_optimization.stage: {}",
        "offload: optimizer": "zero_optimization.offload_optimizer.device: cpu",
        "zero_hpz": "zero_optimization.zero_hpz_partition_size: {}",
        "zero_copies": "{} groups of zero_optimization.mics_shard_size",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFacts(Facts):
    """The facts of one config, with the model and machines of its submission."""

    config: Config


def config_facts(submission: Submission) -> Iterator[ConfigFacts]:
    """Read the facts of each whole DeepSpeed config, with the submission's machines and model."""
    world = world_of(submission)
    for config in configs_of(submission):
        if config.is_readable:
            yield ConfigFacts(job=_job_of(config, submission, world), config=config)


def _job_of(config: Config, submission: Submission, world: World) -> Job:
    job, cluster = submission.job or submission.planned, cluster_of(submission)
    lengths = [job.training.sequence_length] if job else []
    lengths += [
        tokens
        for arguments in submission.of_kind("Megatron arguments")
        if (tokens := arguments.integer("--seq-length"))
    ]
    block = config.bf16 if config.precision == "bf16" else "/fp16"
    places = {**_PLACES, "/training/precision": f"{block}/enabled"}
    some = (
        partial(Cluster, accelerators_per_node=world.gpus_per_node)
        if world.gpus_per_node
        else UNKNOWN
    )
    sizes: dict[str, Any] = {name: config.whole(pointer) for name, pointer in _SIZES.items()}
    if not config.switch("/expert_parallel/enabled") or config.version < _FIRST_WITH_AUTOEP:
        sizes["expert"] = None
    return partial(
        Job,
        name=config.path,
        framework=submission.programs.frameworks["huggingface" if config.filled else "deepspeed"],
        deepspeed_version=config.version,
        model=submission.model or getattr(job, "model", UNKNOWN),
        cluster=cluster or some,
        gpus=world.gpus or UNKNOWN,
        training=partial(
            Training,
            sequence_length=lengths[0] if lengths else UNKNOWN,
            precision=config.precision or UNKNOWN,
        ),
        pins=Pins(
            **{name: size for name, size in sizes.items() if size and size > 1},
            pipeline=world.pipeline,
            zero_stage=config.stage,
            offload=offload_of(config),
            zero_hpz=second_partitions(config),
        ),
        headroom=0.0,
        origin=Origin(
            path=config.path,
            locations={
                pointer: config.locate(at) for pointer, at in places.items() if config.has(at)
            },
            start=config.locate(""),
            vocabulary=OF_CONFIGS,
        ),
    )


def says_layout(submission: Submission) -> bool:
    """Ask whether a config has sizes of parallelism, which the rules on layouts judge."""
    sizes = (
        config.has(pointer) for config in configs_of(submission) for pointer in _SIZES.values()
    )
    return any(sizes) or (bool(configs_of(submission)) and world_of(submission).pipeline > 1)
