"""What runs alongside training: profilers, timers, monitors, logs."""

from __future__ import annotations

import math
from typing import Final

from ....findings import ERROR, NOTE, WARNING, Severity, Violation, Violations
from ....rules.sources import deepspeed_now, derived
from ....rules.violations import violation
from ...world import world_of
from ..config import Config
from .subjects import Run, configs, runs
from .values import shown

_PRINTED: Final = "/steps_per_print"
_MONITORS: Final = ("tensorboard", "wandb", "csv_monitor", "comet")


def while_on(config: Config, pointer: str, effect: str, hint: str | None = None) -> Violations:
    """A violation where a flag is on; `effect`: what it does then."""
    if config.switch(pointer):
        block, name = f"/{pointer}".split("/")[-2:]
        what = f"{block} is enabled:" if name == "enabled" else f"{name}: true"
        hint = hint or f'set "{name}" to false'
        yield violation(config, pointer, f"{what} {effect}", hint)


@configs.rule("OPT015", WARNING, "silent", derived("engine.py:3554 of DeepSpeed 0.19.8 takes its remainder"))
def steps_are_counted(config: Config) -> Violations:
    """steps_per_print is an integer.

    Prevents: Progress printed at other steps than intended, or a TypeError: Infinity in a file is text to hjson.
    Fix: write an integer"""
    where, steps = config.locate(_PRINTED), config.number(_PRINTED)
    if is_endless(config):
        message, severity = "steps_per_print: Infinity is never reached, so progress is never printed", None
        if config.consumer == "deepspeed":  # of a file; from a dict it is a float
            message = "steps_per_print: Infinity is text to hjson, with which DeepSpeed reads its config: TypeError"
            severity = Severity.ERROR
        yield Violation(where, message, "write null for never", severity=severity)
    elif isinstance(steps, float):
        message = f"steps_per_print: {shown(config.value(_PRINTED))} is a float, not an integer"
        less = NOTE if steps.is_integer() and steps > 0 else None  # the same remainders
        yield Violation(where, message, f"set steps_per_print to {max(1, int(steps))}", severity=less)


def is_endless(config: Config) -> bool:
    """Whether steps_per_print is Infinity without quotes: a float to `json`, a text to hjson."""
    data = config.json.json_data
    steps = data.get("steps_per_print") if isinstance(data, dict) else None
    return isinstance(steps, float) and not math.isfinite(steps)


@configs.rule("OPT039", ERROR, "training", deepspeed_now("runtime/engine.py:3554"))
def steps_are_not_zero(config: Config) -> Violations:
    """steps_per_print is not 0: the first step divides by it.

    Prevents: `ZeroDivisionError` at the first step
    Fix: write null for never"""
    if config.number(_PRINTED) == 0:
        message = f"steps_per_print: {shown(config.value(_PRINTED))} is a division by zero at the first step"
        yield violation(config, _PRINTED, message, "write null for never, or 100")


@configs.rule("MON001", NOTE, "silent", deepspeed_now("runtime/engine.py:3552"))
def every_step_is_not_printed(config: Config) -> Violations:
    """Progress is not printed at every step.

    Prevents: A log of as many lines as steps.
    Fix: write a larger number"""
    if config.read(_PRINTED) == 1 and config.value(_PRINTED) is not True:
        message = "steps_per_print: 1 logs a line at every step"
        yield violation(config, _PRINTED, message, "write 100, or null for never")


@configs.rule("MON002", NOTE, "silent", deepspeed_now("runtime/config.py:533"))
def profilers_run_once(config: Config) -> Violations:
    """The flops profiler is off in production: it times, and so synchronizes, every step, not just its own.

    Prevents: Every step of the job waits for its timers.
    Fix: disable it after the profile"""
    step = shown(config.value("/flops_profiler/profile_step", 1))
    effect = f"it profiles step {step}, and turns wall_clock_breakdown on for all steps"
    yield from while_on(config, "/flops_profiler/enabled", effect, 'set "enabled" to false after the profile')


@configs.rule("MON003", NOTE, "silent", deepspeed_now("runtime/engine.py:714"))
def steps_are_not_timed(config: Config) -> Violations:
    """Neither wall_clock_breakdown nor memory_breakdown is on in production.

    Prevents: Steps that wait for their own measurement.
    Fix: set them to false"""
    if not config.switch("/flops_profiler/enabled"):
        yield from while_on(config, "/wall_clock_breakdown", "makes the host wait for the GPU several times a step")
    yield from while_on(config, "/memory_breakdown", "logs the memory's state at every stage of every step")


@configs.rule("MON004", WARNING, "silent", deepspeed_now("comm/comm.py:131"))
def collectives_are_not_timed(config: Config) -> Violations:
    """The log of communication is off in production: it waits for every collective.

    Prevents: Communication that no longer overlaps computation.
    Fix: disable it in production"""
    yield from while_on(config, "/comms_logger/enabled", "every collective is waited for, so nothing overlaps")


@configs.rule("MON005", NOTE, "launcher", deepspeed_now("autotuning/config.py"))
def tuning_is_over(config: Config) -> Violations:
    """Autotuning is off in a job that trains.

    Prevents: A job that searches where it should train.
    Fix: disable it in production"""
    effect = "started by the deepspeed launcher with --autotuning, the job tunes first"
    yield from while_on(config, "/autotuning/enabled", effect, 'set "enabled" to false when tuning is done')


@configs.rule("MON006", WARNING, "silent", deepspeed_now("monitor/config.py"))
def monitors_are_switched_on(config: Config) -> Violations:
    """A monitor with settings is enabled.

    Prevents: Nothing is logged.
    Fix: set enabled to true"""
    for name in _MONITORS:
        if config.block(f"/{name}") and not config.has(f"/{name}/enabled"):
            message = f"{name} has settings but is not enabled, so nothing is logged"
            yield Violation(config.locate_key(f"/{name}"), message, 'add "enabled": true')


@configs.rule("MON008", WARNING, "silent", deepspeed_now("__init__.py:556"))
def engines_train(config: Config) -> Violations:
    """The hybrid engine is used for RLHF only, which generates between its steps.

    Prevents: Another engine than the one for training.
    Fix: disable it unless the job generates"""
    effect = "it keeps inference kernels for generation, which only RLHF needs"
    yield from while_on(config, "/hybrid_engine/enabled", effect, 'set "enabled" to false unless the job generates')


@configs.rule("MON009", NOTE, "training", deepspeed_now("runtime/engine.py:4435"))
def universal_checkpoints_are_meant(config: Config) -> Violations:
    """checkpoint.load_universal is on only where a universal checkpoint is loaded.

    Prevents: `Invalid for universal checkpoint` when a job resumes from its own checkpoint
    Fix: disable it after the converted checkpoint is loaded"""
    effect = "loads only converted checkpoints, and those that this job saves are not"
    yield from while_on(config, "/checkpoint/load_universal", effect, "set it to false after the first resume")


@runs.rule("MON010", NOTE, "silent", deepspeed_now("runtime/engine.py:1905"))
def node_local_checkpoints_are_gathered(run: Run) -> Violations:
    """Checkpoints of several nodes are not saved to node-local storage.

    Prevents: Parts of a checkpoint on disks that the next job may not have.
    Fix: use a shared file system"""
    nodes, effect = world_of(run.submission).nodes, "spreads a checkpoint over the disks of"
    if nodes and nodes > 1:
        yield from while_on(run.config, "/checkpoint/use_node_local_storage", f"{effect} {nodes} nodes")
