"""The types of gradients, parameters and messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ....documents.submission import Submission
from ....findings import Severity
from ...sources import deepspeed_now, derived
from ..rule import Breach, DocumentRule
from .values import accumulates_in, bf16_block, configs, ds_rule, given, precision, removed, shown, stage_of

#: Names of each type that DeepSpeed's `DtypeEnum` takes.
#: Names of each type that DeepSpeed's `DtypeEnum` takes.
TYPE_NAMES: Final = {
    "fp16": ("torch.float16", "fp16", "float16", "half"),
    "fp32": ("torch.float32", "fp32", "float32", "float"),
    "int8": ("torch.int8", "int8"),
    "bf16": ("torch.bfloat16", "bf16", "bfloat16"),
}
_BY_NAME: Final = {name: kind for kind, names in TYPE_NAMES.items() for name in names}


def parameter_type_is_the_models(submission: Submission) -> Iterator[Breach]:
    """data_types.param_dtype names the type that fp16 or bf16 make the model."""
    for config in configs(submission):
        kind, value = precision(config), given(config, "/data_types/param_dtype")
        wanted = _BY_NAME.get(value) if isinstance(value, str) else None
        if kind and wanted and wanted != kind:
            message = (
                f"param_dtype: {shown(value)} conflicts with the model's {kind}, which the fp16 and bf16 blocks decide"
            )
            edits = removed(config, "/data_types/param_dtype")
            yield Breach(where=config.locate("/data_types/param_dtype"), message=message, hint="remove it", edits=edits)


def stage_0_accumulates_as_it_computes(submission: Submission) -> Iterator[Breach]:
    """Without ZeRO, gradients accumulate in the model's own type, as far as this version of DeepSpeed wants them to."""
    version = submission.deepspeed_version
    for config in configs(submission):
        kind, accumulated = precision(config), _BY_NAME.get(accumulates_in(config) or "")
        if stage_of(config) != 0 or not kind or not accumulated:
            continue
        refused = accumulated != kind
        if kind == "bf16" and version < ACCUMULATES_AS_IT_COMPUTES:
            own = accumulated == "fp32" or (accumulated == "bf16" and version >= ACCUMULATES_IN_BF16)
            refused = not own and not (accumulated == "bf16" and submission.world.pipeline > 1)
        if refused:
            message = (
                f"grad_accum_dtype: {shown(accumulates_in(config))} with a model in {kind} is refused without ZeRO"
            )
            fits = "fp32" if kind == "bf16" and version < ACCUMULATES_IN_BF16 else kind
            hint = f"grad_accum_dtype: {fits}, or ZeRO stage 1 or more"
            yield Breach(where=config.locate("/data_types/grad_accum_dtype"), message=message, hint=hint)


#: The first releases seen to sum bf16 gradients in bf16 without ZeRO, and no longer in fp32.
ACCUMULATES_IN_BF16: Final = (0, 17, 0)
ACCUMULATES_AS_IT_COMPUTES: Final = (0, 18, 9)


def data_types_are_known(submission: Submission) -> Iterator[Breach]:
    """data_types names types that DeepSpeed has."""
    for config in configs(submission):
        for key in ("grad_accum_dtype", "param_dtype", "buffer_dtype"):
            value = config.value(f"/data_types/{key}")
            if value is None or (isinstance(value, str) and (value in _BY_NAME or value == "auto")):
                continue
            message = f"{key}: {shown(value)} is no type that DeepSpeed knows"
            yield Breach(where=config.locate(f"/data_types/{key}"), message=message, hint='"fp32", "bf16" or "fp16"')


def pipelines_accumulate_in_fp32(submission: Submission) -> Iterator[Breach]:
    """A bf16 pipeline with ZeRO accumulates its micro-batches' gradients in fp32."""
    for config in configs(submission):
        stages = submission.world.pipeline
        if precision(config) == "bf16" and stage_of(config) and stages > 1 and not accumulates_in(config):
            message = f"bf16 gradients of {stages} pipeline stages accumulate in bf16 over all micro-batches"
            hint = '"data_types": {"grad_accum_dtype": "fp32"}'
            yield Breach(where=config.locate(f"{bf16_block(config)}/enabled"), message=message, hint=hint)


def gradients_fit_their_messages(submission: Submission) -> Iterator[Breach]:
    """bf16 gradients are not sent as fp16, whose largest number is 65,504."""
    for config in configs(submission):
        sent = given(config, "/communication_data_type")
        if precision(config) == "bf16" and isinstance(sent, str) and sent.lower() == "fp16":
            message = f"communication_data_type: {shown(sent)} sends bf16 gradients as fp16:"
            message += " large ones become infinite, small ones 0"
            yield Breach(where=config.locate("/communication_data_type"), message=message, hint='"bf16" or "fp32"')


def sums_keep_their_range(submission: Submission) -> Iterator[Breach]:
    """bf16 gradients don't accumulate in fp16, whose largest number is 65,504."""
    for config in configs(submission):
        accumulated = accumulates_in(config)
        if precision(config) == "bf16" and stage_of(config) and _BY_NAME.get(accumulated or "") == "fp16":
            message = f"grad_accum_dtype: {shown(accumulated)} sums bf16 gradients in fp16: large ones become infinite"
            where = config.locate("/data_types/grad_accum_dtype")
            yield Breach(where=where, message=message, hint='"fp32", or "bf16"')


RULES: Final[tuple[DocumentRule, ...]] = (
    ds_rule(
        "PREC012",
        Severity.ERROR,
        "init",
        parameter_type_is_the_models,
        source=deepspeed_now("runtime/engine.py:1827"),
        prevents="`data_types.param_dtype=... conflicts with the enabled precision mode`",
        fix="leave param_dtype out",
        since=(0, 19, 2),
    ),
    ds_rule(
        "PREC013",
        Severity.ERROR,
        "init",
        stage_0_accumulates_as_it_computes,
        source=deepspeed_now("runtime/engine.py:2323"),
        prevents="`unsupported mix of model_dtype and grad_accum_dtype`",
        fix="the model's own type, or a ZeRO stage",
    ),
    ds_rule(
        "PREC018",
        Severity.WARNING,
        "silent",
        pipelines_accumulate_in_fp32,
        source="EleutherAI/gpt-neox megatron/neox_arguments/arguments.py:1004 @ ea7aefd8",
        prevents="gradients lose bits in a long sum of bf16 numbers",
        fix="data_types.grad_accum_dtype: fp32",
    ),
    ds_rule(
        "PREC023",
        Severity.ERROR,
        "init",
        data_types_are_known,
        source=deepspeed_now("runtime/engine.py:1808; runtime/config.py:152"),
        prevents="`ValueError: ... is not a valid DtypeEnum` when the engine starts",
        fix="fp32, bf16 or fp16",
    ),
    ds_rule(
        "PREC024",
        Severity.WARNING,
        "silent",
        gradients_fit_their_messages,
        source=deepspeed_now("runtime/engine.py:1720"),
        prevents="bf16's range is cut to fp16's when gradients are reduced",
        fix="communication_data_type: bf16 or fp32",
    ),
    ds_rule(
        "PREC029",
        Severity.WARNING,
        "silent",
        sums_keep_their_range,
        source=derived(
            "DeepSpeed 0.19.8 casts gradients to grad_accum_dtype as they are summed: runtime/zero/stage_1_and_2.py:378"
        ),
        prevents="bf16's range is cut to fp16's in every sum",
        fix="grad_accum_dtype: fp32",
    ),
)
