"""ZenFlow: important gradients at once, the others now and then, with the optimizer on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ....documents.deepspeed_config import Config
from ....documents.submission import Submission
from ....findings import ERROR, Violation, Violations
from ...rule import subject
from ...sources import deepspeed_now
from .subjects import configs
from .values import removed, shown

ZENFLOW: Final = "/zero_optimization/zenflow"
PARAMS: Final = "/optimizer/params"

#: Parameters of DeepSpeed's Adams that torch's AdamW doesn't take.
DEEPSPEEDS_OWN: Final = ("adam_w_mode", "torch_adam", "bias_correction", "fp32_optimizer_states", "set_grad_none")


@subject("DeepSpeed config")
def _with_zenflow(submission: Submission) -> Iterator[Config]:
    for config in configs(submission):
        if isinstance(config.value(ZENFLOW), dict) and config.stage:
            yield config


@_with_zenflow.rule(
    "ZERO057", ERROR, "init", deepspeed_now("runtime/zenflow/zenflow_stage_1_and_2.py:116"), since=(0, 17, 6)
)
def zenflow_offloads(config: Config) -> Violations:
    """ZenFlow at stages 1 and 2 offloads the optimizer.

    Prevents: `Zenflow must be used with cpu offload`
    Fix: offload the optimizer
    """
    if config.stage in (1, 2) and config.offload("optimizer") == "none":
        message = "zenflow without offload_optimizer is refused"
        yield Violation(
            where=config.locate_key(ZENFLOW), message=message, hint='"offload_optimizer": {"device": "cpu"}'
        )


@_with_zenflow.rule("ZERO058", ERROR, "init", deepspeed_now("runtime/zenflow/engine.py:37"), since=(0, 17, 6))
def zenflow_selects_one_way(config: Config) -> Violations:
    """select_interval is a number with the strategies step and epoch, and none with auto.

    Prevents: a Warning raised as an error, or `select_interval must be a number`
    Fix: a strategy with its interval, or neither
    """
    strategy = config.value(f"{ZENFLOW}/select_strategy", "auto")
    interval = config.value(f"{ZENFLOW}/select_interval", "auto")
    where = config.locate(f"{ZENFLOW}/select_interval")
    counted = isinstance(interval, int) and not isinstance(interval, bool)
    if strategy == "auto" and counted:
        message = f'select_interval: {interval} is refused with select_strategy: "auto", which decides it'
        yield Violation(where=where, message=message, hint='select_strategy: "step" or "epoch"')
    elif strategy in ("step", "epoch") and interval == "auto":
        message = f'select_strategy: "{strategy}" needs a select_interval that is a number'
        yield Violation(where=where, message=message, hint="a number of steps or epochs")


@_with_zenflow.rule("ZERO059", ERROR, "init", deepspeed_now("runtime/zenflow/engine.py:62"), since=(0, 17, 6))
def zenflow_selects_seldom(config: Config) -> Violations:
    """ZenFlow selects no more often than it updates.

    Prevents: `Select interval must be greater or equal to update interval`
    Fix: a longer select_interval
    """
    select = config.whole(f"{ZENFLOW}/select_interval")
    update = config.whole(f"{ZENFLOW}/update_interval")
    stepwise = config.value(f"{ZENFLOW}/select_strategy") == "step"
    if stepwise and select and update and select < update:
        message = f"select_interval: {select} is less than update_interval: {update}"
        yield Violation(
            where=config.locate(f"{ZENFLOW}/select_interval"),
            message=message,
            hint=f"select_interval: {update} or more",
        )


@_with_zenflow.rule(
    "ZERO060",
    ERROR,
    "init",
    deepspeed_now("runtime/zenflow/zenflow_stage_1_and_2.py:76; runtime/zenflow/engine_stage3.py:101"),
    since=(0, 17, 6),
)
def zenflow_offload_overlaps(config: Config) -> Violations:
    """ZenFlow's own offload needs overlap_comm.

    Prevents: `offload selective optimizer should be used with overlap_comm`
    Fix: overlap_comm: true
    """
    overlaps = config.switch("/zero_optimization/overlap_comm", config.stage == 3)
    if config.switch(f"{ZENFLOW}/offload") and overlaps is False:
        default = "" if config.has("/zero_optimization/overlap_comm") else ", which is its default at this stage"
        message = f"zenflow offload: true is refused with overlap_comm: false{default}"
        yield Violation(where=config.locate(f"{ZENFLOW}/offload"), message=message, hint='"overlap_comm": true')


@_with_zenflow.rule("ZERO061", ERROR, "silent", deepspeed_now("runtime/zenflow/engine.py:69"), since=(0, 17, 6))
def zenflow_accumulates_by_its_interval(config: Config) -> Violations:
    """With ZenFlow, update_interval takes the place of gradient_accumulation_steps.

    Prevents: steps silently happen at other times than the config says
    Fix: gradient_accumulation_steps: 1
    """
    steps = config.whole("/gradient_accumulation_steps")
    update = config.value(f"{ZENFLOW}/update_interval", "auto")
    if steps is not None and steps > 1 and update != steps:
        message = f"gradient_accumulation_steps: {steps} is replaced by zenflow's update_interval: {shown(update)}"
        hint = "gradient_accumulation_steps: 1, with a larger micro-batch or batch of fewer samples"
        yield Violation(where=config.locate("/gradient_accumulation_steps"), message=message, hint=hint)


@_with_zenflow.rule(
    "ZERO062", ERROR, "init", deepspeed_now("runtime/zenflow/zenflow_stage_1_and_2.py:84"), since=(0, 17, 6)
)
def zenflow_has_params(config: Config) -> Violations:
    """ZenFlow at stages 1 and 2 builds its own AdamW from the config's optimizer params, so there are some.

    Prevents: `TypeError: argument after ** must be a mapping, not NoneType`
    Fix: an optimizer block with params
    """
    if config.stage in (1, 2) and not isinstance(config.value(PARAMS), dict):
        message = "zenflow builds its own AdamW from the optimizer's params, but the config has none"
        hint = '"optimizer": {"type": "AdamW", "params": {"lr": ...}}'
        yield Violation(where=config.locate_key(ZENFLOW), message=message, hint=hint)


@_with_zenflow.rule(
    "ZERO063", ERROR, "init", deepspeed_now("runtime/zenflow/zenflow_stage_1_and_2.py:84"), since=(0, 17, 6)
)
def zenflow_params_are_torchs(config: Config) -> Violations:
    """ZenFlow at stages 1 and 2 hands the optimizer's params to torch's AdamW, which has none of DeepSpeed's own.

    Prevents: `TypeError: AdamW.__init__() got an unexpected keyword argument`
    Fix: parameters of torch's AdamW
    """
    for key in DEEPSPEEDS_OWN if config.stage in (1, 2) else ():
        pointer = f"{PARAMS}/{key}"
        if config.has(pointer):
            message = f"{key} reaches torch's AdamW by way of zenflow, and it raises"
            where, edits = config.locate_key(pointer), removed(config, pointer)
            yield Violation(where=where, message=message, hint=f"remove {key}", edits=edits)
