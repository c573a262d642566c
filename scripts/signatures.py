"""Parameters of the optimizers and schedulers that DeepSpeed builds, from their signatures."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

#: Which classes an optimizer of DeepSpeed's name is built from, and what the engine takes out
#: before (deepspeed/runtime/engine.py `_configure_basic_optimizer` and the functions that it
#: calls).
CLASSES: dict[str, tuple[str, ...]] = {
    "adagrad": ("deepspeed.ops.adagrad.DeepSpeedCPUAdagrad", "torch.optim.Adagrad"),
    "adam": (
        "deepspeed.ops.adam.FusedAdam",
        "deepspeed.ops.adam.DeepSpeedCPUAdam",
        "torch.optim.Adam",
    ),
    "adamw": (
        "deepspeed.ops.adam.FusedAdam",
        "deepspeed.ops.adam.DeepSpeedCPUAdam",
        "torch.optim.AdamW",
    ),
    "lamb": ("deepspeed.ops.lamb.FusedLamb",),
    "lion": ("deepspeed.ops.lion.DeepSpeedCPULion", "deepspeed.ops.lion.FusedLion"),
    "onebitadam": ("deepspeed.runtime.fp16.onebit.adam.OnebitAdam",),
    "onebitlamb": ("deepspeed.runtime.fp16.onebit.lamb.OnebitLamb",),
    "zerooneadam": ("deepspeed.runtime.fp16.onebit.zoadam.ZeroOneAdam",),
}
TAKEN_OUT: dict[str, tuple[str, ...]] = {
    "adam": ("adam_w_mode", "torch_adam"),
    "adamw": ("adam_w_mode", "torch_adam"),
}
#: Context by the engine, never by the config.
ENGINE_GIVES = frozenset(
    {"self", "params", "model_params", "optimizer", "last_batch_iteration", "deepspeed"}
)


def optimizers() -> dict[str, Any]:
    """Optimizer name in lower case to its parameters and their defaults; None where the classes
    don't tell.
    """
    from deepspeed.runtime import config

    return {name: _optimizer(name) for name in sorted(config.DEEPSPEED_OPTIMIZERS)}


def _optimizer(name: str) -> dict[str, Any] | None:
    if name not in CLASSES:
        return None
    found: dict[str, Any] = {key: {} for key in TAKEN_OUT.get(name, ())}
    for path in CLASSES[name]:
        module, _, cls = path.rpartition(".")
        for key, value in _parameters(getattr(importlib.import_module(module), cls)).items():
            found.setdefault(key, value)
    return found


def schedulers() -> dict[str, Any]:
    """Scheduler name to its parameters, their defaults, and which it can't do without."""
    from deepspeed.runtime import lr_schedules

    return {
        name: _parameters(getattr(lr_schedules, name)) for name in lr_schedules.VALID_LR_SCHEDULES
    }


def _parameters(cls: Any) -> dict[str, Any]:
    return {
        name: _described(parameter)
        for name, parameter in inspect.signature(cls.__init__).parameters.items()
        if name not in ENGINE_GIVES
        and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    }


def _described(parameter: inspect.Parameter) -> dict[str, Any]:
    if parameter.default is parameter.empty:
        return {"required": True}
    default = list(parameter.default) if isinstance(parameter.default, tuple) else parameter.default
    return {"default": default} if isinstance(default, (bool, int, float, str, list)) else {}
