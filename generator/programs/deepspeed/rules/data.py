"""The blocks on data and compression: curricula, random layerwise token dropping, techniques of compression."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from ....findings import ERROR, NOTE, WARNING, Violation, Violations
from ....job.wording import escape, show
from ....rules.violations import deepspeed, deepspeed_now, derived, suggest, violation
from ...subjects import subject
from ...submission import Submission
from ..config import Config, number_of, whole_of
from .subjects import configs, named, shown

_CURRICULUM: Final = "/data_efficiency/data_sampling/curriculum_learning"
_LEGACY: Final = "/curriculum_learning"
_LTD: Final = "/data_efficiency/data_routing/random_ltd"
_SCHEDULER: Final = "runtime/data_pipeline/curriculum_scheduler.py"
_ROUTING: Final = "runtime/data_pipeline/data_routing"
_SCHEDULES: Final = {
    "fixed_discrete": ("difficulty", "max_step"),
    "fixed_root": ("total_curriculum_step", "difficulty_step", "root_degree"),
    "fixed_linear": ("total_curriculum_step", "difficulty_step"),
    "custom": (),
}


class _Curriculum(NamedTuple):
    """A curriculum that is enabled."""

    config: Config
    pointer: str

    @property
    def block(self) -> Mapping[str, object]:
        """Its keys."""
        return self.config.block(self.pointer)

    @property
    def schedule(self) -> Mapping[str, object]:
        """The values of its schedule, in `schedule_config`."""
        return self.config.block(f"{self.pointer}/schedule_config")

    def violation(self, key: str, message: str, hint: str) -> Violation:
        """A violation at one of its keys."""
        return violation(self.config, f"{self.pointer}/{key}", message, hint)


@subject("DeepSpeed config")
def _curricula(submission: Submission) -> Iterator[_Curriculum]:
    for config in configs(submission):
        if config.switch(f"{_CURRICULUM}/enabled"):
            for name in config.block(f"{_CURRICULUM}/curriculum_metrics"):
                yield _Curriculum(config, f"{_CURRICULUM}/curriculum_metrics/{escape(name)}")
        if config.switch(f"{_LEGACY}/enabled"):
            yield _Curriculum(config, _LEGACY)


_dropping: Final = configs.where(lambda config: config.switch(f"{_LTD}/enabled"))


@_curricula.rule("DATA001", ERROR, "init", deepspeed(f"{_SCHEDULER}:16-105"))
def curricula_are_complete(curriculum: _Curriculum) -> Violations:
    """A curriculum has its difficulties, a schedule, and what its schedule requires; lists fit each other.
    Prevents: `Curriculum learning requires the config ...`, or an assertion without a text for uneven lists
    Fix: add the keys that the message names"""
    kind, schedule = curriculum.block.get("schedule_type"), curriculum.schedule
    needed = ("min_difficulty", "max_difficulty", "schedule_type")
    missing = [key for key in needed if key not in curriculum.block]
    required = _SCHEDULES.get(kind, ()) if isinstance(kind, str) else ()
    missing += [f"schedule_config.{key}" for key in required if key not in schedule]
    if missing:
        where = curriculum.config.locate_key(curriculum.pointer)
        yield Violation(where, f"the curriculum has no {', '.join(missing)}", f"add {' and '.join(missing)}")
    if isinstance(kind, str) and kind not in _SCHEDULES:
        yield curriculum.violation("schedule_type", f"unknown schedule_type {shown(kind)}", suggest(kind, _SCHEDULES))
    levels, steps = schedule.get("difficulty"), schedule.get("max_step")
    if kind != "fixed_discrete" or not isinstance(levels, list) or not isinstance(steps, list):
        return
    if not steps or len(levels) != len(steps) + 1:
        message = f"difficulty has {len(levels)} entries and max_step {len(steps)}: it must have one less, but not 0"
        yield curriculum.violation("schedule_config", message, "write max_step for all difficulties but the last")


@_curricula.rule("DATA003", NOTE, "silent", deepspeed(f"{_SCHEDULER}:74"))
def difficulty_fills_tensor_cores(curriculum: _Curriculum) -> Violations:
    """Sequence lengths of a curriculum grow in steps of 8.
    Prevents: matrix products that don't use the tensor cores, which only the log reports
    Fix: use a multiple of 8"""
    step = whole_of(curriculum.schedule.get("difficulty_step"))
    lengths = "seqlen" in curriculum.pointer or curriculum.block.get("curriculum_type") == "seqlen"
    if step and step % 8 and lengths:
        message = f"difficulty_step: {step} gives sequences whose length is not a multiple of 8"
        hint = f"set difficulty_step to {step + 8 - step % 8}"
        yield curriculum.violation("schedule_config/difficulty_step", message, hint)


@configs.rule("DATA005", WARNING, "silent", deepspeed_now("runtime/engine.py:1402; runtime/engine.py:1414"))
def parts_are_switched_off_themselves(config: Config) -> Violations:
    """A curriculum, or token dropping, that is enabled is within blocks that are: their `enabled` is not read.
    Prevents: A curriculum that runs where it seems to be off.
    Fix: set enabled to the same in each"""
    for pointer in (_CURRICULUM, _LTD):
        parent, _, name = pointer.rpartition("/")
        around = [block for block in ("/data_efficiency", parent) if config.switch(f"{block}/enabled") is False]
        if config.switch(f"{pointer}/enabled") and around:
            outer = " and ".join(block.rpartition("/")[2] for block in around)
            message = f"{name} runs although {outer} is not enabled: only its own switch is read"
            yield violation(config, f"{pointer}/enabled", message, "enable or disable all of them")


@_dropping.rule("DATA006", ERROR, "init", deepspeed_now("runtime/engine.py:1438"))
def dropped_layers_are_counted(config: Config) -> Violations:
    """random_ltd_layer_num is the number of layers in random_ltd_layer_id.
    Prevents: `random_ltd_layer_num ... must be equivalent to the len of random_ltd_layer_id`
    Fix: set it to the number of layers listed"""
    pointer, layers = f"{_LTD}/random_ltd_layer_num", config.value(f"{_LTD}/random_ltd_layer_id")
    count = config.whole(pointer)
    if isinstance(layers, list) and count is not None and count != len(layers):
        message = f"random_ltd_layer_num: {count}, but random_ltd_layer_id has {len(layers)}"
        yield violation(config, pointer, message, f"set it to {len(layers)}")


@_dropping.rule("DATA007", ERROR, "init", deepspeed_now(f"{_ROUTING}/scheduler.py:50; runtime/engine.py:1444"))
def dropping_has_no_rate(config: Config) -> Violations:
    """random_ltd's layer_token_lr_schedule is off: DeepSpeed doesn't implement it.
    Prevents: NotImplementedError when the engine starts
    Fix: set enabled to false"""
    pointer = f"{_LTD}/layer_token_lr_schedule/enabled"
    if config.switch(pointer):
        message = "layer_token_lr_schedule is enabled, which DeepSpeed doesn't implement"
        yield violation(config, pointer, message, 'set "enabled" to false')


@_curricula.rule("DATA008", ERROR, "silent", derived("the schedule rises from the lowest difficulty to the highest"))
def difficulties_rise(curriculum: _Curriculum) -> Violations:
    """min_difficulty is at most max_difficulty.
    Prevents: A curriculum that stays at one difficulty.
    Fix: write the lower one as min_difficulty"""
    lowest, highest = (number_of(curriculum.block.get(f"{end}_difficulty")) for end in ("min", "max"))
    if lowest is not None and highest is not None and lowest > highest:
        message = f"min_difficulty: {shown(lowest)} is above max_difficulty: {shown(highest)}"
        yield curriculum.violation("min_difficulty", message, f"set min_difficulty to {shown(highest)} or less")


_BLOCK: Final = "/compression_training"
#: What the parameters of each group must have.
_NEEDED: Final = {
    "weight_quantization": ("start_bits", "target_bits"),
    "activation_quantization": ("bits",),
    **dict.fromkeys(("sparse_pruning", "row_pruning", "head_pruning", "channel_pruning"), ("dense_ratio",)),
}
_QUANTIZED: Final = {"quantization_type": ("symmetric", "asymmetric")}
#: What shared parameters may be. Source: deepspeed/compression/constants.py @ 0.16.9
_CHOICES: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "weight_quantization": {**_QUANTIZED, "rounding": ("nearest", "stochastic")},
    "activation_quantization": {**_QUANTIZED, "range_calibration": ("dynamic", "static")},
    "sparse_pruning": {"method": ("l1", "topk", "snip_momentum")},
    "row_pruning": {"method": ("l1", "topk")},
    "head_pruning": {"method": ("l1", "topk")},
    "channel_pruning": {"method": ("l1", "topk")},
}


@configs.rule("PARSE022", ERROR, "parse", deepspeed("compression/config.py:18-452"), before=(0, 19, 7))
def compression_is_whole(config: Config) -> Violations:
    """Each technique of compression_training has groups, whose params have what it needs, and methods that there are.
    Prevents: KeyError: 'different_groups'; dense_ratio must be specified for row pruning group rp1.
    Fix: add the key, or remove the technique"""
    for technique in (technique for technique in _NEEDED if technique in config.block(_BLOCK)):
        at = f"{_BLOCK}/{technique}"
        shared, groups = f"{at}/shared_parameters", f"{at}/different_groups"
        yield from _lacking(config, at, ("different_groups",))
        if config.has(shared):
            heads = technique == "head_pruning" and config.block(shared).get("enabled")
            yield from _lacking(config, shared, ("num_heads",) if heads else ())
        for name, choices in _CHOICES[technique].items() if isinstance(config.value(shared), dict) else ():
            value = config.value(f"{shared}/{name}", choices[0])
            if value not in choices:
                message = f"{name} is {show(value)}, which DeepSpeed doesn't have here"
                yield violation(config, f"{shared}/{name}", message, f"use {' or '.join(choices)}")
        if config.has(groups):
            yield from _lacking(config, groups, ())
        for group in (f"{groups}/{escape(name)}" for name in config.block(groups)):
            yield from _lacking(config, group, ("params",))
            if "params" in config.block(group):
                yield from _lacking(config, f"{group}/params", _NEEDED[technique])


def _lacking(config: Config, at: str, needed: tuple[str, ...]) -> Violations:
    """A violation where no object is at a pointer, or it lacks a key."""
    value = config.value(at)
    if not isinstance(value, dict):
        yield violation(config, at, f"{named(at)} is {show(value)}, not an object", "write an object")
        return
    for name in needed:
        if name not in value:
            message = f"{named(at)} has no {name}, which DeepSpeed reads there"
            yield Violation(config.locate_key(at), message, f"add {name}, or remove the technique")
