"""1-bit optimizers and elastic training, which DeepSpeed had up to 0.19.6 and 0.19.7."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ....documents.submission import Submission
from ....findings import Severity
from ...sources import deepspeed, deepspeed_now
from ..rule import Breach, DocumentRule
from .values import building, ds_rule, optimizer_type, shown, stage_of

OPTIMIZER: Final = "/optimizer"

ONE_BIT: Final = ("onebitadam", "zerooneadam", "onebitlamb")

#: The first DeepSpeed without 1-bit optimizers, and the first without elastic training.
WITHOUT_ONE_BIT: Final = (0, 19, 7)

WITHOUT_ELASTIC: Final = (0, 19, 8)


def what_was_taken_out_is_gone(submission: Submission) -> Iterator[Breach]:
    """This version of DeepSpeed has neither 1-bit optimizers nor elastic training."""
    for config in building(submission):
        if optimizer_type(config) in ONE_BIT:
            message = f"type: {shown(config.value(f'{OPTIMIZER}/type'))} was taken out of DeepSpeed in 0.19.7"
            where = config.locate(f"{OPTIMIZER}/type")
            yield Breach(where=where, message=message, hint='"AdamW", or DeepSpeed 0.19.6')
    for launch in submission.launches if submission.deepspeed_version >= WITHOUT_ELASTIC else ():
        call = launch.call("deepspeed")
        option = call.options.get("--elastic_training") if call else None
        if option:
            message = "--elastic_training was taken out of DeepSpeed's launcher in 0.19.8"
            yield Breach(where=launch.script.locate(option.written), message=message, hint="remove it")


def one_bit_optimizers_run_without_zero(submission: Submission) -> Iterator[Breach]:
    """1-bit optimizers run without ZeRO."""
    for config in building(submission):
        stage = stage_of(config)
        if optimizer_type(config) in ONE_BIT and stage:
            message = f"type: {shown(config.value(f'{OPTIMIZER}/type'))} is refused with ZeRO stage {stage}"
            yield Breach(where=config.locate(f"{OPTIMIZER}/type"), message=message, hint='stage 0, or "AdamW"')


RULES: Final[tuple[DocumentRule, ...]] = (
    ds_rule(
        "VER003",
        Severity.ERROR,
        "init",
        what_was_taken_out_is_gone,
        source=deepspeed_now("runtime/config.py:61 (runtime/fp16/onebit is gone since 0.19.7)"),
        prevents="`... is not a supported DeepSpeed Optimizer`",
        fix="AdamW",
        reads=("DeepSpeed config", "launch script", "AzureML job"),
        since=WITHOUT_ONE_BIT,
    ),
    ds_rule(
        "OPT008",
        Severity.ERROR,
        "init",
        one_bit_optimizers_run_without_zero,
        source=deepspeed("runtime/engine.py:2235"),
        prevents="`1bit-Adam is not compatible with ZeRO`",
        fix="stage 0 or AdamW",
        before=WITHOUT_ONE_BIT,
    ),
)
