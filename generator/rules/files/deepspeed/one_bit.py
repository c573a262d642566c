"""1-bit optimizers and elastic training, which DeepSpeed had up to 0.19.6 and 0.19.7."""

from __future__ import annotations

from typing import Final

from ....documents.deepspeed_config import Config
from ....documents.submission import Submission
from ....findings import ERROR, Violation, Violations
from ...rule import submissions
from ...sources import deepspeed, deepspeed_now
from .subjects import building
from .values import shown

OPTIMIZER: Final = "/optimizer"

ONE_BIT: Final = ("onebitadam", "zerooneadam", "onebitlamb")

#: The first DeepSpeed without 1-bit optimizers, and the first without elastic training.
WITHOUT_ONE_BIT: Final = (0, 19, 7)

WITHOUT_ELASTIC: Final = (0, 19, 8)


@submissions.rule(
    "VER003",
    ERROR,
    "init",
    deepspeed_now("runtime/config.py:61 (runtime/fp16/onebit is gone since 0.19.7)"),
    since=(0, 19, 7),
    reads=("DeepSpeed config", "launch script", "AzureML job"),
)
def what_was_taken_out_is_gone(submission: Submission) -> Violations:
    """This version of DeepSpeed has neither 1-bit optimizers nor elastic training.

    Prevents: `... is not a supported DeepSpeed Optimizer`
    Fix: AdamW
    """
    for config in building(submission):
        if (config.optimizer or "").lower() in ONE_BIT:
            message = f"type: {shown(config.value(f'{OPTIMIZER}/type'))} was taken out of DeepSpeed in 0.19.7"
            where = config.locate(f"{OPTIMIZER}/type")
            yield Violation(where=where, message=message, hint='"AdamW", or DeepSpeed 0.19.6')
    for launch in submission.launches if submission.deepspeed_version >= WITHOUT_ELASTIC else ():
        call = launch.call("deepspeed")
        option = call.options.get("--elastic_training") if call else None
        if option:
            message = "--elastic_training was taken out of DeepSpeed's launcher in 0.19.8"
            yield Violation(where=launch.script.locate(option.written), message=message, hint="remove it")


@building.rule("OPT008", ERROR, "init", deepspeed("runtime/engine.py:2235"), before=(0, 19, 7))
def one_bit_optimizers_run_without_zero(config: Config) -> Violations:
    """1-bit optimizers run without ZeRO.

    Prevents: `1bit-Adam is not compatible with ZeRO`
    Fix: stage 0 or AdamW
    """
    stage = config.stage
    if (config.optimizer or "").lower() in ONE_BIT and stage:
        message = f"type: {shown(config.value(f'{OPTIMIZER}/type'))} is refused with ZeRO stage {stage}"
        yield Violation(where=config.locate(f"{OPTIMIZER}/type"), message=message, hint='stage 0, or "AdamW"')
