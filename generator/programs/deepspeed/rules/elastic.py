"""Elastic training, which DeepSpeed has up to 0.19.7: the batch follows from the GPUs that are there."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Final

from ....findings import ERROR, Violation, Violations
from ....rules.violations import deepspeed, listed, nearest, violation
from ..config import BATCH_KEYS, Config
from ..schema import as_hjson
from .batch import replicas_of
from .subjects import Run, configs, runs, shown

#: deepspeed/elasticity/elasticity.py `HCN_LIST`: numbers that have more divisors than every smaller one.
_HIGHLY_COMPOSITE: Final = (
    *(1, 2, 4, 6, 12, 24, 36, 48, 60, 120, 180, 240, 360, 720, 840, 1260, 1680, 2520, 5040, 7560, 10080, 15120, 20160),
    *(25200, 27720, 45360, 50400, 55440, 83160, 110880, 166320, 221760, 277200, 332640, 498960, 554400, 665280, 720720),
)
#: Beyond these the search for the batch takes seconds: samples of a step, and micro batches.
_MOST: Final = 10**6
_MOST_SIZES: Final = 32
#: Numbers of the block, which are at least 1, but for the time.
_NUMBERS: Final = (
    *("max_train_batch_size", "min_gpus", "max_gpus", "num_gpus_per_node", "model_parallel_size", "min_time"),
)


@lru_cache(maxsize=32)
def chosen(sizes: tuple[int, ...], most: int, low: int, high: int, larger: bool) -> tuple[int, tuple[int, ...]]:
    """The batch that suits most GPU counts, and the counts: each micro batch, and their common multiple, scaled up."""
    low, high = low or 1, high or most // min(sizes)
    bases = [*sizes, math.lcm(*sizes)]
    # By the largest highly composite number; past the list's end by its last, as in DeepSpeed's search.
    scales = {base: max((n for n in _HIGHLY_COMPOSITE if n <= most // base), default=1) for base in bases}
    best, best_counts = min(sizes), list[int]()
    for batch in {base * scale for base, scale in scales.items()}:
        found: set[int] = set()  # counts between the bounds that one of the micro batches divides the batch over
        for whole in {batch // size for size in sizes if batch % size == 0}:
            for divisor in (one for one in range(1, math.isqrt(whole) + 1) if whole % one == 0):
                found |= {count for count in (divisor, whole // divisor) if low <= count <= high}
        counts = sorted(found)
        nearer = batch > best if larger else batch < best
        if len(counts) > len(best_counts) or (len(counts) == len(best_counts) and nearer):
            best, best_counts = batch, counts
    return best, tuple(best_counts)


_BLOCK: Final = "/elasticity"


def _default(config: Config, name: str) -> Any:
    """The default of a key of the block."""
    key = config.schema.key(f"{_BLOCK}/{name}")
    return None if key is None else key.default


def _get(config: Config, name: str) -> Any:
    """The value that is written for a key of the block, else its default."""
    return as_hjson(config.block(_BLOCK).get(name, _default(config, name)))


def _version(config: Config) -> float | None:
    """The version of the algorithm."""
    try:
        return float(_get(config, "version"))
    except (TypeError, ValueError, OverflowError):
        return None


def _problems(config: Config) -> Violations:
    """Yield what of the block is missing or out of range."""
    block = config.block(_BLOCK)
    for key, example in (("max_train_batch_size", "2000"), ("micro_batch_sizes", "[2, 4, 8]")):
        if key not in block:
            message = f"`elasticity` is enabled, and requires `{key}`"
            yield violation(config, f"{_BLOCK}/", message, f'add "{key}": {example}')
    sizes = block.get("micro_batch_sizes", [1])
    if not isinstance(sizes, list) or not sizes or not all(isinstance(s, int) and s > 0 for s in sizes):
        message = "`elasticity.micro_batch_sizes` must be a list of integers greater than 0"
        yield violation(config, f"{_BLOCK}/micro_batch_sizes", message, "write [2, 4, 8]")
    for key in (key for key in _NUMBERS if key in block):
        value, least = _get(config, key), 0 if key == "min_time" else 1
        if not isinstance(value, int | float) or value < least:
            message = f"`elasticity.{key}` must be a number of at least {least}, not {shown(value)}"
            hint = f"write {_default(config, key) or (0 if key == 'min_time' else 2000)}"
            yield violation(config, f"{_BLOCK}/{key}", message, hint)
    low, high = _get(config, "min_gpus"), _get(config, "max_gpus")
    if isinstance(low, int | float) and isinstance(high, int | float) and high < low:
        message = f"`elasticity.max_gpus` {shown(high)} is less than `min_gpus` {shown(low)}"
        yield violation(config, f"{_BLOCK}/max_gpus", message, f"set it to {shown(low)} or more")
    if _version(config) not in (0.1, 0.2):
        message = f"`elasticity.version` must be 0.1 or 0.2, not {shown(_get(config, 'version'))}"
        yield violation(config, f"{_BLOCK}/version", message, "set it to 0.2")


#: The configs with an elasticity block that is on; and those of them with nothing missing or out of range.
_elastic: Final = configs.where(lambda config: config.is_elastic)
_sound: Final = runs.where(lambda run: run.config.is_elastic and not any(True for _ in _problems(run.config)))


@_elastic.rule("ELAS001", ERROR, "parse", deepspeed("runtime/config.py:757-769"), before=(0, 19, 8))
def batch_is_left_to_elasticity(config: Config) -> Violations:
    """With elasticity on, the config has no batch keys of its own, or sets ignore_non_elastic_batch_info.
    Prevents: ElasticityConfigError: One or more batch related parameters were found in your ds_config
    Fix: remove the batch keys, or set ignore_non_elastic_batch_info to true"""
    keys = [key for key in BATCH_KEYS if config.has(f"/{key}")]
    if keys and not config.block(_BLOCK).get("ignore_non_elastic_batch_info", False):
        message = f"`{keys[0]}` is written, but with elasticity on the batch follows from the GPUs"
        where, hint = config.locate_key(f"/{keys[0]}"), f"remove {' and '.join(f'`{key}`' for key in keys)}"
        yield Violation(where, message, hint)


@_elastic.rule("ELAS002", ERROR, "parse", deepspeed("elasticity/config.py:54-99"), before=(0, 19, 8))
def elasticity_is_complete(config: Config) -> Violations:
    """An elasticity block that is on has the keys that DeepSpeed requires, with values in range.
    Prevents: ElasticityConfigError: Elasticity config missing max_train_batch_size
    Fix: add max_train_batch_size and micro_batch_sizes"""
    yield from _problems(config)


@_sound.rule("ELAS004", ERROR, "parse", deepspeed("elasticity/elasticity.py:146, :297"), before=(0, 19, 8))
def elasticity_has_the_version(run: Run) -> Violations:
    """Elasticity with model parallelism has version 0.2, and a model_parallel_size that divides the GPUs of a node.
    Prevents: ElasticityConfigError: Elasticity V0.1 does not support model-parallel training
    Fix: use version 0.2, and a divisor of a node's GPUs"""
    config, version = run.config, _version(run.config)
    parallel, each = _get(config, "model_parallel_size"), _get(config, "num_gpus_per_node")
    if parallel > 1 and version != 0.2:
        message = f"`model_parallel_size` {shown(parallel)} requires `version` 0.2, not {shown(version)}"
        yield violation(config, f"{_BLOCK}/version", message, "set it to 0.2")
    elif version == 0.2 and each % parallel:
        message = f"`num_gpus_per_node` {shown(each)} is not a multiple of `model_parallel_size` {shown(parallel)}"
        yield violation(config, f"{_BLOCK}/model_parallel_size", message, "use a divisor of it")


@_sound.rule("ELAS003", ERROR, "parse", deepspeed("elasticity/elasticity.py:354"), before=(0, 19, 8))
def gpus_are_elastic(run: Run) -> Violations:
    """The GPUs are among the counts that the elastic batch can be divided over.
    Prevents: ElasticityIncompatibleWorldSize: World size (N) is not valid with the current list of ...
    Fix: use one of the counts listed, or other micro batches"""
    config, pointer = run.config, f"{_BLOCK}/micro_batch_sizes"
    sizes, most, low, high, each, parallel = (_get(config, name) for name in ("micro_batch_sizes", *_NUMBERS[:-1]))
    gpus, by_node, larger = replicas_of(*run), _version(config) == 0.2, bool(_get(config, "prefer_larger_batch"))
    uneven = parallel > 1 and (not by_node or each % parallel)  # which another rule reports
    if gpus is None or uneven or most > _MOST or len(sizes) > _MOST_SIZES:
        return
    replicas = each // parallel if by_node else 1
    if max(sizes) > int(most / replicas):
        message = f"micro batch {max(sizes)} is more than `max_train_batch_size` {shown(most)}"
        message += f" / {replicas} replicas of a node" if replicas > 1 else ""
        yield violation(config, pointer, message, f"use sizes of at most {int(most / replicas)}")
        return
    low, high = (int(bound / (each if by_node else 1)) for bound in (low, high))
    batch, counts = chosen(tuple(sizes), int(most / replicas), low, high, larger)
    valid = [count * replicas for count in counts]
    # Version 0.2 counts nodes, and accepts any number of GPUs where there is no model parallelism.
    fits = gpus in valid and gpus // (parallel if by_node else 1) in valid
    fitting = [most // (size * gpus) * size * gpus for size in sizes] if by_node and parallel == 1 else [0]
    if not fits and (max(fitting) if larger else min(fitting)) <= 0:
        message = f"{shown(gpus)} is not one of the GPU counts that divide the elastic batch of {batch * replicas}"
        hint = f"use {listed(nearest(valid, int(gpus)))} GPUs" if valid else "use other micro batches"
        yield violation(config, pointer, message, hint)
