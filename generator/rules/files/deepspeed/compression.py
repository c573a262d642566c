"""Compression, which DeepSpeed has up to 0.19.7: techniques with shared parameters and groups of modules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ....documents.submission import Submission
from ....findings import ERROR, Violation, Violations
from ....job.pointer import escape
from ...rule import submissions
from .problem import named, shown
from .subjects import configs

_TOP: Final = "/compression_training"
#: The first release that takes a missing `quantize_training` (deepspeed/runtime/config.py `get_eigenvalue_config`).
_READS_NO_MOQ: Final = (0, 19, 3)
_PRUNING: Final = {"method": ("l1", "topk")}
_SPARSE: Final = {"method": ("l1", "topk", "snip_momentum")}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Technique:
    """What the parser asks of one technique (deepspeed/compression/config.py @ 0.16.9)."""

    choices: Mapping[str, tuple[str, ...]]  #: of the shared parameters
    needs: tuple[str, ...]  #: parameters of a group
    needs_when_on: tuple[str, ...] = ()  #: shared parameters


_TECHNIQUES: Final[Mapping[str, _Technique]] = {
    "weight_quantization": _Technique(
        choices={"quantization_type": ("symmetric", "asymmetric"), "rounding": ("nearest", "stochastic")},
        needs=("start_bits", "target_bits"),
    ),
    "activation_quantization": _Technique(
        choices={"quantization_type": ("symmetric", "asymmetric"), "range_calibration": ("dynamic", "static")},
        needs=("bits",),
    ),
    "sparse_pruning": _Technique(choices=_SPARSE, needs=("dense_ratio",)),
    "row_pruning": _Technique(choices=_PRUNING, needs=("dense_ratio",)),
    "head_pruning": _Technique(choices=_PRUNING, needs=("dense_ratio",), needs_when_on=("num_heads",)),
    "channel_pruning": _Technique(choices=_PRUNING, needs=("dense_ratio",)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slip:
    pointer: str
    message: str
    hint: str


@submissions.rule(
    "CPR001",
    ERROR,
    "parse",
    "deepspeedai/DeepSpeed deepspeed/compression/config.py:65-450 @ 0.16.9",
    before=(0, 19, 8),
    reads=("DeepSpeed config",),
)
def compression_can_be_read(submission: Submission) -> Violations:
    """Every compression technique has the values and groups that DeepSpeed reads.

    Prevents: AssertionError: dense_ratio must be specified for ... pruning group; KeyError: 'different_groups'
    Fix: Complete the technique, or take it out.
    """
    for config in configs(submission):
        if config.schema.section(_TOP) is None:
            continue
        training = config.block(_TOP)
        for name, technique in _TECHNIQUES.items():
            if name in training:
                for slip in _slips(f"{_TOP}/{name}", training[name], technique):
                    yield Violation(where=config.locate(slip.pointer), message=slip.message, hint=slip.hint)
        shared = training.get("shared_parameters")
        turned_on = isinstance(shared, dict) and shared.get("enabled")
        if turned_on and config.schema.version < _READS_NO_MOQ and not config.has("/quantize_training"):
            message = "`compression_training.shared_parameters.enabled` turns MoQ on, which needs `quantize_training`"
            hint = "write shared_parameters within a technique"
            yield Violation(where=config.locate(f"{_TOP}/shared_parameters"), message=message, hint=hint)


def _slips(place: str, block: Any, technique: _Technique) -> Iterator[_Slip]:
    if not isinstance(block, dict):
        yield _no_object(place, block)
        return
    shared = block.get("shared_parameters", {})
    if isinstance(shared, dict):
        yield from _shared(f"{place}/shared_parameters", shared, technique)
    else:
        yield _no_object(f"{place}/shared_parameters", shared)
    if "different_groups" not in block:
        message = f"{named(place)} has no `different_groups`, and DeepSpeed fails without"
        yield _Slip(pointer=place, message=message, hint='"different_groups": {}')
        return
    groups = block["different_groups"]
    if not isinstance(groups, dict):
        yield _no_object(f"{place}/different_groups", groups)
        return
    for name, group in groups.items():
        yield from _group(f"{place}/different_groups/{escape(name)}", group, technique)


def _shared(place: str, shared: Mapping[str, Any], technique: _Technique) -> Iterator[_Slip]:
    for key, choices in technique.choices.items():
        if key in shared and shared[key] not in choices:
            message = f"{named(f'{place}/{key}')} is {shown(shared[key])}; DeepSpeed takes {', '.join(choices)}"
            yield _Slip(pointer=f"{place}/{key}", message=message, hint=f'"{choices[0]}"')
    for key in technique.needs_when_on if shared.get("enabled") else ():
        if key not in shared:
            yield _Slip(pointer=place, message=f"{named(place)} is on, but has no `{key}`", hint=f'"{key}": 12')
    mixed = shared.get("fp16_mixed_quantize", {})
    if "rounding" in technique.choices and not isinstance(mixed, dict):
        yield _no_object(f"{place}/fp16_mixed_quantize", mixed)
    if technique.choices is _SPARSE and shared.get("method") == "snip_momentum":
        yield from _snip(place, shared)


def _snip(place: str, shared: Mapping[str, Any]) -> Iterator[_Slip]:
    ratio = shared.get("dense_ratio", 0.1)
    if not isinstance(ratio, int | float) or not 0 < ratio < 1:
        message = f"{named(f'{place}/dense_ratio')} takes a number between 0 and 1; this is {shown(ratio)}"
        yield _Slip(pointer=f"{place}/dense_ratio", message=message, hint="0.1")
    start = shared.get("schedule_offset", 1000)
    end = shared.get("schedule_offset_end", start)
    if not isinstance(start, int | float) or not isinstance(end, int | float) or start > end:
        message = f"{named(f'{place}/schedule_offset_end')} takes a number of at least `schedule_offset`"
        yield _Slip(pointer=f"{place}/schedule_offset_end", message=message, hint=shown(start))


def _group(place: str, group: Any, technique: _Technique) -> Iterator[_Slip]:
    if not isinstance(group, dict):
        yield _no_object(place, group)
        return
    parameters = group.get("params")
    if not isinstance(parameters, dict):
        message = f"{named(place)} has no `params`" if "params" not in group else f"{named(place)}.params is no object"
        yield _Slip(pointer=place, message=message, hint=f'"params": {{"{technique.needs[0]}": ...}}')
        return
    for key in technique.needs:
        if key not in parameters:
            message = f"{named(f'{place}/params')} has no `{key}`, which DeepSpeed asks for"
            yield _Slip(pointer=f"{place}/params", message=message, hint=f'"{key}": ...')


def _no_object(place: str, value: Any) -> _Slip:
    message = f"{named(place)} takes an object; this is {shown(value)}"
    return _Slip(pointer=place, message=message, hint="{}")
