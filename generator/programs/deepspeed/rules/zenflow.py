"""ZenFlow: important gradients at once, the others now and then, with the optimizer on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ....findings import ERROR, Violation, Violations
from ....rules.sources import deepspeed_now
from ....rules.violations import violation
from ...rule import subject
from ...submission import Submission
from ..config import ZERO, Config
from .subjects import configs
from .values import removed, shown

_ZENFLOW: Final = f"{ZERO}/zenflow"
_SELECT: Final = f"{_ZENFLOW}/select_interval"
_UPDATE: Final = f"{_ZENFLOW}/update_interval"
_STRATEGY: Final = f"{_ZENFLOW}/select_strategy"
_PARAMS: Final = "/optimizer/params"
_ZEN: Final = "runtime/zenflow"
_LOW: Final = f"{_ZEN}/zenflow_stage_1_and_2.py"

#: Parameters of DeepSpeed's Adams that torch's AdamW doesn't have.
_DEEPSPEEDS_OWN: Final = ("adam_w_mode", "torch_adam", "bias_correction", "fp32_optimizer_states", "set_grad_none")


@subject("DeepSpeed config")
def _zenflows(submission: Submission) -> Iterator[Config]:
    for config in configs(submission):
        if isinstance(config.value(_ZENFLOW), dict) and config.stage:
            yield config


@subject("DeepSpeed config")
def _below_stage_3(submission: Submission) -> Iterator[Config]:
    return (config for config in _zenflows(submission) if config.stage in (1, 2))


@_below_stage_3.rule("ZERO057", ERROR, "init", deepspeed_now(f"{_LOW}:116"), since=(0, 17, 6))
def zenflow_offloads(config: Config) -> Violations:
    """ZenFlow at stages 1 and 2 offloads the optimizer.

    Prevents: `Zenflow must be used with cpu offload`
    Fix: offload the optimizer"""
    if config.offload("optimizer") == "none":
        message, hint = "zenflow requires offload_optimizer", 'add "offload_optimizer": {"device": "cpu"}'
        yield Violation(config.locate_key(_ZENFLOW), message, hint)


@_zenflows.rule("ZERO058", ERROR, "init", deepspeed_now("runtime/zenflow/engine.py:37"), since=(0, 17, 6))
def zenflow_selects_one_way(config: Config) -> Violations:
    """select_interval is a number with the strategies step and epoch, and is left out with auto.

    Prevents: a Warning raised as an error, or `select_interval must be a number`
    Fix: write a strategy with its interval, or neither"""
    strategy, interval = config.value(_STRATEGY, "auto"), config.value(_SELECT, "auto")
    where = config.locate(_SELECT)
    if strategy == "auto" and isinstance(interval, int) and not isinstance(interval, bool):
        message = f'select_interval: {interval} is refused with select_strategy: "auto", which decides it'
        yield Violation(where, message, 'set select_strategy to "step" or "epoch"')
    elif strategy in ("step", "epoch") and interval == "auto":
        message = f'select_strategy: "{strategy}" requires a select_interval that is a number'
        yield Violation(where, message, "write a number of steps or epochs")


@_zenflows.rule("ZERO059", ERROR, "init", deepspeed_now("runtime/zenflow/engine.py:62"), since=(0, 17, 6))
def zenflow_selects_seldom(config: Config) -> Violations:
    """ZenFlow's select_interval is at least its update_interval.

    Prevents: `Select interval must be greater or equal to update interval`
    Fix: use a longer select_interval"""
    select, update = config.whole(_SELECT), config.whole(_UPDATE)
    if config.value(_STRATEGY) == "step" and select and update and select < update:
        message = f"select_interval: {select} is less than update_interval: {update}"
        yield violation(config, _SELECT, message, f"set select_interval to {update} or more")


@_zenflows.rule("ZERO060", ERROR, "init", deepspeed_now(f"{_LOW}:76; {_ZEN}/engine_stage3.py:101"), since=(0, 17, 6))
def zenflow_offload_overlaps(config: Config) -> Violations:
    """ZenFlow's own offload is used with overlap_comm.

    Prevents: `offload selective optimizer should be used with overlap_comm`
    Fix: set overlap_comm to true"""
    overlap = f"{ZERO}/overlap_comm"
    if config.switch(f"{_ZENFLOW}/offload") and config.switch(overlap) is False:
        default = "" if config.has(overlap) else ", which is its default at this stage"
        message = f"zenflow offload: true is refused with overlap_comm: false{default}"
        yield violation(config, f"{_ZENFLOW}/offload", message, 'set "overlap_comm" to true')


@_zenflows.rule("ZERO061", ERROR, "silent", deepspeed_now("runtime/zenflow/engine.py:69"), since=(0, 17, 6))
def zenflow_accumulates_by_its_interval(config: Config) -> Violations:
    """With ZenFlow gradient_accumulation_steps is 1, or update_interval, which replaces it.

    Prevents: The optimizer silently steps at another interval than the one written.
    Fix: set gradient_accumulation_steps to 1"""
    pointer = "/gradient_accumulation_steps"
    steps, update = config.whole(pointer), config.value(_UPDATE, "auto")
    if steps is not None and steps > 1 and update != steps:
        message = f"gradient_accumulation_steps: {steps} is replaced by zenflow's update_interval: {shown(update)}"
        hint = "set gradient_accumulation_steps to 1, with a larger micro batch or a smaller batch"
        yield violation(config, pointer, message, hint)


@_below_stage_3.rule("ZERO062", ERROR, "init", deepspeed_now(f"{_LOW}:84"), since=(0, 17, 6))
def zenflow_has_params(config: Config) -> Violations:
    """With ZenFlow at stages 1 and 2 the optimizer has params, of which ZenFlow builds its own AdamW.

    Prevents: `TypeError: argument after ** must be a mapping, not NoneType`
    Fix: add an optimizer block with params"""
    if not isinstance(config.value(_PARAMS), dict):
        message = "zenflow builds its own AdamW from the optimizer's params, but the config has none"
        hint = 'add "optimizer": {"type": "AdamW", "params": {"lr": ...}}'
        yield Violation(config.locate_key(_ZENFLOW), message, hint)


@_below_stage_3.rule("ZERO063", ERROR, "init", deepspeed_now(f"{_LOW}:84"), since=(0, 17, 6))
def zenflow_params_are_torchs(config: Config) -> Violations:
    """With ZenFlow at stages 1 and 2 the optimizer's params are ones of torch's AdamW, to which they are passed.

    Prevents: `TypeError: AdamW.__init__() got an unexpected keyword argument`
    Fix: use parameters of torch's AdamW"""
    for key in _DEEPSPEEDS_OWN:
        pointer = f"{_PARAMS}/{key}"
        if config.has(pointer):
            message = f"unknown parameter {key} of torch's AdamW, which zenflow builds: its constructor raises"
            where, edits = config.locate_key(pointer), removed(config, pointer)
            yield Violation(where, message, f"remove {key}", edits=edits)
