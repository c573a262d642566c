"""The Trainer's arguments that a plan decides, a row each.

Read forwards they are written, read backwards they are checked.

Types and defaults are those of training_arguments.json.

**Source**: transformers 5.23, training_args.py; integrations/deepspeed.py:136-184 for the keys of a
DeepSpeed config that must equal an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import Final

from ...dataclass import dataclass
from ...estimate.layout import Recompute
from ...estimate.states import has_no_masters
from ...job.arguments import gives
from ...search.plan import Plan
from ..deepspeed.options import EIGHT_BIT
from ..deepspeed.write import FILE_NAME
from ..program import BETA1, EPSILON, ConfigPath, Value, beta2, log_interval, warmup_steps
from . import fsdp
from .training_arguments import not_negative


@dataclass(frozen=True, slots=True)
class Row:
    """An argument that a plan decides."""

    name: str
    key: str = ""  #: the spec's key that says the same
    #: The argument's value for a plan, where it isn't just the key's; None leaves it out.
    encode: Callable[[Plan], Value] | None = None
    #: The key's value, of the argument's, where it isn't the same; None where the key has none.
    decode: Callable[[object], object] | None = None
    pointers: tuple[str, ...] = ()  #: keys of a DeepSpeed config that must be equal, or "auto"
    by_default: bool = False  #: whether the argument's default says the key as well

    @property
    def option(self) -> str:
        return f"--{self.name}"

    def value(self, plan: Plan) -> Value:
        if self.encode is not None:
            return self.encode(plan)
        value: Value = attrgetter(self.key)(plan if self.key.startswith("layout.") else plan.job)
        return value


def _switch(name: str, key: str, is_on: Callable[[Plan], bool], kind: str) -> Row:
    """A flag that says one kind of a key's values, and is left out for others."""
    return Row(
        name,
        key,
        lambda plan: "true" if is_on(plan) else None,
        lambda value: kind if value is True else None,
    )


def _saves(plan: Plan) -> bool:
    return plan.job.output.checkpoints is not None or plan.job.output.save_interval is not None


def _warmup(plan: Plan) -> Value:
    """The warm-up; nothing where warmup_ratio is given, because warmup_steps would count beside it.

    Source: transformers 5.23, training_args.py, get_warmup_steps.
    """
    return None if gives(plan.job.launch.arguments, "--warmup_ratio") else warmup_steps(plan)


def _positive(value: object) -> int | float | None:
    """The value if it is a finite number above 0, else None."""
    return not_negative(value) or None


def _count(value: object) -> int | None:
    """The value if it is an integer above 0, such as 3 or 3.0, else None."""
    number = _positive(value)
    return int(number) if number is not None and number == int(number) else None


#: The spec's optimizers, by the Trainer's names for them.
_OPTIMIZERS: Final = {
    "adamw_torch": "adamw",
    "adamw_torch_fused": "adamw",
    "adamw_bnb_8bit": EIGHT_BIT,
    "adamw_torch_8bit": EIGHT_BIT,
}


def _optimizer(plan: Plan) -> Value:
    """The optimizers that the Trainer makes; None leaves its default, or the JSON's optimizer.

    Source: transformers 5.23, training_args.py, OptimizerNames; trainer_optimizer.py,
    _get_torchao_optimizer.
    """
    by_fsdp2 = plan.job.engine.shards_masters
    if plan.job.training.optimizer == "sgd":
        return "sgd" if by_fsdp2 else None
    if plan.job.training.optimizer != EIGHT_BIT:
        return None
    # bitsandbytes can't update DTensors, which FSDP2's parameters are; torchao can
    return "adamw_torch_8bit" if by_fsdp2 else "adamw_bnb_8bit"


def _checkpointing(plan: Plan) -> Value:
    """Whether the Trainer recomputes activations; where units are sharded, FSDP's config does."""
    by_trainer = plan.job.engine.sharding != "units"
    return "true" if by_trainer and plan.layout.recompute == Recompute.FULL else "false"


def _is_bf16(plan: Plan) -> bool:
    """Whether the Trainer's bf16 is on, for fp8 too.

    Where all weights are bf16 it is off: mixed precision would make fp32 copies of them.
    """
    return plan.job.training.precision in ("bf16", "fp8") and not has_no_masters(plan.job)


_ACCUMULATION: Final = "/gradient_accumulation_steps"
_PARAMS: Final = "/optimizer/params"
_CLIPPING: Final = "training.gradient_clipping"
_RATES: Final = (f"{_PARAMS}/lr", "/scheduler/params/warmup_max_lr")
#: A run needs its last checkpoint, and the one before where that isn't whole; axolotl keeps as many
#: by default.
KEPT: Final = 4
BATCH: Final = "batch per device and pass, and passes per step"
#: The rows that name what shards the states, by the comment above them.
DEEPSPEED: Final[Mapping[str, tuple[Row, ...]]] = {
    "ZeRO and the optimizer; the arguments below repeat its numbers": (
        Row("deepspeed", encode=lambda _: ConfigPath(FILE_NAME)),
    ),
}
FSDP2: Final[Mapping[str, tuple[Row, ...]]] = {
    "FSDP2: what is gathered and freed, kept and saved": (
        Row("fsdp", encode=lambda _: True),
        Row("fsdp_config", encode=fsdp.config_path),
        Row("accelerator_config", encode=fsdp.accelerator_config),
    ),
}
_SAME: Final = ": the same as in the JSON, or the Trainer refuses to start"
#: The other rows by the comment above them.
GROUPS: Final[Mapping[str, tuple[Row, ...]]] = {
    BATCH: (
        Row(
            "per_device_train_batch_size",
            "layout.micro_batch",
            decode=_count,
            pointers=("/train_micro_batch_size_per_gpu",),
        ),
        Row(
            "gradient_accumulation_steps",
            "layout.gradient_accumulation",
            decode=_count,
            pointers=(_ACCUMULATION,),
        ),
    ),
    "precision and recomputation": (
        _switch(
            "fp16", "training.precision", lambda plan: plan.job.training.precision == "fp16", "fp16"
        ),
        _switch("bf16", "training.precision", _is_bf16, "bf16"),
        Row(
            "gradient_checkpointing",
            "layout.recompute",
            _checkpointing,
            lambda value: "full" if value is True else "none",
        ),
        _switch(
            "use_liger_kernel",
            "training.kernels",
            lambda plan: plan.job.training.kernels == "fused",
            "fused",
        ),
    ),
    f"optimizer{_SAME}": (
        Row(
            "optim",
            "training.optimizer",
            _optimizer,
            lambda value: _OPTIMIZERS.get(str(value)),
        ),
        Row(
            "learning_rate",
            "training.learning_rate",
            decode=_positive,
            pointers=_RATES,
            by_default=True,
        ),
        Row(
            "weight_decay",
            "training.weight_decay",
            decode=not_negative,
            pointers=(f"{_PARAMS}/weight_decay",),
            by_default=True,
        ),
        Row("adam_beta1", encode=lambda _: BETA1),
        Row("adam_beta2", encode=lambda plan: beta2(plan.job)),
        Row("adam_epsilon", encode=lambda _: EPSILON, pointers=(f"{_PARAMS}/eps",)),
        Row(
            "max_grad_norm",
            _CLIPPING,
            decode=not_negative,
            pointers=("/gradient_clipping",),
            by_default=True,
        ),
    ),
    "duration, warm-up, and a line of the log a minute": (
        Row("max_steps", "training.duration.steps", lambda plan: plan.job.training.steps, _count),
        Row("warmup_steps", encode=_warmup),
        Row("logging_steps", encode=log_interval),
    ),
    # What the example scripts ask for; the Trainer itself doesn't read it.
    # Source: transformers 5.23, training_args.py, do_train;
    # examples/pytorch/language-modeling/run_clm.py.
    "without it the example scripts of transformers train nothing": (
        Row("do_train", encode=lambda _: "true"),
    ),
    "checkpoints": (
        Row(
            "output_dir",
            "output.checkpoints",
            decode=lambda value: value if isinstance(value, str) else None,
        ),
        Row("save_strategy", encode=lambda plan: "steps" if _saves(plan) else None),
        Row(
            "save_steps",
            "output.save_interval",
            lambda plan: plan.saving.interval_steps if _saves(plan) else None,
            _count,
        ),
        Row(
            "save_total_limit",
            "output.keep",
            lambda plan: plan.job.output.keep or (KEPT if _saves(plan) else None),
            _count,
        ),
    ),
}
ROWS: Final = tuple(
    row for groups in (DEEPSPEED, GROUPS) for rows in groups.values() for row in rows
)


def groups_of(sharding: Mapping[str, tuple[Row, ...]]) -> Iterator[tuple[str, tuple[Row, ...]]]:
    """Give the rows of a plan's files with the comment above them, first those of its sharding."""
    yield from sharding.items()
    for comment, rows in GROUPS.items():
        has_json = sharding is DEEPSPEED
        yield comment if has_json else comment.removesuffix(_SAME), rows
