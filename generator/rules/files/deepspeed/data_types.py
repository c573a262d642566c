"""The types of gradients, parameters and messages."""

from __future__ import annotations

from typing import Final

from ....documents.deepspeed_config import Config
from ....documents.submission import Submission
from ....findings import ERROR, WARNING, Violation, Violations
from ...rule import submissions
from ...sources import deepspeed_now, derived
from .subjects import configs
from .values import removed, shown

#: Names of each type that DeepSpeed's `DtypeEnum` takes.
#: Names of each type that DeepSpeed's `DtypeEnum` takes.
TYPE_NAMES: Final = {
    "fp16": ("torch.float16", "fp16", "float16", "half"),
    "fp32": ("torch.float32", "fp32", "float32", "float"),
    "int8": ("torch.int8", "int8"),
    "bf16": ("torch.bfloat16", "bf16", "bfloat16"),
}
_BY_NAME: Final = {name: kind for kind, names in TYPE_NAMES.items() for name in names}


@configs.rule("PREC012", ERROR, "init", deepspeed_now("runtime/engine.py:1827"), since=(0, 19, 2))
def parameter_type_is_the_models(config: Config) -> Violations:
    """data_types.param_dtype names the type that fp16 or bf16 make the model.

    Prevents: `data_types.param_dtype=... conflicts with the enabled precision mode`
    Fix: leave param_dtype out
    """
    kind, value = config.precision, config.read("/data_types/param_dtype")
    wanted = _BY_NAME.get(value) if isinstance(value, str) else None
    if kind and wanted and wanted != kind:
        message = (
            f"param_dtype: {shown(value)} conflicts with the model's {kind}, which the fp16 and bf16 blocks decide"
        )
        edits = removed(config, "/data_types/param_dtype")
        yield Violation(where=config.locate("/data_types/param_dtype"), message=message, hint="remove it", edits=edits)


@submissions.rule("PREC013", ERROR, "init", deepspeed_now("runtime/engine.py:2323"), reads=("DeepSpeed config",))
def stage_0_accumulates_as_it_computes(submission: Submission) -> Violations:
    """Without ZeRO, gradients accumulate in the model's own type, as far as this version of DeepSpeed wants them to.

    Prevents: `unsupported mix of model_dtype and grad_accum_dtype`
    Fix: the model's own type, or a ZeRO stage
    """
    version = submission.deepspeed_version
    for config in configs(submission):
        kind, accumulated = config.precision, _BY_NAME.get(config.accumulates_in or "")
        if config.stage != 0 or not kind or not accumulated:
            continue
        refused = accumulated != kind
        if kind == "bf16" and version < ACCUMULATES_AS_IT_COMPUTES:
            own = accumulated == "fp32" or (accumulated == "bf16" and version >= ACCUMULATES_IN_BF16)
            refused = not own and not (accumulated == "bf16" and submission.world.pipeline > 1)
        if refused:
            message = f"grad_accum_dtype: {shown(config.accumulates_in)} with a model in {kind} is refused without ZeRO"
            fits = "fp32" if kind == "bf16" and version < ACCUMULATES_IN_BF16 else kind
            hint = f"grad_accum_dtype: {fits}, or ZeRO stage 1 or more"
            yield Violation(where=config.locate("/data_types/grad_accum_dtype"), message=message, hint=hint)


#: The first releases seen to sum bf16 gradients in bf16 without ZeRO, and no longer in fp32.
ACCUMULATES_IN_BF16: Final = (0, 17, 0)
ACCUMULATES_AS_IT_COMPUTES: Final = (0, 18, 9)


@configs.rule("PREC023", ERROR, "init", deepspeed_now("runtime/engine.py:1808; runtime/config.py:152"))
def data_types_are_known(config: Config) -> Violations:
    """data_types names types that DeepSpeed has.

    Prevents: `ValueError: ... is not a valid DtypeEnum` when the engine starts
    Fix: fp32, bf16 or fp16
    """
    for key in ("grad_accum_dtype", "param_dtype", "buffer_dtype"):
        value = config.value(f"/data_types/{key}")
        if value is None or (isinstance(value, str) and (value in _BY_NAME or value == "auto")):
            continue
        message = f"{key}: {shown(value)} is no type that DeepSpeed knows"
        yield Violation(where=config.locate(f"/data_types/{key}"), message=message, hint='"fp32", "bf16" or "fp16"')


@submissions.rule(
    "PREC018",
    WARNING,
    "silent",
    "EleutherAI/gpt-neox megatron/neox_arguments/arguments.py:1004 @ ea7aefd8",
    reads=("DeepSpeed config",),
)
def pipelines_accumulate_in_fp32(submission: Submission) -> Violations:
    """A bf16 pipeline with ZeRO accumulates its micro-batches' gradients in fp32.

    Prevents: gradients lose bits in a long sum of bf16 numbers
    Fix: data_types.grad_accum_dtype: fp32
    """
    for config in configs(submission):
        stages = submission.world.pipeline
        if config.precision == "bf16" and config.stage and stages > 1 and not config.accumulates_in:
            message = f"bf16 gradients of {stages} pipeline stages accumulate in bf16 over all micro-batches"
            hint = '"data_types": {"grad_accum_dtype": "fp32"}'
            yield Violation(where=config.locate(f"{config.bf16}/enabled"), message=message, hint=hint)


@configs.rule("PREC024", WARNING, "silent", deepspeed_now("runtime/engine.py:1720"))
def gradients_fit_their_messages(config: Config) -> Violations:
    """bf16 gradients are not sent as fp16, whose largest number is 65,504.

    Prevents: bf16's range is cut to fp16's when gradients are reduced
    Fix: communication_data_type: bf16 or fp32
    """
    sent = config.read("/communication_data_type")
    if config.precision == "bf16" and isinstance(sent, str) and sent.lower() == "fp16":
        message = f"communication_data_type: {shown(sent)} sends bf16 gradients as fp16:"
        message += " large ones become infinite, small ones 0"
        yield Violation(where=config.locate("/communication_data_type"), message=message, hint='"bf16" or "fp32"')


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

    Prevents: bf16's range is cut to fp16's in every sum
    Fix: grad_accum_dtype: fp32
    """
    accumulated = config.accumulates_in
    if config.precision == "bf16" and config.stage and _BY_NAME.get(accumulated or "") == "fp16":
        message = f"grad_accum_dtype: {shown(accumulated)} sums bf16 gradients in fp16: large ones become infinite"
        where = config.locate("/data_types/grad_accum_dtype")
        yield Violation(where=where, message=message, hint='"fp32", or "bf16"')
