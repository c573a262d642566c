"""The keys of a DeepSpeed config that say what a job spec says: one row each, for writing and for reading back.

`write` gives the value in the config of a plan, None to leave the key out. `read` gives the value of the spec that a
config says, None where it says none or it isn't known. What else a config has is written by `write_config`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ...dataclass import dataclass
from . import ZERO

if TYPE_CHECKING:
    from ...estimate.layout import Layout
    from ...job.records import Job
    from .config import Config

OPTIMIZER_TYPES: Final = {"adamw": "AdamW", "adam": "Adam", "lamb": "Lamb", "sgd": "SGD"}
EIGHT_BIT: Final = "adamw-8bit"  #: bitsandbytes', which the Trainer makes and DeepSpeed counts as untested with ZeRO


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A key of the config and the key of the spec that it says."""

    pointer: str  #: of the config
    spec: str  #: dotted
    write: Callable[[Job, Layout], object]
    read: Callable[[Config], object]
    planned: bool = False  #: whether the plan decides it, so that `deepspeed_config` may not
    megatron: bool = False  #: whether Megatron-DeepSpeed too takes it from the config, not from an argument


def batch_ranks(job: Job, layout: Layout) -> int:
    """Ranks by which DeepSpeed multiplies the micro batch to check `train_batch_size`.

    Where the engine gets an mpu (Megatron-DeepSpeed, and every PipelineModule) these are the model replicas. Otherwise
    DeepSpeed divides the world by the sequence-parallel size alone, so the ranks of an AutoTP group count one by one.

    **Source**: DeepSpeed 0.19.8, runtime/config.py, `DeepSpeedConfig.__init__`.
    """
    has_mpu = job.framework.passes_mpu or layout.pipeline > 1
    return layout.data if has_mpu else layout.data * layout.tensor


def uses_autotp(job: Job, layout: Layout) -> bool:
    """Return whether tensor parallelism is DeepSpeed's own: not a Megatron's, nor a PipelineModule's."""
    return layout.tensor > 1 and layout.pipeline == 1 and job.framework.runs("AutoTP")


def derives_train_batch(job: Job, layout: Layout) -> bool:
    """Return whether `train_batch_size` has to be left to DeepSpeed, because two checks require different numbers.

    With AutoTP, `deepspeed.initialize` compares it with all ranks and stage 3's `zero.Init`, later, with the replicas.
    With Ulysses, the Trainer compares it with all ranks and DeepSpeed with the replicas.

    **Source**: DeepSpeed 0.19.8, runtime/zero/partition_parameters.py, `Init.__init__` (seen with the engine);
    transformers 5.23, integrations/deepspeed.py, `trainer_config_process`.
    """
    with_autotp = uses_autotp(job, layout) and layout.zero_stage == 3
    return with_autotp or (job.framework.runs("Trainer") and layout.context > 1)


def _train_batch(job: Job, layout: Layout) -> int | None:
    per_rank = layout.micro_batch * layout.gradient_accumulation
    return None if derives_train_batch(job, layout) else per_rank * batch_ranks(job, layout)


def _bf16(job: Job, layout: Layout) -> bool | None:
    """Return whether bf16 is on; off is said, so that nobody takes it for forgotten. fp8 is bf16 to DeepSpeed."""
    return None if job.training.precision == "fp16" else job.training.precision != "fp32"


def _positive(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _above_1(value: int) -> int | None:
    return value if value > 1 else None


def second_partitions(config: Config | None) -> int | None:
    """Return the ranks that share a second copy of stage 3's parameters (ZeRO++ hpZ)."""
    size = config.whole(f"{ZERO}/zero_hpz_partition_size") if config and config.stage == 3 else None
    return size if size and 0 < size < 2**31 else None


def offload_of(config: Config) -> str:
    """Return what a config offloads, as a layout calls it."""
    if not config.stage or not config.offloads("optimizer"):
        return "none"
    return "optimizer+parameters" if config.stage == 3 and config.offloads("param") else "optimizer"


def _offload(config: Config) -> str | None:
    unknown = not config.stage or config.value(f"{ZERO}/offload_optimizer/device") == "auto"
    return None if unknown else offload_of(config)


def _hpz(config: Config) -> int | None:
    size = second_partitions(config)
    return None if size == 1 else size


def _gradient_dtype(config: Config) -> str | None:
    """The type of sums, where the plan would take another."""
    half = config.auto_precision or config.precision == "bf16"
    return "same" if half and config.accumulates_in not in ("fp32", "float32") else None


def _optimizer(config: Config) -> str | None:
    """The optimizer; DeepSpeed's Adam is AdamW unless its params say otherwise."""
    plain_adam = config.value("/optimizer/params/adam_w_mode") is False
    names = {"adamw": "adamw", "adam": "adam" if plain_adam else "adamw", "lamb": "lamb", "sgd": "sgd"}
    return names.get((config.optimizer or "").lower())


def _of_optimizer(config: Config, name: str) -> Any:
    """A parameter of the optimizer that a config names."""
    value = config.number(f"/optimizer/params/{name}") if config.optimizer is not None else None
    return value if value is not None and value >= 0 else None


def _weight_decay(config: Config) -> Any:
    if config.optimizer is not None and not config.has("/optimizer/params/weight_decay"):
        return default_of_optimizer(config, "weight_decay")
    return _of_optimizer(config, "weight_decay")


def default_of_optimizer(config: Config, name: str) -> Any:
    """The default of a parameter of the config's optimizer; None where that isn't known."""
    known = config.schema.optimizers.get(config.optimizer or "") or {}
    return known[name].default if name in known else None


def _quantized(config: Config, name: str) -> bool | None:
    return bool(config.switch(f"{ZERO}/zero_{name}") and config.stage == 3) or None


OPTIONS: Final = (
    Option(
        pointer="/train_micro_batch_size_per_gpu",
        spec="layout.micro_batch",
        write=lambda job, layout: layout.micro_batch,
        read=lambda config: _positive(config.batch.micro),
        planned=True,
        megatron=True,
    ),
    Option(
        pointer="/gradient_accumulation_steps",
        spec="layout.gradient_accumulation",
        write=lambda job, layout: layout.gradient_accumulation,
        read=lambda config: _positive(config.batch.steps),
        planned=True,
        megatron=True,
    ),
    Option(
        pointer="/train_batch_size",
        spec="training.global_batch",
        write=_train_batch,
        read=lambda config: _positive(config.batch.train),
        planned=True,
        megatron=True,
    ),
    Option(
        pointer=f"{ZERO}/stage",
        spec="layout.zero_stage",
        write=lambda job, layout: layout.zero_stage,
        read=lambda config: config.stage,
        planned=True,
        megatron=True,
    ),
    Option(
        pointer=f"{ZERO}/offload_optimizer",
        spec="layout.offload",
        write=lambda job, layout: {"device": "cpu", "pin_memory": True} if layout.offload else None,
        read=_offload,
        megatron=True,
    ),
    Option(
        pointer=f"{ZERO}/mics_shard_size",
        spec="layout.zero_copies",
        write=lambda job, layout: (
            layout.data * layout.context // layout.zero_copies if layout.zero_copies > 1 else None
        ),
        read=lambda config: None,
        planned=True,
    ),
    Option(
        pointer=f"{ZERO}/zero_hpz_partition_size",
        spec="layout.zero_hpz",
        write=lambda job, layout: _above_1(layout.zero_hpz),
        read=_hpz,
        planned=True,
        megatron=True,
    ),
    Option(
        pointer="/tensor_parallel/autotp_size",
        spec="layout.tensor",
        write=lambda job, layout: layout.tensor if uses_autotp(job, layout) else None,
        read=lambda config: _positive(config.whole("/tensor_parallel/autotp_size")),
        planned=True,
    ),
    Option(
        pointer="/sequence_parallel_size",
        spec="layout.context",
        write=lambda job, layout: _above_1(layout.context),
        read=lambda config: _positive(config.whole("/sequence_parallel_size")),
        planned=True,
    ),
    Option(
        # It says the size to readers: the engine takes the stages from the script's PipelineModule.
        pointer="/pipeline/stages",
        spec="layout.pipeline",
        write=lambda job, layout: _above_1(layout.pipeline),
        read=lambda config: None,
        planned=True,
    ),
    Option(
        pointer="/bf16/enabled",
        spec="training.precision",
        write=_bf16,
        read=lambda config: None if config.auto_precision else config.precision,
        planned=True,
    ),
    Option(
        pointer="/data_types/grad_accum_dtype",
        spec="training.gradient_dtype",
        write=lambda job, layout: "fp32",
        read=_gradient_dtype,
        megatron=True,
    ),
    Option(
        pointer="/optimizer/type",
        spec="training.optimizer",
        write=lambda job, layout: OPTIMIZER_TYPES.get(job.training.optimizer),
        read=_optimizer,
    ),
    Option(
        pointer="/optimizer/params/lr",
        spec="training.learning_rate",
        write=lambda job, layout: job.training.learning_rate,
        read=lambda config: _of_optimizer(config, "lr") or None,
    ),
    Option(
        pointer="/optimizer/params/weight_decay",
        spec="training.weight_decay",
        write=lambda job, layout: job.training.weight_decay,
        read=_weight_decay,
    ),
    Option(
        pointer=f"{ZERO}/zero_quantized_weights",
        spec="training.quantized_weights",
        write=lambda job, layout: job.training.quantized_weights or None,
        read=lambda config: _quantized(config, "quantized_weights"),
    ),
    Option(
        pointer=f"{ZERO}/zero_quantized_gradients",
        spec="training.quantized_gradients",
        write=lambda job, layout: job.training.quantized_gradients or None,
        read=lambda config: _quantized(config, "quantized_gradients"),
    ),
    Option(
        pointer="/gradient_clipping",
        spec="training.gradient_clipping",
        write=lambda job, layout: job.training.gradient_clipping,  # the default changed between releases
        read=lambda config: None if config.value("/gradient_clipping") == "auto" else config.clipping,
    ),
)
_BY_SPEC: Final = {option.spec: option for option in OPTIONS}
#: Keys that the plan decides, and the key of the spec that says them.
PLANNED: Final[Mapping[str, str]] = {
    **{option.pointer: option.spec for option in OPTIONS if option.planned},
    **dict.fromkeys(("/fp16/enabled", "/bfloat16/enabled"), "training.precision"),
}


def written(job: Job, layout: Layout, *keys: str) -> dict[str, Any]:
    """The part of a plan's config that says these keys of the spec, in their order."""
    made: dict[str, Any] = {}
    for option in map(_BY_SPEC.__getitem__, keys):
        value = option.write(job, layout)
        *sections, name = option.pointer[1:].split("/")
        home = made
        for section in sections if value is not None else ():
            home = home.setdefault(section, {})
        if value is not None:
            home[name] = value
    return made
