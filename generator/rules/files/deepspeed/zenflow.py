"""ZenFlow: important gradients at once, the others now and then, with the optimizer on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ....documents.document import DsConfig
from ....documents.submission import Submission
from ....findings import Severity
from ...sources import deepspeed_now
from ..rule import Breach, DocumentRule
from .values import configs, ds_rule, given, offload_device, removed, shown, stage_of, switch, whole

ZENFLOW: Final = "/zero_optimization/zenflow"
PARAMS: Final = "/optimizer/params"

#: Parameters of DeepSpeed's Adams that torch's AdamW doesn't take.
DEEPSPEEDS_OWN: Final = ("adam_w_mode", "torch_adam", "bias_correction", "fp32_optimizer_states", "set_grad_none")


def _with_zenflow(submission: Submission) -> Iterator[DsConfig]:
    for config in configs(submission):
        if isinstance(config.value(ZENFLOW), dict) and stage_of(config):
            yield config


def zenflow_offloads(submission: Submission) -> Iterator[Breach]:
    """ZenFlow at stages 1 and 2 offloads the optimizer."""
    for config in _with_zenflow(submission):
        if stage_of(config) in (1, 2) and offload_device(config, "optimizer") == "none":
            message = "zenflow without offload_optimizer is refused"
            yield Breach(
                where=config.locate_key(ZENFLOW), message=message, hint='"offload_optimizer": {"device": "cpu"}'
            )


def zenflow_selects_one_way(submission: Submission) -> Iterator[Breach]:
    """select_interval is a number with the strategies step and epoch, and none with auto."""
    for config in _with_zenflow(submission):
        strategy = config.value(f"{ZENFLOW}/select_strategy", "auto")
        interval = config.value(f"{ZENFLOW}/select_interval", "auto")
        where = config.locate(f"{ZENFLOW}/select_interval")
        counted = isinstance(interval, int) and not isinstance(interval, bool)
        if strategy == "auto" and counted:
            message = f'select_interval: {interval} is refused with select_strategy: "auto", which decides it'
            yield Breach(where=where, message=message, hint='select_strategy: "step" or "epoch"')
        elif strategy in ("step", "epoch") and interval == "auto":
            message = f'select_strategy: "{strategy}" needs a select_interval that is a number'
            yield Breach(where=where, message=message, hint="a number of steps or epochs")


def zenflow_selects_seldom(submission: Submission) -> Iterator[Breach]:
    """ZenFlow selects no more often than it updates."""
    for config in _with_zenflow(submission):
        select = whole(given(config, f"{ZENFLOW}/select_interval"))
        update = whole(given(config, f"{ZENFLOW}/update_interval"))
        stepwise = config.value(f"{ZENFLOW}/select_strategy") == "step"
        if stepwise and select and update and select < update:
            message = f"select_interval: {select} is less than update_interval: {update}"
            yield Breach(
                where=config.locate(f"{ZENFLOW}/select_interval"),
                message=message,
                hint=f"select_interval: {update} or more",
            )


def zenflow_offload_overlaps(submission: Submission) -> Iterator[Breach]:
    """ZenFlow's own offload needs overlap_comm."""
    for config in _with_zenflow(submission):
        overlaps = switch(config, "/zero_optimization/overlap_comm", stage_of(config) == 3)
        if switch(config, f"{ZENFLOW}/offload") and overlaps is False:
            default = "" if config.has("/zero_optimization/overlap_comm") else ", which is its default at this stage"
            message = f"zenflow offload: true is refused with overlap_comm: false{default}"
            yield Breach(where=config.locate(f"{ZENFLOW}/offload"), message=message, hint='"overlap_comm": true')


def zenflow_accumulates_by_its_interval(submission: Submission) -> Iterator[Breach]:
    """With ZenFlow, update_interval takes the place of gradient_accumulation_steps."""
    for config in _with_zenflow(submission):
        steps = whole(given(config, "/gradient_accumulation_steps"))
        update = config.value(f"{ZENFLOW}/update_interval", "auto")
        if steps is not None and steps > 1 and update != steps:
            message = f"gradient_accumulation_steps: {steps} is replaced by zenflow's update_interval: {shown(update)}"
            hint = "gradient_accumulation_steps: 1, with a larger micro-batch or batch of fewer samples"
            yield Breach(where=config.locate("/gradient_accumulation_steps"), message=message, hint=hint)


def zenflow_has_params(submission: Submission) -> Iterator[Breach]:
    """ZenFlow at stages 1 and 2 builds its own AdamW from the config's optimizer params, so there are some."""
    for config in _with_zenflow(submission):
        if stage_of(config) in (1, 2) and not isinstance(config.value(PARAMS), dict):
            message = "zenflow builds its own AdamW from the optimizer's params, but the config has none"
            hint = '"optimizer": {"type": "AdamW", "params": {"lr": ...}}'
            yield Breach(where=config.locate_key(ZENFLOW), message=message, hint=hint)


def zenflow_params_are_torchs(submission: Submission) -> Iterator[Breach]:
    """ZenFlow at stages 1 and 2 hands the optimizer's params to torch's AdamW, which has none of DeepSpeed's own."""
    for config in _with_zenflow(submission):
        for key in DEEPSPEEDS_OWN if stage_of(config) in (1, 2) else ():
            pointer = f"{PARAMS}/{key}"
            if config.has(pointer):
                message = f"{key} reaches torch's AdamW by way of zenflow, and it raises"
                where, edits = config.locate_key(pointer), removed(config, pointer)
                yield Breach(where=where, message=message, hint=f"remove {key}", edits=edits)


RULES: Final[tuple[DocumentRule, ...]] = (
    ds_rule(
        "ZERO057",
        Severity.ERROR,
        "init",
        zenflow_offloads,
        source=deepspeed_now("runtime/zenflow/zenflow_stage_1_and_2.py:116"),
        prevents="`Zenflow must be used with cpu offload`",
        fix="offload the optimizer",
        since=(0, 17, 6),
    ),
    ds_rule(
        "ZERO058",
        Severity.ERROR,
        "init",
        zenflow_selects_one_way,
        source=deepspeed_now("runtime/zenflow/engine.py:37"),
        prevents="a Warning raised as an error, or `select_interval must be a number`",
        fix="a strategy with its interval, or neither",
        since=(0, 17, 6),
    ),
    ds_rule(
        "ZERO059",
        Severity.ERROR,
        "init",
        zenflow_selects_seldom,
        source=deepspeed_now("runtime/zenflow/engine.py:62"),
        prevents="`Select interval must be greater or equal to update interval`",
        fix="a longer select_interval",
        since=(0, 17, 6),
    ),
    ds_rule(
        "ZERO060",
        Severity.ERROR,
        "init",
        zenflow_offload_overlaps,
        source=deepspeed_now("runtime/zenflow/zenflow_stage_1_and_2.py:76; runtime/zenflow/engine_stage3.py:101"),
        prevents="`offload selective optimizer should be used with overlap_comm`",
        fix="overlap_comm: true",
        since=(0, 17, 6),
    ),
    ds_rule(
        "ZERO061",
        Severity.ERROR,
        "silent",
        zenflow_accumulates_by_its_interval,
        source=deepspeed_now("runtime/zenflow/engine.py:69"),
        prevents="steps silently happen at other times than the config says",
        fix="gradient_accumulation_steps: 1",
        since=(0, 17, 6),
    ),
    ds_rule(
        "ZERO062",
        Severity.ERROR,
        "init",
        zenflow_has_params,
        source=deepspeed_now("runtime/zenflow/zenflow_stage_1_and_2.py:84"),
        prevents="`TypeError: argument after ** must be a mapping, not NoneType`",
        fix="an optimizer block with params",
        since=(0, 17, 6),
    ),
    ds_rule(
        "ZERO063",
        Severity.ERROR,
        "init",
        zenflow_params_are_torchs,
        source=deepspeed_now("runtime/zenflow/zenflow_stage_1_and_2.py:84"),
        prevents="`TypeError: AdamW.__init__() got an unexpected keyword argument`",
        fix="parameters of torch's AdamW",
        since=(0, 17, 6),
    ),
)
