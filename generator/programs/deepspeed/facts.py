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

#: Where a config says sizes of parallelism, by the layout's name for each.
_SIZES: Final[Mapping[str, str]] = {
    "tensor": "/tensor_parallel/autotp_size",
    "context": "/sequence_parallel_size",
    "expert": "/expert_parallel/autoep_size",
}
#: Where a config says what a job spec says, by the spec's pointers, for findings of rules on jobs.
_PLACES: Final = {f"/layout/{name}": pointer for name, pointer in _SIZES.items()} | {
    "/layout/zero_stage": f"{ZERO}/stage",
    "/layout/offload": f"{ZERO}/offload_optimizer/device",
}
#: The first DeepSpeed with AutoEP.
_FIRST_WITH_AUTOEP: Final = (0, 19, 2)
#: What messages of the rules on layouts call the facts of a config.
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
    """The job that a config describes in part; what nobody says is unknown."""
    job = submission.job or submission.planned
    cluster: Any = cluster_of(submission)
    if cluster is None:
        cluster = UNKNOWN
        if world.gpus_per_node:
            cluster = partial(Cluster, accelerators_per_node=world.gpus_per_node)
    return partial(
        Job,
        name=config.path,
        framework=submission.programs.frameworks["huggingface" if config.filled else "deepspeed"],
        deepspeed_version=config.version,
        model=submission.model or getattr(job, "model", UNKNOWN),
        cluster=cluster,
        gpus=world.gpus or UNKNOWN,
        training=partial(
            Training,
            sequence_length=_sequence_length(submission, job),
            precision=config.precision or UNKNOWN,
        ),
        pins=Pins(
            **_parallel_sizes(config),
            pipeline=world.pipeline,
            zero_stage=config.stage,
            offload=offload_of(config),
            zero_hpz=second_partitions(config),
        ),
        headroom=0.0,
        origin=_origin(config),
    )


def _sequence_length(submission: Submission, job: Job | None) -> Any:
    """The job's sequence length, else that of Megatron's arguments, else unknown."""
    if job is not None:
        return job.training.sequence_length
    for arguments in submission.of_kind("Megatron arguments"):
        tokens = arguments.integer("--seq-length")
        if tokens:
            return tokens
    return UNKNOWN


def _parallel_sizes(config: Config) -> dict[str, Any]:
    """The sizes of parallelism above 1 that take effect, by the layout's names."""
    sizes = {name: config.whole(pointer) for name, pointer in _SIZES.items()}
    if not config.switch("/expert_parallel/enabled") or config.version < _FIRST_WITH_AUTOEP:
        sizes["expert"] = None
    return {name: size for name, size in sizes.items() if size and size > 1}


def _origin(config: Config) -> Origin:
    """Where the config says what a job spec says."""
    precision_block = config.bf16 if config.precision == "bf16" else "/fp16"
    places = {**_PLACES, "/training/precision": f"{precision_block}/enabled"}
    return Origin(
        path=config.path,
        locations={pointer: config.locate(at) for pointer, at in places.items() if config.has(at)},
        start=config.locate(""),
        vocabulary=OF_CONFIGS,
    )


def says_layout(submission: Submission) -> bool:
    """Ask whether a config has sizes of parallelism, which the rules on layouts judge."""
    configs = configs_of(submission)
    if any(config.has(pointer) for config in configs for pointer in _SIZES.values()):
        return True
    return bool(configs) and world_of(submission).pipeline > 1
