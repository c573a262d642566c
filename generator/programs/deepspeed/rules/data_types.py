"""The types of gradients, parameters and messages."""

from __future__ import annotations

from typing import Final

from ....findings import ERROR, WARNING, Violation, Violations
from ....rules.sources import deepspeed_now, derived
from ...world import world_of
from ..config import Config
from .subjects import Run, configs, runs
from .values import removed, shown

#: Names of each type that DeepSpeed's `DtypeEnum` accepts.
_NAMES: Final = {
    "fp16": ("torch.float16", "fp16", "float16", "half"),
    "fp32": ("torch.float32", "fp32", "float32", "float"),
    "int8": ("torch.int8", "int8"),
    "bf16": ("torch.bfloat16", "bf16", "bfloat16"),
}
_BY_NAME: Final = {name: kind for kind, names in _NAMES.items() for name in names}
#: The first releases seen to sum bf16 gradients in bf16 without ZeRO, and no longer in fp32.
_ACCUMULATES_IN_BF16: Final = (0, 17, 0)
_ACCUMULATES_AS_IT_COMPUTES: Final = (0, 18, 9)
_SUM: Final = "/data_types/grad_accum_dtype"


def _summed_in(config: Config) -> str | None:
    """The type that gradients accumulate in, by its usual name; None where it isn't set or isn't known."""
    return _BY_NAME.get(config.accumulates_in or "")


@configs.rule("PREC012", ERROR, "init", deepspeed_now("runtime/engine.py:1827"), since=(0, 19, 2))
def parameter_type_is_the_models(config: Config) -> Violations:
    """data_types.param_dtype is the type that the fp16 and bf16 blocks give the model.

    Prevents: `data_types.param_dtype=... conflicts with the enabled precision mode`
    Fix: remove param_dtype"""
    pointer = "/data_types/param_dtype"
    value = config.text(pointer)
    if config.precision and _BY_NAME.get(value or "", config.precision) != config.precision:
        message = f"param_dtype: {shown(value)} conflicts with the model's {config.precision},"
        where, edits = config.locate(pointer), removed(config, pointer)
        message += " which the fp16 and bf16 blocks decide"
        yield Violation(where, message, "remove param_dtype", edits=edits)


@runs.rule("PREC013", ERROR, "init", deepspeed_now("runtime/engine.py:2323"))
def stage_0_accumulates_as_it_computes(run: Run) -> Violations:
    """Without ZeRO, gradients accumulate in a type that this version of DeepSpeed supports for the model's.

    Prevents: `unsupported mix of model_dtype and grad_accum_dtype`
    Fix: use the model's own type, or a ZeRO stage"""
    config, version = run.config, run.config.version
    kind, summed = config.precision, _summed_in(config)
    if config.stage != 0 or not kind or not summed:
        return
    fits, refused = kind, summed != kind
    if kind == "bf16" and version < _ACCUMULATES_AS_IT_COMPUTES:
        in_bf16 = version >= _ACCUMULATES_IN_BF16
        fits = "bf16" if in_bf16 else "fp32"
        pipeline = world_of(run.submission).pipeline > 1
        refused = summed != "fp32" and not (summed == "bf16" and (in_bf16 or pipeline))
    if refused:
        message = f"grad_accum_dtype: {shown(config.accumulates_in)} with a model in {kind} is refused without ZeRO"
        yield Violation(config.locate(_SUM), message, f"set grad_accum_dtype to {fits}, or use ZeRO stage 1 or more")


@configs.rule("PREC023", ERROR, "init", deepspeed_now("runtime/engine.py:1808; runtime/config.py:152"))
def data_types_are_known(config: Config) -> Violations:
    """data_types names types that DeepSpeed has.

    Prevents: `ValueError: ... is not a valid DtypeEnum` when the engine starts
    Fix: write fp32, bf16 or fp16"""
    for key in ("grad_accum_dtype", "param_dtype", "buffer_dtype"):
        value = config.value(f"/data_types/{key}")
        known = value is None or (isinstance(value, str) and (value in _BY_NAME or value == "auto"))
        if not known:
            message, hint = f"unknown type {shown(value)} in {key}", 'write "fp32", "bf16" or "fp16"'
            yield Violation(config.locate(f"/data_types/{key}"), message, hint)


@runs.rule("PREC018", WARNING, "silent", "EleutherAI/gpt-neox megatron/neox_arguments/arguments.py:1004 @ ea7aefd8")
def pipelines_accumulate_in_fp32(run: Run) -> Violations:
    """A bf16 pipeline with ZeRO accumulates its micro-batches' gradients in fp32.

    Prevents: Gradients lose bits in a long sum of bf16 numbers.
    Fix: set data_types.grad_accum_dtype to fp32"""
    config, stages = run.config, world_of(run.submission).pipeline
    if config.precision == "bf16" and config.stage and stages > 1 and not config.accumulates_in:
        message = f"bf16 gradients of {stages} pipeline stages accumulate in bf16 over all micro-batches"
        hint = 'add "data_types": {"grad_accum_dtype": "fp32"}'
        yield Violation(config.locate(f"{config.bf16}/enabled"), message, hint)


@configs.rule("PREC024", WARNING, "silent", deepspeed_now("runtime/engine.py:1720"))
def gradients_fit_their_messages(config: Config) -> Violations:
    """bf16 gradients are not sent as fp16, whose largest number is 65,504.

    Prevents: bf16's range is cut to fp16's when gradients are reduced.
    Fix: set communication_data_type to bf16 or fp32"""
    sent = config.text("/communication_data_type")
    if config.precision == "bf16" and sent is not None and sent.lower() == "fp16":
        message = f"communication_data_type: {shown(sent)} sends bf16 gradients as fp16:"
        message += " large ones become infinite, small ones 0"
        where, hint = config.locate("/communication_data_type"), 'write "bf16" or "fp32"'
        yield Violation(where, message, hint)


@configs.rule(
    "PREC029",
    WARNING,
    "silent",
    derived(
        "DeepSpeed 0.19.8 casts gradients to grad_accum_dtype as they are summed: runtime/zero/stage_1_and_2.py:378"
    ),
)
def sums_keep_their_range(config: Config) -> Violations:
    """bf16 gradients don't accumulate in fp16, whose largest number is 65,504.

    Prevents: bf16's range is cut to fp16's in every sum.
    Fix: set grad_accum_dtype to fp32"""
    if config.precision == "bf16" and config.stage and _summed_in(config) == "fp16":
        message = f"grad_accum_dtype: {shown(config.accumulates_in)} sums bf16 gradients in fp16:"
        yield Violation(config.locate(_SUM), f"{message} large ones become infinite", 'write "fp32" or "bf16"')
