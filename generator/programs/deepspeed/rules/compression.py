"""The block compression_training of the releases that have it: what each technique needs, and where."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ....findings import ERROR, Violation, Violations
from ....job.wording import escape, show
from ....rules.violations import deepspeed, violation
from ..config import Config
from .subjects import configs, named

_BLOCK: Final = "/compression_training"
_SHARED, _GROUPS, _PARAMETERS = "shared_parameters", "different_groups", "params"
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
    for technique in _NEEDED:
        at = f"{_BLOCK}/{technique}"
        if technique in config.block(_BLOCK):
            yield from _lacking(config, at, (_GROUPS,))
            yield from _of_shared(config, technique, f"{at}/{_SHARED}")
            yield from _of_groups(config, technique, f"{at}/{_GROUPS}")


def _of_shared(config: Config, technique: str, at: str) -> Violations:
    if not config.has(at):
        return
    heads = technique == "head_pruning" and config.block(at).get("enabled")
    yield from _lacking(config, at, ("num_heads",) if heads else ())
    for name, choices in _CHOICES[technique].items():
        value = config.value(f"{at}/{name}", choices[0])
        if isinstance(config.value(at), dict) and value not in choices:
            message = f"{name} is {show(value)}, which DeepSpeed doesn't have here"
            yield violation(config, f"{at}/{name}", message, f"use {' or '.join(choices)}")


def _of_groups(config: Config, technique: str, at: str) -> Violations:
    if config.has(at):
        yield from _lacking(config, at, ())
    for name in config.block(at):
        group = f"{at}/{escape(name)}"
        yield from _lacking(config, group, (_PARAMETERS,))
        if _PARAMETERS in config.block(group):
            yield from _lacking(config, f"{group}/{_PARAMETERS}", _NEEDED[technique])


def _lacking(config: Config, at: str, needed: tuple[str, ...]) -> Violations:
    """A violation where no object is at a pointer, or it lacks a key."""
    value = config.value(at)
    if not isinstance(value, dict):
        yield Violation(config.locate(at), f"{named(at)} is {show(value)}, not an object", "write an object")
        return
    for name in needed:
        if name not in value:
            message = f"{named(at)} has no {name}, which DeepSpeed reads there"
            yield Violation(config.locate_key(at), message, f"add {name}, or remove the technique")
