"""Data efficiency: curricula and random layerwise token dropping."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from ....documents.deepspeed_config import Config, number_of, whole_of
from ....findings import ERROR, WARNING, Violation, Violations
from ....job.source import escape
from ...sources import deepspeed, deepspeed_now, derived
from .subjects import configs
from .values import shown

CURRICULUM: Final = "/data_efficiency/data_sampling/curriculum_learning"
LEGACY: Final = "/curriculum_learning"
LTD: Final = "/data_efficiency/data_routing/random_ltd"

_NEEDED: Final = ("min_difficulty", "max_difficulty", "schedule_type")
_SCHEDULES: Final = {
    "fixed_discrete": ("difficulty", "max_step"),
    "fixed_root": ("total_curriculum_step", "difficulty_step", "root_degree"),
    "fixed_linear": ("total_curriculum_step", "difficulty_step"),
    "custom": (),
}


def _curricula(config: Config) -> Iterator[tuple[str, Mapping[str, object]]]:
    """The pointer and content of every curriculum that is enabled."""
    if config.switch(f"{CURRICULUM}/enabled"):
        for name in config.block(f"{CURRICULUM}/curriculum_metrics"):
            pointer = f"{CURRICULUM}/curriculum_metrics/{escape(name)}"
            yield pointer, config.block(pointer)
    if config.switch(f"{LEGACY}/enabled"):
        yield LEGACY, config.block(LEGACY)


@configs.rule("DATA001", ERROR, "init", deepspeed("runtime/data_pipeline/curriculum_scheduler.py:16-105"))
def curricula_are_complete(config: Config) -> Violations:
    """A curriculum has its difficulties, a schedule, and what its schedule needs; lists fit each other.

    Prevents: `Curriculum learning requires the config ...`, or an assertion without a text for uneven lists
    Fix: write what is missing
    """
    for pointer, curriculum in _curricula(config):
        kind, inner = curriculum.get("schedule_type"), curriculum.get("schedule_config")
        missing = [key for key in _NEEDED if key not in curriculum]
        if isinstance(kind, str) and kind in _SCHEDULES and kind != "custom":
            inside = inner if isinstance(inner, dict) else {}
            missing += [f"schedule_config.{key}" for key in _SCHEDULES[kind] if key not in inside]
        if missing:
            message = f"the curriculum has no {', '.join(missing)}"
            yield Violation(where=config.locate_key(pointer), message=message, hint="write them")
        if isinstance(kind, str) and kind not in _SCHEDULES:
            message = f"schedule_type: {shown(kind)} is none of DeepSpeed's"
            where = config.locate(f"{pointer}/schedule_type")
            yield Violation(where=where, message=message, hint=f"one of {', '.join(_SCHEDULES)}")
        if kind == "fixed_discrete" and isinstance(inner, dict):
            yield from _uneven(config, pointer, inner)


def _uneven(config: Config, pointer: str, schedule: Mapping[str, object]) -> Violations:
    """A discrete curriculum has one difficulty more than it has steps between them."""
    levels, steps = schedule.get("difficulty"), schedule.get("max_step")
    if isinstance(levels, list) and isinstance(steps, list) and (not steps or len(levels) != len(steps) + 1):
        message = f"difficulty has {len(levels)} entries and max_step {len(steps)}: one less is needed, and not 0"
        where = config.locate(f"{pointer}/schedule_config")
        yield Violation(where=where, message=message, hint="the last one stays")


@configs.rule("DATA003", WARNING, "silent", deepspeed("runtime/data_pipeline/curriculum_scheduler.py:74"))
def difficulty_fills_tensor_cores(config: Config) -> Violations:
    """Sequence lengths of a curriculum grow in steps of 8.

    Prevents: matrix products that miss the tensor cores, told only in the log
    Fix: a multiple of 8
    """
    for pointer, curriculum in _curricula(config):
        inner = curriculum.get("schedule_config")
        step = whole_of(inner.get("difficulty_step")) if isinstance(inner, dict) else None
        lengths = "seqlen" in pointer or curriculum.get("curriculum_type") == "seqlen"
        if step and step % 8 and lengths:
            message = f"difficulty_step: {step} makes sequences whose length is no multiple of 8"
            where = config.locate(f"{pointer}/schedule_config/difficulty_step")
            yield Violation(where=where, message=message, hint=f"difficulty_step: {step + 8 - step % 8}")


@configs.rule("DATA005", WARNING, "silent", deepspeed_now("runtime/engine.py:1402; runtime/engine.py:1414"))
def parts_are_switched_off_themselves(config: Config) -> Violations:
    """A curriculum or token dropping runs by its own `enabled`: those of the blocks around it are not read.

    Prevents: a curriculum that runs where it seems to be off
    Fix: the same enabled in each
    """
    for pointer in (CURRICULUM, LTD):
        parent = pointer.rpartition("/")[0]
        around = [block for block in ("/data_efficiency", parent) if config.switch(f"{block}/enabled") is False]
        if config.switch(f"{pointer}/enabled") and around:
            name, outer = pointer.rpartition("/")[2], " and ".join(block.rpartition("/")[2] for block in around)
            message = f"{name} runs although {outer} is not enabled: only its own switch is read"
            where = config.locate(f"{pointer}/enabled")
            yield Violation(where=where, message=message, hint="enable or disable all of them")


@configs.rule("DATA006", ERROR, "init", deepspeed_now("runtime/engine.py:1438"))
def dropped_layers_are_counted(config: Config) -> Violations:
    """random_ltd_layer_num is the number of layers in random_ltd_layer_id.

    Prevents: `random_ltd_layer_num ... must be equivalent to the len of random_ltd_layer_id`
    Fix: the number of layers listed
    """
    layers, count = config.value(f"{LTD}/random_ltd_layer_id"), config.whole(f"{LTD}/random_ltd_layer_num")
    if config.switch(f"{LTD}/enabled") and isinstance(layers, list) and count is not None and count != len(layers):
        message = f"random_ltd_layer_num: {count}, but random_ltd_layer_id has {len(layers)}"
        where = config.locate(f"{LTD}/random_ltd_layer_num")
        yield Violation(where=where, message=message, hint=f"random_ltd_layer_num: {len(layers)}")


@configs.rule(
    "DATA007",
    ERROR,
    "init",
    deepspeed_now("runtime/data_pipeline/data_routing/scheduler.py:50; runtime/engine.py:1444"),
)
def dropping_has_no_rate(config: Config) -> Violations:
    """random_ltd's layer_token_lr_schedule is not built yet.

    Prevents: NotImplementedError when the engine starts
    Fix: enabled: false
    """
    pointer = f"{LTD}/layer_token_lr_schedule/enabled"
    if config.switch(f"{LTD}/enabled") and config.switch(pointer):
        message = "layer_token_lr_schedule is enabled, which DeepSpeed has not built yet"
        yield Violation(where=config.locate(pointer), message=message, hint="enabled: false")


@configs.rule(
    "DATA008",
    ERROR,
    "silent",
    derived("the schedule goes from the lowest to the highest difficulty and stops beyond it"),
)
def difficulties_rise(config: Config) -> Violations:
    """A curriculum starts with what is easier than its end.

    Prevents: a curriculum that stays at one difficulty
    Fix: the easier one first
    """
    for pointer, curriculum in _curricula(config):
        lowest, highest = (number_of(curriculum.get(f"{end}_difficulty")) for end in ("min", "max"))
        if lowest is not None and highest is not None and lowest > highest:
            message = f"min_difficulty: {shown(lowest)} is above max_difficulty: {shown(highest)}"
            where = config.locate(f"{pointer}/min_difficulty")
            yield Violation(where=where, message=message, hint=f"min_difficulty: {shown(highest)} or less")
