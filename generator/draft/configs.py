"""A DeepSpeed config as keys of the spec, and what of it the plan's own config lacks, as a merge patch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..job.source import escape
from ..programs.deepspeed.config import OFFLOADED, ZERO, Config
from ..programs.deepspeed.options import OPTIONS, PLANNED, default_of_optimizer
from .draft import Draft, same_value

#: Keys whose value the layout has, in other words than the plan's config.
_OFFLOADS: Final = tuple(f"{ZERO}/{name}" for name in ("cpu_offload", "cpu_offload_param"))
#: Keys that the Trainer fills in from its arguments, and refuses other values of.
_OF_TRAINER: Final = frozenset(f"/optimizer/params/{name}" for name in ("lr", "betas", "eps", "weight_decay")) | {
    "/gradient_clipping"
}
_MISSING: Final = object()


def read_config(draft: Draft, config: Config) -> None:
    """The keys that a DeepSpeed config says: batch, precision, optimizer, and its share of the layout."""
    megatron = draft.found.megatron is not None
    stated = config.has("/fp16/enabled") or config.has(f"{config.bf16}/enabled")
    known = {
        "layout.gradient_accumulation": megatron and draft.get("training.global_batch") is not None,
        "training.precision": not stated and draft.get("training.precision") is not None,
    }
    for option in OPTIONS:
        if (option.megatron or not megatron) and not known.get(option.spec):
            draft.set(option.spec, option.decode(config, option.pointer))


def config_patch(
    draft: Draft, config: Config, ours: Mapping[str, Any], theirs: Mapping[str, Any], *, fills: bool, at: str = ""
) -> dict[str, Any]:
    """Return the patch of the plan's section, `theirs`, that makes it read as the config's own. `at`: where it is.

    Keys that the plan decides, and "auto" that nothing fills in before, are named where they differ.
    """
    patch: dict[str, Any] = {}
    named = {_now(config, at, key) for key in ours} | {"steps_per_print", "wall_clock_breakdown"}  # change nothing
    named |= {f"offload_{name}" for name in OFFLOADED if at == ZERO and config.offload(name) == "cpu"}
    for key, value in ours.items():
        pointer = f"{at}/{escape(key)}"
        new = _now(config, at, key)
        other = theirs.get(new, _MISSING)
        if _is_planned(draft, config, pointer, value, other):
            continue
        if isinstance(value, Mapping) and (isinstance(other, Mapping) or other is _MISSING):
            new_section = other if isinstance(other, Mapping) else {}
            inner = config_patch(draft, config, value, new_section, fills=fills, at=pointer)
            if inner or (other is _MISSING and not value):
                patch[new] = inner
        elif value == "auto" and not fills:
            if other is _MISSING:
                draft.leave(pointer[1:].replace("/", "."), config.locate(pointer), "DeepSpeed leaves out auto values")
        elif other is _MISSING:
            if value is not None and not _is_default(config, pointer, value):
                patch[new] = value
        elif value != "auto" and not _same(value, other):
            patch[new] = value
    for key, value in theirs.items():
        pointer = f"{at}/{escape(key)}"
        planned = key in named or pointer in PLANNED or (fills and pointer in _OF_TRAINER)
        if not (planned or _is_default(config, pointer, value)):
            patch[key] = None  # which leaves it out
    return patch


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return one == other if isinstance(one, dict | list) or isinstance(other, dict | list) else same_value(one, other)


def _now(config: Config, section: str, key: str) -> str:
    """The name that a key has now, of those whose value DeepSpeed moves to another."""
    home = config.schema.section(section)
    known = home.keys.get(key) if home is not None else None
    if home is None or known is None:
        return "bf16" if (section, key) == ("", "bfloat16") else key
    replaced = known.deprecated.by if known.deprecated is not None and known.deprecated.moved else ""
    by = home.keys.get(replaced) if replaced else known
    return by.written if by is not None and by.type == known.type else known.written


def _is_planned(draft: Draft, config: Config, pointer: str, value: Any, other: Any) -> bool:
    """Return whether the plan decides a key; where it has another value, that is named."""
    if pointer in _OFFLOADS or (pointer == ZERO and isinstance(value, bool)):
        return True
    if pointer not in PLANNED:
        return False
    off = (value in (False, 0, 1, None, "auto")) and other is _MISSING
    if not off and value != "auto" and not _same(value, other):
        shown = "left out" if other is _MISSING else f"{other}"
        name = pointer[1:].replace("/", ".")
        draft.leave(f"{name}: {value}", config.locate(pointer), f"{PLANNED[pointer]} decides it: {shown}")
    return True


def _is_default(config: Config, pointer: str, value: Any) -> bool:
    """Return whether a value is what holds where the key is left out."""
    if isinstance(value, Mapping):
        own = config.schema.section(pointer) is not None and pointer not in ("/optimizer", "/scheduler")
        return own and all(
            f"{pointer}/{escape(key)}" in PLANNED or _is_default(config, f"{pointer}/{escape(key)}", inner)
            for key, inner in value.items()
        )
    if pointer.startswith("/optimizer/params/"):
        default = default_of_optimizer(config, pointer.rpartition("/")[2])
        return default is not None and _same(default, value)
    key = config.schema.key(pointer)
    if pointer == f"{ZERO}/overlap_comm":
        return bool(value) == (config.stage == 3)
    return key is not None and same_value(key.default, value)
