"""Elastic training, which DeepSpeed has up to 0.19.7: the batch follows from the GPUs that are there."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from ....documents.deepspeed_config import BATCH_KEYS, Config
from ....documents.submission import Submission
from ....findings import ERROR, Violation, Violations
from ...numbers import listed, nearest
from ...rule import subject, submissions
from ...sources import deepspeed
from .batch import replicas_of
from .problem import as_hjson, shown
from .subjects import configs

_LAST: Final = (0, 19, 8)  #: the first release without it
#: Beyond these the search for the batch takes seconds: samples of a step, and micro batches.
_MOST: Final = 10**6
_MOST_SIZES: Final = 32
#: deepspeed/elasticity/elasticity.py `HCN_LIST` ends with the 38th highly composite number.
_HIGHLY_COMPOSITE: Final = 38
_DEFAULTS: Final[Mapping[str, Any]] = {
    "min_gpus": 1,
    "max_gpus": 10000,
    "model_parallel_size": 1,
    "num_gpus_per_node": 1,
    "min_time": 0,
    "version": 0.2,
    "prefer_larger_batch": True,
}  #: deepspeed/elasticity/constants.py


@dataclass(frozen=True, slots=True, kw_only=True)
class _Elastic:
    """An elasticity block that is on."""

    config: Config
    block: Mapping[str, Any]

    def get(self, name: str) -> Any:
        """What is written for a key, else its default."""
        return as_hjson(self.block.get(name, _DEFAULTS.get(name)))

    def violation(self, key: str, message: str, hint: str | None) -> Violation:
        """A violation at a key of the block."""
        return Violation(where=self.config.locate(f"/elasticity/{key}"), message=message, hint=hint)

    def slips(self) -> Violations:
        """What of the block is missing or out of range."""
        for key, example in (("max_train_batch_size", "2000"), ("micro_batch_sizes", "[2, 4, 8]")):
            if key not in self.block:
                yield self.violation("", f"`elasticity` is on, but has no `{key}`", f'"{key}": {example}')
        sizes = self.block.get("micro_batch_sizes", [1])
        if not isinstance(sizes, list) or not sizes or not all(isinstance(s, int) and s > 0 for s in sizes):
            message = "`elasticity.micro_batch_sizes` takes a list of whole numbers greater than 0"
            yield self.violation("micro_batch_sizes", message, "[2, 4, 8]")
        for key, least in (*((name, 1) for name in _COUNTS), ("min_time", 0)):
            if key not in self.block:
                continue
            value = self.get(key)
            if not isinstance(value, int | float) or value < least:
                message = f"`elasticity.{key}` takes a number of at least {least}; this is {shown(value)}"
                yield self.violation(key, message, str(_DEFAULTS.get(key, 2000)))
        low, high = self.get("min_gpus"), self.get("max_gpus")
        if isinstance(low, int | float) and isinstance(high, int | float) and high < low:
            message = f"`elasticity.max_gpus` {shown(high)} is less than `min_gpus` {shown(low)}"
            yield self.violation("max_gpus", message, shown(low))
        if _version(self.get("version")) not in (0.1, 0.2):
            message = f"`elasticity.version` is {shown(self.get('version'))}; there are 0.1 and 0.2"
            yield self.violation("version", message, "0.2")


_COUNTS: Final = ("max_train_batch_size", "min_gpus", "max_gpus", "model_parallel_size", "num_gpus_per_node")


def _version(value: object) -> float | None:
    try:
        return float(value) if isinstance(value, int | float | str) else None
    except ValueError:
        return None


@subject("DeepSpeed config")
def _elastic(submission: Submission) -> Iterator[_Elastic]:
    for config in configs(submission):
        block = config.block("/elasticity")
        if block.get("enabled"):
            yield _Elastic(config=config, block=block)


@_elastic.rule("ELAS001", ERROR, "parse", deepspeed("runtime/config.py:757-769"), before=(0, 19, 8))
def batch_is_left_to_elasticity(elastic: _Elastic) -> Violations:
    """With elasticity on, the config has no batch keys of its own, or says that they don't count.

    Prevents: ElasticityConfigError: One or more batch related parameters were found in your ds_config
    Fix: Take the batch keys out, or set ignore_non_elastic_batch_info.
    """
    keys = [key for key in BATCH_KEYS if elastic.config.has(f"/{key}")]
    if keys and not elastic.block.get("ignore_non_elastic_batch_info", False):
        message = f"`{keys[0]}` is given, but with elasticity on the batch follows from the GPUs"
        where = elastic.config.locate_key(f"/{keys[0]}")
        yield Violation(where=where, message=message, hint=f"take {' and '.join(f'`{key}`' for key in keys)} out")


@_elastic.rule("ELAS002", ERROR, "parse", deepspeed("elasticity/config.py:54-99"), before=(0, 19, 8))
def elasticity_is_complete(elastic: _Elastic) -> Violations:
    """An elasticity block that is on has sizes and bounds that make sense.

    Prevents: ElasticityConfigError: Elasticity config missing max_train_batch_size
    Fix: Give max_train_batch_size and micro_batch_sizes.
    """
    yield from elastic.slips()


@_elastic.rule("ELAS004", ERROR, "parse", deepspeed("elasticity/elasticity.py:146, :297"), before=(0, 19, 8))
def elasticity_has_the_version(elastic: _Elastic) -> Violations:
    """Elasticity with model parallelism is of version 0.2, and divides the GPUs of a node.

    Prevents: ElasticityConfigError: Elasticity V0.1 does not support model-parallel training
    Fix: Use version 0.2, and a divisor of a node's GPUs.
    """
    parallel, each = elastic.get("model_parallel_size"), elastic.get("num_gpus_per_node")
    version = _version(elastic.get("version"))
    if any(True for _ in elastic.slips()):
        return
    if parallel > 1 and version != 0.2:
        message = f"`model_parallel_size` {shown(parallel)} needs `version` 0.2; this is {shown(version)}"
        yield elastic.violation("version", message, "0.2")
    elif version == 0.2 and each % parallel:
        message = f"`num_gpus_per_node` {shown(each)} is no multiple of `model_parallel_size` {shown(parallel)}"
        yield elastic.violation("model_parallel_size", message, "a divisor of it")


@submissions.rule(
    "ELAS003", ERROR, "parse", deepspeed("elasticity/elasticity.py:354"), before=(0, 19, 8), reads=("DeepSpeed config",)
)
def gpus_are_elastic(submission: Submission) -> Violations:
    """The GPUs are among the counts that the elastic batch can be divided over.

    Prevents: ElasticityIncompatibleWorldSize: World size (N) is not valid with the current list of ...
    Fix: Use one of the counts named, or other micro batches.
    """
    for elastic in _elastic(submission):
        gpus = replicas_of(elastic.config, submission)
        bounds = (elastic.get("num_gpus_per_node"), elastic.get("model_parallel_size"))
        if gpus is None or any(True for _ in elastic.slips()) or elastic.get("max_train_batch_size") > _MOST:
            continue
        if len(elastic.get("micro_batch_sizes")) > _MOST_SIZES:
            continue
        by_node = _version(elastic.get("version")) == 0.2
        if bounds[1] > 1 and (not by_node or bounds[0] % bounds[1]):
            continue  # which another rule says
        yield from _against_gpus(elastic, gpus, by_node)


def _against_gpus(elastic: _Elastic, gpus: int | float, by_node: bool) -> Violations:
    """Version 0.2 counts nodes, and takes any number of GPUs where there is no model parallelism."""
    sizes, most = elastic.get("micro_batch_sizes"), elastic.get("max_train_batch_size")
    each, parallel = elastic.get("num_gpus_per_node"), elastic.get("model_parallel_size")
    replicas = each // parallel if by_node else 1
    low, high = (int(elastic.get(name) / (each if by_node else 1)) for name in ("min_gpus", "max_gpus"))
    most_here = int(most / replicas)
    if max(sizes) > most_here:
        message = f"micro batch {max(sizes)} is more than `max_train_batch_size` {shown(most)}"
        message += f" / {replicas} replicas of a node" if replicas > 1 else ""
        yield elastic.violation("micro_batch_sizes", message, f"sizes of at most {most_here}")
        return
    larger = bool(elastic.get("prefer_larger_batch"))
    batch, counts = _choose(tuple(sizes), most_here, low, high, larger)
    valid = [count * replicas for count in counts]
    if gpus in valid and gpus // (parallel if by_node else 1) in valid:
        return
    if by_node and parallel == 1:
        fitting = [most // (size * gpus) * size * gpus for size in sizes]
        if (max(fitting) if larger else min(fitting)) > 0:
            return
    fits = listed(nearest(valid, int(gpus))) if valid else "none"
    message = f"{shown(gpus)} GPUs are none of the counts that divide the elastic batch of {batch * replicas}"
    yield elastic.violation("micro_batch_sizes", message, f"the nearest counts are {fits}")


@lru_cache(maxsize=32)
def _choose(sizes: tuple[int, ...], most: int, low: int, high: int, larger: bool) -> tuple[int, list[int]]:
    """The batch that suits most GPU counts, and the counts: each micro batch, and their common multiple, scaled up."""
    low, high = low or 1, high or most // min(sizes)
    bases = [*sizes, math.lcm(*sizes)]
    batches = {base if base >= most else base * _scale(most // base) for base in bases}
    best, best_counts = min(sizes), list[int]()
    for batch in batches:
        counts = _counts(batch, sizes, low, high)
        nearer = batch > best if larger else batch < best
        if len(counts) > len(best_counts) or (len(counts) == len(best_counts) and nearer):
            best, best_counts = batch, counts
    return best, best_counts


def _scale(limit: int) -> int:
    """The largest highly composite number up to the limit, of those that DeepSpeed knows."""
    known = _highly_composite()
    below = [number for number in known if number <= limit]
    # Past the list's end DeepSpeed's search wraps around to its last number.
    return below[-1]


@lru_cache(maxsize=1)
def _highly_composite() -> tuple[int, ...]:
    """The first numbers that have more divisors than every smaller one, as exponents of the first primes fall."""
    limit, found = 10**6, {(1, 1)}
    for prime in (2, 3, 5, 7, 11, 13, 17):
        grown = set(found)
        for number, divisors in found:
            power, exponent = number * prime, 1
            while power <= limit:
                grown.add((power, divisors * (exponent + 1)))
                power, exponent = power * prime, exponent + 1
        found = grown
    most, numbers = 0, list[int]()
    for number, divisors in sorted(found):
        if divisors > most:
            most = divisors
            numbers.append(number)
    return tuple(numbers[:_HIGHLY_COMPOSITE])


def _counts(batch: int, sizes: tuple[int, ...], low: int, high: int) -> list[int]:
    """GPU counts between the bounds that one of the micro batches divides the batch over."""
    found: set[int] = set()
    for most in {batch // size for size in sizes if batch % size == 0}:
        for divisor in range(1, math.isqrt(most) + 1):
            if most % divisor == 0:
                found |= {count for count in (divisor, most // divisor) if low <= count <= high}
    return sorted(found)
