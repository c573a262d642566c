"""1-bit optimizers and elastic training, which DeepSpeed had up to 0.19.6 and 0.19.7."""

from __future__ import annotations

from typing import Final

from ....findings import ERROR, Violation, Violations
from ....rules.sources import deepspeed, deepspeed_now
from ...rule import submissions
from ...submission import Submission
from ..config import Config
from .subjects import building
from .values import shown

_TYPE: Final = "/optimizer/type"
_ONE_BIT: Final = ("onebitadam", "zerooneadam", "onebitlamb")
_WITHOUT_ONE_BIT: Final = (0, 19, 7)  #: the first DeepSpeed without 1-bit optimizers
_WITHOUT_ELASTIC: Final = (0, 19, 8)  #: the first DeepSpeed without elastic training


@submissions.rule(
    "VER003",
    ERROR,
    "init",
    deepspeed_now("runtime/config.py:61 (runtime/fp16/onebit is gone since 0.19.7)"),
    since=_WITHOUT_ONE_BIT,
    reads=("DeepSpeed config", "launch script", "AzureML job"),
)
def what_was_removed_is_not_used(submission: Submission) -> Violations:
    """This version of DeepSpeed has neither 1-bit optimizers nor elastic training.

    Prevents: `... is not a supported DeepSpeed Optimizer`
    Fix: use AdamW"""
    for config in building(submission):
        if (config.optimizer or "").lower() in _ONE_BIT:
            message = f"type: {shown(config.value(_TYPE))} was removed in DeepSpeed 0.19.7"
            yield Violation(config.locate(_TYPE), message, 'use "AdamW", or DeepSpeed 0.19.6')
    for launch in submission.launches if submission.deepspeed_version >= _WITHOUT_ELASTIC else ():
        call = launch.call("deepspeed")
        option = call.options.get("--elastic_training") if call else None
        if option:
            message, where = "--elastic_training was removed in DeepSpeed 0.19.8", launch.script.locate(option.written)
            yield Violation(where, message, "remove --elastic_training")


@building.rule("OPT008", ERROR, "init", deepspeed("runtime/engine.py:2235"), before=_WITHOUT_ONE_BIT)
def one_bit_optimizers_run_without_zero(config: Config) -> Violations:
    """1-bit optimizers are used without ZeRO.

    Prevents: `1bit-Adam is not compatible with ZeRO`
    Fix: use stage 0, or AdamW"""
    if config.optimizer in _ONE_BIT and config.stage:
        message = f"type: {shown(config.value(_TYPE))} is refused with ZeRO stage {config.stage}"
        yield Violation(config.locate(_TYPE), message, 'use stage 0, or "AdamW"')
