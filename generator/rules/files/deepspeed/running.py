"""What runs beside training: profilers, timers, monitors, logs."""

from __future__ import annotations

import math
from typing import Final

from ....documents.deepspeed_config import Config
from ....documents.submission import Submission
from ....documents.world import world_of
from ....findings import ERROR, NOTE, WARNING, Severity, Violation, Violations
from ...rule import submissions
from ...sources import deepspeed_now, derived
from .subjects import configs
from .values import shown

MONITORS: Final = ("tensorboard", "wandb", "csv_monitor", "comet")
_SECRETS: Final = ("api_key", "token", "secret", "password")
_PLACEHOLDERS: Final = ("<", "$", "{", "your", "xxx", "todo")


@submissions.rule(
    "OPT015",
    WARNING,
    "silent",
    derived("runtime/engine.py:3554 of DeepSpeed 0.19.8 takes a remainder, which floats have and texts don't"),
    reads=("DeepSpeed config",),
)
def steps_are_counted(submission: Submission) -> Violations:
    """steps_per_print is a whole number of steps.

    Prevents: progress printed at other steps than meant; Infinity in a file is text to hjson: a TypeError
    Fix: a whole number
    """
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
            yield Violation(where=where, message=message, hint="null for never", severity=severity)
            continue
        steps = config.number("/steps_per_print")
        if isinstance(steps, float):
            message = f"steps_per_print: {shown(config.value('/steps_per_print'))} is a float: it works by accident"
            yield Violation(where=where, message=message, hint=f"steps_per_print: {max(1, int(steps))}")


def is_endless(config: Config) -> bool:
    """Whether steps_per_print is Infinity without quotes: a float to `json`, a text to hjson."""
    data = config.json.json_data
    steps = data.get("steps_per_print") if isinstance(data, dict) else None
    return isinstance(steps, float) and not math.isfinite(steps)


@configs.rule("OPT039", ERROR, "training", deepspeed_now("runtime/engine.py:3554"))
def steps_are_not_zero(config: Config) -> Violations:
    """steps_per_print is not 0: the first step divides by it.

    Prevents: `ZeroDivisionError` at the first step
    Fix: null for never
    """
    steps = config.number("/steps_per_print")
    if steps == 0:
        message = (
            f"steps_per_print: {shown(config.value('/steps_per_print'))} ends the first step by a division by zero"
        )
        yield Violation(where=config.locate("/steps_per_print"), message=message, hint="null for never, or 100")


@configs.rule("MON001", NOTE, "silent", deepspeed_now("runtime/engine.py:3552"))
def every_step_is_not_printed(config: Config) -> Violations:
    """Progress is not printed at every step.

    Prevents: a log of as many lines as steps
    Fix: a larger number
    """
    if config.read("/steps_per_print") == 1 and config.value("/steps_per_print") is not True:
        message = "steps_per_print: 1 writes a line of log at every step"
        yield Violation(where=config.locate("/steps_per_print"), message=message, hint="100, or null for never")


@configs.rule("MON002", WARNING, "silent", deepspeed_now("runtime/config.py:533"))
def profilers_run_once(config: Config) -> Violations:
    """The flops profiler is off in production: it times, and so synchronises, every step, not just its own.

    Prevents: every step of the job waits for its timers
    Fix: off after the profile
    """
    if config.switch("/flops_profiler/enabled"):
        step = config.value("/flops_profiler/profile_step", 1)
        message = f"flops_profiler is enabled: it profiles step {shown(step)}, and wall_clock_breakdown is on for all"
        where = config.locate("/flops_profiler/enabled")
        yield Violation(where=where, message=message, hint="enabled: false after the profile")


@configs.rule("MON003", NOTE, "silent", deepspeed_now("runtime/engine.py:714"))
def steps_are_not_timed(config: Config) -> Violations:
    """Neither wall_clock_breakdown nor memory_breakdown is on in production.

    Prevents: steps that wait for their own measurement
    Fix: false
    """
    if config.switch("/wall_clock_breakdown") and not config.switch("/flops_profiler/enabled"):
        message = "wall_clock_breakdown: true makes the host wait for the GPU several times a step"
        yield Violation(where=config.locate("/wall_clock_breakdown"), message=message, hint="false")
    if config.switch("/memory_breakdown"):
        message = "memory_breakdown: true writes the memory's state at every stage of every step"
        yield Violation(where=config.locate("/memory_breakdown"), message=message, hint="false")


@configs.rule("MON004", WARNING, "silent", deepspeed_now("comm/comm.py:131"))
def collectives_are_not_timed(config: Config) -> Violations:
    """The log of communication is off in production: it waits for every collective.

    Prevents: communication that no longer overlaps computation
    Fix: off in production
    """
    if config.switch("/comms_logger/enabled"):
        message = "comms_logger is enabled: every collective is waited for, so nothing overlaps"
        where = config.locate("/comms_logger/enabled")
        yield Violation(where=where, message=message, hint="enabled: false")


@configs.rule("MON005", NOTE, "launcher", deepspeed_now("autotuning/config.py"))
def tuning_is_over(config: Config) -> Violations:
    """Autotuning is off in a job that trains.

    Prevents: a job that searches where it should train
    Fix: off in production
    """
    if config.switch("/autotuning/enabled"):
        message = "autotuning is enabled: started by the deepspeed launcher with --autotuning, the job tunes first"
        where = config.locate("/autotuning/enabled")
        yield Violation(where=where, message=message, hint="enabled: false once it is tuned")


@configs.rule("MON006", WARNING, "silent", deepspeed_now("monitor/config.py"))
def monitors_are_switched_on(config: Config) -> Violations:
    """A monitor with settings is enabled, or nothing is logged.

    Prevents: a run without a record
    Fix: enabled: true
    """
    for name in MONITORS:
        if config.block(f"/{name}") and not config.has(f"/{name}/enabled"):
            message = f"{name} has settings but is not enabled, so nothing is logged"
            yield Violation(where=config.locate_key(f"/{name}"), message=message, hint='"enabled": true')


@configs.rule(
    "MON007",
    WARNING,
    "silent",
    derived("DeepSpeed prints its whole configuration in every log: runtime/config.py:620 of 0.19.8"),
)
def keys_are_not_shared(config: Config) -> Violations:
    """Secrets are not written into configs.

    Prevents: a secret in every log
    Fix: the environment
    """
    for name in MONITORS:
        for key, value in config.block(f"/{name}").items():
            secret = isinstance(value, str) and len(value) >= 8 and any(word in key.lower() for word in _SECRETS)
            if secret and not any(mark in str(value).lower() for mark in _PLACEHOLDERS):
                message = f"{name} {key} is a secret in a file that is shared, logged and checkpointed"
                where = config.locate_key(f"/{name}/{key}")
                hint = "the environment: COMET_API_KEY, WANDB_API_KEY"
                yield Violation(where=where, message=message, hint=hint)


@configs.rule("MON008", WARNING, "silent", deepspeed_now("__init__.py:556"))
def engines_train(config: Config) -> Violations:
    """The hybrid engine is for RLHF, which generates between its steps.

    Prevents: another engine than the one for training
    Fix: off unless the job generates
    """
    if config.switch("/hybrid_engine/enabled"):
        message = "hybrid_engine is enabled: it keeps inference kernels for generation, which only RLHF does"
        where = config.locate("/hybrid_engine/enabled")
        yield Violation(where=where, message=message, hint="enabled: false unless the job generates")


@configs.rule("MON009", NOTE, "training", deepspeed_now("runtime/engine.py:4435"))
def universal_checkpoints_are_meant(config: Config) -> Violations:
    """checkpoint.load_universal is on only where a universal checkpoint is loaded.

    Prevents: `Invalid for universal checkpoint` when a job resumes from its own checkpoint
    Fix: off after the conversion
    """
    if config.switch("/checkpoint/load_universal"):
        message = "load_universal: true loads converted checkpoints only: those that this job saves are not"
        where = config.locate("/checkpoint/load_universal")
        yield Violation(where=where, message=message, hint="false once the first step is taken from there")


@submissions.rule("MON010", NOTE, "silent", deepspeed_now("runtime/engine.py:1905"), reads=("DeepSpeed config",))
def node_local_checkpoints_are_gathered(submission: Submission) -> Violations:
    """Checkpoints in node-local storage lie on as many disks as there are nodes.

    Prevents: parts of a checkpoint on disks that the next job may not have
    Fix: a shared file system
    """
    nodes = world_of(submission).nodes
    for config in configs(submission):
        if config.switch("/checkpoint/use_node_local_storage") and nodes and nodes > 1:
            message = f"use_node_local_storage: true spreads a checkpoint over the disks of {nodes} nodes"
            where = config.locate("/checkpoint/use_node_local_storage")
            yield Violation(where=where, message=message, hint="false on a shared file system")
