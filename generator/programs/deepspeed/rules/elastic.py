"""Elastic training, which DeepSpeed has up to 0.19.7: the batch follows from the GPUs that are there."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from ....dataclass import dataclass
from ....findings import ERROR, Violation, Violations
from ....rules.violations import deepspeed, listed, nearest
from ...subjects import subject
from ...submission import Submission
from ..config import BATCH_KEYS, Config, Number
from ..schema import as_hjson
from .batch import replicas_of
from .subjects import configs, shown

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
    *("max_train_batch_size", "min_gpus", "max_gpus", "model_parallel_size", "num_gpus_per_node", "min_time"),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Elastic:
    """An elasticity block that is on."""

    config: Config
    block: Mapping[str, Any]
    gpus: Number | None

    def get(self, name: str) -> Any:
        """Return the value that is written for a key, else its default."""
        return as_hjson(self.block.get(name, self.default(name)))

    def default(self, name: str) -> Any:
        """Return the default of a key."""
        key = self.config.schema.key(f"/elasticity/{name}")
        return None if key is None else key.default

    @property
    def version(self) -> float | None:
        """The version of the algorithm."""
        value = self.get("version")
        try:
            return float(value) if isinstance(value, int | float | str) else None
        except ValueError:
            return None

    def violation(self, key: str, message: str, hint: str) -> Violation:
        """A violation at a key of the block."""
        return Violation(self.config.locate(f"/elasticity/{key}"), message, hint)

    def problems(self) -> Violations:
        """Yield what of the block is missing or out of range."""
        for key, example in (("max_train_batch_size", "2000"), ("micro_batch_sizes", "[2, 4, 8]")):
            if key not in self.block:
                yield self.violation("", f"`elasticity` is enabled, and requires `{key}`", f'add "{key}": {example}')
        sizes = self.block.get("micro_batch_sizes", [1])
        if not isinstance(sizes, list) or not sizes or not all(isinstance(s, int) and s > 0 for s in sizes):
            message = "`elasticity.micro_batch_sizes` must be a list of integers greater than 0"
            yield self.violation("micro_batch_sizes", message, "write [2, 4, 8]")
        for key in (key for key in _NUMBERS if key in self.block):
            value, least = self.get(key), 0 if key == "min_time" else 1
            if not isinstance(value, int | float) or value < least:
                message = f"`elasticity.{key}` must be a number of at least {least}, not {shown(value)}"
                yield self.violation(key, message, f"write {self.default(key) or (0 if key == 'min_time' else 2000)}")
        low, high = self.get("min_gpus"), self.get("max_gpus")
        if isinstance(low, int | float) and isinstance(high, int | float) and high < low:
            message = f"`elasticity.max_gpus` {shown(high)} is less than `min_gpus` {shown(low)}"
            yield self.violation("max_gpus", message, f"set it to {shown(low)} or more")
        if self.version not in (0.1, 0.2):
            message = f"`elasticity.version` must be 0.1 or 0.2, not {shown(self.get('version'))}"
            yield self.violation("version", message, "set it to 0.2")


@subject("DeepSpeed config")
def _elastic(submission: Submission) -> Iterator[_Elastic]:
    for config in configs(submission):
        block = config.block("/elasticity")
        if block.get("enabled") and config.schema.section("/elasticity") is not None:
            yield _Elastic(config=config, block=block, gpus=replicas_of(config, submission))


#: The blocks with nothing missing or out of range.
_sound: Final = _elastic.where(lambda elastic: not any(True for _ in elastic.problems()))


@_elastic.rule("ELAS001", ERROR, "parse", deepspeed("runtime/config.py:757-769"), before=(0, 19, 8))
def batch_is_left_to_elasticity(elastic: _Elastic) -> Violations:
    """With elasticity on, the config has no batch keys of its own, or sets ignore_non_elastic_batch_info.
    Prevents: ElasticityConfigError: One or more batch related parameters were found in your ds_config
    Fix: remove the batch keys, or set ignore_non_elastic_batch_info to true"""
    keys = [key for key in BATCH_KEYS if elastic.config.has(f"/{key}")]
    if keys and not elastic.block.get("ignore_non_elastic_batch_info", False):
        message = f"`{keys[0]}` is written, but with elasticity on the batch follows from the GPUs"
        where, hint = elastic.config.locate_key(f"/{keys[0]}"), f"remove {' and '.join(f'`{key}`' for key in keys)}"
        yield Violation(where, message, hint)


@_elastic.rule("ELAS002", ERROR, "parse", deepspeed("elasticity/config.py:54-99"), before=(0, 19, 8))
def elasticity_is_complete(elastic: _Elastic) -> Violations:
    """An elasticity block that is on has the keys that DeepSpeed requires, with values in range.
    Prevents: ElasticityConfigError: Elasticity config missing max_train_batch_size
    Fix: add max_train_batch_size and micro_batch_sizes"""
    yield from elastic.problems()


@_sound.rule("ELAS004", ERROR, "parse", deepspeed("elasticity/elasticity.py:146, :297"), before=(0, 19, 8))
def elasticity_has_the_version(elastic: _Elastic) -> Violations:
    """Elasticity with model parallelism has version 0.2, and a model_parallel_size that divides the GPUs of a node.
    Prevents: ElasticityConfigError: Elasticity V0.1 does not support model-parallel training
    Fix: use version 0.2, and a divisor of a node's GPUs"""
    parallel, each = elastic.get("model_parallel_size"), elastic.get("num_gpus_per_node")
    if parallel > 1 and elastic.version != 0.2:
        message = f"`model_parallel_size` {shown(parallel)} requires `version` 0.2, not {shown(elastic.version)}"
        yield elastic.violation("version", message, "set it to 0.2")
    elif elastic.version == 0.2 and each % parallel:
        message = f"`num_gpus_per_node` {shown(each)} is not a multiple of `model_parallel_size` {shown(parallel)}"
        yield elastic.violation("model_parallel_size", message, "use a divisor of it")


@_sound.rule("ELAS003", ERROR, "parse", deepspeed("elasticity/elasticity.py:354"), before=(0, 19, 8))
def gpus_are_elastic(elastic: _Elastic) -> Violations:
    """The GPUs are among the counts that the elastic batch can be divided over.
    Prevents: ElasticityIncompatibleWorldSize: World size (N) is not valid with the current list of ...
    Fix: use one of the counts listed, or other micro batches"""
    sizes, most = elastic.get("micro_batch_sizes"), elastic.get("max_train_batch_size")
    each, parallel = elastic.get("num_gpus_per_node"), elastic.get("model_parallel_size")
    uneven = parallel > 1 and (elastic.version != 0.2 or each % parallel)  # which another rule reports
    gpus, by_node, larger = elastic.gpus, elastic.version == 0.2, bool(elastic.get("prefer_larger_batch"))
    if gpus is None or uneven or most > _MOST or len(sizes) > _MOST_SIZES:
        return
    replicas = each // parallel if by_node else 1
    if max(sizes) > int(most / replicas):
        message = f"micro batch {max(sizes)} is more than `max_train_batch_size` {shown(most)}"
        message += f" / {replicas} replicas of a node" if replicas > 1 else ""
        yield elastic.violation("micro_batch_sizes", message, f"use sizes of at most {int(most / replicas)}")
        return
    low, high = (int(elastic.get(name) / (each if by_node else 1)) for name in ("min_gpus", "max_gpus"))
    batch, counts = chosen(tuple(sizes), int(most / replicas), low, high, larger)
    valid = [count * replicas for count in counts]
    # Version 0.2 counts nodes, and accepts any number of GPUs where there is no model parallelism.
    fits = gpus in valid and gpus // (parallel if by_node else 1) in valid
    fitting = [most // (size * gpus) * size * gpus for size in sizes] if by_node and parallel == 1 else [0]
    if not fits and (max(fitting) if larger else min(fitting)) <= 0:
        message = f"{shown(gpus)} is not one of the GPU counts that divide the elastic batch of {batch * replicas}"
        hint = f"use {listed(nearest(valid, int(gpus)))} GPUs" if valid else "use other micro batches"
        yield elastic.violation("micro_batch_sizes", message, hint)
