"""What runs beside training: profilers, timers, monitors, logs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from ....documents.document import DsConfig
from ....documents.submission import Submission
from ....findings import Severity
from ...sources import deepspeed_now, derived
from ..rule import Breach, DocumentRule
from .values import configs, ds_rule, given, number, shown, switch

MONITORS: Final = ("tensorboard", "wandb", "csv_monitor", "comet")
_SECRETS: Final = ("api_key", "token", "secret", "password")
_PLACEHOLDERS: Final = ("<", "$", "{", "your", "xxx", "todo")


def steps_are_counted(submission: Submission) -> Iterator[Breach]:
    """steps_per_print is a whole number of steps."""
    for config in configs(submission):
        where = config.locate("/steps_per_print")
        if is_endless(config):
            message = "steps_per_print: Infinity is no step, so progress is never printed: it works by accident"
            severity = None
            if submission.consumer == "deepspeed":  # of a file; from a dict it is a float
                message = (
                    "steps_per_print: Infinity is a text to hjson, which DeepSpeed reads its config with: TypeError"
                )
                severity = Severity.ERROR
            yield Breach(where=where, message=message, hint="null for never", severity=severity)
            continue
        steps = number(given(config, "/steps_per_print"))
        if isinstance(steps, float):
            message = f"steps_per_print: {shown(config.value('/steps_per_print'))} is a float: it works by accident"
            yield Breach(where=where, message=message, hint=f"steps_per_print: {max(1, int(steps))}")


def is_endless(config: DsConfig) -> bool:
    """Whether steps_per_print is Infinity without quotes: a float to `json`, a text to hjson."""
    data = config.json.json_data
    steps = data.get("steps_per_print") if isinstance(data, dict) else None
    return isinstance(steps, float) and not math.isfinite(steps)


def steps_are_not_zero(submission: Submission) -> Iterator[Breach]:
    """steps_per_print is not 0: the first step divides by it."""
    for config in configs(submission):
        steps = number(given(config, "/steps_per_print"))
        if steps == 0:
            message = (
                f"steps_per_print: {shown(config.value('/steps_per_print'))} ends the first step by a division by zero"
            )
            yield Breach(where=config.locate("/steps_per_print"), message=message, hint="null for never, or 100")


def every_step_is_not_printed(submission: Submission) -> Iterator[Breach]:
    """Progress is not printed at every step."""
    for config in configs(submission):
        if given(config, "/steps_per_print") == 1 and config.value("/steps_per_print") is not True:
            message = "steps_per_print: 1 writes a line of log at every step"
            yield Breach(where=config.locate("/steps_per_print"), message=message, hint="100, or null for never")


def profilers_run_once(submission: Submission) -> Iterator[Breach]:
    """The flops profiler is off in production: it times, and so synchronises, every step, not just its own."""
    for config in configs(submission):
        if switch(config, "/flops_profiler/enabled"):
            step = config.value("/flops_profiler/profile_step", 1)
            message = (
                f"flops_profiler is enabled: it profiles step {shown(step)}, and wall_clock_breakdown is on for all"
            )
            where = config.locate("/flops_profiler/enabled")
            yield Breach(where=where, message=message, hint="enabled: false after the profile")


def steps_are_not_timed(submission: Submission) -> Iterator[Breach]:
    """Neither wall_clock_breakdown nor memory_breakdown is on in production."""
    for config in configs(submission):
        if switch(config, "/wall_clock_breakdown") and not switch(config, "/flops_profiler/enabled"):
            message = "wall_clock_breakdown: true makes the host wait for the GPU several times a step"
            yield Breach(where=config.locate("/wall_clock_breakdown"), message=message, hint="false")
        if switch(config, "/memory_breakdown"):
            message = "memory_breakdown: true writes the memory's state at every stage of every step"
            yield Breach(where=config.locate("/memory_breakdown"), message=message, hint="false")


def collectives_are_not_timed(submission: Submission) -> Iterator[Breach]:
    """The log of communication is off in production: it waits for every collective."""
    for config in configs(submission):
        if switch(config, "/comms_logger/enabled"):
            message = "comms_logger is enabled: every collective is waited for, so nothing overlaps"
            where = config.locate("/comms_logger/enabled")
            yield Breach(where=where, message=message, hint="enabled: false")


def tuning_is_over(submission: Submission) -> Iterator[Breach]:
    """Autotuning is off in a job that trains."""
    for config in configs(submission):
        if switch(config, "/autotuning/enabled"):
            message = "autotuning is enabled: started by the deepspeed launcher with --autotuning, the job tunes first"
            where = config.locate("/autotuning/enabled")
            yield Breach(where=where, message=message, hint="enabled: false once it is tuned")


def monitors_are_switched_on(submission: Submission) -> Iterator[Breach]:
    """A monitor with settings is enabled, or nothing is logged."""
    for config in configs(submission):
        for name in MONITORS:
            if config.block(f"/{name}") and not config.has(f"/{name}/enabled"):
                message = f"{name} has settings but is not enabled, so nothing is logged"
                yield Breach(where=config.locate_key(f"/{name}"), message=message, hint='"enabled": true')


def keys_are_not_shared(submission: Submission) -> Iterator[Breach]:
    """Secrets are not written into configs."""
    for config in configs(submission):
        for name in MONITORS:
            for key, value in config.block(f"/{name}").items():
                secret = isinstance(value, str) and len(value) >= 8 and any(word in key.lower() for word in _SECRETS)
                if secret and not any(mark in str(value).lower() for mark in _PLACEHOLDERS):
                    message = f"{name} {key} is a secret in a file that is shared, logged and checkpointed"
                    where = config.locate_key(f"/{name}/{key}")
                    hint = "the environment: COMET_API_KEY, WANDB_API_KEY"
                    yield Breach(where=where, message=message, hint=hint)


def engines_train(submission: Submission) -> Iterator[Breach]:
    """The hybrid engine is for RLHF, which generates between its steps."""
    for config in configs(submission):
        if switch(config, "/hybrid_engine/enabled"):
            message = "hybrid_engine is enabled: it keeps inference kernels for generation, which only RLHF does"
            where = config.locate("/hybrid_engine/enabled")
            yield Breach(where=where, message=message, hint="enabled: false unless the job generates")


def universal_checkpoints_are_meant(submission: Submission) -> Iterator[Breach]:
    """checkpoint.load_universal is on only where a universal checkpoint is loaded."""
    for config in configs(submission):
        if switch(config, "/checkpoint/load_universal"):
            message = "load_universal: true loads converted checkpoints only: those that this job saves are not"
            where = config.locate("/checkpoint/load_universal")
            yield Breach(where=where, message=message, hint="false once the first step is taken from there")


def node_local_checkpoints_are_gathered(submission: Submission) -> Iterator[Breach]:
    """Checkpoints in node-local storage lie on as many disks as there are nodes."""
    nodes = submission.world.nodes
    for config in configs(submission):
        if switch(config, "/checkpoint/use_node_local_storage") and nodes and nodes > 1:
            message = f"use_node_local_storage: true spreads a checkpoint over the disks of {nodes} nodes"
            where = config.locate("/checkpoint/use_node_local_storage")
            yield Breach(where=where, message=message, hint="false on a shared file system")


RULES: Final[tuple[DocumentRule, ...]] = (
    ds_rule(
        "OPT015",
        Severity.WARNING,
        "silent",
        steps_are_counted,
        source=derived(
            "runtime/engine.py:3554 of DeepSpeed 0.19.8 takes a remainder, which floats have and texts don't"
        ),
        prevents="progress printed at other steps than meant; Infinity in a file is text to hjson: a TypeError",
        fix="a whole number",
    ),
    ds_rule(
        "OPT039",
        Severity.ERROR,
        "training",
        steps_are_not_zero,
        source=deepspeed_now("runtime/engine.py:3554"),
        prevents="`ZeroDivisionError` at the first step",
        fix="null for never",
    ),
    ds_rule(
        "MON001",
        Severity.NOTE,
        "silent",
        every_step_is_not_printed,
        source=deepspeed_now("runtime/engine.py:3552"),
        prevents="a log of as many lines as steps",
        fix="a larger number",
    ),
    ds_rule(
        "MON002",
        Severity.WARNING,
        "silent",
        profilers_run_once,
        source=deepspeed_now("runtime/config.py:533"),
        prevents="every step of the job waits for its timers",
        fix="off after the profile",
    ),
    ds_rule(
        "MON003",
        Severity.NOTE,
        "silent",
        steps_are_not_timed,
        source=deepspeed_now("runtime/engine.py:714"),
        prevents="steps that wait for their own measurement",
        fix="false",
    ),
    ds_rule(
        "MON004",
        Severity.WARNING,
        "silent",
        collectives_are_not_timed,
        source=deepspeed_now("comm/comm.py:131"),
        prevents="communication that no longer overlaps computation",
        fix="off in production",
    ),
    ds_rule(
        "MON005",
        Severity.NOTE,
        "launcher",
        tuning_is_over,
        source=deepspeed_now("autotuning/config.py"),
        prevents="a job that searches where it should train",
        fix="off in production",
    ),
    ds_rule(
        "MON006",
        Severity.WARNING,
        "silent",
        monitors_are_switched_on,
        source=deepspeed_now("monitor/config.py"),
        prevents="a run without a record",
        fix="enabled: true",
    ),
    ds_rule(
        "MON007",
        Severity.WARNING,
        "silent",
        keys_are_not_shared,
        source=derived("DeepSpeed prints its whole configuration in every log: runtime/config.py:620 of 0.19.8"),
        prevents="a secret in every log",
        fix="the environment",
    ),
    ds_rule(
        "MON008",
        Severity.WARNING,
        "silent",
        engines_train,
        source=deepspeed_now("__init__.py:556"),
        prevents="another engine than the one for training",
        fix="off unless the job generates",
    ),
    ds_rule(
        "MON009",
        Severity.NOTE,
        "training",
        universal_checkpoints_are_meant,
        source=deepspeed_now("runtime/engine.py:4435"),
        prevents="`Invalid for universal checkpoint` when a job resumes from its own checkpoint",
        fix="off after the conversion",
    ),
    ds_rule(
        "MON010",
        Severity.NOTE,
        "silent",
        node_local_checkpoints_are_gathered,
        source=deepspeed_now("runtime/engine.py:1905"),
        prevents="parts of a checkpoint on disks that the next job may not have",
        fix="a shared file system",
    ),
)
