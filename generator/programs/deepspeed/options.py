"""The keys of a DeepSpeed config that say what a job spec says, a row each: written and read back.

All else in a config is written by `write`.
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
#: bitsandbytes' AdamW: the Trainer makes it, and DeepSpeed counts it as untested with ZeRO.
EIGHT_BIT: Final = "adamw-8bit"


@dataclass(frozen=True, slots=True)
class Option:
    """A key of the config, and the key of the spec that says the same."""

    pointer: str  #: of the config's key
    spec: str  #: the spec's key, with dots: `training.precision`
    #: The spec's value, of a config and the pointer; None where the config doesn't say it.
    decode: Callable[[Config, str], object]
    #: The config's value, where it isn't just the spec's.
    encode: Callable[[Job, Layout], object] | None = None
    planned: bool = False  #: whether the plan decides it, so that `deepspeed_config` may not set it
    #: whether Megatron-DeepSpeed too takes it from the config, not from an argument
    megatron: bool = False

    def value(self, job: Job, layout: Layout) -> object:
        """Return the value in the config of a plan; None to leave the key out."""
        if self.encode is not None:
            return self.encode(job, layout)
        part, _, name = self.spec.partition(".")
        value = getattr(layout if part == "layout" else job.training, name)
        return None if value is False else value


def batch_ranks(job: Job, layout: Layout) -> int:
    """Ranks by which DeepSpeed multiplies the micro batch to check `train_batch_size`.

    Where the engine gets an mpu (Megatron-DeepSpeed, and every PipelineModule) these are the model
    replicas. Otherwise DeepSpeed divides the world by the sequence-parallel size alone, so the
    ranks of an AutoTP group count one by one.

    **Source**: DeepSpeed 0.19.8, runtime/config.py, `DeepSpeedConfig.__init__`.
    """
    has_mpu = job.framework.passes_mpu or layout.pipeline > 1
    return layout.data if has_mpu else layout.data * layout.tensor


def uses_autotp(job: Job, layout: Layout) -> bool:
    """Whether tensor parallelism is DeepSpeed's own, not Megatron's or a PipelineModule's."""
    return layout.tensor > 1 and layout.pipeline == 1 and job.engine.layers == "replaced"


def derives_train_batch(job: Job, layout: Layout) -> bool:
    """Whether `train_batch_size` must be left out, because two checks require different numbers.

    With AutoTP, `deepspeed.initialize` compares it with all ranks and stage 3's `zero.Init`, later,
    with the replicas. With Ulysses, the Trainer compares it with all ranks and DeepSpeed with the
    replicas.

    **Source**: DeepSpeed 0.19.8, runtime/zero/partition_parameters.py, `Init.__init__` (seen with
    the engine); transformers 5.23, integrations/deepspeed.py, `trainer_config_process`.
    """
    with_autotp = uses_autotp(job, layout) and layout.zero_stage == 3
    # of the engines on DeepSpeed, the Trainer's alone keeps experts whole
    with_ulysses = job.engine.experts == "whole" and layout.context > 1
    return with_autotp or with_ulysses


# What is written: the values of `encode`.


def _train_batch(job: Job, layout: Layout) -> int | None:
    """The batch that DeepSpeed's check of the three batch keys computes."""
    if derives_train_batch(job, layout):
        return None
    return layout.micro_batch * layout.gradient_accumulation * batch_ranks(job, layout)


def _bf16(job: Job, layout: Layout) -> bool | None:
    """Whether bf16 is on; off is written out, so that nobody takes it for forgotten.

    fp8 is bf16 to DeepSpeed.
    """
    return None if job.training.precision == "fp16" else job.training.precision != "fp32"


def _above_1(size: str) -> Callable[[Job, Layout], object]:
    """A size of the layout; None to leave it out where it is 1."""

    def encode(job: Job, layout: Layout) -> object:
        value: int = getattr(layout, size)
        return value if value > 1 else None

    return encode


def _mics_shard_size(job: Job, layout: Layout) -> int | None:
    if layout.zero_copies <= 1:
        return None
    return layout.data * layout.context // layout.zero_copies


def _offload_block(job: Job, layout: Layout) -> Mapping[str, Any] | None:
    """The block that offloads to the host: through pinned buffers, where it has room for them."""
    if not layout.offload:
        return None
    from ...estimate.memory import memory  # here, to save start-up time
    from ...rules.fit import pins_host_memory

    return {"device": "cpu", "pin_memory": pins_host_memory(job, memory(job, layout))}


# What is read back: the values of `decode`.


def _count(config: Config, pointer: str) -> int | None:
    size = config.whole(pointer)
    return size if size and size > 0 else None


def second_partitions(config: Config | None) -> int | None:
    """How many ranks share a second copy of stage 3's parameters (ZeRO++ hpZ); None where none."""
    if config is None or config.stage != 3:
        return None
    size = config.whole(f"{ZERO}/zero_hpz_partition_size")
    return size if size and 0 < size < 2**31 else None


def offload_of(config: Config) -> str:
    """Return what a config offloads, as a layout calls it."""
    if not config.stage or not config.offloads("optimizer"):
        return "none"
    return "optimizer+parameters" if config.stage == 3 and config.offloads("param") else "optimizer"


def _offload(config: Config, pointer: str) -> str | None:
    """What is offloaded; None without ZeRO, and for "auto"."""
    is_unknown = not config.stage or config.value(f"{pointer}/device") == "auto"
    return None if is_unknown else offload_of(config)


def _hpz(config: Config, pointer: str) -> int | None:
    size = second_partitions(config)
    return None if size == 1 else size


def _gradient_dtype(config: Config, pointer: str) -> str | None:
    """The type in which gradients are summed, where it isn't fp32, which a plan takes by itself."""
    is_bf16 = config.auto_precision or config.precision == "bf16"
    return "same" if is_bf16 and config.accumulates_in not in ("fp32", "float32") else None


def _optimizer(config: Config, pointer: str) -> str | None:
    """The optimizer; DeepSpeed's Adam is AdamW unless its params say otherwise."""
    name = (config.optimizer or "").lower()
    if name == "adam" and config.value("/optimizer/params/adam_w_mode") is not False:
        return "adamw"
    return name if name in OPTIMIZER_TYPES else None


def _optimizer_parameter(config: Config, pointer: str) -> Any:
    """A parameter of the optimizer that a config names: a learning rate, or weight decay.

    A rate of 0 is left out, as a spec has none. Weight decay has its optimizer's default.
    """
    name = pointer.rpartition("/")[2]
    is_decay = name == "weight_decay"
    if is_decay and (config.optimizer is None or not config.has(pointer)):
        return default_of_optimizer(config, name)
    value = config.number(pointer)
    if config.optimizer is None or value is None:
        return None
    has_meaning = value > 0 or (value == 0 and is_decay)
    return value if has_meaning else None


def default_of_optimizer(config: Config, name: str) -> Any:
    """The default of a parameter of the config's optimizer; None where that isn't known."""
    parameters = config.schema.optimizers.get(config.optimizer or "") or {}
    return parameters[name].default if name in parameters else None


def _quantized(config: Config, pointer: str) -> bool | None:
    is_on = config.stage == 3 and config.switch(pointer)
    return True if is_on else None


OPTIONS: Final = (
    Option(
        "/train_micro_batch_size_per_gpu", "layout.micro_batch", _count, planned=True, megatron=True
    ),
    Option(
        "/gradient_accumulation_steps",
        "layout.gradient_accumulation",
        _count,
        planned=True,
        megatron=True,
    ),
    Option(
        "/train_batch_size",
        "training.global_batch",
        _count,
        _train_batch,
        planned=True,
        megatron=True,
    ),
    Option(
        f"{ZERO}/stage",
        "layout.zero_stage",
        lambda config, _: config.stage,
        planned=True,
        megatron=True,
    ),
    Option(
        f"{ZERO}/offload_optimizer",
        "layout.offload",
        _offload,
        _offload_block,
        megatron=True,
    ),
    Option(
        f"{ZERO}/mics_shard_size",
        "layout.zero_copies",
        lambda *_: None,
        _mics_shard_size,
        planned=True,
    ),
    Option(
        f"{ZERO}/zero_hpz_partition_size",
        "layout.zero_hpz",
        _hpz,
        _above_1("zero_hpz"),
        planned=True,
        megatron=True,
    ),
    Option(
        "/tensor_parallel/autotp_size",
        "layout.tensor",
        _count,
        lambda job, layout: layout.tensor if uses_autotp(job, layout) else None,
        planned=True,
    ),
    Option("/sequence_parallel_size", "layout.context", _count, _above_1("context"), planned=True),
    # It says the size to readers: the engine takes the stages from the script's PipelineModule.
    Option(
        "/pipeline/stages", "layout.pipeline", lambda *_: None, _above_1("pipeline"), planned=True
    ),
    Option(
        "/bf16/enabled",
        "training.precision",
        lambda config, _: None if config.auto_precision else config.precision,
        _bf16,
        planned=True,
    ),
    Option(
        "/data_types/grad_accum_dtype",
        "training.gradient_dtype",
        _gradient_dtype,
        lambda *_: "fp32",
        megatron=True,
    ),
    Option(
        "/optimizer/type",
        "training.optimizer",
        _optimizer,
        lambda job, _: OPTIMIZER_TYPES.get(job.training.optimizer),
    ),
    Option("/optimizer/params/lr", "training.learning_rate", _optimizer_parameter),
    Option("/optimizer/params/weight_decay", "training.weight_decay", _optimizer_parameter),
    Option(f"{ZERO}/zero_quantized_weights", "training.quantized_weights", _quantized),
    Option(f"{ZERO}/zero_quantized_gradients", "training.quantized_gradients", _quantized),
    # Written even where it is the default, which changed between releases.
    Option(
        "/gradient_clipping",
        "training.gradient_clipping",
        lambda config, pointer: config.number(pointer),
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
    config: dict[str, Any] = {}
    for option in map(_BY_SPEC.__getitem__, keys):
        value = option.value(job, layout)
        if value is None:
            continue
        *sections, name = option.pointer[1:].split("/")
        block = config
        for section in sections:
            block = block.setdefault(section, {})
        block[name] = value
    return config
