"""Compression, which DeepSpeed has up to 0.19.7: techniques with shared parameters and groups of modules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from ....findings import ERROR, Violations
from ....job.pointer import escape
from ....rules.numbers import listed
from ....rules.violations import violation
from ..config import Config
from .subjects import configs, named, shown

_TOP: Final = "/compression_training"
_SOURCE: Final = "deepspeedai/DeepSpeed deepspeed/compression/config.py:65-450 @ 0.16.9"
#: The first release that accepts a missing `quantize_training` (deepspeed/runtime/config.py `get_eigenvalue_config`).
_READS_NO_MOQ: Final = (0, 19, 3)
_QUANTIZATION: Final = ("symmetric", "asymmetric")
_PRUNING: Final = {"method": ("l1", "topk")}
_SPARSE: Final = {"method": ("l1", "topk", "snip_momentum")}


class _Technique(NamedTuple):
    """What the parser requires of one technique (deepspeed/compression/config.py @ 0.16.9)."""

    choices: Mapping[str, tuple[str, ...]]  #: of the shared parameters
    required: tuple[str, ...]  #: parameters of a group
    required_when_on: tuple[str, ...] = ()  #: shared parameters


_TECHNIQUES: Final[Mapping[str, _Technique]] = {
    "weight_quantization": _Technique(
        {"quantization_type": _QUANTIZATION, "rounding": ("nearest", "stochastic")}, ("start_bits", "target_bits")
    ),
    "activation_quantization": _Technique(
        {"quantization_type": _QUANTIZATION, "range_calibration": ("dynamic", "static")}, ("bits",)
    ),
    "sparse_pruning": _Technique(_SPARSE, ("dense_ratio",)),
    "row_pruning": _Technique(_PRUNING, ("dense_ratio",)),
    "head_pruning": _Technique(_PRUNING, ("dense_ratio",), ("num_heads",)),
    "channel_pruning": _Technique(_PRUNING, ("dense_ratio",)),
}


class _Problem(NamedTuple):
    pointer: str
    message: str
    hint: str


@configs.rule("CPR001", ERROR, "parse", _SOURCE, before=(0, 19, 8))
def compression_can_be_read(config: Config) -> Violations:
    """Every compression technique has the values and groups that DeepSpeed reads.

    Prevents: AssertionError: dense_ratio must be specified for ... pruning group; KeyError: 'different_groups'
    Fix: complete the technique, or remove it"""
    for problem in _problems(config) if config.schema.section(_TOP) is not None else ():
        yield violation(config, problem.pointer, problem.message, problem.hint)


def _problems(config: Config) -> Iterator[_Problem]:
    training = config.block(_TOP)
    for name, technique in _TECHNIQUES.items():
        if name in training:
            yield from _of_technique(f"{_TOP}/{name}", training[name], technique)
    turned_on = config.block(f"{_TOP}/shared_parameters").get("enabled")
    if turned_on and config.version < _READS_NO_MOQ and not config.has("/quantize_training"):
        message = "`compression_training.shared_parameters.enabled` turns MoQ on, which requires `quantize_training`"
        yield _Problem(f"{_TOP}/shared_parameters", message, "write shared_parameters within a technique")


def _of_technique(place: str, block: Any, technique: _Technique) -> Iterator[_Problem]:
    if not isinstance(block, dict):
        yield _no_object(place, block)
        return
    shared = block.get("shared_parameters", {})
    if isinstance(shared, dict):
        yield from _shared(f"{place}/shared_parameters", shared, technique)
    else:
        yield _no_object(f"{place}/shared_parameters", shared)
    if "different_groups" not in block:
        yield _Problem(place, f"{named(place)} requires `different_groups`", 'add "different_groups": {}')
        return
    groups = block["different_groups"]
    if not isinstance(groups, dict):
        yield _no_object(f"{place}/different_groups", groups)
        return
    for name, group in groups.items():
        yield from _group(f"{place}/different_groups/{escape(name)}", group, technique)


def _shared(place: str, shared: Mapping[str, Any], technique: _Technique) -> Iterator[_Problem]:
    for key, choices in technique.choices.items():
        if key in shared and shared[key] not in choices:
            message = f"{named(f'{place}/{key}')} must be {listed(choices)}, not {shown(shared[key])}"
            yield _Problem(f"{place}/{key}", message, f'use "{choices[0]}"')
    for key in technique.required_when_on if shared.get("enabled") else ():
        if key not in shared:
            yield _Problem(place, f"{named(place)} is enabled, and requires `{key}`", f'add "{key}": 12')
    mixed = shared.get("fp16_mixed_quantize", {})
    if "rounding" in technique.choices and not isinstance(mixed, dict):
        yield _no_object(f"{place}/fp16_mixed_quantize", mixed)
    if technique.choices is _SPARSE and shared.get("method") == "snip_momentum":
        yield from _snip(place, shared)


def _snip(place: str, shared: Mapping[str, Any]) -> Iterator[_Problem]:
    ratio = shared.get("dense_ratio", 0.1)
    if not isinstance(ratio, int | float) or not 0 < ratio < 1:
        message = f"{named(f'{place}/dense_ratio')} must be a number between 0 and 1, not {shown(ratio)}"
        yield _Problem(f"{place}/dense_ratio", message, "write 0.1")
    start = shared.get("schedule_offset", 1000)
    end = shared.get("schedule_offset_end", start)
    if not isinstance(start, int | float) or not isinstance(end, int | float) or start > end:
        message = f"{named(f'{place}/schedule_offset_end')} must be a number of at least `schedule_offset`"
        yield _Problem(f"{place}/schedule_offset_end", message, f"write {shown(start)}")


def _group(place: str, group: Any, technique: _Technique) -> Iterator[_Problem]:
    if not isinstance(group, dict):
        yield _no_object(place, group)
        return
    parameters = group.get("params")
    if not isinstance(parameters, dict):
        message = f"{named(f'{place}/params')} must be an object" if "params" in group else ""
        hint = f'add "params": {{"{technique.required[0]}": ...}}'
        yield _Problem(place, message or f"{named(place)} requires `params`", hint)
        return
    for key in technique.required:
        if key not in parameters:
            yield _Problem(f"{place}/params", f"{named(f'{place}/params')} requires `{key}`", f'add "{key}"')


def _no_object(place: str, value: Any) -> _Problem:
    return _Problem(place, f"{named(place)} must be an object, not {shown(value)}", "write an object, at least {}")
