"""What a DeepSpeed config says, read the way DeepSpeed reads it; None wherever that isn't known.

"auto" is never known here: a filling consumer replaces it, and DeepSpeed alone is told of it by rules of its own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from typing import Final, Literal

from ....documents.document import DsConfig
from ....documents.hjson.edits import remove_member
from ....documents.submission import Submission
from ....findings import Edit, Violation, Violations
from ...rule import subject
from .settings import is_empty

Precision = Literal["fp16", "bf16", "fp32"]
Device = Literal["none", "cpu", "nvme"]

_TRUE: Final = ("true", "1", "on", "yes", "y", "t")
_FALSE: Final = ("false", "0", "off", "no", "n", "f")
_MAX_SHOWN: Final = 60  # characters of a value in a message


@subject("DeepSpeed config")
def configs(submission: Submission) -> Iterator[DsConfig]:
    """The configs that could be read to their end, so that what they leave out is known too; no empty file."""
    for config in submission.ds_configs:
        if config.json.broken is None and isinstance(config.json.data, dict) and not is_empty(config):
            yield config


@subject("DeepSpeed config")
def building(submission: Submission) -> Iterator[DsConfig]:
    """Those whose optimizer and schedule DeepSpeed builds: Megatron-DeepSpeed passes its own in their place."""
    if submission.consumer != "megatron-deepspeed":
        yield from configs(submission)


def given(config: DsConfig, pointer: str) -> object:
    """What is written there, if that is a value of its own: not null, not "auto"."""
    value = config.value(pointer)
    return None if value == "auto" else value


def number(value: object) -> float | None:
    """A finite number; no bool, no text."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        finite = math.isfinite(value)
    except OverflowError:  # an int beyond every float
        return None
    return value if finite else None


def whole(value: object) -> int | None:
    """A whole number, written as one or as a float such as 5e8."""
    plain = number(value)
    return int(plain) if plain is not None and plain == int(plain) else None


def switch(config: DsConfig, pointer: str, default: bool = False) -> bool | None:
    """A flag as pydantic reads it; None where what is written is none."""
    if not config.has(pointer):
        return default
    value = config.value(pointer)
    if isinstance(value, str):
        return True if value.lower() in _TRUE else False if value.lower() in _FALSE else None
    return bool(value) if isinstance(value, (bool, int, float)) and value in (0, 1) else None


def stage_of(config: DsConfig) -> int | None:
    """The ZeRO stage, where it is known."""
    return None if config.value("/zero_optimization/stage") == "auto" else config.stage


def offload_device(config: DsConfig, what: Literal["optimizer", "param"]) -> Device | None:
    """Where optimizer states or parameters are offloaded to, by the new keys or the deprecated ones."""
    section = f"/zero_optimization/offload_{what}"
    if config.has(section):
        device = config.value(f"{section}/device", "none")
        if config.value(section) is None:
            return "none"
        return device if isinstance(config.value(section), dict) and device in ("none", "cpu", "nvme") else None
    deprecated = "cpu_offload" if what == "optimizer" else "cpu_offload_param"
    old = switch(config, f"/zero_optimization/{deprecated}")
    return None if old is None else "cpu" if old else "none"


def offloads(config: DsConfig, what: Literal["optimizer", "param"]) -> bool:
    """Whether they are known to leave the device."""
    return offload_device(config, what) in ("cpu", "nvme")


def precision(config: DsConfig) -> Precision | None:
    """What the fp16 and bf16 blocks make of the model."""
    half, brain = switch(config, "/fp16/enabled"), switch(config, f"{bf16_block(config)}/enabled")
    if half and brain is False:
        return "fp16"
    if brain and half is False:
        return "bf16"
    return "fp32" if half is False and brain is False else None


def bf16_block(config: DsConfig) -> str:
    """The pointer of the block that DeepSpeed reads: `bf16`, else the old name."""
    return "/bf16" if config.value("/bf16") is not None else "/bfloat16"


def optimizer_type(config: DsConfig) -> str | None:
    """The optimizer that DeepSpeed builds, in lower case where DeepSpeed takes it so; None where it builds none."""
    name = given(config, "/optimizer/type")
    if not isinstance(name, str):
        return None
    return name.lower() if name.lower() in DEEPSPEED_OPTIMIZERS else name


#: Names that DeepSpeed takes in any case; every other one must be a class of torch.optim, in its own case.
DEEPSPEED_OPTIMIZERS: Final = frozenset(
    {"adagrad", "adam", "adamw", "lamb", "muadam", "muadamw", "musgd", "lion", "muon"}
    | {"onebitadam", "zerooneadam", "onebitlamb"}
)


def accumulates_in(config: DsConfig) -> str | None:
    """The type that gradients accumulate in, as written; None where nothing is said of it."""
    value = given(config, "/data_types/grad_accum_dtype")
    return value if isinstance(value, str) else None


def shown(value: object) -> str:
    """A value as it is written in JSON, shortened."""
    try:
        text = json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        text = str(type(value).__name__)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def removed(config: DsConfig, *pointers: str) -> tuple[Edit, ...]:
    """The edit that takes one member out; none where the config is a part of a script, or more than one is meant."""
    if config.embedded or len(pointers) != 1:
        return ()
    return remove_member(config.json, pointers[0])


def idle(config: DsConfig, pointers: Iterable[str], why: str, *, safe: bool = True) -> Violations:
    """A violation for each of these keys that is written: it has no effect, and can go."""
    for pointer in pointers:
        if config.has(pointer) and config.value(pointer) != "auto":
            name = pointer.rpartition("/")[2]
            message = f"{name}: {shown(config.value(pointer))} has no effect {why}"
            edits = removed(config, pointer) if safe else ()
            yield Violation(where=config.locate_key(pointer), message=message, hint=f"remove {name}", edits=edits)
