"""Rules on rare blocks: elastic training, curricula, token dropping, compression."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from ....findings import ERROR, NOTE, WARNING, Violation, Violations
from ....rules.violations import (
    deepspeed,
    deepspeed_0_19_8,
    derived,
    divisors,
    listed,
    nearest,
    suggest,
    violation,
)
from ....submission.subjects import subject
from ....submission.submission import Submission
from ....text.wording import escape, show
from ..config import BATCH_KEYS, Config, number_of, whole_of
from ..schema import as_hjson
from .batch import replicas_of
from .subjects import Run, configs, named, runs, shown

_CURRICULUM: Final = "/data_efficiency/data_sampling/curriculum_learning"
_LEGACY: Final = "/curriculum_learning"
_LTD: Final = "/data_efficiency/data_routing/random_ltd"
_SCHEDULER: Final = "runtime/data_pipeline/curriculum_scheduler.py"
_ROUTING: Final = "runtime/data_pipeline/data_routing"
#: What each schedule of a curriculum requires.
_SCHEDULES: Final = {
    "fixed_discrete": ("difficulty", "max_step"),
    "fixed_root": ("total_curriculum_step", "difficulty_step", "root_degree"),
    "fixed_linear": ("total_curriculum_step", "difficulty_step"),
    "custom": (),
}


class _Curriculum(NamedTuple):
    """A curriculum that is enabled, by its pointer in a config."""

    config: Config
    pointer: str

    @property
    def schedule(self) -> str:
        """The pointer of its schedule's settings."""
        return f"{self.pointer}/schedule_config"


@subject("DeepSpeed config")
def _curricula(submission: Submission) -> Iterator[_Curriculum]:
    """The curricula of all configs, of which the newer block has one for each metric."""
    metrics = f"{_CURRICULUM}/curriculum_metrics"
    for config in configs(submission):
        if config.switch(f"{_CURRICULUM}/enabled"):
            for name in config.block(metrics):
                yield _Curriculum(config, f"{metrics}/{escape(name)}")
        if config.switch(f"{_LEGACY}/enabled"):
            yield _Curriculum(config, _LEGACY)


_REQUIRED: Final = ("min_difficulty", "max_difficulty", "schedule_type")  #: of every curriculum
_TENSOR_CORE_STEP: Final = 8  # tokens: runtime/data_pipeline/curriculum_scheduler.py:74 asks for it
#: Configs in which layers drop tokens at random (random-LTD).
_dropping: Final = configs.where(lambda config: config.switch(f"{_LTD}/enabled"))


@_curricula.rule("DATA001", ERROR, "init", deepspeed(f"{_SCHEDULER}:16-105"))
def curricula_are_complete(curriculum: _Curriculum) -> Violations:
    """A curriculum has its difficulties, a schedule, and what its schedule requires; lists fit each
    other.
    Prevents: `Curriculum learning requires the config ...`, or an assertion without a text for
    uneven lists
    Fix: add the keys that the message names
    """
    config, pointer = curriculum
    block, schedule = config.block(pointer), config.block(curriculum.schedule)
    kind = block.get("schedule_type")
    required_by_kind = _SCHEDULES.get(kind, ()) if isinstance(kind, str) else ()
    missing = [
        *(key for key in _REQUIRED if key not in block),
        *(f"schedule_config.{key}" for key in required_by_kind if key not in schedule),
    ]
    if missing:
        message = f"the curriculum has no {', '.join(missing)}"
        hint = f"add {' and '.join(missing)}"
        yield Violation(config.locate_key(pointer), message, hint)
    if isinstance(kind, str) and kind not in _SCHEDULES:
        message, hint = f"unknown schedule_type {shown(kind)}", suggest(kind, _SCHEDULES)
        yield violation(config, f"{pointer}/schedule_type", message, hint)
    if kind == "fixed_discrete":
        yield from _uneven_lists(curriculum)


def _uneven_lists(curriculum: _Curriculum) -> Violations:
    """A violation unless the list of difficulties is one longer than that of the steps.

    Each step ends a difficulty; the last difficulty has no end.
    """
    schedule = curriculum.config.block(curriculum.schedule)
    levels, steps = schedule.get("difficulty"), schedule.get("max_step")
    if not isinstance(levels, list) or not isinstance(steps, list):
        return
    if not steps or len(levels) != len(steps) + 1:
        message = (
            f"difficulty has {len(levels)} entries and max_step {len(steps)}: max_step must "
            "have one less than difficulty, and one at least"
        )
        hint = "write max_step for all difficulties but the last"
        yield violation(curriculum.config, curriculum.schedule, message, hint)


@_curricula.rule("DATA003", NOTE, "silent", deepspeed(f"{_SCHEDULER}:74"))
def difficulty_fills_tensor_cores(curriculum: _Curriculum) -> Violations:
    """Sequence lengths of a curriculum grow in steps of 8.
    Prevents: matrix products that don't use the tensor cores, which only the log reports
    Fix: use a multiple of 8"""
    config, pointer = curriculum
    step_pointer = f"{curriculum.schedule}/difficulty_step"
    step = whole_of(config.value(step_pointer))
    are_lengths = "seqlen" in pointer or config.block(pointer).get("curriculum_type") == "seqlen"
    if step and step % _TENSOR_CORE_STEP and are_lengths:
        message = f"difficulty_step: {step} gives sequences whose length is not a multiple of 8"
        next_multiple = step + _TENSOR_CORE_STEP - step % _TENSOR_CORE_STEP
        hint = f"set difficulty_step to {next_multiple}"
        yield violation(config, step_pointer, message, hint)


@configs.rule(
    "DATA005", WARNING, "silent", deepspeed_0_19_8("runtime/engine.py:1402; runtime/engine.py:1414")
)
def parts_are_switched_off_themselves(config: Config) -> Violations:
    """A curriculum, or token dropping, is enabled only in blocks that are enabled too: DeepSpeed
    doesn't read their `enabled`.
    Prevents: A curriculum that runs where it seems to be off.
    Fix: set enabled to the same in each
    """
    for pointer in (_CURRICULUM, _LTD):
        parent, _, name = pointer.rpartition("/")
        switched_off = [
            block.rpartition("/")[2]
            for block in ("/data_efficiency", parent)
            if config.switch(f"{block}/enabled") is False
        ]
        if config.switch(f"{pointer}/enabled") and switched_off:
            blocks = " and ".join(switched_off)
            message = f"{name} runs although {blocks} is not enabled: only its own switch is read"
            yield violation(config, f"{pointer}/enabled", message, "enable or disable all of them")


@_dropping.rule("DATA006", ERROR, "init", deepspeed_0_19_8("runtime/engine.py:1438"))
def dropped_layers_are_counted(config: Config) -> Violations:
    """random_ltd_layer_num is the number of layers in random_ltd_layer_id.
    Prevents: `random_ltd_layer_num ... must be equivalent to the len of random_ltd_layer_id`
    Fix: set it to the number of layers listed"""
    pointer, layers = f"{_LTD}/random_ltd_layer_num", config.value(f"{_LTD}/random_ltd_layer_id")
    count = config.whole(pointer)
    if isinstance(layers, list) and count is not None and count != len(layers):
        message = f"random_ltd_layer_num: {count}, but random_ltd_layer_id has {len(layers)}"
        yield violation(config, pointer, message, f"set it to {len(layers)}")


@_dropping.rule(
    "DATA007",
    ERROR,
    "init",
    deepspeed_0_19_8(f"{_ROUTING}/scheduler.py:50; runtime/engine.py:1444"),
)
def dropping_has_no_rate(config: Config) -> Violations:
    """random_ltd's layer_token_lr_schedule is off: DeepSpeed doesn't implement it.
    Prevents: NotImplementedError when the engine starts
    Fix: set enabled to false"""
    pointer = f"{_LTD}/layer_token_lr_schedule/enabled"
    if config.switch(pointer):
        message = "layer_token_lr_schedule is enabled, which DeepSpeed doesn't implement"
        yield violation(config, pointer, message, 'set "enabled" to false')


@_curricula.rule(
    "DATA008",
    ERROR,
    "silent",
    derived("the schedule rises from the lowest difficulty to the highest"),
)
def difficulties_rise(curriculum: _Curriculum) -> Violations:
    """min_difficulty is at most max_difficulty.
    Prevents: A curriculum that stays at one difficulty.
    Fix: write the lower one as min_difficulty"""
    config, pointer = curriculum
    block = config.block(pointer)
    lowest = number_of(block.get("min_difficulty"))
    highest = number_of(block.get("max_difficulty"))
    if lowest is not None and highest is not None and lowest > highest:
        message = f"min_difficulty: {shown(lowest)} is above max_difficulty: {shown(highest)}"
        hint = f"set min_difficulty to {shown(highest)} or less"
        yield violation(config, f"{pointer}/min_difficulty", message, hint)


_COMPRESSION: Final = "/compression_training"
#: What the parameters of each group must have, by technique.
_GROUP_PARAMS: Final = {
    "weight_quantization": ("start_bits", "target_bits"),
    "activation_quantization": ("bits",),
    "sparse_pruning": ("dense_ratio",),
    "row_pruning": ("dense_ratio",),
    "head_pruning": ("dense_ratio",),
    "channel_pruning": ("dense_ratio",),
}
_QUANTIZED: Final = {"quantization_type": ("symmetric", "asymmetric")}
#: What shared parameters may be, the default first.
#: Source: deepspeed/compression/constants.py @ 0.16.9
_CHOICES: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "weight_quantization": {**_QUANTIZED, "rounding": ("nearest", "stochastic")},
    "activation_quantization": {**_QUANTIZED, "range_calibration": ("dynamic", "static")},
    "sparse_pruning": {"method": ("l1", "topk", "snip_momentum")},
    "row_pruning": {"method": ("l1", "topk")},
    "head_pruning": {"method": ("l1", "topk")},
    "channel_pruning": {"method": ("l1", "topk")},
}


@configs.rule(
    "PARSE022", ERROR, "parse", deepspeed("compression/config.py:18-452"), before=(0, 19, 7)
)
def compression_is_whole(config: Config) -> Violations:
    """Each technique of compression_training has groups with the params that it needs, and a method
    that DeepSpeed has.
    Prevents: KeyError: 'different_groups'; dense_ratio must be specified for row pruning group rp1.
    Fix: add the key, or remove the technique
    """
    for technique in _GROUP_PARAMS:
        if technique in config.block(_COMPRESSION):
            pointer = f"{_COMPRESSION}/{technique}"
            yield from _lacking(config, pointer, ("different_groups",))
            yield from _shared_parameters(config, technique)
            yield from _groups(config, technique)


def _shared_parameters(config: Config, technique: str) -> Violations:
    """What a technique's shared parameters lack, and choices that DeepSpeed doesn't have."""
    shared = f"{_COMPRESSION}/{technique}/shared_parameters"
    if not config.has(shared):
        return
    needs_heads = technique == "head_pruning" and config.block(shared).get("enabled")
    yield from _lacking(config, shared, ("num_heads",) if needs_heads else ())
    if not isinstance(config.value(shared), dict):
        return
    for name, choices in _CHOICES[technique].items():
        value = config.value(f"{shared}/{name}", choices[0])
        if value not in choices:
            message = f"{name} is {show(value)}, which DeepSpeed doesn't have here"
            hint = f"use {' or '.join(choices)}"
            yield violation(config, f"{shared}/{name}", message, hint)


def _groups(config: Config, technique: str) -> Violations:
    """What a technique's groups of layers lack."""
    groups = f"{_COMPRESSION}/{technique}/different_groups"
    if config.has(groups):
        yield from _lacking(config, groups, ())
    for name in config.block(groups):
        group = f"{groups}/{escape(name)}"
        yield from _lacking(config, group, ("params",))
        if "params" in config.block(group):
            yield from _lacking(config, f"{group}/params", _GROUP_PARAMS[technique])


def _lacking(config: Config, at: str, needed: tuple[str, ...]) -> Violations:
    """A violation where no object is at a pointer, or it lacks a key."""
    value = config.value(at)
    if not isinstance(value, dict):
        message = f"{named(at)} is {show(value)}, not an object"
        yield violation(config, at, message, "write an object")
        return
    for name in needed:
        if name not in value:
            message = f"{named(at)} has no {name}, which DeepSpeed reads there"
            yield Violation(config.locate_key(at), message, f"add {name}, or remove the technique")


#: deepspeed/elasticity/elasticity.py `HCN_LIST`: numbers that have more divisors than every smaller
#: one.
_HIGHLY_COMPOSITE: Final = (
    1,
    2,
    4,
    6,
    12,
    24,
    36,
    48,
    60,
    120,
    180,
    240,
    360,
    720,
    840,
    1260,
    1680,
    2520,
    5040,
    7560,
    10080,
    15120,
    20160,
    25200,
    27720,
    45360,
    50400,
    55440,
    83160,
    110880,
    166320,
    221760,
    277200,
    332640,
    498960,
    554400,
    665280,
    720720,
)
#: Samples of a step, and micro batches, beyond which the search for the batch takes seconds.
_MOST_SAMPLES: Final = 10**6
_MOST_SIZES: Final = 32
#: Numbers of the block, and the least that each may be.
_LEAST: Final = {
    "max_train_batch_size": 1,
    "min_gpus": 1,
    "max_gpus": 1,
    "num_gpus_per_node": 1,
    "model_parallel_size": 1,
    "min_time": 0,
}


def chosen(
    sizes: tuple[int, ...], most: int, low: int, high: int, larger: bool
) -> tuple[int, tuple[int, ...]]:
    """The batch of at most `most` samples that can be divided over the most GPU counts, and these
    counts: from `low` to `high`, where 0 is no bound.

    Of two batches with as many counts, it is the `larger` or the smaller one. Candidates are each
    micro batch and their least common multiple, scaled up, as in DeepSpeed's search.
    """
    low, high = low or 1, high or most // min(sizes)
    candidates = {_scaled_up(base, most) for base in (*sizes, math.lcm(*sizes))}
    best, best_counts = min(sizes), list[int]()
    for batch in candidates:
        # A micro batch divides the batch into passes, which any divisor of their number can share.
        passes = {batch // size for size in sizes if batch % size == 0}
        shares = {count for number in passes for count in divisors(number, limit=high)}
        counts = sorted(count for count in shares if count >= low)
        is_preferred = batch > best if larger else batch < best
        more_counts = len(counts) - len(best_counts)
        if more_counts > 0 or (more_counts == 0 and is_preferred):
            best, best_counts = batch, counts
    return best, tuple(best_counts)


def _scaled_up(base: int, most: int) -> int:
    """A number of samples times the largest highly composite number of the list that fits."""
    fitting = [number for number in _HIGHLY_COMPOSITE if number <= most // base]
    return base * max(fitting, default=1)


_ELASTICITY: Final = "/elasticity"


def _get(config: Config, name: str) -> Any:
    """The value that is written for a key of the block, else its default."""
    key = config.schema.key(f"{_ELASTICITY}/{name}")
    default = None if key is None else key.default
    return as_hjson(config.block(_ELASTICITY).get(name, default))


def _version(config: Config) -> float | None:
    try:
        return float(_get(config, "version"))
    except (TypeError, ValueError, OverflowError):
        return None


def _problems(config: Config) -> Violations:
    """Yield what of the block is missing or out of range."""
    block = config.block(_ELASTICITY)
    for key, example in (("max_train_batch_size", "2000"), ("micro_batch_sizes", "[2, 4, 8]")):
        if key not in block:
            message = f"`elasticity` is enabled, and requires `{key}`"
            yield violation(config, f"{_ELASTICITY}/", message, f'add "{key}": {example}')
    sizes = block.get("micro_batch_sizes", [1])
    are_sizes = isinstance(sizes, list) and all(
        isinstance(size, int) and size > 0 for size in sizes
    )
    if not are_sizes or not sizes:
        message = "`elasticity.micro_batch_sizes` must be a list of integers greater than 0"
        yield violation(config, f"{_ELASTICITY}/micro_batch_sizes", message, "write [2, 4, 8]")
    for key, least in _LEAST.items():
        if key not in block:
            continue
        value = _get(config, key)
        if not isinstance(value, int | float) or value < least:
            message = f"`elasticity.{key}` must be a number of at least {least}, not {shown(value)}"
            yield violation(config, f"{_ELASTICITY}/{key}", message, f"set it to {least} or more")
    low, high = _get(config, "min_gpus"), _get(config, "max_gpus")
    if isinstance(low, int | float) and isinstance(high, int | float) and high < low:
        message = f"`elasticity.max_gpus` {shown(high)} is less than `min_gpus` {shown(low)}"
        hint = f"set it to {shown(low)} or more"
        yield violation(config, f"{_ELASTICITY}/max_gpus", message, hint)
    if _version(config) not in (0.1, 0.2):
        message = f"`elasticity.version` must be 0.1 or 0.2, not {shown(_get(config, 'version'))}"
        yield violation(config, f"{_ELASTICITY}/version", message, "set it to 0.2")


#: Configs with an elasticity block that is on.
_elastic: Final = configs.where(lambda config: config.is_elastic)
#: Their runs, where nothing of the block is missing or out of range.
_sound: Final = runs.where(
    lambda run: run.config.is_elastic and not any(True for _ in _problems(run.config))
)


@_elastic.rule("ELAS001", ERROR, "parse", deepspeed("runtime/config.py:757-769"), before=(0, 19, 8))
def batch_is_left_to_elasticity(config: Config) -> Violations:
    """With elasticity on, the config has no batch keys of its own, or sets
    ignore_non_elastic_batch_info.
    Prevents: ElasticityConfigError: One or more batch related parameters were found in your
    ds_config
    Fix: remove the batch keys, or set ignore_non_elastic_batch_info to true
    """
    keys = [key for key in BATCH_KEYS if config.has(f"/{key}")]
    if keys and not config.block(_ELASTICITY).get("ignore_non_elastic_batch_info", False):
        message = f"`{keys[0]}` is written, but with elasticity on the batch follows from the GPUs"
        hint = f"remove {' and '.join(f'`{key}`' for key in keys)}"
        yield Violation(config.locate_key(f"/{keys[0]}"), message, hint)


@_elastic.rule(
    "ELAS002", ERROR, "parse", deepspeed("elasticity/config.py:54-99"), before=(0, 19, 8)
)
def elasticity_is_complete(config: Config) -> Violations:
    """An elasticity block that is on has the keys that DeepSpeed requires, with values in range.
    Prevents: ElasticityConfigError: Elasticity config missing max_train_batch_size
    Fix: add max_train_batch_size and micro_batch_sizes"""
    yield from _problems(config)


@_sound.rule(
    "ELAS004", ERROR, "parse", deepspeed("elasticity/elasticity.py:146, :297"), before=(0, 19, 8)
)
def elasticity_has_the_version(run: Run) -> Violations:
    """Elasticity with model parallelism has version 0.2, and a model_parallel_size that divides the
    GPUs of a node.
    Prevents: ElasticityConfigError: Elasticity V0.1 does not support model-parallel training
    Fix: use version 0.2, and a divisor of a node's GPUs
    """
    config, version = run.config, _version(run.config)
    parallel, node_gpus = _get(config, "model_parallel_size"), _get(config, "num_gpus_per_node")
    if parallel > 1 and version != 0.2:
        message = (
            f"`model_parallel_size` {shown(parallel)} requires `version` 0.2, not {shown(version)}"
        )
        yield violation(config, f"{_ELASTICITY}/version", message, "set it to 0.2")
    elif version == 0.2 and node_gpus % parallel:
        message = (
            f"`num_gpus_per_node` {shown(node_gpus)} is not a multiple of "
            f"`model_parallel_size` {shown(parallel)}"
        )
        pointer = f"{_ELASTICITY}/model_parallel_size"
        yield violation(config, pointer, message, "use a divisor of it")


@_sound.rule(
    "ELAS003", ERROR, "parse", deepspeed("elasticity/elasticity.py:354"), before=(0, 19, 8)
)
def gpus_are_elastic(run: Run) -> Violations:
    """The GPUs are among the counts that the elastic batch can be divided over.
    Prevents: ElasticityIncompatibleWorldSize: World size (N) is not valid with the current list of
    ...
    Fix: use one of the counts listed, or other micro batches
    """
    config, pointer = run.config, f"{_ELASTICITY}/micro_batch_sizes"
    sizes, max_batch = _get(config, "micro_batch_sizes"), _get(config, "max_train_batch_size")
    parallel = _get(config, "model_parallel_size")
    gpus = replicas_of(*run)
    unit = _unit(config)
    is_slow = max_batch > _MOST_SAMPLES or len(sizes) > _MOST_SIZES
    if gpus is None or unit is None or is_slow:
        return

    max_share = int(max_batch / unit.replicas)
    if max(sizes) > max_share:
        message = f"micro batch {max(sizes)} is more than `max_train_batch_size` {shown(max_batch)}"
        message += f" / {unit.replicas} replicas of a node" if unit.replicas > 1 else ""
        yield violation(config, pointer, message, f"use sizes of at most {max_share}")
        return

    least_units = int(_get(config, "min_gpus") / unit.gpus)
    most_units = int(_get(config, "max_gpus") / unit.gpus)
    prefers_larger = bool(_get(config, "prefer_larger_batch"))
    batch, counts = chosen(tuple(sizes), max_share, least_units, most_units, prefers_larger)
    valid = [count * unit.replicas for count in counts]
    replicas = gpus // parallel if unit.is_node else gpus
    if gpus in valid and replicas in valid:
        return
    # Version 0.2 accepts any number of GPUs without model parallelism that some batch fits.
    if unit.is_node and parallel == 1:
        largest_batches = [max_batch // (size * gpus) * size * gpus for size in sizes]
        taken = max(largest_batches) if prefers_larger else min(largest_batches)
        if taken > 0:
            return
    message = (
        f"{shown(gpus)} is not one of the GPU counts that divide the elastic batch "
        f"of {batch * unit.replicas}"
    )
    hint = f"use {listed(nearest(valid, int(gpus)))} GPUs" if valid else "use other micro batches"
    yield violation(config, pointer, message, hint)


class _Unit(NamedTuple):
    """What an elastic job grows by: a node in version 0.2, else a GPU, which is a replica."""

    is_node: bool
    gpus: int
    replicas: int


def _unit(config: Config) -> _Unit | None:
    """The unit of an elastic config; None where replicas don't fit into it, as ELAS004 reports."""
    parallel = _get(config, "model_parallel_size")
    if _version(config) != 0.2:
        return _Unit(is_node=False, gpus=1, replicas=1) if parallel <= 1 else None
    node_gpus = _get(config, "num_gpus_per_node")
    if parallel > 1 and node_gpus % parallel:
        return None
    return _Unit(is_node=True, gpus=node_gpus, replicas=node_gpus // parallel)
